//! Virtual servers as plain data, and the steps from those in force to those wanted.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// Numbers of protocols (IANA).
pub const TCP: u16 = 6;
pub const UDP: u16 = 17;
pub const SCTP: u16 = 132;

/// The number of a Service's protocol.
pub fn protocol(name: &str) -> u16 {
    match name {
        "udp" => UDP,
        "sctp" => SCTP,
        _ => TCP,
    }
}

/// What a virtual server is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub protocol: u16,
    pub ip: IpAddr,
    pub port: u16,
}

/// How a virtual server chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub scheduler: String,
    /// Those of [`FLAGS`].
    pub flags: u32,
    /// Seconds that a client keeps its endpoint; counts with [`PERSISTENT`] only.
    pub timeout: u32,
}

/// `IP_VS_SVC_F_PERSISTENT`: clients keep their endpoint.
pub const PERSISTENT: u32 = 1;
/// `IP_VS_SVC_F_SCHED_SH_FALLBACK`, `..._MH_FALLBACK`: who would be sent to weight 0 is sent elsewhere.
pub const FALLBACK: u32 = 8;
/// `IP_VS_SVC_F_SCHED_MH_PORT`: a client's port counts too, as upstream has it.
pub const WITH_PORT: u32 = 16;
/// What is ours to choose; the kernel adds its own.
pub const FLAGS: u32 = PERSISTENT | 4 | FALLBACK | WITH_PORT;

/// A real server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Real {
    /// 1, as all endpoints are alike to Kubernetes; 0 takes no new connections.
    pub weight: u32,
    /// Since when nobody wants it any more, while its connections end.
    pub leaving: Option<Instant>,
}

impl Real {
    pub const WANTED: Self = Self { weight: 1, leaving: None };
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub choice: Choice,
    pub reals: BTreeMap<SocketAddr, Real>,
}

pub type Servers = BTreeMap<Key, Server>;

/// One message to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Add(Key, Choice),
    Change(Key, Choice),
    Remove(Key),
    AddReal(Key, SocketAddr, u32),
    Weigh(Key, SocketAddr, u32),
    RemoveReal(Key, SocketAddr),
}

/// From some servers to others: first `removals`, then `changes`, and `after` is in force.
#[derive(Debug, Default, PartialEq)]
pub struct Steps {
    pub removals: Vec<Step>,
    pub changes: Vec<Step>,
    pub after: Servers,
}

/// How a server's endpoints leave.
pub struct Leaving<'a> {
    /// Whether TCP endpoints stay with weight 0 while their connections end.
    pub drains: bool,
    /// Servers that are never taken away.
    pub keeps: &'a dyn Fn(&Key) -> bool,
    pub now: Instant,
}

/// The steps from `have` to `want`.
pub fn steps(have: &Servers, want: &Servers, leaving: &Leaving<'_>) -> Steps {
    let mut steps = Steps::default();
    for key in have.keys().filter(|key| !want.contains_key(*key) && !(leaving.keeps)(key)) {
        steps.removals.push(Step::Remove(*key));
    }
    for (key, wanted) in want {
        let none = BTreeMap::new();
        let reals = match have.get(key) {
            Some(server) if server.choice == wanted.choice => &server.reals,
            Some(server) => {
                steps.changes.push(Step::Change(*key, wanted.choice.clone()));
                &server.reals
            }
            None => {
                steps.changes.push(Step::Add(*key, wanted.choice.clone()));
                &none
            }
        };
        let mut after = Server { choice: wanted.choice.clone(), reals: wanted.reals.clone() };
        for (at, real) in &wanted.reals {
            match reals.get(at) {
                Some(is) if is.weight == real.weight => {}
                Some(_) => steps.changes.push(Step::Weigh(*key, *at, real.weight)),
                None => steps.changes.push(Step::AddReal(*key, *at, real.weight)),
            }
        }
        for (at, real) in reals.iter().filter(|(at, _)| !wanted.reals.contains_key(*at)) {
            if !leaving.drains || key.protocol != TCP {
                steps.changes.push(Step::RemoveReal(*key, *at));
                continue;
            }
            if real.weight != 0 {
                steps.changes.push(Step::Weigh(*key, *at, 0));
            }
            let since = real.leaving.unwrap_or(leaving.now);
            after.reals.insert(*at, Real { weight: 0, leaving: Some(since) });
        }
        steps.after.insert(*key, after);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(protocol: u16) -> Key {
        Key { protocol, ip: [10, 43, 0, 9].into(), port: 80 }
    }

    fn server(scheduler: &str, reals: &[u8]) -> Server {
        let at = |last: &u8| (SocketAddr::from(([10, 42, 0, *last], 8080)), Real::WANTED);
        let choice = Choice { scheduler: scheduler.to_owned(), flags: 0, timeout: 0 };
        Server { choice, reals: reals.iter().map(at).collect() }
    }

    fn at(last: u8) -> SocketAddr {
        ([10, 42, 0, last], 8080).into()
    }

    const NONE: &dyn Fn(&Key) -> bool = &|_| false;

    #[test]
    fn endpoints_of_tcp_leave_when_their_connections_have_ended() {
        let now = Instant::now();
        let leaving = Leaving { drains: true, keeps: NONE, now };
        let have = Servers::from([(key(TCP), server("rr", &[2, 3])), (key(UDP), server("rr", &[2]))]);
        let want = Servers::from([(key(TCP), server("rr", &[3, 4])), (key(UDP), server("rr", &[]))]);
        let first = steps(&have, &want, &leaving);
        assert_eq!(
            first.changes,
            [
                Step::AddReal(key(TCP), at(4), 1),
                Step::Weigh(key(TCP), at(2), 0),
                Step::RemoveReal(key(UDP), at(2))
            ]
        );
        assert_eq!(first.after[&key(TCP)].reals[&at(2)], Real { weight: 0, leaving: Some(now) });
        assert_eq!(steps(&first.after, &want, &leaving), Steps { changes: Vec::new(), ..first });
        // It comes back before it has gone.
        let back = steps(&first_after(&have, &want, &leaving), &have, &leaving);
        assert!(back.changes.contains(&Step::Weigh(key(TCP), at(2), 1)), "{back:?}");
        let at_once = steps(&have, &want, &Leaving { drains: false, ..leaving });
        assert!(at_once.changes.contains(&Step::RemoveReal(key(TCP), at(2))), "{at_once:?}");
    }

    fn first_after(have: &Servers, want: &Servers, leaving: &Leaving<'_>) -> Servers {
        steps(have, want, leaving).after
    }

    #[test]
    fn servers_come_change_and_go_but_for_those_that_are_kept() {
        let leaving = Leaving { drains: true, keeps: NONE, now: Instant::now() };
        let have = Servers::from([(key(TCP), server("rr", &[2]))]);
        let other = steps(&have, &Servers::from([(key(TCP), server("sh", &[2]))]), &leaving);
        assert_eq!(other.changes, [Step::Change(key(TCP), server("sh", &[]).choice)]);
        let gone = steps(&have, &Servers::new(), &leaving);
        assert_eq!(gone.removals, [Step::Remove(key(TCP))]);
        let kept = steps(&have, &Servers::new(), &Leaving { keeps: &|key| key.port == 80, ..leaving });
        assert_eq!(kept, Steps::default());
    }
}
