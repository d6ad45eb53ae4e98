//! What this machine is: read from /proc, /sys and /etc.

use crate::configuration::config::Config;
use crate::signal::Signal;
use coracle_storage::volumes::downward::Allocatable;
use nix::sys::statvfs::statvfs;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Facts that do not change while the machine runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub cpus: u64,
    pub memory_bytes: u64,
    pub ephemeral_storage_bytes: u64,
    /// Preallocated huge pages in bytes by size, `2Mi`.
    pub hugepages: BTreeMap<String, u64>,
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel_version: String,
    pub os_image: String,
    pub swap_bytes: u64,
    pub cgroup_v2: bool,
    /// Whether the kernel counts swap by cgroup.
    pub swap_counted: bool,
}

fn line(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

pub const PID_MAX: &str = "/proc/sys/kernel/pid_max";
pub const THREADS_MAX: &str = "/proc/sys/kernel/threads-max";

/// Where the kernel shows cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Whether cgroups have a file for swap. Of version 2 the root has none: this process' own and those below the root are
/// looked at.
fn counts_swap(root: &Path, own: &str, v2: bool) -> bool {
    if !v2 {
        return root.join("memory/memory.memsw.limit_in_bytes").exists();
    }
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).map(|path| root.join(path));
    let below = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    own.into_iter().chain(below).any(|group| group.join("memory.swap.max").exists())
}

/// How many processes there can be, of what the two files hold: a fork fails at either. `None` if neither says it.
pub fn most_processes(pid_max: &str, threads_max: &str) -> Option<u64> {
    [pid_max, threads_max].iter().filter_map(|text| text.trim().parse().ok()).min()
}

/// Whether the kernel confines processes by AppArmor.
pub fn apparmor() -> bool {
    line("/sys/module/apparmor/parameters/enabled") == "Y"
}

/// `data_dir` is where pods' files lie, whose file system is the node's ephemeral storage.
pub fn read(data_dir: &Path) -> Facts {
    let memory = MemInfo::read();
    let machine_id = [line("/etc/machine-id"), line("/var/lib/dbus/machine-id")];
    let machine_id = machine_id.into_iter().find(|id| !id.is_empty()).unwrap_or_default();
    let product = line("/sys/class/dmi/id/product_uuid");
    let disk = statvfs(data_dir).map(|s| s.blocks() * s.fragment_size()).unwrap_or(0);
    let cgroup_v2 = Path::new(CGROUPS).join("cgroup.controllers").exists();
    Facts {
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
        memory_bytes: memory.total,
        ephemeral_storage_bytes: disk,
        hugepages: hugepages(Path::new("/sys/kernel/mm/hugepages")),
        system_uuid: if product.is_empty() { machine_id.clone() } else { product },
        machine_id,
        boot_id: line("/proc/sys/kernel/random/boot_id"),
        kernel_version: line("/proc/sys/kernel/osrelease"),
        os_image: os_image(&line("/etc/os-release")),
        swap_bytes: memory.swap,
        cgroup_v2,
        swap_counted: counts_swap(Path::new(CGROUPS), &line("/proc/self/cgroup"), cgroup_v2),
    }
}

impl Facts {
    /// What can be given to pods: all but what is reserved for others and what hard thresholds of eviction keep free, and of
    /// memory what is kept for huge pages.
    pub fn allocatable(&self, config: &Config) -> Allocatable {
        let whole = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        let reserved = config.reserved.all();
        let left = |signal, amount: u64, reserved: u64| {
            whole(amount.saturating_sub(config.eviction.kept_free(signal, amount)).saturating_sub(reserved))
        };
        let pages: u64 = self.hugepages.values().sum();
        let memory = reserved.memory_bytes.saturating_add(pages);
        Allocatable {
            cpu_millis: whole(self.cpus.saturating_mul(1000).saturating_sub(reserved.cpu_millis)),
            memory_bytes: left(Signal::MemoryAvailable, self.memory_bytes, memory),
            ephemeral_storage_bytes: left(
                Signal::NodefsAvailable,
                self.ephemeral_storage_bytes,
                reserved.ephemeral_storage_bytes,
            ),
        }
    }

