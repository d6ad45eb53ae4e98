//! The suite for each mode, and what modes do to each other and to others' rules.

use super::world::{From, can_be_made, on_a_node, outside, pod, service, shell};
use super::{BALANCED, KERNEL, RELAYED, Suite, Traits, everything, passes, somebodys, web};
use crate::backend::{Backend, Mode};
use crate::command::Own;
use crate::conntrack::Program;
use crate::family::Family;
use crate::iptables::Iptables;
use crate::ipvs::Ipvs;
use crate::mode_controller::{Make, ModeController};
use crate::nftables::Nftables;
use crate::notices::{self, Told};
use crate::plan::Plan;
use crate::userspace::{Relays, Userspace};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;

pub(super) fn make(own: Own) -> Make {
    Box::new(move |mode, family| -> Box<dyn Backend> {
        match mode {
            Mode::Iptables => Box::new(Iptables::new(family, own.clone())),
            Mode::Nftables => Box::new(Nftables::new(family, own.clone())),
            Mode::Ipvs => Box::new(Ipvs::new(family, own.clone())),
            Mode::Userspace => Box::new(Userspace::new(family, own.clone(), Relays::default())),
        }
    })
}

/// The whole suite, beside somebody else's rules, of which and of nothing else anything is left.
fn whole_suite(mode: Mode, family: Family, traits: Traits) {
    on_a_node(move |world| {
        shell(somebodys());
        // Tables of iptables stay, empty, once there was a chain in them.
        shell(
            "for i in iptables ip6tables; do
               for c in PREROUTING OUTPUT POSTROUTING; do $i -t nat -A $c -j ACCEPT; $i -t nat -D $c -j ACCEPT; done
               for c in INPUT FORWARD OUTPUT; do $i -A $c -j ACCEPT; $i -D $c -j ACCEPT; done
               $i -t mangle -N x; $i -t mangle -X x; done",
        );
        let before = everything();
        let backend = make(Own::default())(mode, family);
        let mut suite = Suite::new(world, backend, family, traits);
        passes(&mut suite);
        let Suite { runtime, mut backend, .. } = suite;
        runtime.block_on(backend.clean_up()).expect("cleaned up");
        runtime.block_on(backend.clean_up()).expect("again, with nothing there");
        assert_eq!(everything(), before);
    });
}

#[test]
fn iptables_v4() {
    whole_suite(Mode::Iptables, Family::V4, KERNEL);
}

#[test]
fn iptables_v6() {
    whole_suite(Mode::Iptables, Family::V6, KERNEL);
}

#[test]
fn nftables_v4() {
    whole_suite(Mode::Nftables, Family::V4, KERNEL);
}

#[test]
fn nftables_v6() {
    whole_suite(Mode::Nftables, Family::V6, KERNEL);
}

/// Whether this kernel has IPVS; scripts/ipvs-test brings one that does.
pub(super) fn has_ipvs() -> bool {
    let mut backend = Ipvs::new(Family::V4, Own::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match runtime.block_on(backend.adopt()) {
        Ok(()) => true,
        Err(error) => {
            println!("skipped: {error}");
            false
        }
    }
}

#[test]
fn ipvs_v4() {
    if can_be_made() && has_ipvs() {
        whole_suite(Mode::Ipvs, Family::V4, BALANCED);
    }
}

#[test]
fn ipvs_v6() {
    if can_be_made() && has_ipvs() {
        whole_suite(Mode::Ipvs, Family::V6, BALANCED);
    }
}

#[test]
fn userspace_v4() {
    whole_suite(Mode::Userspace, Family::V4, RELAYED);
}

#[test]
fn userspace_v6() {
    whole_suite(Mode::Userspace, Family::V6, RELAYED);
}

/// Without adopting, the backend has found out of no right: so it works for whoever has none.
#[test]
fn userspace_without_rights_names_where_services_are_reached() {
    on_a_node(|world| {
        let before = everything();
        let relays = Relays::default();
        let mut backend = Userspace::new(Family::V4, Own::default(), relays.clone());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let mut plan = Plan::empty(Family::V4);
        let mut port = web(Family::V4, "web", 9, &[(2, true)]);
        port.node_port = 30080;
        plan.services.insert(coracle_client::ObjectKey::new("d", "web"), std::sync::Arc::new(vec![port]));
        runtime.block_on(backend.sync(&plan)).expect("in force");
        let named: std::collections::BTreeMap<String, SocketAddr> =
            serde_json::from_str(&relays.json()).expect("addresses");
        let at = named["d/web/tcp"];
        assert!(at.ip().is_loopback());
        assert_eq!(world.ask(From::Node, None, "tcp", at).server(), Some(pod(Family::V4, 2)));
        let node_port = SocketAddr::new(outside(Family::V4, 1), 30080);
        assert_eq!(world.ask(From::Outside, None, "tcp", node_port).server(), Some(pod(Family::V4, 2)));
        assert_eq!(everything(), before, "nothing of the machine is changed");
        plan.services.clear();
        runtime.block_on(backend.sync(&plan)).expect("in force");
        assert_eq!(relays.json(), "{}");
    });
}

/// A running keeper with the kernel's notices.
pub(super) struct Kept {
    pub keeper: ModeController,
    notices: Receiver<Told>,
    pub plans: Vec<Plan>,
}

pub(super) async fn kept(mode: Mode) -> Kept {
    let own = Own::default();
    let notices = notices::listen(own.clone()).expect("notices");
    let mut keeper = ModeController::new(make(own.clone()), Box::new(Program(own)));
    let mut plans = Family::ALL.map(Plan::empty).to_vec();
    for plan in &mut plans {
        let key = coracle_client::ObjectKey::new("d", "web");
        let port = web(plan.family, "web", 9, &[(2, true)]);
        plan.services.insert(key, std::sync::Arc::new(vec![port]));
    }
    keeper.put(mode, &plans).await.expect("in force");
    Kept { keeper, notices, plans }
}

impl Kept {
    /// Whether a notice comes and leads to a repair. What comes late of what was done before leads to none.
    async fn is_mended(&mut self, time: Duration) -> bool {
        let mended = async {
            while let Some(told) = self.notices.recv().await {
                if self.keeper.mend(&told).await.expect("looked") {
                    return true;
                }
            }
            false
        };
        tokio::time::timeout(time, mended).await.unwrap_or(false)
    }
}

/// A notice that is looked for comes within milliseconds; this is for machines under load.
const SOON: Duration = Duration::from_secs(10);

fn mends(mode: Mode, harms: &'static [&'static str]) {
    on_a_node(move |world| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut kept = runtime.block_on(kept(mode));
        let reached = |from, what: &str| {
            for family in Family::ALL {
                let to = SocketAddr::new(service(family, 9), 80);
                let answer = world.ask(from, None, "tcp", to);
                assert_eq!(answer.server(), Some(pod(family, 2)), "{what}, {from:?} over {}", family.name());
            }
        };
        reached(From::Pod(4), "at first");
        for harm in harms {
            shell(harm);
            assert!(runtime.block_on(kept.is_mended(SOON)), "{harm} is noticed");
            // It came in several pieces, perhaps.
            while runtime.block_on(kept.is_mended(Duration::from_millis(50))) {}
            reached(From::Pod(4), harm);
            reached(From::Node, harm);
        }
        // What others do to their own is none of ours, nor are our own writes.
        shell(somebodys());
        shell(
            "nft flush table inet firewalld; nft delete table ip others; iptables -F ufw-user; iptables -D INPUT -j ufw-user",
        );
        kept.plans[0].services.clear();
        runtime.block_on(kept.keeper.put(mode, &kept.plans)).expect("in force");
        assert!(!runtime.block_on(kept.is_mended(Duration::from_millis(300))));
    });
}

