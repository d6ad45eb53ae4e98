//! The ranges that cluster IPs come from: those of all ServiceCIDR objects that are in use
//! (<https://kubernetes.io/docs/tasks/network/extend-service-ip-ranges/>, KEP-1880).

use super::super::Reader;
use super::*;
use ipnet::Ipv4Net;
use rand::Rng;
use std::net::Ipv4Addr;

/// The range of a server whose ServiceCIDR objects nobody has made, as in tests of the machinery alone.
const DEFAULT_RANGE: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 43, 0, 0), 16);
const SERVICE_CIDRS: &str = "servicecidrs.networking.k8s.io";
/// The object that carries the server's own `--service-cidr`; its addresses are given out first.
const FIRST: &str = "kubernetes";
/// Random tries before a scan of the whole range.
const TRIES: usize = 16;

pub struct Ranges(Vec<Ipv4Net>);

impl Ranges {
    pub fn of(read: &dyn Reader) -> Self {
        let mut objects = read.list(SERVICE_CIDRS, "");
        if objects.is_empty() {
            return Self(vec![DEFAULT_RANGE]);
        }
        objects.sort_by(|a, b| (name(a) != FIRST, name(a)).cmp(&(name(b) != FIRST, name(b))));
        let usable = objects.iter().filter(|object| gives_addresses(object));
        let cidrs = usable.flat_map(|object| strings_at(object, "spec.cidrs"));
        Self(cidrs.filter_map(|cidr| cidr.parse().ok()).collect())
    }

    /// Whether some range has the address, and it is not the range's own or its broadcast address.
    pub fn hold(&self, ip: Ipv4Addr) -> bool {
        self.0.iter().any(|range| range.contains(&ip) && ip != range.network() && ip != range.broadcast())
    }

    /// The server's own range, or nothing where even that gives no addresses.
    pub fn first(&self) -> String {
        self.0.first().map(ToString::to_string).unwrap_or_default()
    }

    pub fn free(&self, taken: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
        self.0.iter().find_map(|range| free_in(*range, &taken))
    }
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
fn free_in(range: Ipv4Net, taken: &impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
    let (first, last) =
        (u32::from(range.network()).checked_add(1)?, u32::from(range.broadcast()).checked_sub(1)?);
    let size = last.checked_sub(first)? + 1;
    let band = if size <= 16 { 0 } else { (size / 16).clamp(16, 256).min(size - 1) };
    let mut random = rand::rng();
    let tries = (0..TRIES).map(|_| random.random_range(first + band..=last));
    let scan = (first + band..=last).chain(first..first + band);
    tries.chain(scan).map(Ipv4Addr::from).find(|ip| !taken(*ip))
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
        let ranges = Ranges::of(&world);
        let ips = |text: &str| text.parse::<Ipv4Addr>().unwrap();
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
    }
}