    /// What is reserved of something that the machine has less of, in words.
    pub fn cannot_reserve(&self, config: &Config) -> Option<String> {
        let reserved = config.reserved.all();
        let asked = [
            ("cpu", reserved.cpu_millis, self.cpus.saturating_mul(1000)),
            ("memory", reserved.memory_bytes, self.memory_bytes),
            ("ephemeral-storage", reserved.ephemeral_storage_bytes, self.ephemeral_storage_bytes),
        ];
        let mut short = asked.into_iter().filter(|(_, reserved, there)| reserved > there);
        short.next().map(|(name, ..)| {
            format!("systemReserved and kubeReserved keep more {name} from pods than the machine has")
        })
    }
}

/// Of /proc/meminfo, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemInfo {
    pub total: u64,
    pub available: u64,
    pub swap: u64,
}

impl MemInfo {
    pub fn read() -> Self {
        Self::parse(&line("/proc/meminfo"))
    }

    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        Self { total: field("MemTotal"), available: field("MemAvailable"), swap: field("SwapTotal") }
    }
}

fn os_image(os_release: &str) -> String {
    let pretty = os_release.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
    pretty.map_or_else(|| "Linux".to_owned(), |name| name.trim_matches('"').to_owned())
}

fn hugepages(root: &Path) -> BTreeMap<String, u64> {
    let mut pages = BTreeMap::new();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let size = name.strip_prefix("hugepages-").and_then(|n| n.strip_suffix("kB")?.parse::<u64>().ok());
        let count = fs::read_to_string(entry.path().join("nr_hugepages")).ok();
        let count = count.and_then(|text| text.trim().parse::<u64>().ok());
        if let (Some(kib), Some(count)) = (size, count) {
            let unit = match kib {
                k if k % (1 << 20) == 0 => format!("{}Gi", k >> 20),
                k if k % (1 << 10) == 0 => format!("{}Mi", k >> 10),
                k => format!("{k}Ki"),
            };
            pages.insert(unit, kib * 1024 * count);
        }
    }
    pages
}

/// The architecture in Go's words, as in `kubernetes.io/arch`.
pub fn go_arch() -> &'static str {
    crate::simulate::go_arch()
}

/// When the machine was started.
pub fn booted() -> Option<jiff::Timestamp> {
    let stat = line("/proc/stat");
    let second = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    jiff::Timestamp::from_second(second).ok()
}

/// Whether the kernel filters system calls.
pub fn seccomp() -> bool {
    std::path::Path::new("/proc/sys/kernel/seccomp/actions_avail").exists()
}

/// Where this machine tells how often its processors were too hot.
pub fn thermal_throttles() -> Vec<String> {
    let processors = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let mut paths: Vec<String> = processors
        .map(|processor| processor.path().join("thermal_throttle"))
        .filter(|path| path.exists())
        .map(|path| path.display().to_string())
        .collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_is_counted_where_cgroups_say_so() {
        let root = tempfile::tempdir().unwrap();
        let found = |own: &str, v2| counts_swap(root.path(), own, v2);
        fs::create_dir_all(root.path().join("memory")).unwrap();
        fs::create_dir_all(root.path().join("a.slice/b")).unwrap();
        assert!(!found("0::/a.slice/b", true) && !found("", false));
        fs::write(root.path().join("a.slice/b/memory.swap.max"), "max").unwrap();
        assert!(found("0::/a.slice/b\n", true) && !found("0::/", true));
        fs::write(root.path().join("a.slice/memory.swap.max"), "max").unwrap();
        assert!(found("0::/", true) && !found("", false));
        fs::write(root.path().join("memory/memory.memsw.limit_in_bytes"), "0").unwrap();
        assert!(found("", false));
    }

    #[test]
    fn files_are_read() {
        let memory = MemInfo::parse("MemTotal:  1024 kB\nMemAvailable:   512 kB\nSwapTotal: 0 kB\n");
        assert_eq!(memory, MemInfo { total: 1 << 20, available: 1 << 19, swap: 0 });
        assert_eq!(os_image("ID=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"), "Debian GNU/Linux 12");
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("hugepages-2048kB")).unwrap();
        fs::write(dir.path().join("hugepages-2048kB/nr_hugepages"), "3\n").unwrap();
        assert_eq!(hugepages(dir.path()), BTreeMap::from([("2Mi".to_owned(), 6 << 20)]));
    }
}