#[test]
fn iptables_is_mended_at_once() {
    mends(
        Mode::Iptables,
        &[
            "iptables -t nat -F",
            "ip6tables -t nat -F",
            "iptables -F",
            "iptables -t nat -D PREROUTING -m comment --comment kubernetes-service-portals -j KUBE-SERVICES",
            "iptables -t nat -F KUBE-SERVICES",
            "iptables -t nat -R KUBE-MARK-MASQ 1 -j MARK --or-mark 0x1",
            "nft flush ruleset",
        ],
    );
}

#[test]
fn nftables_is_mended_at_once() {
    mends(
        Mode::Nftables,
        &[
            "nft flush ruleset",
            "nft delete table ip kube-proxy",
            "nft flush map ip6 kube-proxy endpoints-tcp",
            "nft flush chain ip kube-proxy nat-prerouting",
            "nft add rule ip kube-proxy services drop",
        ],
    );
}

/// A connection goes on while the mode changes under it, and nothing of the old mode is left.
#[test]
fn a_change_of_mode_keeps_connections_and_leaves_no_rule() {
    on_a_node(|world| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut kept = runtime.block_on(kept(Mode::Iptables));
        let to = SocketAddr::new(service(Family::V4, 9), 80);
        let mut talk = world.connect(From::Pod(4), to).expect("a connection");
        let first = talk.ask().expect("an answer");
        assert_eq!(first.server(), Some(pod(Family::V4, 2)));
        for mode in [Mode::Nftables, Mode::Iptables, Mode::Nftables] {
            runtime.block_on(kept.keeper.put(mode, &kept.plans)).expect("in force");
            assert_eq!(talk.ask().expect("it goes on"), first, "{mode}");
            let rules = shell("nft list ruleset");
            assert_eq!(rules.contains("KUBE-"), mode == Mode::Iptables, "{mode}: {rules}");
            assert_eq!(rules.contains("table ip kube-proxy"), mode == Mode::Nftables, "{mode}: {rules}");
            let answer = world.ask(From::Outside, None, "tcp", to);
            assert_eq!(answer.server(), Some(pod(Family::V4, 2)), "{mode}");
        }
        runtime.block_on(crate::clean_up()).expect("cleaned up");
        let rules = shell("nft list ruleset");
        assert!(!rules.contains("KUBE-") && !rules.contains("kube-proxy"), "{rules}");
    });
}

/// What a change costs with many Services: printed, and bounded where it must not grow.
#[test]
fn a_change_costs_the_same_with_many_services() {
    if !can_be_made() {
        return;
    }
    let entries = |services: u32| {
        on_a_node(move |_| {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let (mut plan, mut nft) = (Plan::empty(Family::V4), Nftables::new(Family::V4, Own::default()));
            for n in 0..services {
                let mut port = web(Family::V4, &format!("web-{n}"), 9, &[(2, true), (3, true)]);
                port.cluster_ip = (0x0a2b_0000_u32 + n).to_be_bytes().into();
                let key = coracle_client::ObjectKey::new("d", port.name.service.clone());
                plan.services.insert(key, std::sync::Arc::new(vec![port]));
            }
            runtime.block_on(nft.sync(&plan)).expect("in force");
            let chains = shell("nft list chains").matches("chain ").count();
            let first = plan.services.values_mut().next().expect("a Service");
            let mut port = first[0].clone();
            port.endpoints.swap_remove(0);
            *first = std::sync::Arc::new(vec![port]);
            runtime.block_on(nft.sync(&plan)).expect("in force");
            chains
        })
    };
    assert_eq!(entries(5), entries(500), "Services have no chains of their own");
}
