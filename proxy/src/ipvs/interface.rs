//! The dummy interface `kube-ipvs0` with the addresses of Services, of both families, and this machine's own addresses.

use crate::command::{CommandError, Own, exists};
use crate::family::Family;
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;

pub const INTERFACE: &str = "kube-ipvs0";

pub struct Interface {
    family: Family,
    own: Own,
}

impl Interface {
    pub fn new(family: Family, own: Own) -> Self {
        Self { family, own }
    }

    const fn flag(&self) -> &'static str {
        if matches!(self.family, Family::V4) { "-4" } else { "-6" }
    }

    /// Makes the interface where it is not there. Its own link-local address of IPv6 would be nobody's.
    ///
    /// # Errors
    /// Of `ip`.
    pub async fn begin(&self) -> Result<(), CommandError> {
        if self.is_there() {
            return Ok(());
        }
        let lines = format!(
            "link add name {INTERFACE} type dummy\nlink set {INTERFACE} addrgenmode none\nlink set {INTERFACE} up\n"
        );
        let made = self.own.done("ip", &["-batch", "-"], Some(&lines)).await;
        // The other family's part may have been quicker.
        made.map(drop).or_else(|error| if self.is_there() { Ok(()) } else { Err(error) })
    }

    pub fn is_there(&self) -> bool {
        nix::net::if_::if_nametoindex(INTERFACE).is_ok()
    }

    /// The addresses that the interface has.
    ///
    /// # Errors
    /// Of `ip`.
    pub async fn addresses(&self) -> Result<BTreeSet<IpAddr>, CommandError> {
        let shows = ["-o", self.flag(), "address", "show", "dev", INTERFACE, "scope", "global"];
        let shown = self.own.run("ip", &shows, None).await?;
        let text = String::from_utf8_lossy(&shown.stdout);
        let read = |line: &str| line.split_whitespace().nth(3)?.split('/').next()?.parse().ok();
        Ok(text.lines().filter_map(read).collect())
    }

    /// Brings addresses and takes others away.
    ///
    /// # Errors
    /// Of `ip`.
    pub async fn change<'a>(
        &self,
        gone: impl Iterator<Item = &'a IpAddr> + Send,
        new: impl Iterator<Item = &'a IpAddr> + Send,
    ) -> Result<(), CommandError> {
        let (bits, mut lines) = (self.family.bits(), String::new());
        let nodad = if self.family == Family::V6 { " nodad" } else { "" };
        gone.for_each(|ip| lines.push_str(&format!("address del {ip}/{bits} dev {INTERFACE}\n")));
        new.for_each(|ip| lines.push_str(&format!("address replace {ip}/{bits} dev {INTERFACE}{nodad}\n")));
        if lines.is_empty() {
            return Ok(());
        }
        self.own.done("ip", &[self.flag(), "-batch", "-"], Some(&lines)).await.map(drop)
    }

    /// Takes the family's addresses away, and the interface with the last family's.
    ///
    /// # Errors
    /// Of `ip`.
    pub async fn clean_up(&self) -> Result<(), CommandError> {
        if !self.is_there() || !exists("ip") {
            return Ok(());
        }
        let left = ["-o", "address", "show", "dev", INTERFACE, "scope", "global"];
        self.own.done("ip", &[self.flag(), "address", "flush", "dev", INTERFACE], None).await?;
        if self.own.done("ip", &left, None).await?.is_empty() {
            self.own.done("ip", &["link", "del", INTERFACE], None).await?;
        }
        Ok(())
    }

    /// This machine's addresses that node ports answer on; `networks` empty: all but loopback. Never those of a single link.
    ///
    /// # Errors
    /// Of `ip`.
    pub async fn of_machine(&self, networks: &[String]) -> Result<BTreeSet<IpAddr>, CommandError> {
        let shown =
            self.own.done("ip", &["-o", self.flag(), "address", "show", "scope", "global"], None).await?;
        let networks: Vec<IpNet> = networks.iter().filter_map(|network| network.parse().ok()).collect();
        Ok(machine_addresses(&shown, &networks))
    }
}

fn machine_addresses(shown: &str, networks: &[IpNet]) -> BTreeSet<IpAddr> {
    let read = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ip: IpAddr = words.get(3)?.split('/').next()?.parse().ok()?;
        let answers = networks.is_empty() || networks.iter().any(|network| network.contains(&ip));
        (words.get(1) != Some(&INTERFACE) && answers && !ip.is_loopback()).then_some(ip)
    };
    shown.lines().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ports_answer_on_the_machines_own_addresses() {
        let shown = "2: eth0    inet 192.0.2.1/24 brd 192.0.2.255 scope global eth0\\       valid_lft forever\n\
                     3: kube-ipvs0    inet 10.43.0.1/32 scope global kube-ipvs0\\       valid_lft forever\n\
                     4: cni0    inet 10.42.0.1/24 scope global cni0\\       valid_lft forever\n";
        let all = machine_addresses(shown, &[]);
        assert_eq!(all, BTreeSet::from([[192, 0, 2, 1].into(), [10, 42, 0, 1].into()]));
        let some = machine_addresses(shown, &["192.0.2.0/24".parse().expect("a network")]);
        assert_eq!(some, BTreeSet::from([[192, 0, 2, 1].into()]));
    }
}
