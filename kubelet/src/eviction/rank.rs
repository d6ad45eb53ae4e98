//! Who goes first: whoever uses more than he asked for, then the less important, then the greedier.

use crate::kubelet::PodEntry;
use crate::signal::Signal;
use crate::volume_stats::{Files, Share};
use std::cmp::{Ordering, Reverse};

/// What one container uses and asked for, in bytes where nothing else is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub name: String,
    pub memory: u64,
    pub memory_request: u64,
    /// What it wrote beside its volumes.
    pub layer: Files,
    pub logs: Files,
    pub disk_request: u64,
}

impl Usage {
    /// What it takes of ephemeral storage beside volumes.
    pub fn disk(&self) -> u64 {
        self.layer.bytes + self.logs.bytes
    }
}

pub struct Candidate {
    pub slot: PodEntry,
    pub containers: Vec<Usage>,
    pub volumes: Vec<Share>,
    pub processes: u64,
}

/// What there is too little of; `apart`: images, and what containers write, lie on a file system of their own.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    pub signal: Signal,
    pub apart: bool,
}

impl Candidate {
    fn sum(&self, of: impl Fn(&Usage) -> u64) -> u64 {
        self.containers.iter().map(of).sum()
    }

    fn layers(&self) -> Files {
        self.containers.iter().fold(Files::default(), |sum, c| sum + c.layer)
    }

    fn logs_and_volumes(&self) -> Files {
        let logs = self.containers.iter().map(|c| c.logs);
        let volumes = self.volumes.iter().filter(|share| share.ephemeral).map(|share| share.files);
        logs.chain(volumes).fold(Files::default(), |sum, files| sum + files)
    }

    /// Bytes that it takes of the node's ephemeral storage.
    pub fn disk(&self) -> u64 {
        (self.layers() + self.logs_and_volumes()).bytes
    }

    /// What it uses, and what it asked for.
    fn amounts(&self, want: Want) -> (u64, u64) {
        let images = matches!(want.signal, Signal::ImagefsAvailable | Signal::ImagefsInodesFree);
        let files = match (want.apart, images) {
            (false, _) => self.layers() + self.logs_and_volumes(),
            (true, true) => self.layers(),
            (true, false) => self.logs_and_volumes(),
        };
        match want.signal {
            Signal::MemoryAvailable => (self.sum(|c| c.memory), self.sum(|c| c.memory_request)),
            Signal::NodefsAvailable | Signal::ImagefsAvailable => (files.bytes, self.sum(|c| c.disk_request)),
            Signal::NodefsInodesFree | Signal::ImagefsInodesFree => (files.inodes, 0),
            Signal::PidAvailable => (self.processes, 0),
        }
    }
}

/// `Less` goes first.
pub fn order(one: &Candidate, other: &Candidate, want: Want) -> Ordering {
    let key = |c: &Candidate| {
        let (used, asked) = c.amounts(want);
        let priority = c.slot.pod.spec.as_ref().and_then(|s| s.priority).unwrap_or(0);
        let within = want.signal != Signal::PidAvailable && used <= asked;
        (within, priority, Reverse(i128::from(used) - i128::from(asked)))
    };
    key(one).cmp(&key(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn candidate(name: &str, priority: i32, container: Usage, processes: u64) -> Candidate {
        let pod = json!({ "metadata": { "name": name }, "spec": { "priority": priority, "containers": [] } });
        let slot = PodEntry::new(Arc::new(serde_json::from_value(pod).unwrap()));
        Candidate { slot, containers: vec![container], volumes: Vec::new(), processes }
    }

    fn ranked(mut all: Vec<Candidate>, signal: Signal, apart: bool) -> Vec<String> {
        all.sort_by(|a, b| order(a, b, Want { signal, apart }));
        all.iter().map(|c| c.slot.pod.metadata.name.clone().unwrap()).collect()
    }

    #[test]
    fn the_greedy_go_before_the_modest_and_the_unimportant_before_the_important() {
        let all = || {
            let memory = |memory, memory_request| Usage { memory, memory_request, ..Usage::default() };
            vec![
                candidate("modest", 0, memory(50, 60), 1),
                candidate("important", 9, memory(900, 10), 9),
                candidate("greedy", 0, memory(200, 10), 2),
                candidate("greedier", 0, memory(300, 10), 3),
            ]
        };
        let ranked = |signal| ranked(all(), signal, false);
        assert_eq!(ranked(Signal::MemoryAvailable), ["greedier", "greedy", "important", "modest"]);
        assert_eq!(ranked(Signal::PidAvailable), ["greedier", "greedy", "modest", "important"]);
    }

    #[test]
    fn what_counts_is_what_lies_on_the_disk_that_is_short() {
        let all = || {
            let files = |bytes, inodes| Files { bytes, inodes };
            let mut volume = candidate("volume", 0, Usage::default(), 0);
            let (entry, files_of_volume) = (Value::Null, files(500, 1));
            let name = "scratch".to_owned();
            volume.volumes.push(Share { name, entry, files: files_of_volume, ephemeral: true });
            let layer = Usage { layer: files(300, 9), ..Usage::default() };
            let logs = Usage { logs: files(400, 2), ..Usage::default() };
            vec![volume, candidate("layer", 0, layer, 0), candidate("logs", 0, logs, 0)]
        };
        for (signal, apart, expected) in [
            (Signal::NodefsAvailable, false, ["volume", "logs", "layer"]),
            (Signal::ImagefsAvailable, false, ["volume", "logs", "layer"]),
            (Signal::NodefsAvailable, true, ["volume", "logs", "layer"]),
            (Signal::ImagefsAvailable, true, ["layer", "volume", "logs"]),
            (Signal::NodefsInodesFree, false, ["layer", "logs", "volume"]),
            (Signal::NodefsInodesFree, true, ["logs", "volume", "layer"]),
        ] {
            assert_eq!(ranked(all(), signal, apart), expected, "{signal:?} {apart}");
        }
    }
}
