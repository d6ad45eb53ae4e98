//! Meets nodes at the addresses that they claim.
//!
//! A node that was taken over can claim any address. Whoever leads traffic to nodes by their word leads it away from
//! where it belongs: a Service of type LoadBalancer, published at an address that is no node's, takes what the cluster
//! sends there. So the server connects to the node's kubelet at each InternalIP; only where the other side proves to be
//! that node, by the key of a certificate for its name, the address is noted on the Node
//! ([`CHECKED_ADDRESSES`](coracle_api::node_addresses::CHECKED_ADDRESSES)). Load balancers and DNS go by that note alone.
//! It is looked after again every hour, and whenever a claim changes.

mod plan;

use super::KubeletClient;
use axum::Router;
use axum::body::Body;
use coracle_api::UserInfo;
use coracle_api::node_addresses::{CHECKED_ADDRESSES, shown};
use coracle_requests::ObjectReader;
use coracle_resources::cache::{Cache, CachedObject, Filter, Item, Watcher};
use futures::future::join_all;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use plan::{Claim, Verdict, judge};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

const NODES: &str = "nodes.";

/// After a look that did not meet the node, doubled up to the longest: a kubelet has its certificate some seconds after
/// it has registered.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(300);

/// Until a node is met again where it was met. An address that went to another machine is no node's for so long at the
/// most, in case the node does not say so itself.
const MET_TTL: Duration = Duration::from_secs(3600);

/// Nodes that are met at the same time: each waits for one handshake.
const AT_ONCE: usize = 16;

/// Before a watch that was lost begins again.
const RESUME_INTERVAL: Duration = Duration::from_millis(100);

/// What is kept of a node.
struct Known {
    claim: Claim,
    due: Instant,
    pause: Duration,
    /// Some task is looking.
    asked: bool,
    /// What was said last of addresses where it was not met: said once, not at every look.
    told: BTreeMap<IpAddr, String>,
}

impl Known {
    /// A node without a kubelet cannot be met. What is noted of it stays: whoever vouches for simulated nodes wrote it.
    fn waits(&self) -> bool {
        !self.asked && self.claim.port.is_some()
    }
}

/// What a look has found.
struct Found {
    claim: Claim,
    met: BTreeSet<IpAddr>,
    not_met: BTreeMap<IpAddr, String>,
}

struct NodeAddressController {
    cache: Arc<Cache>,
    service: Router,
    kubelets: KubeletClient,
    known: BTreeMap<String, Known>,
    looks: JoinSet<Found>,
}

/// Runs until `stop`. `service` is the server's own.
pub async fn maintain(cache: Arc<Cache>, service: Router, kubelets: KubeletClient, stop: CancellationToken) {
    let keeper =
        NodeAddressController { cache, service, kubelets, known: BTreeMap::new(), looks: JoinSet::new() };
    stop.run_until_cancelled(keeper.run()).await;
}

