//! The ranges that cluster IPs come from: those of all ServiceCIDR objects that are in use
//! (<https://kubernetes.io/docs/tasks/network/extend-service-ip-ranges/>, KEP-1880).

use super::super::ObjectReader;
use super::families::Configured;
use super::*;
use ipnet::{IpNet, Ipv4Net};
use rand::Rng;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The range of a server whose ServiceCIDR objects nobody has made, as in tests of the machinery alone.
const DEFAULT_RANGE: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 43, 0, 0), 16));
const SERVICE_CIDRS: &str = "servicecidrs.networking.k8s.io";
/// The object that carries the server's own `--service-cidr`; its addresses are given out first.
const FIRST: &str = "kubernetes";
/// Random tries before a scan of the whole range.
const TRIES: usize = 16;

/// The families that Services may have: those of the server's own ranges in their order, whatever other ranges there are.
/// Where somebody has deleted these, those of the others.
pub fn configured(read: &dyn ObjectReader) -> Configured {
    let own = read.get(SERVICE_CIDRS, "", FIRST).map(|own| vec![own]);
    let objects = own.unwrap_or_else(|| read.list(SERVICE_CIDRS, ""));
    let mut families = Vec::new();
    for cidr in objects.iter().flat_map(|object| strings_at(object, "spec.cidrs")) {
        let family = super::families::of(cidr);
        if !families.contains(&family) {
            families.push(family);
        }
    }
    if families.is_empty() {
        families.push("IPv4");
    }
    Configured(families)
}

pub struct Ranges(Vec<IpNet>);

impl Ranges {
    /// Those that addresses of one family come from.
    pub fn of(read: &dyn ObjectReader, family: &str) -> Self {
        let mut objects = read.list(SERVICE_CIDRS, "");
        let mut all = vec![DEFAULT_RANGE];
        if !objects.is_empty() {
            objects.sort_by(|a, b| (name(a) != FIRST, name(a)).cmp(&(name(b) != FIRST, name(b))));
            let usable = objects.iter().filter(|object| gives_addresses(object));
            let cidrs = usable.flat_map(|object| strings_at(object, "spec.cidrs"));
            all = cidrs.filter_map(|cidr| cidr.parse().ok()).collect();
        }
        all.retain(|range| range.addr().is_ipv6() == (family == "IPv6"));
        Self(all)
    }

    /// Whether some range has the address, and it is not the range's own or, in IPv4, its broadcast address.
    pub fn hold(&self, ip: IpAddr) -> bool {
        let number = number(ip);
        self.0.iter().any(|range| {
            range.contains(&ip) && bounds(range).is_some_and(|(first, last)| (first..=last).contains(&number))
        })
    }

    /// The server's own range, or nothing where even that gives no addresses.
    pub fn first(&self) -> String {
        self.0.first().map(ToString::to_string).unwrap_or_default()
    }

    pub fn free(&self, taken: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
        self.0.iter().find_map(|range| free_in(range, &taken))
    }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    }
}

/// The first and the last address that can be given out.
fn bounds(range: &IpNet) -> Option<(u128, u128)> {
    let last_is_broadcast = u128::from(range.addr().is_ipv4());
    let bounds =
        (number(range.network()).checked_add(1)?, number(range.broadcast()).checked_sub(last_is_broadcast)?);
    (bounds.0 <= bounds.1).then_some(bounds)
}

/// One that is being deleted gives no more; one without a condition does, because nobody may be there to set it.
fn gives_addresses(object: &Object) -> bool {
    let mut conditions = list_at(object, "status.conditions").iter();
    let ready =
        conditions.find(|c| str_at(c, "type") == "Ready").is_none_or(|c| str_at(c, "status") == "True");
    ready && !has(object, "metadata.deletionTimestamp")
}

