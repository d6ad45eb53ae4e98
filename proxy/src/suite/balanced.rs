//! What only the mode ipvs has, under a kernel that has it; scripts/ipvs-test brings one.

use super::modes::{has_ipvs, kept, make};
use super::world::{From, World, on_a_node, outside, pod, service, shell};
use super::{BALANCED, Suite, web};
use crate::backend::{Backend, BackendError, Mode};
use crate::command::Own;
use crate::family::Family;
use crate::ipvs::{Ipvs, SCHEDULERS, Settings};
use crate::notices::Told;
use crate::plan::Plan;
use std::net::SocketAddr;
use std::sync::Arc;

fn with_ipvs(test: impl FnOnce(World) + Send + 'static) {
    if super::world::can_be_made() && has_ipvs() {
        on_a_node(test);
    }
}

fn suite(world: World) -> Suite {
    let backend = make(Own::default())(Mode::Ipvs, Family::V4);
    Suite::new(world, backend, Family::V4, BALANCED)
}

fn choose(plan: &mut Plan, change: impl FnOnce(&mut Settings)) {
    change(&mut Arc::make_mut(&mut plan.settings).ipvs);
}

fn table() -> String {
    shell("ipvsadm -Ln")
}

#[test]
fn ipvs_has_every_scheduler_of_the_kernel() {
    with_ipvs(|world| {
        let mut suite = suite(world);
        suite.has(&[web(Family::V4, "web", 9, &[(2, true), (3, true)])]);
        for scheduler in SCHEDULERS {
            choose(&mut suite.plan, |ipvs| scheduler.clone_into(&mut ipvs.scheduler));
            suite.sync();
            let table = table();
            assert!(table.contains(&format!("10.43.0.9:80 {scheduler}")), "{table}");
            let servers = suite.servers(From::Outside, service(Family::V4, 9), 80);
            assert!(!servers.contains(&None), "{scheduler}: {servers:?}");
            if matches!(scheduler, "sh" | "dh") {
                assert_eq!(servers.len(), 1, "{scheduler} chooses by addresses");
            }
        }
        choose(&mut suite.plan, |ipvs| "best".clone_into(&mut ipvs.scheduler));
        let refused = suite.runtime.block_on(suite.backend.sync(&suite.plan)).expect_err("refused");
        assert!(matches!(&refused, BackendError::Refused(why) if why.contains("\"best\"")), "{refused}");
        assert!(table().contains("10.43.0.9:80 mh"), "the last good one stays");
    });
}

#[test]
fn ipvs_lets_connections_of_leaving_endpoints_end() {
    with_ipvs(|world| {
        let mut suite = suite(world);
        suite.has(&[web(Family::V4, "web", 9, &[(2, true)])]);
        let to = SocketAddr::new(service(Family::V4, 9), 80);
        let mut talk = suite.world.connect(From::Pod(4), to).expect("a connection");
        let first = talk.ask().expect("an answer");
        suite.has(&[web(Family::V4, "web", 9, &[(3, true)])]);
        assert_eq!(talk.ask().expect("it goes on"), first);
        assert_eq!(suite.servers(From::Pod(4), to.ip(), 80), [Some(pod(Family::V4, 3))]);
        suite.runtime.block_on(suite.backend.tend()).expect("tended");
        assert!(suite.runtime.block_on(suite.backend.is_intact()).expect("looked"));
        assert_eq!(talk.ask().expect("while it has a connection"), first);
        // Without any connection it goes at the next look.
        suite.has(&[web(Family::V4, "web", 9, &[(3, true), (4, true)])]);
        suite.has(&[web(Family::V4, "web", 9, &[(3, true)])]);
        assert!(table().contains("10.42.0.4:8080"));
        suite.runtime.block_on(suite.backend.tend()).expect("tended");
        let table = table();
        assert!(table.contains("10.42.0.2:8080") && !table.contains("10.42.0.4:8080"), "{table}");
    });
}

/// One slice with such an address must not keep all Services from being brought into force.
#[test]
fn ipvs_leaves_out_what_the_kernel_takes_for_no_endpoint() {
    with_ipvs(|world| {
        let mut suite = suite(world);
        let mut bad = web(Family::V4, "bad", 8, &[(2, true), (3, true)]);
        bad.endpoints[0].ip = outside(Family::V4, 255);
        for _ in 0..2 {
            suite.has(&[bad.clone(), web(Family::V4, "web", 9, &[(2, true)])]);
            assert_eq!(suite.servers(From::Pod(4), service(Family::V4, 9), 80), [Some(pod(Family::V4, 2))]);
            assert_eq!(suite.servers(From::Pod(4), service(Family::V4, 8), 80), [Some(pod(Family::V4, 3))]);
        }
        assert!(suite.runtime.block_on(suite.backend.is_intact()).expect("looked"));
        suite.has(&[]);
        assert!(!table().contains("10.43.0"));
    });
}

