//! The cgroups that a pod's containers lie in, while there are processes and when the pod is gone.

use crate::cgroup_names::uid_of;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where the kernel shows cgroups.
pub const ROOT: &str = "/sys/fs/cgroup";

/// A pod's cgroup that is still there.
#[derive(Debug, thiserror::Error)]
#[error("cannot remove the cgroup {}: {source}", path.display())]
pub struct CgroupError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Where pods' cgroups may lie: below the root of cgroup v2 or that of every v1 controller, by quality of service.
fn parents(root: &Path) -> Vec<PathBuf> {
    let controllers = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let hierarchies = std::iter::once(root.to_owned()).chain(controllers);
    let parents = [
        "kubepods/besteffort",
        "kubepods/burstable",
        "kubepods",
        "kubepods.slice/kubepods-besteffort.slice",
        "kubepods.slice/kubepods-burstable.slice",
        "kubepods.slice",
    ];
    hierarchies.flat_map(|hierarchy| parents.map(|parent| hierarchy.join(parent))).collect()
}

/// The cgroups of pods, each with the pod's UID.
fn of_pods(root: &Path) -> Vec<(String, PathBuf)> {
    let entries =
        parents(root).into_iter().flat_map(|parent| fs::read_dir(parent).into_iter().flatten().flatten());
    let pods =
        entries.filter_map(|entry| Some((uid_of(&entry.file_name().to_string_lossy())?, entry.path())));
    pods.filter(|(_, group)| group.is_dir()).collect()
}

fn of_pod(root: &Path, uid: &str) -> Vec<PathBuf> {
    of_pods(root).into_iter().filter(|(of, _)| of == uid).map(|(_, group)| group).collect()
}

/// The UIDs of pods that have a cgroup and no process in any.
pub fn without_processes(root: &Path) -> Vec<String> {
    let mut processes: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    for (uid, group) in of_pods(root) {
        collect(&group, processes.entry(uid).or_default());
    }
    processes.into_iter().filter(|(_, pids)| pids.is_empty()).map(|(uid, _)| uid).collect()
}

/// Removes what has no process of any pod's cgroups, and those above them: for a machine that is no node any more. Those
/// of other nodes on the machine have processes.
pub fn remove_empty(root: &Path) {
    for parent in parents(root) {
        let entries = fs::read_dir(&parent).into_iter().flatten().flatten();
        for pod in entries.filter(|entry| uid_of(&entry.file_name().to_string_lossy()).is_some()) {
            let mut pids = BTreeSet::new();
            collect(&pod.path(), &mut pids);
            if pids.is_empty() {
                // What has got a process meanwhile stays.
                let _ = remove_below(&pod.path());
            }
        }
        let _ = fs::remove_dir(&parent);
    }
}

/// Removes the pod's cgroups, with those of its containers; none may have a process any more. Idempotent.
pub fn remove(root: &Path, uid: &str) -> Result<(), CgroupError> {
    of_pod(root, uid).into_iter().try_for_each(|group| remove_below(&group))
}

/// A cgroup's files go with it, so only directories are looked at.
fn remove_below(group: &Path) -> Result<(), CgroupError> {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_below(&entry.path())?;
        }
    }
    match fs::remove_dir(group) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(CgroupError { path: group.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// SIGKILL for every process in the pod's cgroups that this one may send a signal to. How many there were.
pub fn kill(root: &Path, uid: &str) -> usize {
    let mut pids = BTreeSet::new();
    for group in of_pod(root, uid) {
        collect(&group, &mut pids);
        // Cgroup v2 kills all at once, whoever they are; elsewhere there is no such file.
        let _ = fs::OpenOptions::new()
            .write(true)
            .open(group.join("cgroup.kill"))
            .and_then(|mut f| f.write_all(b"1"));
    }
    // One that went meanwhile, or is another user's, is none of those that were killed here.
    pids.into_iter().filter(|pid| signal::kill(Pid::from_raw(*pid), Signal::SIGKILL).is_ok()).count()
}

/// The processes of a cgroup and those below it.
fn collect(group: &Path, pids: &mut BTreeSet<i32>) {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    pids.extend(text.lines().filter_map(|line| line.trim().parse::<i32>().ok()).filter(|pid| *pid > 1));
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), pids);
        }
    }
}

