//! Cgroups as the kernel shows them, of either version.

use super::limits::Limits;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Version 1: the hierarchies in which a pod has a cgroup before its containers have.
const V1: [&str; 4] = ["cpu", "memory", "pids", "hugetlb"];
/// Version 2: the controllers that are handed down to pods, where the kernel has them.
const V2: [&str; 6] = ["cpuset", "cpu", "io", "memory", "hugetlb", "pids"];

/// Version 1 shows no limit of memory as the most that its counter takes: this many bytes, down to a page.
const UNLIMITED: u64 = i64::MAX as u64 / 4096 * 4096;

/// A file of a cgroup that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {value:?} to {}", path.display())]
pub struct WriteError {
    path: PathBuf,
    value: String,
    #[source]
    source: io::Error,
}

/// The machine's cgroups, by their paths from the root on.
pub trait Groups: Send + Sync + 'static {
    /// Makes the cgroup, with those above it, and limits it. Idempotent.
    fn set(&self, path: &str, limits: &Limits) -> Result<(), WriteError>;
    /// Limits a cgroup that is somebody else's; one that is not there is an error.
    fn limit(&self, path: &str, limits: &Limits) -> Result<(), WriteError>;
}

/// Directories and files below a root.
#[derive(Clone, Debug)]
pub struct Files {
    root: PathBuf,
    v2: bool,
}

impl Files {
    /// `root` is where the kernel shows cgroups.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned(), v2: root.join("cgroup.controllers").exists() }
    }

    /// The directories of a cgroup, each with the controllers that it has files of.
    fn directories(&self, path: &str) -> Vec<(PathBuf, Vec<&'static str>)> {
        let path = path.trim_start_matches('/');
        if self.v2 {
            return vec![(self.root.join(path), self.controllers())];
        }
        let there = V1.into_iter().filter(|controller| self.root.join(controller).is_dir());
        there.map(|controller| (self.root.join(controller).join(path), vec![controller])).collect()
    }

    /// CPU and memory of a cgroup, as they are limited; `None` where there is no such cgroup.
    pub fn read(&self, path: &str) -> Option<Limits> {
        let path = path.trim_start_matches('/');
        let text = |controller: &str, file: &str| {
            let group = if self.v2 { self.root.join(path) } else { self.root.join(controller).join(path) };
            fs::read_to_string(group.join(file)).ok().map(|text| text.trim().to_owned())
        };
        let number = |controller: &str, file: &str| text(controller, file)?.parse::<u64>().ok();
        if self.v2 {
            let cpu = text("cpu", "cpu.max")?;
            let (quota, period) = cpu.split_once(' ')?;
            return Some(Limits {
                cpu_shares: text("cpu", "cpu.weight")
                    .and_then(|weight| Some(shares_of(weight.parse().ok()?))),
                cpu_quota: Some((quota.parse().unwrap_or(0), period.parse().ok()?)),
                memory_max: number("memory", "memory.max"),
                memory_min: number("memory", "memory.min").unwrap_or(0),
                memory_low: number("memory", "memory.low").unwrap_or(0),
                ..Limits::default()
            });
        }
        let quota: i64 = text("cpu", "cpu.cfs_quota_us")?.parse().ok()?;
        Some(Limits {
            cpu_shares: text("cpu", "cpu.shares").and_then(|shares| shares.parse().ok()),
            cpu_quota: Some((quota.max(0), text("cpu", "cpu.cfs_period_us")?.parse().ok()?)),
            memory_max: number("memory", "memory.limit_in_bytes").filter(|limit| *limit < UNLIMITED),
            ..Limits::default()
        })
    }

    /// Bytes of memory in use in a cgroup and below it.
    pub fn memory_in_use(&self, path: &str) -> Option<u64> {
        let path = path.trim_start_matches('/');
        let file = match self.v2 {
            true => self.root.join(path).join("memory.current"),
            false => self.root.join("memory").join(path).join("memory.usage_in_bytes"),
        };
        fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    /// Of version 2.
    fn controllers(&self) -> Vec<&'static str> {
        let text = fs::read_to_string(self.root.join("cgroup.controllers")).unwrap_or_default();
        V2.into_iter().filter(|name| text.split_whitespace().any(|known| known == *name)).collect()
    }

    fn make(&self, path: &str) -> Result<(), WriteError> {
        let hierarchies: Vec<PathBuf> =
            self.directories("/").into_iter().map(|(directory, _)| directory).collect();
        for hierarchy in hierarchies {
            let mut group = hierarchy;
            for name in path.trim_start_matches('/').split('/') {
                if self.v2 {
                    self.hand_down(&group)?;
                }
                group.push(name);
                match fs::create_dir(&group) {
                    Ok(()) => all_below_count(&group),
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(source) => return Err(WriteError { path: group, value: String::new(), source }),
                }
            }
        }
        Ok(())
    }

    fn hand_down(&self, group: &Path) -> Result<(), WriteError> {
        let controllers: Vec<String> = self.controllers().iter().map(|name| format!("+{name}")).collect();
        write(&group.join("cgroup.subtree_control"), &controllers.join(" "))
    }
}

