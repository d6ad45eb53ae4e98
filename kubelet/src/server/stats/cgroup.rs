//! What a control group has used, by cgroups v1 and v2
//! (<https://docs.kernel.org/admin-guide/cgroup-v2.html>, <https://docs.kernel.org/admin-guide/cgroup-v1/memory.html>).

use std::fs;
use std::path::{Path, PathBuf};

use super::io::{self, DeviceUse};
use super::node::Interface;
use super::pressure::Pressures;
use super::processes::{self, Processes};

/// Of one group and everything below it. What the kernel does not count is 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    pub cpu_nanos: u64,
    pub cpu_user_nanos: u64,
    pub cpu_system_nanos: u64,
    /// Enforcement periods that have passed, those in which the group was throttled, and for how long.
    pub periods: u64,
    pub throttled_periods: u64,
    pub throttled_nanos: u64,
    pub memory_usage: u64,
    /// Without file pages that could be dropped at once.
    pub working_set: u64,
    pub memory_peak: u64,
    /// How often the limit was hit.
    pub memory_failures: u64,
    pub rss: u64,
    pub cache: u64,
    pub mapped_file: u64,
    pub swap: u64,
    pub page_faults: u64,
    pub major_page_faults: u64,
    /// Tasks: a process has one for each of its threads.
    pub processes: u64,
    /// How many there may be; `None` without a limit.
    pub most_processes: Option<u64>,
    /// Processes that the kernel ended for want of memory.
    pub oom_kills: u64,
    /// `None` without a limit.
    pub memory_limit: Option<u64>,
    /// What the kernel leaves the group as long as it can.
    pub memory_reservation: Option<u64>,
    /// Of memory and swap together with v1, of swap with v2.
    pub swap_limit: Option<u64>,
    /// Of swap alone.
    pub most_swap: Option<u64>,
    /// Microseconds of cpu in each period of so many microseconds.
    pub cpu_quota: Option<u64>,
    pub cpu_period: u64,
    pub cpu_shares: u64,
    pub devices: Vec<DeviceUse>,
    pub pressures: Pressures,
}

/// v1 counts user and system time in these: 100 a second on every machine.
const TICK_NANOS: u64 = 10_000_000;
const MICRO: u64 = 1_000;
/// v1 shows a limit near `i64::MAX`, rounded to pages, where there is none.
const UNLIMITED: u64 = 1 << 62;

/// The mounted hierarchies.
pub struct Cgroups {
    root: PathBuf,
    unified: bool,
}