#[test]
fn ipvs_is_mended_when_it_is_looked_at() {
    with_ipvs(|world| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut kept = runtime.block_on(kept(Mode::Ipvs));
        let harms = [
            "ipvsadm -C",
            "ipvsadm -d -t 10.43.0.9:80 -r 10.42.0.2:8080",
            "ipvsadm -e -t 10.43.0.9:80 -r 10.42.0.2:8080 -m -w 0",
            "ipvsadm -E -t 10.43.0.9:80 -s wlc",
            "ip address del 10.43.0.9/32 dev kube-ipvs0",
            "ip link del kube-ipvs0",
            "nft flush ruleset",
        ];
        for harm in harms {
            shell(harm);
            assert!(runtime.block_on(kept.keeper.mend(&Told::Lost)).expect("looked"), "{harm} is seen");
            for family in Family::ALL {
                let to = SocketAddr::new(service(family, 9), 80);
                for from in [From::Pod(4), From::Node, From::Outside] {
                    let answer = world.ask(from, None, "tcp", to);
                    assert_eq!(answer.server(), Some(pod(family, 2)), "{harm}, {from:?}");
                }
            }
            assert!(!runtime.block_on(kept.keeper.mend(&Told::Lost)).expect("looked"), "{harm} is mended");
        }
    });
}

#[test]
fn ipvs_leaves_alone_what_is_others_and_what_is_excluded() {
    with_ipvs(|world| {
        shell("ipvsadm -A -t 192.0.2.1:25 -s wlc; ipvsadm -a -t 192.0.2.1:25 -r 198.51.100.1:25 -m");
        let mut suite = suite(world);
        let mut web_here = web(Family::V4, "web", 9, &[(2, true)]);
        web_here.external_ips = vec![outside(Family::V4, 200)];
        suite.has(&[web_here, web(Family::V4, "old", 8, &[(3, true)])]);
        // Another run finds what is left of this one, and takes away what nobody wants any more.
        suite.backend = make(Own::default())(Mode::Ipvs, Family::V4);
        suite.runtime.block_on(suite.backend.adopt()).expect("adopted");
        choose(&mut suite.plan, |ipvs| {
            ipvs.exclude_cidrs = vec!["192.0.2.200/32".parse().expect("a network")]
        });
        suite.has(&[]);
        let left = table();
        assert!(left.contains("192.0.2.1:25") && left.contains("192.0.2.200:80"), "{left}");
        assert!(!left.contains("10.43.0"), "{left}");
        suite.runtime.block_on(suite.backend.clean_up()).expect("cleaned up");
        assert!(table().contains("192.0.2.1:25"));
        // Modes that never worked here leave it alone too.
        suite.runtime.block_on(crate::clean_up()).expect("cleaned up");
        assert!(table().contains("192.0.2.1:25"));
    });
}

#[test]
fn ipvs_follows_addresses_and_settings_of_the_machine() {
    with_ipvs(|world| {
        let mut suite = suite(world);
        let mut open = web(Family::V4, "web", 9, &[(2, true)]);
        open.node_port = 30080;
        suite.has(&[open]);
        shell("ip address add 192.0.2.77/24 dev outside");
        suite.runtime.block_on(suite.backend.tend()).expect("tended");
        let answer = suite.ask(From::Outside, outside(Family::V4, 77), 30080);
        assert_eq!(answer.server(), Some(pod(Family::V4, 2)));
        choose(&mut suite.plan, |ipvs| {
            ipvs.strict_arp = true;
            ipvs.timeouts = [600, 30, 7].map(std::time::Duration::from_secs);
        });
        suite.sync();
        assert!(shell("ipvsadm -l --timeout").contains(": 600 30 7"));
        let arp =
            "sysctl -n net.ipv4.conf.all.arp_ignore net.ipv4.conf.all.arp_announce net.ipv4.vs.conntrack";
        assert_eq!(shell(arp), "1\n2\n1\n");
        choose(&mut suite.plan, |ipvs| ipvs.strict_arp = false);
        suite.sync();
        assert_eq!(shell(arp), "0\n0\n1\n");
    });
}

/// What the modes before remember of a connection is the kernel's, and goes on; nothing of ipvs is left behind it.
#[test]
fn ipvs_takes_over_and_leaves_without_a_trace() {
    with_ipvs(|world| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        for other in [Mode::Iptables, Mode::Nftables] {
            let mut kept = runtime.block_on(kept(other));
            let to = SocketAddr::new(service(Family::V4, 9), 80);
            let mut talk = world.connect(From::Pod(4), to).expect("a connection");
            let first = talk.ask().expect("an answer");
            runtime.block_on(kept.keeper.put(Mode::Ipvs, &kept.plans)).expect("in force");
            assert_eq!(talk.ask().expect("it goes on"), first, "from {other}");
            assert!(table().contains("10.43.0.9:80 rr"));
            assert_eq!(world.ask(From::Outside, None, "tcp", to).server(), Some(pod(Family::V4, 2)));
            runtime.block_on(kept.keeper.put(other, &kept.plans)).expect("in force");
            assert_eq!(talk.ask().expect("it goes on"), first, "to {other}");
            assert_eq!(world.ask(From::Outside, None, "tcp", to).server(), Some(pod(Family::V4, 2)));
            let left = shell("ipvsadm -Ln; ip -o link show; nft list tables");
            assert!(!left.contains("10.43.0.9") && !left.contains("ipvs"), "{left}");
            runtime.block_on(crate::clean_up()).expect("cleaned up");
        }
        let mut ipvs = Ipvs::new(Family::V6, Own::default());
        runtime.block_on(ipvs.clean_up()).expect("with nothing there");
    });
}
