//! Nodes meanwhile: agents, each with a runtime that outlives it, as a real one does. Their Leases go on, and what runs on
//! them is neither restarted nor doubled.

use crate::Error;
use crate::cri_socket::CriSocket;
use crate::fake_runtime::FakeRuntime;
use crate::world::{Part, World, name};
use coracle_kubelet::cri::Runtime;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const REPLICAS: usize = 6;
const IDENTITIES: usize = 3;
const AGENTS: usize = 3;
/// A debug build on a busy machine; a lost node is waited for, and its pods endure that for a while.
const PATIENCE: Duration = Duration::from_secs(90);
/// Less than there is between two renewals of a Lease.
const LOOK: Duration = Duration::from_millis(200);
/// Two containers of one pod must not run even for so long.
const GLANCE: Duration = Duration::from_millis(25);
/// A server that is silent for so long is left for another one.
const SILENCE: Duration = Duration::from_secs(1);

/// One for each agent, as long as this program runs.
pub struct Runtimes {
    list: Vec<Arc<FakeRuntime>>,
    sockets: Vec<Arc<CriSocket>>,
}

impl Runtimes {
    pub fn serve() -> Self {
        let list: Vec<Arc<FakeRuntime>> = (0..AGENTS).map(|_| Arc::default()).collect();
        let sockets = list.iter().map(|runtime| CriSocket::serve(runtime.clone())).collect();
        Self { list, sockets }
    }

    /// Where the runtime of each agent listens.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.sockets.iter().map(|socket| socket.path()).collect()
    }
}

/// What runs: containers by node and id, each with the pod that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running(BTreeSet<String>);

#[derive(Default)]
struct Seen {
    /// By the node, as its Lease says it.
    renewals: BTreeMap<String, Vec<Timestamp>>,
    wrong: Vec<String>,
}

struct Shared {
    clients: Vec<kube::Client>,
    /// The server that answered last.
    present: AtomicUsize,
    runtimes: Runtimes,
    seen: Mutex<Seen>,
}

pub struct Nodes {
    shared: Arc<Shared>,
    looks: JoinSet<()>,
}

impl Nodes {
    /// Returns when everything runs.
    pub async fn start(world: &World, runtimes: Runtimes) -> Result<(Self, Running), Error> {
        let mut clients = Vec::new();
        for index in 0..world.servers.len() {
            clients.push(world.client(index, SILENCE).await?);
        }
        create(&clients[0]).await?;
        let shared =
            Arc::new(Shared { clients, present: AtomicUsize::new(0), runtimes, seen: Mutex::default() });
        let mut looks = JoinSet::new();
        looks.spawn(shared.clone().follow_leases());
        looks.spawn(shared.clone().look_for_doubles());
        let nodes = Self { shared, looks };
        let running = nodes.settled().await?;
        Ok((nodes, running))
    }

    /// Waits until all pods run and are ready, and the runtimes run them and nothing else.
    pub async fn settled(&self) -> Result<Running, Error> {
        self.wait("everything runs", || async { self.shared.running().await }).await
    }

    /// Waits until what can be replaced of this node's pods runs elsewhere, and the rest is about to go.
    pub async fn replaced(&self, node: &str) -> Result<(), Error> {
        let look = || async {
            let pods = self.shared.pods().await?;
            let of = |app: &'static str| pods.iter().filter(move |pod| app_of(pod) == app);
            let elsewhere =
                of("web").filter(|pod| is_ready(pod) && !is_dying(pod) && node_of(pod) != node).count();
            // Nobody knows whether it still runs there.
            let kept = of("db").filter(|pod| node_of(pod) == node).all(is_dying);
            // The node counts as lost: nobody counts on what endures that.
            let lost = of("log").any(|pod| node_of(pod) == node && !is_ready(pod));
            if lost && elsewhere == REPLICAS && kept { Ok(()) } else { Err(shown(&pods)) }
        };
        self.wait(&format!("the pods of {node} are replaced"), look).await
    }

