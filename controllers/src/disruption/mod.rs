//! Keeps count of how many pods each PodDisruptionBudget lets go; evictions spend from it.
//!
//! <https://kubernetes.io/docs/concepts/workloads/pods/disruptions/>

mod plan;
mod scale;
mod stale;

use crate::clients::Clients;
use crate::common::{message_of, pods};
use crate::discovery::Known;
use coracle_client::informer::{Delta, Kind};
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler, Recorder, write};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use scale::{Owners, Wanted};
pub use stale::run as run_stale;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "disruption-controller";
/// Until owners that had no size are asked again.
const UNKNOWN_RETRY_INTERVAL: Duration = Duration::from_secs(60);

struct Budgets {
    client: kube::Client,
    budgets: Informer<PodDisruptionBudget>,
    pods: Informer<Pod>,
    owners: Owners,
    recorder: Recorder,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.client(CONTROLLER);
    let informers = &clients.informers;
    let (budgets, pods) = (informers.of::<PodDisruptionBudget>(), informers.of::<Pod>());
    let owners = Owners {
        client: client.clone(),
        known: Known::new(client.clone()),
        replicasets: informers.of(),
        deployments: informers.of(),
        statefulsets: informers.of(),
        replicationcontrollers: informers.of(),
    };
    let by_pod = {
        let budgets = budgets.clone();
        move |delta: &Delta<Pod>| concerned(delta, &budgets)
    };
    let (replicasets, deployments) = (owners.replicasets.clone(), owners.deployments.clone());
    let (statefulsets, controllers) = (owners.statefulsets.clone(), owners.replicationcontrollers.clone());
    let (by_deployment, by_set) = (budgets.clone(), budgets.clone());
    let reconciler = Budgets {
        recorder: Recorder::new(client.clone(), "controllermanager", ""),
        client,
        budgets: budgets.clone(),
        pods: pods.clone(),
        owners,
    };
    Controller::new(reconciler)
        .objects(&budgets)
        .watch(&pods, by_pod)
        .watch(&deployments, move |delta| resized(delta, &by_deployment, |d| d.spec.as_ref()?.replicas))
        .watch(&statefulsets, move |delta| resized(delta, &by_set, |s| s.spec.as_ref()?.replicas))
        .reads(&replicasets)
        .reads(&controllers)
        .run(stop)
        .await;
}

/// The budgets of a namespace in which an owner got another size.
fn resized<K: Kind>(
    delta: &Delta<K>,
    budgets: &Informer<PodDisruptionBudget>,
    size: impl Fn(&K) -> Option<i32>,
) -> Vec<ObjectKey> {
    let of = |object: &Option<Arc<K>>| object.as_ref().and_then(|object| size(object));
    let namespace = delta.object().and_then(|object| object.namespace());
    let Some(namespace) = namespace.filter(|_| of(&delta.old) != of(&delta.new)) else { return Vec::new() };
    budgets.list_in(&namespace).iter().map(|budget| ObjectKey::of(budget.as_ref())).collect()
}

/// `None` selects nothing; an empty selector, everything.
fn selector(budget: &PodDisruptionBudget) -> Option<Selector> {
    Selector::try_from(budget.spec.as_ref()?.selector.clone()?).ok()
}

/// The budgets whose count a change of a pod may move: that of its old labels and that of its new ones.
fn concerned(delta: &Delta<Pod>, budgets: &Informer<PodDisruptionBudget>) -> Vec<ObjectKey> {
    if let (Some(old), Some(new)) = (&delta.old, &delta.new)
        && old.metadata.labels == new.metadata.labels
        && old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        && pods::is_ready(old) == pods::is_ready(new)
        && pods::is_terminal(old) == pods::is_terminal(new)
    {
        return Vec::new();
    }
    let Some(namespace) = delta.object().and_then(|pod| pod.namespace()) else { return Vec::new() };
    let selects = |selector: &Selector| {
        let pods = [&delta.old, &delta.new].into_iter().flatten();
        pods.into_iter().any(|pod| selector.matches(pod.labels()))
    };
    let all = budgets.list_in(&namespace);
    let concerned = all.iter().filter(|budget| selector(budget).is_some_and(|s| selects(&s)));
    concerned.map(|budget| ObjectKey::of(budget.as_ref())).collect()
}

impl Reconciler for Budgets {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "disruption"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(budget) = self.budgets.get_key(key) else { return Ok(Action::AwaitChange) };
        let Some(spec) = budget.spec.as_ref() else { return Ok(Action::AwaitChange) };
        let pods = self.selected(key, &budget);
        if pods.is_empty() {
            self.recorder.normal(budget.as_ref(), "NoPods", "No matching pods found");
        }
        let now = Timestamp::now();
        match self.wanted(&budget, spec, &pods).await {
            Ok(wanted) => {
                let count = plan::status(&budget, spec, &pods, &wanted, now);
                self.write(key, &budget, count.status).await?;
                for pod in count.not_deleted {
                    let message = format!("Pod was expected by PDB {key} to be deleted but it wasn't");
                    self.recorder.warning(pod.as_ref(), "NotDeleted", message);
                }
                Ok(count.again.map_or(Action::AwaitChange, Action::RequeueAfter))
            }
            Err(error) => {
                let why = match &error {
                    ReconcileError::Api(error) => message_of(error),
                    ReconcileError::Other(why) => why.clone(),
                };
                let message = format!("Failed to calculate the number of expected pods: {why}");
                self.recorder.warning(budget.as_ref(), "CalculateExpectedPodCountFailed", message);
                self.write(key, &budget, plan::failed(&budget, &why, now)).await?;
                // What has no size now may get one without a word to us: a kind that is served a moment later.
                if matches!(error, ReconcileError::Other(_)) {
                    Ok(Action::RequeueAfter(UNKNOWN_RETRY_INTERVAL))
                } else {
                    Err(error)
                }
            }
        }
    }
}

impl Budgets {
    fn selected(&self, key: &ObjectKey, budget: &PodDisruptionBudget) -> Vec<Arc<Pod>> {
        let Some(selector) = selector(budget) else { return Vec::new() };
        self.pods.labelled(&key.namespace, |labels| selector.matches(labels))
    }

    async fn wanted(
        &self,
        budget: &PodDisruptionBudget,
        spec: &PodDisruptionBudgetSpec,
        pods: &[Arc<Pod>],
    ) -> Result<Wanted, ReconcileError> {
        if !plan::asks_owners(spec) {
            return Ok(Wanted::default());
        }
        let wanted = self.owners.wanted(pods).await?;
        if !wanted.unmanaged.is_empty() {
            self.recorder.warning(budget, "UnmanagedPods", plan::unmanaged(spec));
        }
        Ok(wanted)
    }

    async fn write(
        &self,
        key: &ObjectKey,
        budget: &PodDisruptionBudget,
        status: PodDisruptionBudgetStatus,
    ) -> Result<(), ReconcileError> {
        if budget.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let changed = PodDisruptionBudget { status: Some(status), ..budget.clone() };
        Ok(write::replace_status(&self.client, key, &changed).await?)
    }
}
