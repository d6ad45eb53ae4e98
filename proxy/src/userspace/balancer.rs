//! Which endpoint a client is sent to: round robin, or the one that it had before.

use crate::model::{Endpoint, ServicePort};
use ipnet::IpNet;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::Instant;

/// So many clients' endpoints are remembered for one port; upstream's sets have the same size. Beyond it those are
/// forgotten whose time is over, then new ones are not remembered.
const REMEMBERED: usize = 65_535;

#[derive(Default)]
struct State {
    cluster: Vec<SocketAddr>,
    local: Vec<SocketAddr>,
    next: usize,
    keep: Duration,
    last: HashMap<IpAddr, (SocketAddr, Instant)>,
    sources: Vec<IpNet>,
}

/// Of one port of a Service; everything that leads to it shares it.
#[derive(Default)]
pub struct Balancer(Mutex<State>);

fn sockets(endpoints: &[&Endpoint]) -> Vec<SocketAddr> {
    endpoints.iter().map(|endpoint| SocketAddr::new(endpoint.ip, endpoint.port)).collect()
}

impl Balancer {
    pub fn set(&self, port: &ServicePort) {
        let mut state = self.0.lock();
        state.cluster = sockets(&port.cluster_endpoints());
        state.local = sockets(&port.local_endpoints());
        state.keep = Duration::from_secs(port.affinity_seconds.into());
        state.sources = port.sources.iter().filter_map(|range| range.parse().ok()).collect();
        let State { cluster, local, last, .. } = &mut *state;
        last.retain(|_, (endpoint, _)| cluster.contains(endpoint) || local.contains(endpoint));
    }

    /// Whether the port's source ranges let a client in.
    pub fn admits(&self, client: IpAddr) -> bool {
        self.0.lock().sources.iter().any(|range| range.contains(&client))
    }

    /// The endpoint for a client that has not been tried yet; `local`: on this node.
    pub fn pick(&self, client: IpAddr, local: bool, tried: &[SocketAddr]) -> Option<SocketAddr> {
        let mut state = self.0.lock();
        let (now, keep) = (Instant::now(), state.keep);
        let remembered = state.last.get(&client).filter(|(_, at)| now.duration_since(*at) < keep);
        let remembered = remembered.map(|(endpoint, _)| *endpoint).filter(|e| !tried.contains(e));
        let all = if local { &state.local } else { &state.cluster };
        let start = state.next;
        let in_turn = || (0..all.len()).map(|at| all[(start + at) % all.len()]).find(|e| !tried.contains(e));
        let kept = remembered.filter(|endpoint| all.contains(endpoint));
        let picked = kept.or_else(in_turn)?;
        if kept.is_none() {
            let at = all.iter().position(|endpoint| *endpoint == picked).unwrap_or(0);
            state.next = at + 1;
        }
        if !keep.is_zero() {
            if state.last.len() >= REMEMBERED {
                state.last.retain(|_, (_, at)| now.duration_since(*at) < keep);
            }
            if state.last.len() < REMEMBERED {
                state.last.insert(client, (picked, now));
            }
        }
        Some(picked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iptables::rules::tests::port;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn picked(balancer: &Balancer, client: u8, local: bool) -> String {
        balancer.pick(ip(client), local, &[]).map_or("-".to_owned(), |socket| socket.ip().to_string())
    }

    #[test]
    fn endpoints_take_turns() {
        let balancer = Balancer::default();
        assert_eq!(picked(&balancer, 1, false), "-");
        balancer.set(&port(&[("10.42.0.2", true), ("10.42.0.3", false)]));
        let turns: Vec<String> = (0..4).map(|_| picked(&balancer, 1, false)).collect();
        assert_eq!(turns, ["10.42.0.2", "10.42.0.3", "10.42.0.2", "10.42.0.3"]);
        assert_eq!(
            (picked(&balancer, 1, true), picked(&balancer, 1, true)),
            ("10.42.0.2".into(), "10.42.0.2".into())
        );
        let tried = ["10.42.0.2:8080".parse().expect("socket"), "10.42.0.3:8080".parse().expect("socket")];
        assert_eq!(balancer.pick(ip(1), false, &tried[..1]), Some(tried[1]));
        assert_eq!(balancer.pick(ip(1), false, &tried), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_keeps_its_endpoint_for_a_time() {
        let (balancer, mut sticky) = (Balancer::default(), port(&[("10.42.0.2", true), ("10.42.0.3", true)]));
        sticky.affinity_seconds = 10;
        balancer.set(&sticky);
        let first = picked(&balancer, 1, false);
        assert_ne!(picked(&balancer, 2, false), first, "another client's turn");
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(picked(&balancer, 1, false), first);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(picked(&balancer, 1, false), first, "each use begins the time anew");
        tokio::time::advance(Duration::from_secs(10)).await;
        let next = picked(&balancer, 1, false);
        sticky.endpoints.retain(|endpoint| endpoint.ip.to_string() != next);
        balancer.set(&sticky);
        assert_ne!(picked(&balancer, 1, false), next, "its endpoint is gone");
    }
}
