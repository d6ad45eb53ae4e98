//! Keeps the tables in force: nothing at all without a policy, and from the first to the last what they ask for.

use super::admin::{self, AdminPolicies};
use super::follow::{Followed, Kept, Snapshot};
use super::metrics::{Metric, Metrics};
use super::plan::{Plan, plan};
use super::table::{TABLE, is_whole, step, whole};
use crate::command::{self, CommandError, Own};
use crate::family::Family;
use crate::nftables::family_word;
use crate::notices::{self, Told};
use coracle_api::error::chain;
use coracle_client::{Context, Recorder};
use ipnet::IpNet;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};

/// Changes that come this close together are brought into force at once.
const GATHER_DEBOUNCE: Duration = Duration::from_millis(20);
/// Pauses after a failure, doubled each time.
const FIRST_RETRY_INTERVAL: Duration = Duration::from_millis(500);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// Between two repairs: somebody who writes against us all the time must not keep this machine busy.
const REPAIR_INTERVAL: Duration = Duration::from_millis(200);
/// How often to look whether the tables are whole where the kernel does not tell.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct Config {
    pub node_name: String,
    /// The addresses of all pods, a range of each family at most.
    pub cluster_cidrs: Vec<IpNet>,
    pub metrics: Arc<Metrics>,
}

/// Enforces policies until the context is stopped. The tables stay when it ends: pods live on.
pub async fn run(context: Context, config: Config) {
    let stop = context.stop.clone();
    stop.run_until_cancelled(Box::pin(follow(context, config))).await;
}

async fn follow(context: Context, config: Config) {
    let informer = context.informers.of::<NetworkPolicy>();
    informer.synced().await;
    let changed = Arc::new(Notify::new());
    let policies = Kept::of(&informer, &changed, |policy| {
        let (metadata, spec) = (policy.metadata.clone(), policy.spec.clone());
        Some(NetworkPolicy { metadata, spec })
    });
    let admin = AdminPolicies::follow(context.client.clone(), changed.clone(), context.stop.clone());
    // Without them, packets would pass that must not until they are known.
    admin.settled().await;
    let recorder = Recorder::new(context.client.clone(), "kube-proxy", &config.node_name);
    let mut enforcer = Enforcer {
        context,
        config,
        recorder,
        changed,
        policies,
        admin,
        tables: Tables::default(),
        told: None,
    };
    loop {
        if enforcer.is_needed() {
            enforcer.enforce().await;
        } else {
            enforcer.rest().await;
        }
    }
}

struct Enforcer {
    context: Context,
    config: Config,
    recorder: Recorder,
    changed: Arc<Notify>,
    policies: Kept<NetworkPolicy>,
    admin: AdminPolicies,
    tables: Tables,
    /// Why policies are not in force, as it was told.
    told: Option<String>,
}

impl Enforcer {
    fn is_needed(&self) -> bool {
        !self.policies.is_empty() || !self.admin.is_empty()
    }

    /// Until there is a policy: without tables, also without those of an earlier process.
    async fn rest(&mut self) {
        self.count(0, 0);
        match self.tables.take_away().await {
            Ok(()) => self.changed.notified().await,
            Err(error) => {
                tracing::warn!(why = chain(&error), "the table of NetworkPolicies could not be taken away");
                // Trying again is all there is to do.
                let _ = tokio::time::timeout(MAX_RETRY_INTERVAL, self.changed.notified()).await;
            }
        }
    }

    /// Until the last policy is gone.
    async fn enforce(&mut self) {
        let followed = Followed::begin(&self.context, &self.changed).await;
        let mut notices = notices::listen(self.tables.own.clone()).ok();
        let mut retry = None;
        let mut conditions = admin::Conditions::new(self.context.client.clone(), &self.config.node_name);
        while self.is_needed() {
            let Config { node_name, cluster_cidrs, metrics } = &self.config;
            let snapshot = followed.snapshot(&self.policies, self.admin.list(), node_name, cluster_cidrs);
            conditions.tell(&self.admin);
            let began = Instant::now();
            retry =
                match self.tables.sync(&snapshot, node_name).await {
                    Ok(judged) => {
                        metrics.add(Metric::Syncs, &[], 1);
                        metrics.observe(Metric::Duration, &[], began.elapsed());
                        self.count(snapshot.policies.len(), judged);
                        self.well();
                        None
                    }
                    Err(error) => {
                        self.tell(&chain(&error), &snapshot);
                        Some(retry.map_or(FIRST_RETRY_INTERVAL, |pause: Duration| {
                            (pause * 2).min(MAX_RETRY_INTERVAL)
                        }))
                    }
                };
            self.wait(&mut notices, retry).await;
        }
    }

    /// Returns when there is, or may be, something to write.
    async fn wait(&mut self, notices: &mut Option<mpsc::Receiver<Told>>, retry: Option<Duration>) {
        loop {
            let look = retry.or(notices.is_none().then_some(LOOK_INTERVAL));
            let told = tokio::select! {
                () = self.changed.notified() => return tokio::time::sleep(GATHER_DEBOUNCE).await,
                told = next(notices) => told,
                () = pause(look) => {
                    if retry.is_some() {
                        return;
                    }
                    Some(Told::Lost)
                }
            };
            let Some(told) = told else {
                *notices = None;
                continue;
            };
            if self.tables.forget_broken(&told).await {
                self.config.metrics.add(Metric::Repairs, &[], 1);
                tracing::info!("somebody changed the table of NetworkPolicies, writing it again");
                return;
            }
        }
    }