impl NodeAddressController {
    async fn run(mut self) {
        let mut watcher = self.begin();
        loop {
            self.look();
            let idle = self.looks.len() < AT_ONCE;
            let next = self.known.values().filter(|known| known.waits() && idle).map(|known| known.due).min();
            let next = next.unwrap_or_else(|| Instant::now() + MET_TTL);
            tokio::select! {
                item = watcher.next() => match item {
                    Some(item) => {
                        self.note(&item);
                        while let Some(item) = watcher.try_next() {
                            self.note(&item);
                        }
                    }
                    None => {
                        tokio::time::sleep(RESUME_INTERVAL).await;
                        watcher = self.begin();
                    }
                },
                Some(found) = self.looks.join_next() => match found {
                    Ok(found) => self.found(found).await,
                    // Whose look panicked is not known; two at one node do no harm.
                    Err(_) => self.known.values_mut().for_each(|known| known.asked = false),
                },
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    fn begin(&mut self) -> Watcher {
        let (snapshot, watcher) = self.cache.watch(NODES, Filter::default());
        self.known.retain(|name, _| snapshot.objects.values().any(|node| node.name() == name));
        for node in snapshot.objects.values() {
            self.remember(node);
        }
        watcher
    }

    fn note(&mut self, (_, event): &Item) {
        match (&event.current, &event.previous) {
            (Some(node), _) => self.remember(node),
            (None, Some(gone)) => drop(self.known.remove(gone.name())),
            (None, None) => {}
        }
    }

    /// Most events are heartbeats, which change nothing here.
    fn remember(&mut self, node: &CachedObject) {
        let claim = Claim::of(&node.decode());
        let now = Instant::now();
        match self.known.get_mut(node.name()) {
            Some(known) => {
                if !claim.is_same(&known.claim) || claim.checked != known.claim.checked {
                    known.due = now;
                    known.pause = RETRY_INTERVAL;
                }
                known.claim = claim;
            }
            None => {
                let known =
                    Known { claim, due: now, pause: RETRY_INTERVAL, asked: false, told: BTreeMap::new() };
                self.known.insert(node.name().to_owned(), known);
            }
        }
    }

    /// Begins to look at those whose time has come.
    fn look(&mut self) {
        let now = Instant::now();
        let room = AT_ONCE.saturating_sub(self.looks.len());
        let due = self.known.values().filter(|known| known.waits() && known.due <= now);
        let due: Vec<Claim> = due.take(room).map(|known| known.claim.clone()).collect();
        for claim in due {
            let services = self.cache.list("services.", "");
            let others = || self.known.values().map(|known| &known.claim);
            let verdict = |ip: &IpAddr| (*ip, judge(&claim, *ip, others(), &services, &self.kubelets.guard));
            let verdicts: Vec<(IpAddr, Verdict)> = claim.addresses.iter().map(verdict).collect();
            if let Some(known) = self.known.get_mut(&claim.name) {
                known.asked = true;
            }
            self.looks.spawn(meet(self.kubelets.clone(), claim, verdicts));
        }
    }

    async fn found(&mut self, found: Found) {
        let Found { claim, met, not_met } = found;
        let Some(known) = self.known.get_mut(&claim.name) else { return };
        known.asked = false;
        if !known.claim.is_same(&claim) {
            // It was looked for where it is said to be no more.
            known.due = Instant::now();
            return;
        }
        for (ip, why) in &not_met {
            if known.told.get(ip) != Some(why) {
                tracing::warn!(node = claim.name, address = %ip, why, "a node was not met at its address");
            }
        }
        let whole = not_met.is_empty();
        known.told = not_met;
        let current = known.claim.checked.clone();
        let written = if met == current { Ok(()) } else { self.write(&claim, &met).await };
        if let Err(error) = &written {
            tracing::warn!(node = claim.name, error, "the addresses of a node were not noted");
        }
        let Some(known) = self.known.get_mut(&claim.name) else { return };
        if written.is_ok() {
            known.claim.checked = met;
        }
        let pause = if whole && written.is_ok() { MET_TTL } else { known.pause };
        known.due = Instant::now() + pause.mul_f64(rand::random_range(0.8..1.2));
        known.pause = (known.pause * 2).min(MAX_RETRY_INTERVAL);
    }

    /// Notes where the node of this uid was met. A node that is gone needs no note.
    async fn write(&self, claim: &Claim, met: &BTreeSet<IpAddr>) -> Result<(), String> {
        let path = format!("/api/v1/nodes/{}?fieldManager=kube-apiserver", claim.name);
        let annotations = json!({ CHECKED_ADDRESSES: shown(met) });
        let patch = json!({ "metadata": { "uid": claim.uid, "annotations": annotations } });
        let request = Request::patch(&path).header("content-type", "application/merge-patch+json");
        let mut request = request.body(Body::from(patch.to_string())).map_err(|e| e.to_string())?;
        let user = UserInfo::authenticated("system:apiserver", &[coracle_access::authz::MASTERS]);
        request.extensions_mut().insert(user);
        let Ok(response) = self.service.clone().oneshot(request).await;
        match response.status() {
            status if status.is_success() => Ok(()),
            StatusCode::NOT_FOUND => Ok(()),
            status => {
                let text = response.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes();
                Err(format!("{status}: {}", String::from_utf8_lossy(&text)))
            }
        }
    }
}

/// Connects to each address where somebody has to be asked.
async fn meet(kubelets: KubeletClient, claim: Claim, verdicts: Vec<(IpAddr, Verdict)>) -> Found {
    let ask = |(ip, verdict): (IpAddr, Verdict)| {
        let (kubelets, name) = (&kubelets, &claim.name);
        async move {
            let met = match verdict {
                Verdict::Assigned => Ok(()),
                Verdict::Refused(reason) => Err(reason.to_string()),
                Verdict::Ask(port) => kubelets.meet(name, ip, port).await,
            };
            (ip, met)
        }
    };
    let (mut met, mut not_met) = (BTreeSet::new(), BTreeMap::new());
    for (ip, outcome) in join_all(verdicts.into_iter().map(ask)).await {
        match outcome {
            Ok(()) => drop(met.insert(ip)),
            Err(why) => drop(not_met.insert(ip, why)),
        }
    }
    Found { claim, met, not_met }
}
