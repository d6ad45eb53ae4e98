//! What the machine itself uses, from `/proc`.

use super::cgroup::field as stat_field;
use super::containers::Sample;
use super::pressure::Pressures;
use crate::facts::{PID_MAX, THREADS_MAX, most_processes};
use crate::server::error::HttpError;
use serde_json::{Value, json};
use std::path::Path;

/// Nanoseconds of one tick of /proc/stat: the kernel shows 100 of them a second to user space on every machine.
const TICK_NANOS: u64 = 10_000_000;

/// In nanoseconds of cpu and bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub cpu_nanos: u64,
    pub memory_total: u64,
    pub memory_available: u64,
    pub memory_free: u64,
    pub rss: u64,
    pub page_faults: u64,
    pub major_page_faults: u64,
    pub swap_total: u64,
    pub swap_free: u64,
    /// When the machine started, in seconds since 1970.
    pub boot_second: i64,
    /// Tasks there are, and how many there can be.
    pub tasks: u64,
    pub most_tasks: u64,
    pub interfaces: Vec<Interface>,
    /// The interface of the default route.
    pub main_interface: String,
    pub pressures: Pressures,
}

/// Counters of one network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub rx_bytes: u64,
    pub rx_errors: u64,
    pub rx_packets: u64,
    pub rx_dropped: u64,
    pub tx_bytes: u64,
    pub tx_errors: u64,
    pub tx_packets: u64,
    pub tx_dropped: u64,
}

impl Interface {
    pub fn to_json(&self) -> Value {
        json!({ "name": self.name, "rxBytes": self.rx_bytes, "rxErrors": self.rx_errors,
            "txBytes": self.tx_bytes, "txErrors": self.tx_errors })
    }
}

impl Node {
    pub async fn read() -> Result<Self, HttpError> {
        let failed = |error: std::io::Error| HttpError::internal(format!("node statistics: {error}"));
        let read = |path: &'static str| async move { tokio::fs::read_to_string(path).await };
        let (stat, meminfo) = (read("/proc/stat").await, read("/proc/meminfo").await);
        let mut node = Self::parse(&stat.map_err(failed)?, &meminfo.map_err(failed)?);
        let text = |read: std::io::Result<String>| read.unwrap_or_default();
        let vmstat = text(read("/proc/vmstat").await);
        node.page_faults = stat_field(&vmstat, "pgfault");
        node.major_page_faults = stat_field(&vmstat, "pgmajfault");
        node.tasks = tasks(&text(read("/proc/loadavg").await));
        let (pids, threads) = (text(read(PID_MAX).await), text(read(THREADS_MAX).await));
        node.most_tasks = most_processes(&pids, &threads).unwrap_or(0);
        node.interfaces = interfaces(&text(read("/proc/net/dev").await));
        node.main_interface = default_interface(&text(read("/proc/net/route").await));
        node.pressures = Pressures::of_machine(Path::new("/proc"));
        Ok(node)
    }

    /// All but idle and waiting for I/O counts as use; guests are within user time already.
    pub fn parse(stat: &str, meminfo: &str) -> Self {
        let ticks: Vec<u64> = stat
            .lines()
            .find_map(|line| line.strip_prefix("cpu "))
            .map(|line| line.split_whitespace().map(|n| n.parse().unwrap_or(0)).collect())
            .unwrap_or_default();
        let busy: u64 =
            ticks.iter().take(8).enumerate().filter(|(at, _)| !matches!(at, 3 | 4)).map(|(_, n)| n).sum();
        let field = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        Self {
            cpu_nanos: busy * TICK_NANOS,
            memory_total: field("MemTotal:"),
            memory_available: field("MemAvailable:"),
            memory_free: field("MemFree:"),
            rss: field("AnonPages:"),
            swap_total: field("SwapTotal:"),
            swap_free: field("SwapFree:"),
            boot_second: i64::try_from(stat_field(stat, "btime")).unwrap_or(0),
            ..Self::default()
        }
    }

    pub fn working_set(&self) -> u64 {
        self.memory_total.saturating_sub(self.memory_available)
    }

    pub fn swap_used(&self) -> u64 {
        self.swap_total.saturating_sub(self.swap_free)
    }

