//! What the shims of a runtime hold on the machine: processes, network namespaces, mounts.

use coracle_kubelet::cri::shims::{Processes, Shim};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where runtimes keep the network namespaces of pods, one file each, which begin so.
const NETWORKS: &str = "/run/netns";
const PREFIX: &str = "cni-";

/// Looked up before anything is killed: afterwards nobody knows what was whose.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The processes below each shim, by the shim's own.
    pub processes: BTreeMap<i32, Vec<i32>>,
    /// Files of network namespaces.
    pub networks: Vec<PathBuf>,
    /// Directories below which the runtime mounts what containers see.
    pub bundles: BTreeSet<PathBuf>,
}

impl Held {
    pub fn by(shims: &[Shim]) -> Self {
        let processes = Processes::read(Path::new("/proc"));
        let mut held = Self::default();
        let mut inodes = BTreeSet::new();
        let own = network_of("self");
        for shim in shims {
            let below = processes.below(shim.pid);
            // Pods in the node's own network hold none.
            inodes.extend(
                below.iter().filter_map(|pid| network_of(&pid.to_string())).filter(|n| Some(*n) != own),
            );
            held.processes.insert(shim.pid, below);
            // A shim works in its sandbox's directory, beside those of the containers.
            let bundle = std::fs::read_link(format!("/proc/{}/cwd", shim.pid)).ok();
            held.bundles.extend(bundle.iter().filter_map(|bundle| bundle.parent()).map(Path::to_owned));
        }
        held.networks = networks(Path::new(NETWORKS), &inodes);
        held
    }
}

fn network_of(pid: &str) -> Option<u64> {
    std::fs::metadata(format!("/proc/{pid}/ns/net")).ok().map(|meta| meta.ino())
}

fn networks(dir: &Path, inodes: &BTreeSet<u64>) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let pods = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    let held = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|meta| inodes.contains(&meta.ino()));
    pods.map(|entry| entry.path()).filter(held).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_networks_of_pods_that_are_held_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let inode = |name: &str| {
            std::fs::write(dir.path().join(name), "").unwrap();
            std::fs::metadata(dir.path().join(name)).unwrap().ino()
        };
        let (held, _, named) = (inode("cni-1"), inode("cni-2"), inode("mine"));
        assert_eq!(networks(dir.path(), &[held, named].into()), [dir.path().join("cni-1")]);
    }
}