    /// How many policies there are, and addresses that they are about.
    fn count(&self, policies: usize, judged: usize) {
        self.config.metrics.set_all(Metric::Policies, [(vec![], policies)]);
        self.config.metrics.set_all(Metric::Judged, [(vec![], judged)]);
    }

    fn well(&mut self) {
        if self.told.take().is_some() {
            tracing::info!("NetworkPolicies are in force again");
        }
    }

    /// The same cause again is no news.
    fn tell(&mut self, why: &str, snapshot: &Snapshot) {
        self.config.metrics.add(Metric::Failures, &[], 1);
        // The first line is the cause; the others are of the script, and may hold the addresses of all pods.
        let why = why.lines().next().unwrap_or_default();
        if self.told.as_deref() == Some(why) {
            return;
        }
        self.told = Some(why.to_owned());
        tracing::warn!(why, "NetworkPolicies are not in force as they stand, trying again");
        let node = &self.config.node_name;
        let here = snapshot
            .pods
            .iter()
            .filter(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(node));
        let here: BTreeSet<Option<&String>> = here.map(|pod| pod.metadata.namespace.as_ref()).collect();
        let message = format!("node {node}: {why}; what was in force before stays");
        for policy in &snapshot.admin {
            self.recorder.event(admin::reference(policy), "Warning", "PolicyNotEnforced", message.clone());
        }
        for policy in snapshot.policies.iter().filter(|p| here.contains(&p.metadata.namespace.as_ref())) {
            self.recorder.warning(policy.as_ref(), "PolicyNotEnforced", message.clone());
        }
    }
}

async fn next(notices: &mut Option<mpsc::Receiver<Told>>) -> Option<Told> {
    match notices {
        Some(notices) => notices.recv().await,
        None => std::future::pending().await,
    }
}

async fn pause(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// The kernel's side.
#[derive(Default)]
pub struct Tables {
    own: Own,
    /// What the kernel has. A family that is not there is written whole.
    written: BTreeMap<Family, Plan>,
}

impl Tables {
    /// Brings a moment's policies into force, and says how many addresses are judged by them.
    ///
    /// # Errors
    /// The kernel has what it had before; the next call writes everything.
    pub(super) async fn sync(&mut self, snapshot: &Snapshot, node: &str) -> Result<usize, CommandError> {
        let mut judged = 0;
        for family in Family::ALL.into_iter().filter(|family| family.is_there()) {
            let plan = plan(snapshot.world(node), family);
            judged += plan.judged.len();
            self.put(family, plan).await?;
        }
        Ok(judged)
    }

    /// One family's plan, by the shortest way.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub(super) async fn put(&mut self, family: Family, plan: Plan) -> Result<(), CommandError> {
        let step = self.written.remove(&family).map(|was| step(family, &was, &plan));
        let is_there = match step {
            None => false,
            Some(step) if step.is_empty() => true,
            // What is not there as it was written cannot be changed by a step.
            Some(step) => self.write(&step).await.is_ok(),
        };
        if !is_there {
            self.write(&whole(family, &plan)).await?;
        }
        self.written.insert(family, plan);
        Ok(())
    }

    async fn write(&self, script: &str) -> Result<(), CommandError> {
        self.own.done("nft", &["-f", "-"], Some(script)).await.map(drop)
    }

    /// Forgets families whose table somebody else changed. Whether there are any.
    pub(super) async fn forget_broken(&mut self, told: &Told) -> bool {
        let mut broken = Vec::new();
        for family in self.written.keys() {
            let is_broken = match told {
                Told::Changed(notices) => {
                    notices.iter().any(|notice| notice.family == *family && notice.table == TABLE)
                }
                Told::Lost => !self.is_intact(*family).await,
            };
            broken.extend(is_broken.then_some(*family));
        }
        broken.iter().for_each(|family| drop(self.written.remove(family)));
        if !broken.is_empty() {
            tokio::time::sleep(REPAIR_INTERVAL).await;
        }
        !broken.is_empty()
    }

    async fn is_intact(&self, family: Family) -> bool {
        let Some(plan) = self.written.get(&family) else { return true };
        let listed = self.own.done("nft", &["-t", "list", "table", family_word(family), TABLE], None).await;
        let Ok(text) = listed else { return false };
        is_whole(&text, plan)
    }

    /// # Errors
    /// A table stays.
    async fn take_away(&mut self) -> Result<(), CommandError> {
        self.written.clear();
        // Without the program nobody has written anything.
        if !command::exists("nft") {
            return Ok(());
        }
        let listed = self.own.run("nft", &["list", "tables"], None).await?;
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        for ip in Family::ALL.map(family_word) {
            if text.lines().any(|line| line.trim() == format!("table {ip} {TABLE}")) {
                self.write(&format!("delete table {ip} {TABLE}\n")).await?;
            }
        }
        Ok(())
    }
}

/// Takes away everything that was ever written: for `coracle reset`, and for a node whose pod network is no longer ours.
///
/// # Errors
/// A table stays.
pub async fn clean_up() -> Result<(), CommandError> {
    Tables::default().take_away().await
}
