//! The machine that the figures belong to.

use std::fs::read_to_string;
use std::path::Path;

/// What a reader needs to compare: date, processor, memory, kernel, and the disk under `dir`.
pub fn describe(dir: &Path) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let date = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string();
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpu = line_of("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let memory = line_of("/proc/meminfo", "MemTotal").unwrap_or_default();
    let load = read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    format!(
        "{date}; {cores} cores shared by server and load, {cpu}; memory {memory}; Linux {}; data in {}, {}; \
         load average at the beginning {load}",
        kernel.trim(),
        dir.display(),
        disk(dir).unwrap_or_else(|| "on an unknown disk".to_owned()),
    )
}

fn line_of(file: &str, key: &str) -> Option<String> {
    let text = read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
}

/// File system, device and kind of device of the mount that holds `dir` (proc_pid_mountinfo(5)).
fn disk(dir: &Path) -> Option<String> {
    let dir = dir.canonicalize().ok()?;
    let mounts = read_to_string("/proc/self/mountinfo").ok()?;
    let holding = mounts.lines().filter(|line| line.split(' ').nth(4).is_some_and(|at| dir.starts_with(at)));
    let mount = holding.max_by_key(|line| line.split(' ').nth(4).map_or(0, str::len))?;
    let number = mount.split(' ').nth(2)?;
    let (kind, device) = mount.split_once(" - ")?.1.split_once(' ')?;
    let device = device.split(' ').next()?;
    let block = format!("/sys/dev/block/{number}");
    let queue = [format!("{block}/queue/rotational"), format!("{block}/../queue/rotational")];
    let spins = queue.iter().find_map(|path| read_to_string(path).ok());
    let class = match spins.as_deref().map(str::trim) {
        // What a virtual disk says of its own mechanics means nothing.
        Some(_) if device.starts_with("/dev/vd") || device.starts_with("/dev/xvd") => "virtual",
        Some("0") => "solid state",
        Some(_) => "rotating",
        None => "no block device",
    };
    Some(format!("{kind} on {device} ({class})"))
}
