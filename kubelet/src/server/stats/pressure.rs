//! How long tasks of a control group had to wait for something (<https://docs.kernel.org/accounting/psi.html>). The kernel
//! says so of cgroups v2.

use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Shares of the last seconds in percent, and a sum in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stalls {
    pub avg10: f64,
    pub avg60: f64,
    pub avg300: f64,
    pub total_micros: u64,
}

/// Of one resource: while some of the tasks waited, and while all of them did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pressure {
    pub some: Stalls,
    pub full: Stalls,
}

/// Of a group; `None` where the kernel does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pressures {
    pub cpu: Option<Pressure>,
    pub memory: Option<Pressure>,
    pub io: Option<Pressure>,
}

impl Pressures {
    /// Of the group at this place of the unified hierarchy.
    pub fn of_group(group: &Path) -> Self {
        let of = |name: &str| Pressure::parse(&fs::read_to_string(group.join(name)).ok()?);
        Self { cpu: of("cpu.pressure"), memory: of("memory.pressure"), io: of("io.pressure") }
    }

    /// Of the machine, which has it under another name, and where the version of cgroups does not matter.
    pub fn of_machine(proc: &Path) -> Self {
        let of = |name: &str| Pressure::parse(&fs::read_to_string(proc.join("pressure").join(name)).ok()?);
        Self { cpu: of("cpu"), memory: of("memory"), io: of("io") }
    }
}

impl Pressure {
    fn parse(text: &str) -> Option<Self> {
        let line = |kind: &str| text.lines().find_map(|line| Some(stalls(line.strip_prefix(kind)?)));
        // Older kernels say nothing of all tasks and the CPU: there it cannot be.
        Some(Self { some: line("some ")?, full: line("full ").unwrap_or_default() })
    }

    /// As `psi` of the summary.
    pub fn to_json(&self) -> Value {
        json!({ "full": self.full.to_json(), "some": self.some.to_json() })
    }
}

impl Stalls {
    fn to_json(&self) -> Value {
        // Upstream counts the sum in nanoseconds.
        json!({ "total": self.total_micros.saturating_mul(1000), "avg10": self.avg10, "avg60": self.avg60, "avg300": self.avg300 })
    }
}

/// `avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
fn stalls(line: &str) -> Stalls {
    let mut found = Stalls::default();
    for (key, value) in line.split_whitespace().filter_map(|word| word.split_once('=')) {
        match key {
            "avg10" => found.avg10 = value.parse().unwrap_or(0.0),
            "avg60" => found.avg60 = value.parse().unwrap_or(0.0),
            "avg300" => found.avg300 = value.parse().unwrap_or(0.0),
            "total" => found.total_micros = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_of_groups_and_of_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let some = "some avg10=1.50 avg60=0.25 avg300=0.00 total=77\n";
        fs::create_dir(dir.path().join("pressure")).unwrap();
        fs::write(dir.path().join("pressure/cpu"), some).unwrap();
        fs::write(
            dir.path().join("io.pressure"),
            format!("{some}full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"),
        )
        .unwrap();
        let machine = Pressures::of_machine(dir.path());
        let cpu = machine.cpu.unwrap();
        assert_eq!((cpu.some.avg10, cpu.some.total_micros, cpu.full), (1.5, 77, Stalls::default()));
        let group = Pressures::of_group(dir.path());
        assert_eq!(group.io.unwrap().to_json()["full"]["total"], 5000);
        assert_eq!((group.cpu, machine.io), (None, None));
    }
}
