//! Disk, swap, clock and address.

use super::machine::Machine;
use super::step::Step;
use super::{Finding, Remedy};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Every acknowledged write waits for the disk so long. A good card needs 2 to 5 ms, a bad one 50.
const SLOW_SYNC_DURATION: Duration = Duration::from_millis(10);
/// Enough for a median that one other write does not move.
const SYNCS: usize = 15;
/// What the store writes for a small object.
const BLOCK: usize = 4096;
/// Where Raspberry Pi OS keeps its swap file's settings, before Debian 13.
const DPHYS: &str = "/etc/dphys-swapfile";

pub fn look(machine: &Machine, data_dir: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(disk(machine, data_dir));
    findings.push(swap(machine));
    findings.push(clock(machine));
    findings.push(address());
    findings
}

/// `None` where nothing may be written: whoever runs the server may.
fn disk(machine: &Machine, data_dir: &Path) -> Option<Finding> {
    let there = data_dir.ancestors().map(|dir| machine.at(dir)).find(|dir| dir.is_dir())?;
    let median = sync_time(&there).ok()?;
    Some(slowness(&there, median))
}

fn slowness(dir: &Path, median: Duration) -> Finding {
    let what =
        format!("disk at {}: a write is durable after {:.1} ms", dir.display(), median.as_secs_f64() * 1e3);
    Finding::poor_unless(median <= SLOW_SYNC_DURATION, what, || {
        Remedy::by_hand(
            "every write of the API waits so long: put --data-dir on an SSD, or take a card of class A2; on ext4 no \
             data=journal",
        )
    })
}

/// The median of some writes in place, each followed by fdatasync(2).
fn sync_time(dir: &Path) -> io::Result<Duration> {
    let path = dir.join(format!(".coracle-check-{}", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    let timed = (|| {
        file.write_all_at(&[1; BLOCK], 0)?;
        file.sync_all()?;
        let mut times = Vec::with_capacity(SYNCS);
        for round in 0..SYNCS {
            let began = Instant::now();
            file.write_all_at(&[u8::try_from(round).unwrap_or(0); BLOCK], 0)?;
            file.sync_data()?;
            times.push(began.elapsed());
        }
        times.sort();
        Ok(times[SYNCS / 2])
    })();
    let removed = std::fs::remove_file(&path);
    timed.and_then(|time| removed.map(|()| time))
}

/// What is compressed in memory is no disk.
fn swap(machine: &Machine) -> Finding {
    let text = machine.text("/proc/swaps");
    let on_disk: Vec<&str> = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .filter(|path| !path.starts_with("/dev/zram"))
        .collect();
    if on_disk.is_empty() {
        return Finding::good("no swap on a disk");
    }
    let steps = || {
        let of_file =
            machine.has(DPHYS).then_some(Step::Run(&["systemctl", "disable", "--now", "dphys-swapfile"]));
        of_file.map_or_else(
            || on_disk.iter().map(|path| Step::SwapOff((*path).to_owned())).collect(),
            |step| vec![step],
        )
    };
    Finding::poor_unless(false, format!("no swap on a disk: {}", on_disk.join(", ")), || {
        Remedy::by(
            "a pod beyond its memory slows the whole machine instead of being ended: swapoff, and take it out of /etc/fstab",
            steps(),
        )
    })
}

/// A program cannot be newer than now.
fn clock(machine: &Machine) -> Finding {
    let built = std::env::current_exe().and_then(std::fs::metadata).and_then(|meta| meta.modified());
    judged(machine, built.ok(), SystemTime::now())
}

fn judged(machine: &Machine, built: Option<SystemTime>, now: SystemTime) -> Finding {
    let behind = built.and_then(|built| built.duration_since(now).ok()).filter(|gap| gap.as_secs() > 60);
    let what = match behind {
        Some(gap) => format!("the clock: at least {} days behind", gap.as_secs() / 86_400),
        None => "the clock".to_owned(),
    };
    Finding::poor_unless(behind.is_none(), what, || {
        let say = "everything works, and ages and logs are wrong: timedatectl set-ntp true, or give the machine a clock";
        match machine.find("timedatectl") {
            Some(_) => Remedy::by(say, [Step::Run(&["timedatectl", "set-ntp", "true"])]),
            None => Remedy::by_hand(say),
        }
    })
}

fn address() -> Finding {
    let ip = crate::address::Choice::default().now().first;
    Finding::poor_unless(!ip.is_loopback(), format!("the node's address: {ip}"), || {
        Remedy::by_hand(
            "no interface has an address: the node runs, and nobody else reaches it; restart it when there is one",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_slow_beyond_ten_milliseconds() {
        let dir = tempfile::tempdir().expect("temporary directory");
        assert!(sync_time(dir.path()).is_ok());
        assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0, "nothing is left behind");
        assert!(slowness(dir.path(), Duration::from_millis(10)).remedy().is_none());
        assert!(slowness(dir.path(), Duration::from_millis(11)).remedy().is_some());
    }

    #[test]
    fn a_clock_that_stands_before_the_program_is_behind() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let machine = Machine::below(dir.path());
        let (built, day) =
            (SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000), Duration::from_secs(86_400));
        assert!(judged(&machine, Some(built), built + day).remedy().is_none());
        let behind = judged(&machine, Some(built), built - 3 * day);
        assert_eq!(behind.what, "the clock: at least 3 days behind");
        assert!(behind.remedy().is_some());
    }
}
