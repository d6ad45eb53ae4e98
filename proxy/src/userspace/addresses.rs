//! An interface of the proxy's own that has the addresses of Services, so that this machine takes what is sent to them.

use crate::command::{CommandError, Own, exists};
use crate::family::Family;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// Routes of ours carry a protocol number of their own; free in iproute2's table, and not the pod network's.
const PROTOCOL: &str = "199";

/// Looks for new addresses that are not in use yet, and the time between two: half a second in all, where milliseconds do.
const USABLE_LOOKS: usize = 100;
const USABLE_INTERVAL: Duration = Duration::from_millis(5);

pub struct Addresses {
    family: Family,
    own: Own,
    set: BTreeSet<IpAddr>,
    ranges: Vec<String>,
}

impl Addresses {
    pub fn new(family: Family, own: Own) -> Self {
        Self { family, own, set: BTreeSet::new(), ranges: Vec::new() }
    }

    const fn interface(&self) -> &'static str {
        match self.family {
            Family::V4 => "kube-user4",
            Family::V6 => "kube-user6",
        }
    }

    const fn flag(&self) -> &'static str {
        match self.family {
            Family::V4 => "-4",
            Family::V6 => "-6",
        }
    }

    async fn ip(&self, args: &[&str]) -> Result<String, CommandError> {
        self.own.done("ip", args, None).await
    }

    async fn batch(&self, lines: &str) -> Result<(), CommandError> {
        if lines.is_empty() {
            return Ok(());
        }
        self.own.done("ip", &[self.flag(), "-batch", "-"], Some(lines)).await.map(drop)
    }

    /// Makes the interface, without addresses; false where that is not allowed.
    ///
    /// # Errors
    /// It is allowed, and fails.
    pub async fn begin(&mut self) -> Result<bool, CommandError> {
        if !exists("ip") {
            return Ok(false);
        }
        self.clean_up().await?;
        let interface = self.interface();
        let mut made = self.ip(&["link", "add", "name", interface, "type", "dummy"]).await;
        let peer = format!("{interface}-peer");
        if made.is_err() {
            // A kernel without dummy interfaces has pairs, as pods need them. Addresses work only while both are up.
            let pair = ["link", "add", "name", interface, "type", "veth", "peer", "name", &peer];
            made = self.ip(&pair).await;
            if made.is_ok() {
                self.ip(&["link", "set", &peer, "up"]).await?;
            }
        }
        match made {
            Ok(_) => self.ip(&["link", "set", interface, "up"]).await.map(|_| true),
            Err(error) if error.is_not_permitted() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes these addresses and no others; what is sent to others of `ranges` goes nowhere.
    ///
    /// # Errors
    /// Of `ip`.
    pub async fn set(&mut self, wanted: BTreeSet<IpAddr>, ranges: &[String]) -> Result<(), CommandError> {
        if let Err(error) = self.batch(&self.step(&wanted, ranges)).await {
            // Somebody has been at the interface: it is made anew.
            tracing::debug!(%error, "Services' addresses are not as they were left");
            self.begin().await?;
            self.batch(&self.step(&wanted, ranges)).await?;
        }
        if self.family == Family::V6 {
            self.wait_until_usable(&wanted).await?;
        }
        (self.set, self.ranges) = (wanted, ranges.to_vec());
        Ok(())
    }

    /// What `ip` must do, a line each.
    fn step(&self, wanted: &BTreeSet<IpAddr>, ranges: &[String]) -> String {
        let (interface, bits) = (self.interface(), self.family.bits());
        let nodad = if self.family == Family::V6 { " nodad" } else { "" };
        let mut lines = String::new();
        for ip in self.set.difference(wanted) {
            lines.push_str(&format!("address del {ip}/{bits} dev {interface}\n"));
        }
        for ip in wanted.difference(&self.set) {
            lines.push_str(&format!("address replace {ip}/{bits} dev {interface}{nodad}\n"));
        }
        for range in ranges.iter().filter(|range| !self.ranges.contains(range)) {
            lines.push_str(&format!("route replace blackhole {range} proto {PROTOCOL}\n"));
        }
        for range in self.ranges.iter().filter(|range| !ranges.contains(range)) {
            lines.push_str(&format!("route del blackhole {range} proto {PROTOCOL}\n"));
        }
        lines
    }

    /// The kernel leads packets to new addresses of IPv6 a moment later, also where it looks for no duplicates.
    async fn wait_until_usable(&self, wanted: &BTreeSet<IpAddr>) -> Result<(), CommandError> {
        let shows = ["-6", "route", "show", "table", "local", "dev", self.interface()];
        for _ in 0..USABLE_LOOKS {
            let shown = self.ip(&shows).await?;
            let led = shown.lines().filter_map(|line| line.strip_prefix("local ")?.split(' ').next());
            let led: BTreeSet<IpAddr> = led.filter_map(|ip| ip.parse().ok()).collect();
            if wanted.is_subset(&led) {
                break;
            }
            tokio::time::sleep(USABLE_INTERVAL).await;
        }
        Ok(())
    }

    /// # Errors
    /// Of `ip`.
    pub async fn is_intact(&self) -> Result<bool, CommandError> {
        let shown = self
            .own
            .run("ip", &["-o", self.flag(), "address", "show", "dev", self.interface()], None)
            .await?;
        let text = String::from_utf8_lossy(&shown.stdout);
        let there: BTreeSet<IpAddr> = text
            .lines()
            .filter_map(|line| line.split_whitespace().nth(3)?.split('/').next()?.parse().ok())
            .collect();
        Ok(self.set.is_subset(&there))
    }

    /// # Errors
    /// Of `ip`.
    pub async fn repair(&mut self) -> Result<(), CommandError> {
        let (set, ranges) = (std::mem::take(&mut self.set), std::mem::take(&mut self.ranges));
        self.begin().await?;
        self.set(set, &ranges).await
    }

    /// Takes interface and routes away; harmless where there are none.
    ///
    /// # Errors
    /// Of `ip`.
    pub async fn clean_up(&mut self) -> Result<(), CommandError> {
        (self.set, self.ranges) = (BTreeSet::new(), Vec::new());
        if !exists("ip") {
            return Ok(());
        }
        let links = self.ip(&["-o", "link", "show"]).await?;
        let is_ours =
            |line: &str| line.split([':', '@']).nth(1).is_some_and(|n| n.trim() == self.interface());
        if links.lines().any(is_ours) {
            self.ip(&["link", "del", self.interface()]).await?;
        }
        let ours = ["proto", PROTOCOL, "type", "blackhole"];
        let routes =
            self.own.run("ip", &[&[self.flag(), "route", "show"], ours.as_slice()].concat(), None).await?;
        if !routes.stdout.is_empty() {
            self.ip(&[&[self.flag(), "route", "flush"], ours.as_slice()].concat()).await?;
        }
        Ok(())
    }
}
