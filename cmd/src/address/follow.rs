//! The node's address while the process runs: where another network begins, or DHCP gives another one, it is another.
//!
//! Only an address that is gone is replaced, by one of the interface with the default route, else of the interface on which
//! it was; until there is one, it stays. One that comes beside it, a default route by another interface, a temporary address
//! of IPv6 or a bridge of somebody's containers changes nothing. Loopback, which a node has while it has no network, gives
//! way to whatever a start would choose.

use super::{Choice, Machine, NodeIps, chosen};
use ipnet::IpNet;
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::watch::{Receiver, channel};
use tokio_util::sync::CancellationToken;

/// Between two looks. One costs about as much as a connection that is accepted.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// How long a change has to last before it counts: programs that configure networks take addresses away, and give the same
/// ones again.
const SETTLE_DELAY: Duration = Duration::from_secs(1);

/// Of the event on the Node.
pub const REASON: &str = "NodeAddressChanged";

/// The event's message.
pub fn told(before: NodeIps, now: NodeIps) -> String {
    format!("the node's address is {} now; it was {}", now.shown(), before.shown())
}

/// Waits until the machine has other addresses than `present`, and says which.
pub async fn changed(choice: &Choice, present: NodeIps) -> NodeIps {
    let mut last = Last { present, interfaces: [None, None] };
    last.look(&Machine::now());
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let machine = Machine::now();
        last.look(&machine);
        let seen = last.after(&machine, choice);
        if seen == present {
            continue;
        }
        tokio::time::sleep(SETTLE_DELAY).await;
        if last.after(&Machine::now(), choice) == seen {
            return seen;
        }
    }
}

/// The node's addresses, and the interfaces on which they were last seen.
struct Last {
    present: NodeIps,
    /// Of the first and the second.
    interfaces: [Option<String>; 2],
}

impl Last {
    fn look(&mut self, machine: &Machine) {
        let NodeIps { first, second } = self.present;
        for (ip, interface) in [Some(first), second].into_iter().zip(&mut self.interfaces) {
            if let Some(found) = machine.addresses.iter().find(|found| Some(found.ip) == ip) {
                *interface = Some(found.interface.clone());
            }
        }
    }

    fn after(&self, machine: &Machine, choice: &Choice) -> NodeIps {
        let (NodeIps { first, second }, [of_first, of_second]) = (self.present, &self.interfaces);
        let six = first.is_ipv6();
        NodeIps {
            first: successor(machine, &choice.ranges, six, Some(first), of_first.as_deref()).unwrap_or(first),
            second: choice
                .families
                .get(1)
                .and_then(|six| successor(machine, &choice.ranges, *six, second, of_second.as_deref())),
        }
    }
}

/// See the module. `None` where there was none, and is none.
fn successor(
    machine: &Machine,
    ranges: &[IpNet],
    six: bool,
    present: Option<IpAddr>,
    interface: Option<&str>,
) -> Option<IpAddr> {
    let Some(present) = present.filter(|ip| !ip.is_loopback()) else {
        return chosen(machine, ranges, six).or(present);
    };
    if machine.addresses.iter().any(|found| found.ip == present) {
        return Some(present);
    }
    let mut likely = machine.route(six).into_iter().chain(interface);
    likely.find_map(|name| machine.on(name, ranges, six)).or(Some(present))
}

/// The node's addresses of now and then, for who has no more to do about a change than to begin anew: see [`at_each`].
pub fn followed(choice: Option<Choice>, present: NodeIps) -> Receiver<NodeIps> {
    let (tell, addresses) = channel(present);
    if let Some(choice) = choice {
        tokio::spawn(async move {
            let mut before = present;
            loop {
                let now = changed(&choice, before).await;
                tracing::info!(before = before.shown(), now = now.shown(), "the node has another address");
                if tell.send(now).is_err() {
                    return;
                }
                before = now;
            }
        });
    }
    addresses
}