/// Allocation avoids the start of the range, which is kept for addresses that people choose (KEP-3070): a
/// sixteenth of it, at least 16 and at most 256 addresses.
fn free_in(range: &IpNet, taken: &impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
    let (first, last) = bounds(range)?;
    let size = (last - first).saturating_add(1);
    let band = if size <= 16 { 0 } else { (size / 16).clamp(16, 256).min(size - 1) };
    let mut random = rand::rng();
    let tries = (0..TRIES).map(|_| random.random_range(first + band..=last));
    let scan = (first + band..=last).chain(first..first + band);
    let address = |number: u128| match range {
        IpNet::V4(_) => u32::try_from(number).ok().map(|number| IpAddr::V4(Ipv4Addr::from(number))),
        IpNet::V6(_) => Some(IpAddr::V6(Ipv6Addr::from(number))),
    };
    tries.chain(scan).filter_map(address).find(|ip| !taken(*ip))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;

    fn world(objects: &[(&str, &str, Value, Value)]) -> World {
        objects.iter().fold(World::default(), |world, (name, cidr, deleted, ready)| {
            let object = json!({
                "metadata": { "name": name, "deletionTimestamp": deleted }, "spec": { "cidrs": [cidr] },
                "status": { "conditions": [{ "type": "Ready", "status": ready }] },
            });
            world.with(&format!("{SERVICE_CIDRS}//{name}"), object)
        })
    }

    #[test]
    fn what_is_ready_and_stays_gives_addresses_the_servers_own_first() {
        let now = json!("2026-01-01T00:00:00Z");
        let (yes, no) = (json!("True"), json!("False"));
        let world = world(&[
            ("a", "10.1.0.0/30", Value::Null, yes.clone()),
            ("deleted", "10.2.0.0/24", now, yes.clone()),
            ("kubernetes", "10.3.0.0/30", Value::Null, yes.clone()),
            ("late", "10.4.0.0/24", Value::Null, no),
            ("six", "fd00::/64", Value::Null, yes),
        ]);
        let ranges = Ranges::of(&world, "IPv4");
        let ips = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(ranges.hold(ips("10.1.0.1")) && ranges.hold(ips("10.3.0.2")));
        for no in ["10.1.0.0", "10.3.0.3", "10.2.0.7", "10.4.0.7", "10.43.0.7"] {
            assert!(!ranges.hold(ips(no)), "{no}");
        }
        let mut given = Vec::new();
        while let Some(ip) = ranges.free(|ip| given.contains(&ip)) {
            given.push(ip);
        }
        given[..2].sort();
        given[2..].sort();
        assert_eq!(given, ["10.3.0.1", "10.3.0.2", "10.1.0.1", "10.1.0.2"].map(ips));
        assert_eq!(configured(&world), Configured(vec!["IPv4"]), "another range brings no family");
    }

    #[test]
    fn of_ipv6_only_the_first_address_is_the_ranges_own() {
        let world = world(&[("kubernetes", "fd00::/126", Value::Null, json!("True"))]);
        let ranges = Ranges::of(&world, "IPv6");
        let mut given = Vec::new();
        while let Some(ip) = ranges.free(|ip| given.contains(&ip)) {
            given.push(ip);
        }
        given.sort();
        assert_eq!(given, ["fd00::1", "fd00::2", "fd00::3"].map(|ip| ip.parse::<IpAddr>().unwrap()));
        let [own, last] = ["fd00::", "fd00::3"].map(|ip| ip.parse().unwrap());
        assert!(!ranges.hold(own) && ranges.hold(last));
        assert_eq!(configured(&world), Configured(vec!["IPv6"]));
        assert!(Ranges::of(&world, "IPv4").free(|_| false).is_none());
    }

    #[test]
    fn a_large_range_gives_without_a_scan() {
        let range = "fd00::/64".parse().unwrap();
        let low = number("fd00::".parse().unwrap()) + 256;
        assert!(
            free_in(&range, &|_| false).is_some_and(|ip| number(ip) > low),
            "not of those that people choose"
        );
    }
}
