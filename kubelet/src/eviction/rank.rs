//! Who goes first: whoever uses more than he asked for, then the less important, then the greedier.

use super::Signal;
use crate::kubelet::Slot;
use std::cmp::{Ordering, Reverse};

/// What one container uses and asked for, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub name: String,
    pub memory: u64,
    pub memory_request: u64,
    pub disk: u64,
    pub disk_request: u64,
}

/// What one volume takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeUsage {
    pub name: String,
    pub bytes: u64,
    /// Whether it takes of the node's ephemeral storage.
    pub ephemeral: bool,
}

pub struct Candidate {
    pub slot: Slot,
    pub containers: Vec<Usage>,
    pub volumes: Vec<VolumeUsage>,
    pub processes: u64,
}

impl Candidate {
    fn sum(&self, of: impl Fn(&Usage) -> u64) -> u64 {
        self.containers.iter().map(of).sum()
    }

    /// Bytes that it takes of the node's ephemeral storage.
    pub fn disk(&self) -> u64 {
        let volumes: u64 = self.volumes.iter().filter(|v| v.ephemeral).map(|v| v.bytes).sum();
        self.sum(|c| c.disk) + volumes
    }

    /// What it uses, and what it asked for.
    fn amounts(&self, signal: Signal) -> (u64, u64) {
        match signal {
            Signal::Memory => (self.sum(|c| c.memory), self.sum(|c| c.memory_request)),
            Signal::Disk => (self.disk(), self.sum(|c| c.disk_request)),
            Signal::Pids => (self.processes, 0),
        }
    }
}

/// `Less` goes first.
pub fn order(one: &Candidate, other: &Candidate, signal: Signal) -> Ordering {
    let key = |c: &Candidate| {
        let (used, asked) = c.amounts(signal);
        let priority = c.slot.pod.spec.as_ref().and_then(|s| s.priority).unwrap_or(0);
        let within = signal != Signal::Pids && used <= asked;
        (within, priority, Reverse(i128::from(used) - i128::from(asked)))
    };
    key(one).cmp(&key(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn candidate(name: &str, priority: i32, used: u64, asked: u64, processes: u64) -> Candidate {
        let pod = json!({ "metadata": { "name": name }, "spec": { "priority": priority, "containers": [] } });
        let slot = Slot {
            inbox: Arc::default(),
            pod: Arc::new(serde_json::from_value(pod).unwrap()),
            observed: Arc::default(),
            wants_room: false,
        };
        let container = Usage { memory: used, memory_request: asked, ..Usage::default() };
        Candidate { slot, containers: vec![container], volumes: Vec::new(), processes }
    }

    fn ranked(signal: Signal) -> Vec<String> {
        let mut all = [
            candidate("modest", 0, 50, 60, 1),
            candidate("important", 9, 900, 10, 9),
            candidate("greedy", 0, 200, 10, 2),
            candidate("greedier", 0, 300, 10, 3),
        ];
        all.sort_by(|a, b| order(a, b, signal));
        all.iter().map(|c| c.slot.pod.metadata.name.clone().unwrap()).collect()
    }

    #[test]
    fn the_greedy_go_before_the_modest_and_the_unimportant_before_the_important() {
        assert_eq!(ranked(Signal::Memory), ["greedier", "greedy", "important", "modest"]);
        assert_eq!(ranked(Signal::Pids), ["greedier", "greedy", "modest", "important"]);
    }
}
