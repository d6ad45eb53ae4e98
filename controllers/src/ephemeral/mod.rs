//! Makes the claims of pods' generic ephemeral volumes, each owned by its pod.
//!
//! <https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#generic-ephemeral-volumes>

use crate::clients::Clients;
use crate::common::{code_of, message_of, ownership};
use crate::metrics::{Metric, Metrics};
use coracle_api::storage::ephemeral_claim;
use coracle_client::informer::{Delta, api_for, deleting, uid_of};
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler, Recorder};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "ephemeral-volume-controller";

struct Volumes {
    client: kube::Client,
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
    recorder: Recorder,
    metrics: Arc<Metrics>,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.client(CONTROLLER);
    let (pods, claims) = (clients.informers.of::<Pod>(), clients.informers.of::<PersistentVolumeClaim>());
    let reconciler = Volumes {
        recorder: Recorder::new(client.clone(), CONTROLLER, ""),
        client,
        pods: pods.clone(),
        claims: claims.clone(),
        metrics: clients.metrics.clone(),
    };
    let new_pod = |delta: &Delta<Pod>| {
        let pod = delta.new.as_ref().filter(|pod| delta.old.is_none() && wanted(pod).next().is_some());
        pod.map(|pod| ObjectKey::of(pod.as_ref()))
    };
    let lost_claim = |delta: &Delta<PersistentVolumeClaim>| {
        let claim = delta.old.as_ref().filter(|_| delta.new.is_none())?;
        let pod = ownership::controller_of(&claim.metadata).filter(|owner| owner.kind == "Pod")?;
        Some(ObjectKey::new(claim.namespace()?, &pod.name))
    };
    Controller::new(reconciler).watch(&pods, new_pod).watch(&claims, lost_claim).run(stop).await;
}

/// The volumes of a pod that want a claim made.
fn wanted(pod: &Pod) -> impl Iterator<Item = PersistentVolumeClaim> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| {
        let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
        let meta = template.metadata.clone().unwrap_or_default();
        let claim = PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(ephemeral_claim(&pod.name_any(), &volume.name)),
                namespace: pod.namespace(),
                labels: meta.labels,
                annotations: meta.annotations,
                owner_references: Some(vec![ownership::controller_reference(pod)]),
                ..ObjectMeta::default()
            },
            spec: Some(template.spec.clone()),
            status: None,
        };
        Some(claim)
    })
}

impl Reconciler for Volumes {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "ephemeral_volume"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(pod) = self.pods.get_key(key) else { return Ok(Action::AwaitChange) };
        if deleting(pod.as_ref()) {
            return Ok(Action::AwaitChange);
        }
        for claim in wanted(&pod) {
            self.ensure(key, &pod, &claim).await?;
        }
        Ok(Action::AwaitChange)
    }
}

impl Volumes {
    async fn create(
        &self,
        api: &Api<PersistentVolumeClaim>,
        claim: &PersistentVolumeClaim,
    ) -> Result<PersistentVolumeClaim, kube::Error> {
        self.metrics.add(Metric::EphemeralCreates, &[], 1);
        let made = api.create(&PostParams::default(), claim).await;
        self.metrics.add(Metric::EphemeralFailures, &[], made.is_err().into());
        made
    }

    async fn ensure(
        &self,
        key: &ObjectKey,
        pod: &Pod,
        claim: &PersistentVolumeClaim,
    ) -> Result<(), ReconcileError> {
        let name = claim.name_any();
        let api: Api<PersistentVolumeClaim> = api_for(&self.client, key);
        let there = match self.claims.get(&key.namespace, &name) {
            Some(there) => PersistentVolumeClaim::clone(&there),
            None => match self.create(&api, claim).await {
                Err(error) if code_of(&error) == 409 => api.get(&name).await?,
                Err(error) => {
                    let message =
                        format!("ephemeral volume controller: create PVC {name}: {}", message_of(&error));
                    self.recorder.warning(pod, "FailedCreate", message);
                    return Err(error.into());
                }
                Ok(made) => made,
            },
        };
        let ours = ownership::controller_of(&there.metadata).is_some_and(|owner| owner.uid == uid_of(pod));
        if ours {
            return Ok(());
        }
        let why =
            format!("PVC \"{}/{name}\" was not created for pod \"{key}\" (pod is not owner)", key.namespace);
        self.recorder.warning(pod, "FailedCreate", why.clone());
        Err(ReconcileError::Other(why))
    }
}
