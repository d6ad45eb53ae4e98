//! The cgroups that a pod's containers lie in: limited before there is any, and removed when the pod is gone.

use crate::container::resources::cgroup_parent;
use k8s_openapi::api::core::v1::Pod;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the kernel shows cgroups.
pub const ROOT: &str = "/sys/fs/cgroup";

/// Removes the pod's empty cgroups: the one of cgroup v2, or that of every v1 controller.
pub fn remove(root: &Path, pod: &Pod) {
    let parent = cgroup_parent(pod);
    let relative = parent.trim_start_matches('/');
    // rmdir removes only what is empty, and what is not there needs no removing.
    let _ = fs::remove_dir(root.join(relative));
    for controller in fs::read_dir(root).into_iter().flatten().flatten() {
        let _ = fs::remove_dir(controller.path().join(relative));
    }
}

/// The most processes and threads that a pod may have, its containers together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PidsLimit {
    /// The root of the hierarchy that counts them.
    hierarchy: PathBuf,
    /// Controllers have to be handed down.
    v2: bool,
    limit: u64,
}

impl PidsLimit {
    /// `root` is [`ROOT`]. `None` where nothing is limited, or the kernel does not count processes by cgroup.
    pub fn of(root: &Path, limit: Option<u64>) -> Option<Self> {
        let limit = limit?;
        let controllers = fs::read_to_string(root.join("cgroup.controllers"));
        let (hierarchy, v2) = match &controllers {
            Ok(names) if names.split_whitespace().any(|name| name == "pids") => (root.to_owned(), true),
            Err(_) if root.join("pids").is_dir() => (root.join("pids"), false),
            _ => {
                tracing::warn!(root = %root.display(), "the kernel has no pids controller, podPidsLimit is not kept");
                return None;
            }
        };
        Some(Self { hierarchy, v2, limit })
    }

    /// Makes the pod's cgroup with its limit, before the runtime puts containers into it. Idempotent.
    pub fn set(&self, pod: &Pod) -> io::Result<()> {
        let parent = cgroup_parent(pod);
        let mut group = self.hierarchy.clone();
        for name in parent.trim_start_matches('/').split('/') {
            if self.v2 {
                fs::write(group.join("cgroup.subtree_control"), "+pids")?;
            }
            group.push(name);
            match fs::create_dir(&group) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        fs::write(group.join("pids.max"), self.limit.to_string())
    }

    /// How often a process of the pod was refused another one. Cgroup v1 notes it in the cgroup of that process, v2 in the
    /// one that has the limit.
    pub fn refused(&self, pod: &Pod) -> u64 {
        let group = self.hierarchy.join(cgroup_parent(pod).trim_start_matches('/'));
        let below = fs::read_dir(&group).into_iter().flatten().flatten().map(|entry| entry.path());
        std::iter::once(group).chain(below).map(|group| refused_in(&group)).sum()
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }
}

fn refused_in(group: &Path) -> u64 {
    let text = fs::read_to_string(group.join("pids.events")).unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("max "));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Pod {
        let pod = json!({ "metadata": { "uid": "u1" }, "spec": { "containers": [{ "name": "c" }] } });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_pod_is_limited_in_either_version_of_cgroups() {
        let one = tempfile::tempdir().unwrap();
        fs::create_dir(one.path().join("pids")).unwrap();
        let limit = PidsLimit::of(one.path(), Some(50)).unwrap();
        limit.set(&pod()).unwrap();
        let group = one.path().join("pids/kubepods/besteffort/podu1");
        assert_eq!(fs::read_to_string(group.join("pids.max")).unwrap(), "50");
        assert_eq!(limit.refused(&pod()), 0);
        fs::write(group.join("pids.events"), "max 7\n").unwrap();
        fs::create_dir(group.join("container")).unwrap();
        fs::write(group.join("container/pids.events"), "max 3\n").unwrap();
        assert_eq!(limit.refused(&pod()), 10);

        let two = tempfile::tempdir().unwrap();
        fs::write(two.path().join("cgroup.controllers"), "cpu pids\n").unwrap();
        PidsLimit::of(two.path(), Some(50)).unwrap().set(&pod()).unwrap();
        for handed_down in ["", "kubepods", "kubepods/besteffort"] {
            let file = two.path().join(handed_down).join("cgroup.subtree_control");
            assert_eq!(fs::read_to_string(file).unwrap(), "+pids");
        }
        let max = two.path().join("kubepods/besteffort/podu1/pids.max");
        assert_eq!(fs::read_to_string(max).unwrap(), "50");
    }

    #[test]
    fn nothing_is_limited_where_nobody_asks_or_the_kernel_cannot() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(PidsLimit::of(dir.path(), Some(50)), None);
        fs::create_dir(dir.path().join("pids")).unwrap();
        assert_eq!(PidsLimit::of(dir.path(), None), None);
    }
}
