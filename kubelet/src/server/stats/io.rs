//! What a control group has read from disks and written to them.

use std::collections::BTreeMap;
use std::fs;

/// Of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// `major:minor`.
    pub device: String,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub reads: u64,
    pub writes: u64,
}

impl DeviceUse {
    pub fn numbers(&self) -> (&str, &str) {
        self.device.split_once(':').unwrap_or((&self.device, ""))
    }

    /// `/dev/sda`, as udev calls it. Reads a file.
    pub fn path(&self) -> String {
        let uevent = fs::read_to_string(format!("/sys/dev/block/{}/uevent", self.device));
        let uevent = uevent.unwrap_or_default();
        let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="));
        name.map(|name| format!("/dev/{name}")).unwrap_or_default()
    }
}

/// `io.stat` of v2: `8:0 rbytes=1 wbytes=2 rios=3 wios=4 ...`.
pub fn of_v2(text: &str) -> Vec<DeviceUse> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let device = words.next().filter(|word| word.contains(':'))?.to_owned();
        let mut of = DeviceUse { device, ..DeviceUse::default() };
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            let value = value.parse().unwrap_or(0);
            match key {
                "rbytes" => of.read_bytes = value,
                "wbytes" => of.written_bytes = value,
                "rios" => of.reads = value,
                "wios" => of.writes = value,
                _ => {}
            }
        }
        Some(of)
    };
    text.lines().filter_map(line).collect()
}

/// `blkio.throttle.io_service_bytes` and `blkio.throttle.io_serviced` of v1: `8:0 Read 1`, a line each.
pub fn of_v1(bytes: &str, operations: &str) -> Vec<DeviceUse> {
    let mut all: BTreeMap<String, DeviceUse> = BTreeMap::new();
    for (counts_bytes, text) in [(true, bytes), (false, operations)] {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(device), Some(kind), Some(value)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let new = || DeviceUse { device: device.to_owned(), ..DeviceUse::default() };
            let of = all.entry(device.to_owned()).or_insert_with(new);
            let value = value.parse().unwrap_or(0);
            match (kind, counts_bytes) {
                ("Read", true) => of.read_bytes = value,
                ("Write", true) => of.written_bytes = value,
                ("Read", false) => of.reads = value,
                ("Write", false) => of.writes = value,
                _ => {}
            }
        }
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_tell_the_same() {
        let wanted = [DeviceUse {
            device: "8:0".to_owned(),
            read_bytes: 4096,
            written_bytes: 8192,
            reads: 1,
            writes: 2,
        }];
        assert_eq!(of_v2("8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n"), wanted);
        let bytes = "8:0 Read 4096\n8:0 Write 8192\n8:0 Sync 12288\n8:0 Total 12288\nTotal 12288\n";
        assert_eq!(of_v1(bytes, "8:0 Read 1\n8:0 Write 2\nTotal 3\n"), wanted);
        assert_eq!(wanted[0].numbers(), ("8", "0"));
        assert_eq!((of_v2(""), of_v1("Total 0\n", "")), (Vec::new(), Vec::new()));
    }
}
