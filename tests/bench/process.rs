//! What the kernel says about a process (proc(5)).

use crate::Error;
use std::path::PathBuf;
use std::time::Duration;

/// Ticks of /proc/PID/stat in a second: USER_HZ, 100 on every architecture that Coracle is built for.
const TICKS_PER_SECOND: u64 = 100;

#[derive(Clone, Copy)]
pub struct Process(pub u32);

impl Process {
    /// The process that asks: the load.
    pub fn own() -> Self {
        Self(std::process::id())
    }

    fn read(self, file: &str) -> Result<String, Error> {
        let path = PathBuf::from(format!("/proc/{}/{file}", self.0));
        std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()).into())
    }

    fn field(self, file: &str, name: &str) -> Result<u32, Error> {
        let text = self.read(file)?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
        let value = value.ok_or_else(|| format!("/proc/{}/{file} has no {name}", self.0))?;
        Ok(u32::try_from(value.parse::<u64>()?)?)
    }

    /// Processor time of all its threads so far, to 10 ms.
    pub fn cpu(self) -> Result<Duration, Error> {
        let text = self.read("stat")?;
        // The name in parentheses may hold spaces; user and system time are the 12th and 13th field after it.
        let after_name = text.rsplit_once(") ").ok_or("/proc/PID/stat has no name")?.1;
        let times = after_name.split(' ').skip(11).take(2).map(str::parse::<u64>);
        let ticks: u64 = times.collect::<Result<Vec<_>, _>>()?.iter().sum();
        Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
    }

    /// Likewise, to a microsecond: what the scheduler says of each thread that is there. Time of threads that ended is
    /// not in it, so it is for a process at rest.
    pub fn exact_cpu(self) -> Result<Duration, Error> {
        let mut nanos = 0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.0))?.flatten() {
            let text = std::fs::read_to_string(thread.path().join("schedstat"))?;
            nanos += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanos))
    }

    pub fn rss_mib(self) -> Result<f64, Error> {
        Ok(f64::from(self.field("status", "VmRSS:")?) / 1024.0)
    }

    /// The most that was ever resident.
    pub fn peak_mib(self) -> Result<f64, Error> {
        Ok(f64::from(self.field("status", "VmHWM:")?) / 1024.0)
    }

    /// Resident memory that is the program's own, not pages of its file.
    pub fn anonymous_mib(self) -> Result<f64, Error> {
        Ok(f64::from(self.field("status", "RssAnon:")?) / 1024.0)
    }

    /// Bytes that it caused to be written to a device.
    pub fn written(self) -> Result<u32, Error> {
        self.field("io", "write_bytes:")
    }
}