    async fn wait<T, F>(&self, what: &str, look: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, String>>,
    {
        let begun = Instant::now();
        loop {
            match look().await {
                Ok(found) => return Ok(found),
                Err(last) if begun.elapsed() > PATIENCE => {
                    return Err(
                        format!("{what}: not within {} s; last seen: {last}", PATIENCE.as_secs()).into()
                    );
                }
                Err(_) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// Between two renewals of a Lease of which the second came after `since`; of all agents but this one.
    pub fn longest_gap(&self, since: Timestamp, except: Option<&str>) -> Duration {
        let seen = self.shared.seen.lock();
        let others = seen.renewals.iter().filter(|(node, _)| Some(node.as_str()) != except);
        let gaps = others.flat_map(|(_, times)| times.windows(2)).filter(|pair| pair[1] > since);
        let gaps = gaps.map(|pair| pair[1].duration_since(pair[0]));
        gaps.max().unwrap_or(SignedDuration::ZERO).unsigned_abs()
    }

    /// Waits until each of them has renewed its Lease after `since`.
    pub async fn renewed_since(&self, since: Timestamp) -> Result<(), Error> {
        let look = || async {
            let seen = self.shared.seen.lock();
            let last =
                |n: usize| seen.renewals.get(&name(Part::Agent, n)).and_then(|times| times.last().copied());
            let late: Vec<usize> = (1..=AGENTS).filter(|n| last(*n).is_none_or(|at| at <= since)).collect();
            if late.is_empty() { Ok(()) } else { Err(format!("agents {late:?} do not renew their Leases")) }
        };
        self.wait("Leases go on", look).await
    }

    /// What must not have happened.
    pub fn wrong(&mut self) -> Vec<String> {
        let mut wrong = self.shared.seen.lock().wrong.clone();
        // Neither ends by itself.
        wrong.extend(self.looks.try_join_next().map(|ended| format!("nobody looked any more: {ended:?}")));
        wrong
    }
}

impl Running {
    /// What has ended or begun since.
    pub fn changes(&self, now: &Self) -> Vec<String> {
        let gone = self.0.difference(&now.0).map(|container| format!("{container} has ended"));
        gone.chain(now.0.difference(&self.0).map(|container| format!("{container} is new"))).collect()
    }
}

impl Shared {
    /// Asks one server after the other, first the one that answered last.
    async fn ask<T, F>(&self, ask: impl Fn(kube::Client) -> F) -> Result<T, String>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        let mut why = String::new();
        for _ in &self.clients {
            let index = self.present.load(Relaxed);
            match tokio::time::timeout(SILENCE, ask(self.clients[index].clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => why = error.to_string(),
                Err(_) => why = "no answer".to_owned(),
            }
            self.present.store((index + 1) % self.clients.len(), Relaxed);
        }
        Err(why)
    }

    async fn pods(&self) -> Result<Vec<Pod>, String> {
        let list = |client| async move {
            Api::<Pod>::namespaced(client, "default").list(&ListParams::default()).await
        };
        self.ask(list).await.map(|list| list.items)
    }

    /// Node, id, and the names and uid of the pod, of every container that runs.
    async fn containers(&self) -> Vec<(String, String, String, String)> {
        let mut all = Vec::new();
        for (index, runtime) in self.runtimes.list.iter().enumerate() {
            let node = name(Part::Agent, index + 1);
            let found = runtime.list_containers(None).await.expect("a runtime of this process");
            all.extend(found.into_iter().filter(|container| container.state == 1).map(|container| {
                let label = |key: &str| container.labels.get(key).cloned().unwrap_or_default();
                (node.clone(), container.id, label("io.kubernetes.pod.name"), label("io.kubernetes.pod.uid"))
            }));
        }
        all
    }

    async fn running(&self) -> Result<Running, String> {
        let (pods, containers) = (self.pods().await?, self.containers().await);
        let ready = pods.iter().filter(|pod| is_ready(pod) && !is_dying(pod)).count();
        let wanted: BTreeSet<(&str, String)> =
            pods.iter().map(|pod| (node_of(pod), pod.uid().unwrap_or_default())).collect();
        let there: BTreeSet<(&str, String)> =
            containers.iter().map(|(node, _, _, uid)| (node.as_str(), uid.clone())).collect();
        if pods.len() != ready || ready != REPLICAS + IDENTITIES + AGENTS || wanted != there {
            return Err(format!("{}\nrunning: {containers:?}", shown(&pods)));
        }
        let told = containers.iter().map(|(node, id, pod, uid)| format!("{pod} ({uid}) as {id} on {node}"));
        Ok(Running(told.collect()))
    }

    async fn follow_leases(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let list = |client| async move {
                Api::<Lease>::namespaced(client, "kube-node-lease").list(&ListParams::default()).await
            };
            let Ok(leases) = self.ask(list).await else { continue };
            let mut seen = self.seen.lock();
            for lease in leases {
                let renewed =
                    lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
                let times = seen.renewals.entry(lease.name_any()).or_default();
                // A server that is behind tells what is known.
                times.extend(renewed.filter(|at| times.last().is_none_or(|last| last < at)));
            }
        }
    }

    /// Of a name that only one pod may have, two must never run.
    async fn look_for_doubles(self: Arc<Self>) {
        loop {
            tokio::time::sleep(GLANCE).await;
            let first = self.containers().await;
            // Runtimes are asked one after the other: what ended meanwhile is not there at the second look.
            for (pod, both) in doubles(&first) {
                let second = self.containers().await;
                let mut wrong = doubles(&second);
                if let Some(again) = wrong.remove(&pod)
                    && again == both
                {
                    self.seen.lock().wrong.push(format!("{pod} runs more than once: {both:?}"));
                }
            }
        }
    }
}

/// Containers of one name on several nodes, or of several pods.
fn doubles(containers: &[(String, String, String, String)]) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (node, id, pod, _) in containers {
        all.entry(pod.clone()).or_default().push(format!("{node}/{id}"));
    }
    all.retain(|_, containers| containers.len() > 1);
    all
}

fn app_of(pod: &Pod) -> &str {
    pod.labels().get("app").map_or("", String::as_str)
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn is_dying(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn shown(pods: &[Pod]) -> String {
    let of = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        let (ready, dying) = (is_ready(pod), is_dying(pod));
        format!("{} on {}: {phase}, ready {ready}, dying {dying}", pod.name_any(), node_of(pod))
    };
    pods.iter().map(of).collect::<Vec<_>>().join("\n")
}

async fn create(client: &kube::Client) -> Result<(), Error> {
    let params = PostParams::default();
    let apps = Api::<Deployment>::namespaced(client.clone(), "default");
    apps.create(&params, &serde_json::from_value(workload("web", json!({ "replicas": REPLICAS })))?).await?;
    let own = json!({ "replicas": IDENTITIES, "serviceName": "db", "podManagementPolicy": "Parallel" });
    let sets = Api::<StatefulSet>::namespaced(client.clone(), "default");
    sets.create(&params, &serde_json::from_value(workload("db", own))?).await?;
    let daemons = Api::<DaemonSet>::namespaced(client.clone(), "default");
    daemons.create(&params, &serde_json::from_value(workload("log", json!({})))?).await?;
    Ok(())
}

/// Its pods endure the loss of their node for some seconds.
fn workload(app: &str, mut spec: Value) -> Value {
    let endures = |key: &str| json!({ "key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3 });
    spec["selector"] = json!({ "matchLabels": { "app": app } });
    spec["template"] = json!({
        "metadata": { "labels": { "app": app } },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "tolerations": [endures("unreachable"), endures("not-ready")],
            "containers": [{ "name": "c", "image": "app:1" }],
        },
    });
    json!({ "metadata": { "name": app }, "spec": spec })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_twice_is_told_and_what_changed() {
        let container = |node: &str, id: &str, pod: &str| {
            (node.to_owned(), id.to_owned(), pod.to_owned(), "u".to_owned())
        };
        let all = [container("a", "1", "db-0"), container("b", "1", "db-0"), container("b", "2", "db-1")];
        assert_eq!(
            doubles(&all),
            BTreeMap::from([("db-0".to_owned(), vec!["a/1".to_owned(), "b/1".to_owned()])])
        );
        assert!(doubles(&all[1..]).is_empty());
        let of = |names: &[&str]| Running(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(of(&["a", "b"]).changes(&of(&["b", "c"])), ["a has ended", "c is new"]);
        assert!(of(&["a"]).changes(&of(&["a"])).is_empty());
    }
}