/// The most processes and threads that a pod may have, its containers together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PidsLimit {
    /// The root of the hierarchy that counts them.
    hierarchy: PathBuf,
    limit: u64,
}

impl PidsLimit {
    /// `root` is [`ROOT`]. `None` where nothing is limited, or the kernel does not count processes by cgroup.
    pub fn of(root: &Path, limit: Option<u64>) -> Option<Self> {
        let limit = limit?;
        let controllers = fs::read_to_string(root.join("cgroup.controllers"));
        let hierarchy = match &controllers {
            Ok(names) if names.split_whitespace().any(|name| name == "pids") => root.to_owned(),
            Err(_) if root.join("pids").is_dir() => root.join("pids"),
            _ => {
                tracing::warn!(root = %root.display(), "the kernel has no pids controller, podPidsLimit is not kept");
                return None;
            }
        };
        Some(Self { hierarchy, limit })
    }

    /// How often a process of the pod was refused another one. Cgroup v1 notes it in the cgroup of that process, v2 in the
    /// one that has the limit, which is the pod's.
    pub fn refused(&self, pod: &str) -> u64 {
        let group = self.hierarchy.join(pod.trim_start_matches('/'));
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

    #[test]
    fn what_a_pod_was_refused_is_counted() {
        let one = tempfile::tempdir().unwrap();
        let group = one.path().join("pids/kubepods/besteffort/podu1");
        fs::create_dir_all(group.join("container")).unwrap();
        let limit = PidsLimit::of(one.path(), Some(50)).unwrap();
        let pod = "/kubepods/besteffort/podu1";
        assert_eq!((limit.limit(), limit.refused(pod)), (50, 0));
        fs::write(group.join("pids.events"), "max 7\n").unwrap();
        fs::write(group.join("container/pids.events"), "max 3\n").unwrap();
        assert_eq!(limit.refused(pod), 10);
    }

    /// Directories stand for cgroups; a file in one keeps it, as a process does.
    #[test]
    fn what_has_no_process_goes_with_its_containers() {
        let root = tempfile::tempdir().unwrap();
        let groups = [
            "kubepods/besteffort/podu1/c1",
            "pids/kubepods/podu1/c1/nested",
            "memory/kubepods/burstable/podu1",
            "memory/kubepods/burstable/podu2",
            "memory/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu1.slice/c.scope",
        ];
        groups.iter().for_each(|group| fs::create_dir_all(root.path().join(group)).unwrap());
        assert_eq!(without_processes(root.path()), ["u1", "u2"]);
        fs::write(root.path().join(groups[3]).join("cgroup.procs"), "77\n").unwrap();
        assert_eq!(without_processes(root.path()), ["u1"]);
        fs::remove_file(root.path().join(groups[3]).join("cgroup.procs")).unwrap();
        remove(root.path(), "u1").unwrap();
        assert_eq!(of_pod(root.path(), "u1"), Vec::<PathBuf>::new());
        assert_eq!(of_pod(root.path(), "u2").len(), 1, "another pod's");
        remove(root.path(), "u1").unwrap();
        fs::write(root.path().join(groups[3]).join("process"), "").unwrap();
        remove_empty(root.path());
        let error = remove(root.path(), "u2").unwrap_err().to_string();
        assert!(error.contains("memory/kubepods/burstable/podu2"), "{error}");
        assert!(!root.path().join("pids/kubepods").exists(), "no pod is left there");
    }

    #[test]
    fn processes_of_the_pod_are_killed_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("pids/kubepods/podu1/c1");
        fs::create_dir_all(&group).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        fs::write(group.join("cgroup.procs"), format!("{}\n1\n", child.id())).unwrap();
        assert_eq!(kill(root.path(), "u2"), 0);
        assert_eq!(kill(root.path(), "u1"), 1);
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn nothing_is_limited_where_nobody_asks_or_the_kernel_cannot() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(PidsLimit::of(dir.path(), Some(50)), None);
        fs::create_dir(dir.path().join("pids")).unwrap();
        assert_eq!(PidsLimit::of(dir.path(), None), None);
    }
}