impl Cgroups {
    pub fn here() -> Self {
        Self::at(Path::new("/sys/fs/cgroup"))
    }

    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned(), unified: root.join("cgroup.controllers").exists() }
    }

    /// `path` begins at the root of the hierarchy. `None` if there is no such group. Reads about twenty files.
    pub fn read(&self, path: &str) -> Option<Account> {
        let path = path.trim_start_matches('/');
        if self.unified { self.read_v2(path) } else { self.read_v1(path) }
    }

    /// When the group was made, in seconds since 1970.
    pub fn made(&self, path: &str) -> Option<i64> {
        let path = path.trim_start_matches('/');
        let group = if self.unified { self.root.join(path) } else { self.root.join("cpuacct").join(path) };
        let modified = fs::metadata(group).ok()?.modified().ok()?;
        let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
        i64::try_from(since.as_secs()).ok()
    }

    /// The group of this process; `None` where it is in none of its own.
    pub fn own(&self) -> Option<String> {
        own(&fs::read_to_string("/proc/self/cgroup").ok()?, self.unified).filter(|path| path != "/")
    }

    /// 1 or 2.
    pub fn version(&self) -> u8 {
        if self.unified { 2 } else { 1 }
    }

    /// What the group's own processes have open; reads much more than [`Cgroups::read`].
    pub fn processes_of(&self, path: &str) -> Processes {
        processes::of(&fs::read_to_string(self.procs(path)).unwrap_or_default())
    }

    /// The network that processes of the group see. Reads two files.
    pub fn interfaces(&self, path: &str) -> Vec<Interface> {
        processes::interfaces(&fs::read_to_string(self.procs(path)).unwrap_or_default())
    }

    fn procs(&self, path: &str) -> PathBuf {
        let path = path.trim_start_matches('/');
        let group = if self.unified { self.root.join(path) } else { self.root.join("pids").join(path) };
        group.join("cgroup.procs")
    }

    /// How many processes the group has now. Reads one file.
    pub fn processes(&self, path: &str) -> u64 {
        let path = path.trim_start_matches('/');
        let group = if self.unified { self.root.join(path) } else { self.root.join("pids").join(path) };
        number(&fs::read_to_string(group.join("pids.current")).unwrap_or_default())
    }

    fn read_v2(&self, path: &str) -> Option<Account> {
        let group = self.root.join(path);
        let file = |name: &str| fs::read_to_string(group.join(name)).unwrap_or_default();
        let cpu = fs::read_to_string(group.join("cpu.stat")).ok()?;
        let (memory, max) = (file("memory.stat"), file("cpu.max"));
        let usage = number(&file("memory.current"));
        let mut max = max.split_whitespace();
        let weight = number(&file("cpu.weight")).max(1);
        Some(Account {
            cpu_nanos: field(&cpu, "usage_usec") * MICRO,
            cpu_user_nanos: field(&cpu, "user_usec") * MICRO,
            cpu_system_nanos: field(&cpu, "system_usec") * MICRO,
            periods: field(&cpu, "nr_periods"),
            throttled_periods: field(&cpu, "nr_throttled"),
            throttled_nanos: field(&cpu, "throttled_usec") * MICRO,
            memory_usage: usage,
            working_set: usage.saturating_sub(field(&memory, "inactive_file")),
            memory_peak: number(&file("memory.peak")),
            memory_failures: field(&file("memory.events"), "max"),
            rss: field(&memory, "anon"),
            cache: field(&memory, "file"),
            mapped_file: field(&memory, "file_mapped"),
            swap: number(&file("memory.swap.current")),
            page_faults: field(&memory, "pgfault"),
            major_page_faults: field(&memory, "pgmajfault"),
            processes: self.processes(path),
            most_processes: file("pids.max").trim().parse().ok(),
            oom_kills: field(&file("memory.events"), "oom_kill"),
            memory_limit: file("memory.max").trim().parse().ok(),
            memory_reservation: file("memory.min").trim().parse().ok(),
            swap_limit: file("memory.swap.max").trim().parse().ok(),
            most_swap: file("memory.swap.max").trim().parse().ok(),
            devices: io::of_v2(&file("io.stat")),
            pressures: Pressures::of_group(&group),
            cpu_quota: max.next().and_then(|quota| quota.parse().ok()),
            cpu_period: max.next().and_then(|period| period.parse().ok()).unwrap_or(0),
            // KEP-2254: the inverse of how shares became a weight.
            cpu_shares: 2 + (weight - 1) * 262_142 / 9_999,
        })
    }

    fn read_v1(&self, path: &str) -> Option<Account> {
        let file = |controller: &str, name: &str| {
            fs::read_to_string(self.root.join(controller).join(path).join(name)).unwrap_or_default()
        };
        let cpu = fs::read_to_string(self.root.join("cpuacct").join(path).join("cpuacct.usage")).ok()?;
        let (times, throttled) = (file("cpuacct", "cpuacct.stat"), file("cpu", "cpu.stat"));
        let memory = file("memory", "memory.stat");
        let usage = number(&file("memory", "memory.usage_in_bytes"));
        let limit =
            |name: &str| Some(number(&file("memory", name))).filter(|limit| (1..UNLIMITED).contains(limit));
        Some(Account {
            cpu_nanos: number(&cpu),
            cpu_user_nanos: field(&times, "user") * TICK_NANOS,
            cpu_system_nanos: field(&times, "system") * TICK_NANOS,
            periods: field(&throttled, "nr_periods"),
            throttled_periods: field(&throttled, "nr_throttled"),
            throttled_nanos: field(&throttled, "throttled_time"),
            memory_usage: usage,
            working_set: usage.saturating_sub(field(&memory, "total_inactive_file")),
            memory_peak: number(&file("memory", "memory.max_usage_in_bytes")),
            memory_failures: number(&file("memory", "memory.failcnt")),
            rss: field(&memory, "total_rss"),
            cache: field(&memory, "total_cache"),
            mapped_file: field(&memory, "total_mapped_file"),
            swap: field(&memory, "total_swap"),
            page_faults: field(&memory, "total_pgfault"),
            major_page_faults: field(&memory, "total_pgmajfault"),
            processes: self.processes(path),
            most_processes: file("pids", "pids.max").trim().parse().ok(),
            oom_kills: field(&file("memory", "memory.oom_control"), "oom_kill"),
            memory_limit: limit("memory.limit_in_bytes"),
            memory_reservation: limit("memory.soft_limit_in_bytes"),
            swap_limit: limit("memory.memsw.limit_in_bytes"),
            most_swap: limit("memory.memsw.limit_in_bytes")
                .zip(limit("memory.limit_in_bytes"))
                .map(|(both, memory)| both.saturating_sub(memory)),
            devices: io::of_v1(
                &file("blkio", "blkio.throttle.io_service_bytes"),
                &file("blkio", "blkio.throttle.io_serviced"),
            ),
            pressures: Pressures::default(),
            // -1 without a quota.
            cpu_quota: file("cpu", "cpu.cfs_quota_us").trim().parse().ok(),
            cpu_period: number(&file("cpu", "cpu.cfs_period_us")),
            cpu_shares: number(&file("cpu", "cpu.shares")),
        })
    }
}

/// From lines like `4:memory:/system.slice/x.service`, with v2 `0::/system.slice/x.service`.
fn own(text: &str, unified: bool) -> Option<String> {
    let mut lines = text.lines().map(|line| line.splitn(3, ':').skip(1).collect::<Vec<_>>());
    let of = if unified { "" } else { "memory" };
    lines.find_map(|line| match line.as_slice() {
        [controllers, path] if controllers.split(',').any(|c| c == of) => Some((*path).to_owned()),
        _ => None,
    })
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or(0)
}