impl Groups for Files {
    fn set(&self, path: &str, limits: &Limits) -> Result<(), WriteError> {
        self.make(path)?;
        self.limit(path, limits)
    }

    fn limit(&self, path: &str, limits: &Limits) -> Result<(), WriteError> {
        for (directory, controllers) in self.directories(path) {
            for (name, value) in if self.v2 { version_two(limits) } else { version_one(limits) } {
                let controller = name.split('.').next().unwrap_or_default();
                if controllers.contains(&controller) {
                    change(&directory.join(name), &value)?;
                }
            }
        }
        Ok(())
    }
}

/// Kernels before 5.11 count a cgroup's memory without what lies below it, unless told otherwise before there is anything.
fn all_below_count(group: &Path) {
    let file = group.join("memory.use_hierarchy");
    if fs::read_to_string(&file).is_ok_and(|text| text.trim() == "0")
        && let Err(error) = fs::write(&file, "1")
    {
        tracing::debug!(path = %file.display(), %error, "the cgroup's memory is counted by itself");
    }
}

fn most(limit: Option<u64>, none: &str) -> String {
    limit.map_or_else(|| none.to_owned(), |limit| limit.to_string())
}

fn version_one(limits: &Limits) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut file = |name: &str, value: String| files.push((name.to_owned(), value));
    if let Some(shares) = limits.cpu_shares {
        file("cpu.shares", shares.to_string());
    }
    if let Some((quota, period)) = limits.cpu_quota {
        file("cpu.cfs_period_us", period.to_string());
        file("cpu.cfs_quota_us", if quota == 0 { "-1".to_owned() } else { quota.to_string() });
    }
    file("memory.limit_in_bytes", most(limits.memory_max, "-1"));
    file("pids.max", most(limits.pids_max, "max"));
    for (size, bytes) in &limits.huge_pages {
        file(&format!("hugetlb.{size}.limit_in_bytes"), bytes.to_string());
    }
    files
}

fn version_two(limits: &Limits) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut file = |name: &str, value: String| files.push((name.to_owned(), value));
    if let Some(shares) = limits.cpu_shares {
        file("cpu.weight", weight(shares).to_string());
    }
    if let Some((quota, period)) = limits.cpu_quota {
        let quota = if quota == 0 { "max".to_owned() } else { quota.to_string() };
        file("cpu.max", format!("{quota} {period}"));
    }
    file("memory.max", most(limits.memory_max, "max"));
    file("memory.min", limits.memory_min.to_string());
    file("memory.low", limits.memory_low.to_string());
    file("pids.max", most(limits.pids_max, "max"));
    for (size, bytes) in &limits.huge_pages {
        file(&format!("hugetlb.{size}.max"), bytes.to_string());
    }
    files
}

/// From 2..=262144 to 1..=10000 (KEP-2254).
pub fn weight(shares: i64) -> i64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9_999 / 262_142
}