    /// As a container without a name, in the group `/`.
    pub fn sample(&self) -> Sample {
        Sample {
            cgroup: "/".to_owned(),
            time_nanos: i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(0),
            started: Some(self.boot_second),
            cpu_nanos: Some(self.cpu_nanos),
            working_set: Some(self.working_set()),
            usage: Some(self.memory_total.saturating_sub(self.memory_free)),
            rss: Some(self.rss),
            swap: Some(self.swap_used()),
            ..Sample::default()
        }
    }

    /// As `node.network` of the summary; null without a default route's interface.
    pub fn network(&self, time: &str) -> Value {
        let Some(main) = self.interfaces.iter().find(|i| i.name == self.main_interface) else {
            return Value::Null;
        };
        let mut network = main.to_json();
        network["time"] = time.into();
        network["interfaces"] = self.interfaces.iter().map(Interface::to_json).collect::<Vec<_>>().into();
        network
    }
}

/// The second number of `2/310` in the fourth column.
fn tasks(loadavg: &str) -> u64 {
    let column = loadavg.split_whitespace().nth(3).unwrap_or_default();
    column.split_once('/').and_then(|(_, all)| all.parse().ok()).unwrap_or(0)
}

/// Without loopback.
pub fn interfaces_of(dev: &str) -> Vec<Interface> {
    let line = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers.split_whitespace().map(|n| n.parse().unwrap_or(0)).collect();
        let at = |n: usize| numbers.get(n).copied().unwrap_or(0);
        let name = name.trim().to_owned();
        Some(Interface {
            name,
            rx_bytes: at(0),
            rx_packets: at(1),
            rx_errors: at(2),
            rx_dropped: at(3),
            tx_bytes: at(8),
            tx_packets: at(9),
            tx_errors: at(10),
            tx_dropped: at(11),
        })
    };
    dev.lines().filter_map(line).filter(|interface| interface.name != "lo").collect()
}

/// Of the machine, without the ends of pods' links.
fn interfaces(dev: &str) -> Vec<Interface> {
    let of_pods = |name: &str| name.starts_with("veth") || name.starts_with("cali");
    interfaces_of(dev).into_iter().filter(|interface| !of_pods(&interface.name)).collect()
}

fn default_interface(route: &str) -> String {
    let mut lines = route.lines().skip(1).map(|line| line.split_whitespace());
    let found = lines.find_map(|mut line| {
        let name = line.next()?;
        (line.next()? == "00000000").then(|| name.to_owned())
    });
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_statistics_are_read_from_proc() {
        let stat = "cpu  10 1 5 1000 50 2 3 4 9 0\ncpu0 1 1 1 1 1 1 1 1 0 0\nbtime 1700000000\n";
        let meminfo =
            "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\nSwapTotal: 8 kB\nSwapFree: 2 kB\n";
        let node = Node::parse(stat, meminfo);
        assert_eq!(node.cpu_nanos, (10 + 1 + 5 + 2 + 3 + 4) * 10_000_000);
        assert_eq!((node.working_set(), node.swap_used()), (600 * 1024, 6 * 1024));
        assert_eq!(node.boot_second, 1_700_000_000);
        assert_eq!(Node::parse("", ""), Node::default());
    }

    #[test]
    fn networks_are_read_from_proc() {
        let dev =
            "Inter-|   Receive\n face |bytes\n    lo: 1 2 3\n  eth0: 100 2 3 0 0 0 0 0 200 5 6\nveth12: 9\n";
        let route = "Iface\tDestination\tGateway\ndocker0\t000011AC\t0\neth0\t00000000\t010011AC\n";
        let node =
            Node { interfaces: interfaces(dev), main_interface: default_interface(route), ..Node::default() };
        let network = node.network("now");
        assert_eq!(
            (&network["name"], &network["rxBytes"], &network["txErrors"]),
            (&json!("eth0"), &json!(100), &json!(6))
        );
        assert_eq!(network["interfaces"].as_array().unwrap().len(), 1);
        assert_eq!(Node::default().network("now"), Value::Null);
        assert_eq!(tasks("0.1 0.2 0.3 2/310 12345\n"), 310);
    }
}
