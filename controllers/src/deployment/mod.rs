//! Rolls a Deployment's pods from one template to the next, through its ReplicaSets.
//!
//! <https://kubernetes.io/docs/concepts/workloads/controllers/deployment/>

mod pass;
mod plan;
mod revision;
mod rollback;
mod shape;
mod status;

use crate::clients::Clients;
use crate::common::pod_control::patch_owner;
use crate::common::{narrow_selector, ownership};
use coracle_client::informer::{api_for, deleting, uid_of};
use coracle_client::{Action, Controller, Delta, Informer, ObjectKey, ReconcileError, Reconciler, Recorder};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::core::Selector;
use pass::Pass;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "deployment-controller";

struct Deployments {
    client: kube::Client,
    deployments: Informer<Deployment>,
    sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
    recorder: Recorder,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.client(CONTROLLER);
    let deployments = clients.informers.of::<Deployment>();
    let (sets, pods) = (clients.informers.of::<ReplicaSet>(), clients.informers.of::<Pod>());
    let reconciler = Deployments {
        recorder: Recorder::new(client.clone(), CONTROLLER, ""),
        client,
        deployments: deployments.clone(),
        sets: sets.clone(),
        pods: pods.clone(),
    };
    let by_set = {
        let deployments = deployments.clone();
        move |delta: &Delta<ReplicaSet>| ownership::owner_keys(delta, &deployments, selector)
    };
    let by_pod = {
        let sets = sets.clone();
        move |delta: &Delta<Pod>| gone_pod(delta, &sets)
    };
    Controller::new(reconciler)
        .objects(&deployments)
        .watch(&sets, by_set)
        .watch(&pods, by_pod)
        .workers(4)
        .run(stop)
        .await;
}

fn selector(deployment: &Deployment) -> Option<Selector> {
    narrow_selector(&deployment.spec.as_ref()?.selector)
}

/// A pod that went: a Recreate waits for the last one of the old ones.
fn gone_pod(delta: &Delta<Pod>, sets: &Informer<ReplicaSet>) -> Option<ObjectKey> {
    let pod = delta.old.as_ref().filter(|_| delta.new.is_none())?;
    let namespace = pod.metadata.namespace.as_deref()?;
    let set = sets.get(namespace, &ownership::controller_of(&pod.metadata)?.name)?;
    Some(ObjectKey::new(namespace, &ownership::controller_of(&set.metadata)?.name))
}

impl Reconciler for Deployments {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(deployment) = self.deployments.get_key(key) else { return Ok(Action::AwaitChange) };
        let Some(selector) = selector(&deployment) else {
            let message = "This deployment is selecting all pods. A non-empty selector is required.";
            self.recorder.warning(deployment.as_ref(), "SelectingAll", message);
            return Ok(Action::AwaitChange);
        };
        let sets = self.claim(key, &deployment, &selector).await?;
        let now = Timestamp::now();
        let mut pass = Pass::new(&self.client, &self.recorder, &deployment, sets, now);
        if deleting(deployment.as_ref()) {
            pass.write_counts().await?;
            return Ok(Action::AwaitChange);
        }
        pass.note_pause();
        let outcome = self.step(&mut pass).await;
        if let Err(error) = outcome {
            pass.write_failure().await?;
            return Err(error);
        }
        // A second late, so that the deadline is over for sure.
        let wait = status::until_deadline(&pass.deployment, &pass.status(), now);
        Ok(wait.map_or(Action::AwaitChange, |wait| Action::RequeueAfter(wait + Duration::from_secs(1))))
    }
}

impl Deployments {
    async fn step(&self, pass: &mut Pass<'_>) -> Result<(), ReconcileError> {
        if pass.is_paused() {
            pass.refresh_new().await?;
            pass.scale().await?;
            pass.clean_up().await?;
            return pass.write_counts().await;
        }
        if let Some(revision) = rollback::wanted(&pass.deployment) {
            return pass.roll_back(revision).await;
        }
        if pass.is_scaling() {
            pass.refresh_new().await?;
            pass.scale().await?;
            return pass.write_counts().await;
        }
        if pass.shape.rolling.is_none() {
            self.recreate(pass).await?
        } else {
            pass.roll().await?
        }
        if pass.is_complete() {
            pass.clean_up().await?;
        }
        pass.write_rollout().await
    }

    /// All old pods go before the first new one comes.
    async fn recreate(&self, pass: &mut Pass<'_>) -> Result<(), ReconcileError> {
        pass.refresh_new().await?;
        if pass.drain_old().await? || self.old_pods_run(pass) {
            return Ok(());
        }
        pass.ensure_new().await?;
        pass.fill_new().await
    }

    fn old_pods_run(&self, pass: &Pass<'_>) -> bool {
        pass.old().iter().any(|set| {
            set.status.as_ref().is_some_and(|s| s.replicas > 0)
                || self
                    .pods
                    .controlled_by(&uid_of(set.as_ref()))
                    .iter()
                    .any(|pod| !crate::common::pods::is_terminal(pod))
        })
    }

    /// The Deployment's ReplicaSets, after adopting and releasing.
    async fn claim(
        &self,
        key: &ObjectKey,
        deployment: &Arc<Deployment>,
        selector: &Selector,
    ) -> Result<Vec<Arc<ReplicaSet>>, ReconcileError> {
        let uid = uid_of(deployment.as_ref());
        let in_reach = self.sets.list_in(&key.namespace);
        let claims = ownership::claim(in_reach, &uid, selector, deleting(deployment.as_ref()));
        let api: Api<ReplicaSet> = api_for(&self.client, key);
        for set in &claims.release {
            let patch = ownership::release_patch(&uid, &uid_of(set.as_ref()));
            patch_owner(&api, set.as_ref(), patch).await?;
        }
        let mut owned = claims.keep;
        if !claims.adopt.is_empty() && self.may_adopt(key, &uid).await? {
            for set in claims.adopt {
                let patch = ownership::adopt_patch(deployment.as_ref(), &uid_of(set.as_ref()));
                owned.extend(patch_owner(&api, set.as_ref(), patch).await?.map(Arc::new));
            }
        }
        Ok(owned)
    }

    async fn may_adopt(&self, key: &ObjectKey, uid: &str) -> Result<bool, ReconcileError> {
        let live = api_for::<Deployment>(&self.client, key).get_opt(&key.name).await?;
        Ok(live.is_some_and(|live| uid_of(&live) == uid && !deleting(&live)))
    }
}