/// Of a file with a name and a number a line.
pub(super) fn field(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(key, _)| *key == name).map_or(0, |(_, value)| number(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn a_process_finds_its_own_group() {
        let v1 = "5:cpu,cpuacct:/a\n4:memory:/system.slice/x.service\n0::/b\n";
        assert_eq!(own(v1, false).as_deref(), Some("/system.slice/x.service"));
        assert_eq!(own("0::/system.slice/x.service\n", true).as_deref(), Some("/system.slice/x.service"));
        assert_eq!(own("", true), None);
    }

    #[test]
    fn version_two() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("cgroup.controllers", "cpu memory"),
            (
                "kubepods/podu/cpu.stat",
                "usage_usec 5000\nuser_usec 3000\nsystem_usec 2000\nnr_periods 7\nnr_throttled 2\nthrottled_usec 9\n",
            ),
            ("kubepods/podu/cpu.max", "50000 100000\n"),
            ("kubepods/podu/cpu.weight", "39\n"),
            ("kubepods/podu/memory.current", "4096\n"),
            ("kubepods/podu/memory.max", "max\n"),
            (
                "kubepods/podu/memory.stat",
                "anon 1000\nfile 2000\nfile_mapped 5\ninactive_file 96\npgfault 3\npgmajfault 1\n",
            ),
            ("kubepods/podu/memory.events", "low 0\nmax 4\noom_kill 2\n"),
            ("kubepods/podu/memory.min", "0\n"),
            ("kubepods/podu/memory.swap.max", "max\n"),
            ("kubepods/podu/pids.max", "64\n"),
            ("kubepods/podu/io.stat", "8:0 rbytes=1 wbytes=2 rios=3 wios=4\n"),
            ("kubepods/podu/cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"),
            ("kubepods/podu/pids.current", "6\n"),
        ];
        write(root.path(), &files);
        let account = Cgroups::at(root.path()).read("/kubepods/podu").unwrap();
        assert_eq!(
            (account.cpu_nanos, account.cpu_user_nanos, account.throttled_nanos),
            (5_000_000, 3_000_000, 9_000)
        );
        assert_eq!((account.working_set, account.rss, account.cache), (4000, 1000, 2000));
        assert_eq!(
            (account.cpu_quota, account.cpu_period, account.memory_limit),
            (Some(50_000), 100_000, None)
        );
        assert_eq!((account.cpu_shares, account.memory_failures, account.processes), (998, 4, 6));
        assert_eq!(
            (account.oom_kills, account.most_processes, account.memory_reservation, account.swap_limit),
            (2, Some(64), Some(0), None)
        );
        assert_eq!((account.devices[0].written_bytes, account.devices[0].writes), (2, 4));
        assert_eq!(account.pressures.cpu.unwrap().some.total_micros, 9);
        assert_eq!(Cgroups::at(root.path()).read("/kubepods/gone"), None);
    }

    #[test]
    fn version_one() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("cpuacct/kubepods/podu/cpuacct.usage", "123456\n"),
            ("cpuacct/kubepods/podu/cpuacct.stat", "user 3\nsystem 2\n"),
            ("cpu/kubepods/podu/cpu.stat", "nr_periods 7\nnr_throttled 2\nthrottled_time 99\n"),
            ("cpu/kubepods/podu/cpu.cfs_quota_us", "-1\n"),
            ("cpu/kubepods/podu/cpu.shares", "1024\n"),
            ("pids/kubepods/podu/pids.current", "5\n"),
            ("memory/kubepods/podu/memory.usage_in_bytes", "4096\n"),
            ("memory/kubepods/podu/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/kubepods/podu/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
            ("blkio/kubepods/podu/blkio.throttle.io_serviced", "8:0 Read 7\nTotal 7\n"),
            ("memory/kubepods/podu/memory.stat", "rss 1\ntotal_rss 1000\ntotal_inactive_file 96\n"),
        ];
        write(root.path(), &files);
        let account = Cgroups::at(root.path()).read("kubepods/podu").unwrap();
        assert_eq!(
            (account.cpu_nanos, account.cpu_user_nanos, account.throttled_nanos),
            (123_456, 30_000_000, 99)
        );
        assert_eq!((account.working_set, account.rss, account.cpu_shares), (4000, 1000, 1024));
        assert_eq!((account.cpu_quota, account.memory_limit, account.processes), (None, None, 5));
        assert_eq!((account.oom_kills, account.devices[0].reads, account.most_swap), (3, 7, None));
        let limits = [
            ("memory/kubepods/podu/memory.limit_in_bytes", "4096\n"),
            ("memory/kubepods/podu/memory.memsw.limit_in_bytes", "12288\n"),
        ];
        write(root.path(), &limits);
        assert_eq!(Cgroups::at(root.path()).read("kubepods/podu").unwrap().most_swap, Some(8192));
        assert_eq!(Cgroups::at(root.path()).read("kubepods/gone"), None);
    }
}