/// From 1..=10000 back to 2..=262144; what is lost on the way makes no other weight.
fn shares_of(weight: i64) -> i64 {
    2 + (weight.clamp(1, 10_000) - 1) * 262_142 / 9_999
}

/// Writes what is not there already. A kernel that has no such file, as without swap or with fewer sizes of pages, has
/// nothing to limit.
fn change(path: &Path, value: &str) -> Result<(), WriteError> {
    match fs::read_to_string(path) {
        Ok(there) if there.trim() == value => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.parent().is_some_and(Path::is_dir) => {
            Ok(())
        }
        _ => write(path, value),
    }
}

fn write(path: &Path, value: &str) -> Result<(), WriteError> {
    fs::write(path, value).map_err(|source| WriteError {
        path: path.to_owned(),
        value: value.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            cpu_shares: Some(1024),
            cpu_quota: Some((50_000, 100_000)),
            memory_max: Some(4096),
            memory_min: 1,
            memory_low: 2,
            pids_max: Some(9),
            huge_pages: [("2MB".to_owned(), 7)].into(),
        }
    }

    /// A kernel's files come with their directory: here they are put there first.
    fn kernel(root: &Path, files: &[&str]) {
        for file in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
    }

    #[test]
    fn version_one_is_limited_in_every_hierarchy_there_is() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("cpu/kubepods/cpu.shares", "1024"),
            ("cpu/kubepods/cpu.cfs_period_us", "100000"),
            ("cpu/kubepods/cpu.cfs_quota_us", "50000"),
            ("memory/kubepods/memory.limit_in_bytes", "4096"),
            ("pids/kubepods/pids.max", "9"),
        ];
        kernel(root.path(), &files.map(|(file, _)| file));
        let groups = Files::at(root.path());
        groups.set("/kubepods", &limits()).unwrap();
        for (file, value) in files {
            assert_eq!(fs::read_to_string(root.path().join(file)).unwrap(), value, "{file}");
        }
        groups.set("/kubepods", &Limits { cpu_quota: Some((0, 100_000)), ..Limits::default() }).unwrap();
        let text = |file: &str| fs::read_to_string(root.path().join(file)).unwrap();
        assert_eq!(
            (text(files[2].0), text(files[3].0), text(files[4].0)),
            ("-1".into(), "-1".into(), "max".into())
        );
        assert_eq!(text(files[0].0), "1024", "nobody said another weight");
        groups.set("/kubepods/burstable/podu", &limits()).unwrap();
        assert!(root.path().join("memory/kubepods/burstable/podu").is_dir());
        assert!(!root.path().join("hugetlb").exists());
    }

    #[test]
    fn version_two_hands_its_controllers_down() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu memory pids rdma\n").unwrap();
        let files = [
            ("kubepods/podu/cpu.weight", "39"),
            ("kubepods/podu/cpu.max", "50000 100000"),
            ("kubepods/podu/memory.max", "4096"),
            ("kubepods/podu/memory.min", "1"),
            ("kubepods/podu/memory.low", "2"),
            ("kubepods/podu/pids.max", "9"),
            ("kubepods/podu/hugetlb.2MB.max", ""),
        ];
        kernel(root.path(), &files.map(|(file, _)| file));
        Files::at(root.path()).set("/kubepods/podu", &limits()).unwrap();
        for (file, value) in files {
            assert_eq!(fs::read_to_string(root.path().join(file)).unwrap(), value, "{file}");
        }
        for above in ["", "kubepods"] {
            let text = fs::read_to_string(root.path().join(above).join("cgroup.subtree_control")).unwrap();
            assert_eq!(text, "+cpu +memory +pids");
        }
        assert_eq!((weight(2), weight(262_144), weight(0)), (1, 10_000, 1));
    }

    #[test]
    fn what_is_somebody_elses_is_not_made() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("memory")).unwrap();
        let error = Files::at(root.path()).limit("/system", &limits()).unwrap_err();
        assert!(error.to_string().contains("memory/system/memory.limit_in_bytes"), "{error}");
    }
}
