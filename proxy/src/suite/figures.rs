//! Figures of modes with many Services. Run by name, it prints them; nothing here is a test.

use super::modes::has_ipvs;
use super::web;
use super::world::{can_be_made, shell};
use crate::backend::Backend;
use crate::command::Own;
use crate::family::Family;
use crate::iptables::Iptables;
use crate::ipvs::Ipvs;
use crate::model::ServicePort;
use crate::nftables::Nftables;
use crate::plan::Plan;
use coracle_client::ObjectKey;
use nix::sched::{CloneFlags, unshare};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Endpoints of each Service.
const ENDPOINTS: u32 = 10;
const CHANGES: usize = 11;

fn many(services: u32) -> Plan {
    let mut plan = Plan::empty(Family::V4);
    for n in 0..services {
        let mut port = web(Family::V4, &format!("web-{n}"), 9, &[]);
        port.cluster_ip = (0x0a2b_0000 + n).to_be_bytes().into();
        let endpoint = |k: u32| crate::model::Endpoint {
            ip: (0x0a80_0000 + n * ENDPOINTS + k).to_be_bytes().into(),
            port: 8080,
            local: k == 0,
            near: true,
        };
        port.endpoints = (0..ENDPOINTS).map(endpoint).collect();
        plan.services.insert(ObjectKey::new("d", port.name.service.clone()), Arc::new(vec![port]));
    }
    plan
}

/// One endpoint of one Service goes, or comes back.
fn change(plan: &mut Plan, at: usize) {
    let ports = plan.services.values_mut().next().expect("a Service");
    let mut port: ServicePort = ports[0].clone();
    if at.is_multiple_of(2) {
        port.endpoints.pop();
    } else {
        let mut last = port.endpoints[0].clone();
        last.ip = [10, 200, 0, 1].into();
        port.endpoints.push(last);
    }
    *ports = Arc::new(vec![port]);
}

async fn measured(mut backend: Box<dyn Backend>, services: u32) -> (Duration, Duration) {
    let mut plan = many(services);
    backend.adopt().await.expect("adopted");
    let began = Instant::now();
    backend.sync(&plan).await.expect("in force");
    let whole = began.elapsed();
    let mut times = Vec::new();
    for at in 0..CHANGES {
        change(&mut plan, at);
        let began = Instant::now();
        backend.sync(&plan).await.expect("in force");
        times.push(began.elapsed());
    }
    times.sort();
    (whole, times[CHANGES / 2])
}

#[test]
#[ignore = "prints figures, in minutes"]
fn figures_of_modes() {
    if !can_be_made() {
        return;
    }
    println!("mode services everything_ms change_ms");
    for services in [10, 1_000, 10_000] {
        for mode in ["iptables", "nftables", "ipvs"] {
            // iptables-restore takes minutes to write so many chains for the first time.
            if (mode == "iptables" && services > 1_000) || (mode == "ipvs" && !has_ipvs()) {
                continue;
            }
            let figures = std::thread::spawn(move || {
                unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
                // Without any address the balancer takes none for an endpoint's.
                shell("ip link set lo up");
                let backend: Box<dyn Backend> = match mode {
                    "iptables" => Box::new(Iptables::new(Family::V4, Own::default())),
                    "ipvs" => Box::new(Ipvs::new(Family::V4, Own::default())),
                    _ => Box::new(Nftables::new(Family::V4, Own::default())),
                };
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(measured(backend, services))
            });
            let (whole, change) = figures.join().expect("measured");
            println!("{mode} {services} {} {:.1}", whole.as_millis(), change.as_secs_f64() * 1000.0);
        }
    }
}
