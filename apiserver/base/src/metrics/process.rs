//! What every Prometheus client tells of its process, from /proc.

use coracle_metrics::Text;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

/// Ticks of /proc/self/stat a second: USER_HZ, the same on every architecture that Linux has a stable interface for.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) fn render(text: &mut Text) {
    let Some(stat) = Stat::read() else { return };
    text.single(
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.",
        "counter",
        stat.cpu_seconds,
    );
    text.single("process_virtual_memory_bytes", "Virtual memory size in bytes.", "gauge", stat.virtual_bytes);
    if let Some(resident) = stat.resident_bytes {
        text.single("process_resident_memory_bytes", "Resident memory size in bytes.", "gauge", resident);
    }
    super::descriptors::render(text);
    if let Ok((soft, _)) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE) {
        text.single("process_max_fds", "Maximum number of open file descriptors.", "gauge", soft);
    }
    text.single("coracle_process_threads", "Threads of the process.", "gauge", stat.threads);
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let tasks = runtime.metrics().num_alive_tasks();
        text.single("coracle_process_tasks", "Tasks of the process that have not ended.", "gauge", tasks);
    }
    let start = started(stat.start_ticks).as_secs_f64();
    let help = "Start time of the process since unix epoch in seconds.";
    text.single("process_start_time_seconds", help, "gauge", start);
}

struct Stat {
    cpu_seconds: f64,
    virtual_bytes: u64,
    resident_bytes: Option<u64>,
    start_ticks: f64,
    threads: u64,
}

impl Stat {
    fn read() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The command's name, in parentheses, can hold anything; fields are counted from behind it.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_seconds: (number(14)? + number(15)?) / TICKS_PER_SECOND,
            virtual_bytes: fields.get(23 - 3)?.parse().ok()?,
            resident_bytes: resident(),
            start_ticks: number(22)?,
            threads: fields.get(20 - 3)?.parse().ok()?,
        })
    }
}

fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// When the process began, since 1970; `None` if /proc cannot tell.
pub fn process_started() -> Option<Duration> {
    Stat::read().map(|stat| started(stat.start_ticks))
}

/// The wall clock when the process began, as seen the first time somebody asks: a clock set later does not move it.
fn started(start_ticks: f64) -> Duration {
    static STARTED: OnceLock<Duration> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let uptime = std::fs::read_to_string("/proc/uptime").ok();
        let uptime = uptime.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
        let age = uptime.map_or(0.0, |uptime| (uptime - start_ticks / TICKS_PER_SECOND).max(0.0));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(Duration::from_secs_f64(age))
    })
}