/// Runs `work` at the node's addresses until it ends or `stop`. When they change, what runs is told to end, and when it has
/// ended it is run anew.
///
/// # Errors
/// Of `work`.
pub async fn at_each<R, E>(
    mut addresses: Receiver<NodeIps>,
    stop: CancellationToken,
    work: impl Fn(NodeIps, CancellationToken) -> R,
) -> Result<(), E>
where
    R: Future<Output = Result<(), E>>,
{
    loop {
        let run = stop.child_token();
        let now = *addresses.borrow_and_update();
        let mut working = Box::pin(work(now, run.clone()));
        tokio::select! {
            ended = &mut working => return ended,
            Ok(()) = addresses.changed() => {}
        }
        run.cancel();
        working.await?;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Found;
    use super::*;
    use parking_lot::Mutex;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// Addresses with their interfaces, and the one with the default route.
    fn machine(addresses: &[(&str, &str)], route: Option<&str>) -> Machine {
        let found = |(interface, address): &(&str, &str)| Found {
            interface: (*interface).to_owned(),
            ip: ip(address),
            network: true,
            passing: false,
        };
        let route = route.map(str::to_owned);
        Machine { addresses: addresses.iter().map(found).collect(), routes: [route.clone(), route] }
    }

    /// What becomes of 192.0.2.7 on eth0.
    fn after(addresses: &[(&str, &str)], route: Option<&str>) -> String {
        let mut last = Last { present: ip("192.0.2.7").into(), interfaces: [None, None] };
        last.look(&machine(&[("lo", "127.0.0.1"), ("eth0", "192.0.2.7")], Some("eth0")));
        let now = machine(addresses, route);
        last.look(&now);
        last.after(&now, &Choice::default()).shown()
    }

    #[test]
    fn what_is_there_yet_stays() {
        let (lo, own) = (("lo", "127.0.0.1"), ("eth0", "192.0.2.7"));
        assert_eq!(after(&[lo, ("eth0", "192.0.2.3"), own], Some("eth0")), "192.0.2.7", "a second one");
        assert_eq!(
            after(&[lo, ("wlan0", "198.51.100.3"), own], Some("wlan0")),
            "192.0.2.7",
            "another way out"
        );
        assert_eq!(after(&[lo, own, ("eth0", "2001:db8::7")], Some("eth0")), "192.0.2.7");
        assert_eq!(after(&[lo], None), "192.0.2.7", "no network is no other address");
        assert_eq!(after(&[lo, ("docker0", "172.17.0.1")], None), "192.0.2.7", "it leads nowhere");
    }

    #[test]
    fn what_is_gone_is_followed() {
        let (lo, bridge) = (("lo", "127.0.0.1"), ("docker0", "172.17.0.1"));
        assert_eq!(after(&[lo, bridge, ("eth0", "192.0.2.9")], Some("eth0")), "192.0.2.9");
        assert_eq!(
            after(&[lo, bridge, ("eth0", "192.0.2.9")], None),
            "192.0.2.9",
            "no router in this network"
        );
        assert_eq!(after(&[lo, bridge, ("wlan0", "198.51.100.3")], Some("wlan0")), "198.51.100.3");
    }

    #[test]
    fn the_first_network_and_the_second_family_are_taken() {
        let last = Last { present: ip("127.0.0.1").into(), interfaces: [Some("lo".to_owned()), None] };
        let both = Choice { families: vec![false, true], ..Choice::default() };
        let shown = |addresses: &[(&str, &str)]| last.after(&machine(addresses, None), &both).shown();
        assert_eq!(shown(&[("lo", "127.0.0.1"), ("lo", "::1")]), "127.0.0.1");
        assert_eq!(shown(&[("lo", "127.0.0.1"), ("eth0", "192.0.2.7")]), "192.0.2.7");
        assert_eq!(shown(&[("eth0", "192.0.2.7"), ("eth0", "2001:db8::7")]), "192.0.2.7,2001:db8::7");
    }

    #[tokio::test]
    async fn work_is_done_at_each_address_and_ends_before_the_next() {
        let address = |last: u8| NodeIps::from(IpAddr::from([192, 0, 2, last]));
        let (tell, addresses) = channel(address(1));
        let (seen, stop) = (Mutex::new(Vec::new()), CancellationToken::new());
        let work = |now: NodeIps, run: CancellationToken| {
            let (seen, tell, stop) = (&seen, &tell, &stop);
            async move {
                seen.lock().push(format!("from {}", now.shown()));
                if now == address(2) {
                    stop.cancel();
                } else {
                    tell.send_replace(address(2));
                }
                run.cancelled().await;
                seen.lock().push(format!("until {}", now.shown()));
                Ok::<_, String>(())
            }
        };
        assert_eq!(at_each(addresses.clone(), stop.clone(), work).await, Ok(()));
        assert_eq!(*seen.lock(), ["from 192.0.2.1", "until 192.0.2.1", "from 192.0.2.2", "until 192.0.2.2"]);
        let failed = at_each(addresses, stop, async |_, _| Err("failed".to_owned()));
        assert_eq!(failed.await, Err("failed".to_owned()));
    }
}
