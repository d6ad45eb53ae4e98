//! Shims: the processes that hold a pod's containers for containerd, one for each sandbox. Where the runtime cannot end
//! what a shim holds, the shim is killed: containerd notices that, kills and deletes what it held, and its own calls
//! succeed again.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// containerd's namespace of everything that came by CRI.
pub const NAMESPACE: &str = "k8s.io";

/// A process that holds containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shim {
    pub pid: i32,
    /// Id of the sandbox.
    pub id: String,
}

/// The shims of one runtime.
pub trait Shims: Send + Sync + 'static {
    /// Those that hold any of these sandboxes.
    fn of(&self, ids: &BTreeSet<String>) -> Vec<Shim>;

    /// Those that hold no process: of sandboxes that are just being run or removed, or that the runtime has lost.
    fn idle(&self) -> Vec<Shim>;

    /// SIGKILL. Whether it was there to be killed.
    fn kill(&self, shim: &Shim) -> bool;
}

/// Those that `/proc` shows.
pub struct LinuxShims {
    proc: PathBuf,
    /// The runtime's socket, by which its shims are told from those of other runtimes on the machine.
    address: String,
}

impl LinuxShims {
    /// `endpoint` is `unix:///path` or a path.
    pub fn new(endpoint: &str) -> Self {
        Self::below(Path::new("/proc"), endpoint)
    }

    fn below(proc: &Path, endpoint: &str) -> Self {
        let address = endpoint.strip_prefix("unix://").unwrap_or(endpoint).to_owned();
        Self { proc: proc.to_owned(), address }
    }

    /// All shims of the runtime's CRI namespace.
    pub fn all(&self) -> Vec<Shim> {
        let entries = std::fs::read_dir(&self.proc).into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(|pid| self.read(pid)).collect()
    }

    /// The process as a shim, if it is one of this runtime's. Anybody may call his program so, but only root's is one.
    fn read(&self, pid: i32) -> Option<Shim> {
        let dir = self.proc.join(pid.to_string());
        let owner = std::fs::metadata(&dir).ok()?.uid();
        let line = std::fs::read(dir.join("cmdline")).ok()?;
        let text = String::from_utf8(line).ok()?;
        let words: Vec<&str> = text.split_terminator('\0').collect();
        let program = words.first()?.rsplit('/').next()?;
        let value = |flag: &str| words.iter().position(|w| *w == flag).and_then(|at| words.get(at + 1));
        let ours = program.starts_with("containerd-shim")
            && owner == nix::unistd::geteuid().as_raw()
            && value("-namespace") == Some(&NAMESPACE)
            && value("-address").is_some_and(|address| *address == self.address);
        let id = value("-id").filter(|_| ours)?;
        Some(Shim { pid, id: (*id).to_owned() })
    }
}

/// Who is whose parent.
pub struct Processes(BTreeMap<i32, i32>);

impl Processes {
    /// proc(5), stat: the parent is the fourth field; the second, in parentheses, may have anything in it.
    pub fn read(proc: &Path) -> Self {
        let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let parent = |pid: i32| {
            let text = std::fs::read_to_string(proc.join(format!("{pid}/stat"))).ok()?;
            let (_, rest) = text.rsplit_once(')')?;
            Some((pid, rest.split_whitespace().nth(1)?.parse().ok()?))
        };
        Self(pids.filter_map(parent).collect())
    }

    /// The processes that descend from one.
    pub fn below(&self, root: i32) -> Vec<i32> {
        let mut found = vec![root];
        let mut at = 0;
        while let Some(parent) = found.get(at).copied() {
            found.extend(self.0.iter().filter(|(_, of)| **of == parent).map(|(pid, _)| *pid));
            at += 1;
        }
        found.split_off(1)
    }
}

impl Shims for LinuxShims {
    fn of(&self, ids: &BTreeSet<String>) -> Vec<Shim> {
        self.all().into_iter().filter(|shim| ids.contains(&shim.id)).collect()
    }

    fn idle(&self) -> Vec<Shim> {
        // Before the processes: one that a shim starts meanwhile is seen.
        let all = self.all();
        let processes = Processes::read(&self.proc);
        all.into_iter().filter(|shim| processes.below(shim.pid).is_empty()).collect()
    }

    fn kill(&self, shim: &Shim) -> bool {
        // Its number may be another's by now.
        self.read(shim.pid).as_ref() == Some(shim) && kill(Pid::from_raw(shim.pid), Signal::SIGKILL).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(proc: &Path, pid: i32, words: &[&str]) {
        let dir = proc.join(pid.to_string());
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("cmdline"), words.join("\0") + "\0").unwrap();
    }

    #[test]
    fn only_shims_of_this_runtime_and_namespace_are_found() {
        let proc = tempfile::tempdir().unwrap();
        let shim = "/usr/bin/containerd-shim-runc-v2";
        let ours = "/run/containerd/containerd.sock";
        for (pid, program, namespace, id, address) in [
            (1, shim, "k8s.io", "s1", ours),
            (2, shim, "k8s.io", "s2", ours),
            (3, shim, "moby", "s1", ours),
            (4, shim, "k8s.io", "s1", "/run/other.sock"),
            (5, "/usr/bin/less", "k8s.io", "s1", ours),
        ] {
            process(proc.path(), pid, &[program, "-namespace", namespace, "-id", id, "-address", address]);
        }
        process(proc.path(), 6, &[shim, "-id"]);
        std::fs::create_dir(proc.path().join("self")).unwrap();
        let shims = LinuxShims::below(proc.path(), &format!("unix://{ours}"));
        let found = |ids: &[&str]| {
            let mut pids: Vec<i32> =
                shims.of(&ids.iter().map(|id| (*id).to_owned()).collect()).iter().map(|s| s.pid).collect();
            pids.sort_unstable();
            pids
        };
        assert_eq!(found(&["s1"]), [1]);
        assert_eq!(found(&["s1", "s2", "s3"]), [1, 2]);
        assert_eq!(found(&[]), [0; 0]);
    }

    #[test]
    fn descendants_are_found_whatever_they_are_called() {
        let proc = tempfile::tempdir().unwrap();
        let shim = "/usr/bin/containerd-shim-runc-v2";
        for (pid, name, parent) in
            [(1, "init", 0), (10, "shim", 1), (11, "a) R 1", 10), (12, "b", 11), (13, "shim", 1)]
        {
            process(proc.path(), pid, &[shim, "-namespace", "k8s.io", "-id", name, "-address", "/x"]);
            let stat = proc.path().join(format!("{pid}/stat"));
            std::fs::write(stat, format!("{pid} ({name}) S {parent} 0 0\n")).unwrap();
        }
        let processes = Processes::read(proc.path());
        assert_eq!(processes.below(10), [11, 12]);
        assert_eq!(processes.below(13), [0; 0]);
        let mut idle: Vec<i32> =
            LinuxShims::below(proc.path(), "/x").idle().iter().map(|shim| shim.pid).collect();
        idle.sort_unstable();
        assert_eq!(idle, [12, 13]);
    }

    #[test]
    fn a_process_that_is_another_by_now_is_not_killed() {
        let shims = LinuxShims::new("/run/nowhere.sock");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(!shims.kill(&Shim { pid, id: "s1".to_owned() }));
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
