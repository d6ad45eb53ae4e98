//! The claim's side of binding.

use super::{Binder, plan};
use crate::facts::{
    self, BIND_COMPLETED, BOUND_BY_CONTROLLER, LOCAL_PATH, SELECTED_NODE, STORAGE_PROVISIONER,
};
use crate::metrics::Metric;
use coracle_api::pod::is_terminal;
use coracle_api::storage::MOVING;
use coracle_client::informer::{api_for, deleting};
use coracle_client::{Action, ObjectKey, ReconcileError};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus, Pod,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use std::sync::Arc;

/// Former plugins whose claims CSI drivers look after.
const MIGRATED: [&str; 7] =
    ["aws-ebs", "azure-disk", "azure-file", "cinder", "gce-pd", "portworx-volume", "vsphere-volume"];
const WAIT_FOR_FIRST_CONSUMER: &str = "WaitForFirstConsumer";

fn claim_phase(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.status.as_ref()?.phase.as_deref()
}

fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some(WAIT_FOR_FIRST_CONSUMER)
}

/// Kubernetes' own provisioners are plugins of its controllers, none of which are left; some of them have a driver that
/// took over.
fn has_no_plugin(provisioner: &str) -> bool {
    let Some(name) = provisioner.strip_prefix("kubernetes.io/") else { return false };
    !MIGRATED.contains(&name)
}

impl Binder {
    pub(super) async fn sync_claim(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(claim) = self.claims.get_key(key) else { return Ok(Action::AwaitChange) };
        if facts::annotation(claim.as_ref(), BIND_COMPLETED).is_some() {
            return self.sync_bound(&claim).await;
        }
        if deleting(claim.as_ref()) {
            return Ok(Action::AwaitChange);
        }
        match facts::volume_name(&claim) {
            None => self.find_volume(&claim).await,
            Some(name) => self.take_named(&claim, name).await,
        }
    }

    /// A claim that was bound once: it is bound still, or its data is lost.
    async fn sync_bound(&self, claim: &Arc<PersistentVolumeClaim>) -> Result<Action, ReconcileError> {
        let Some(name) = facts::volume_name(claim) else {
            let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
            return self.lose(claim, "ClaimLost", message).await;
        };
        let Some(volume) = self.live_volume(name).await? else {
            if facts::annotation(claim.as_ref(), MOVING).is_some() {
                return Ok(Action::AwaitChange);
            }
            let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
            return self.lose(claim, "ClaimLost", message).await;
        };
        if facts::claim_ref(&volume).is_none() || facts::is_bound_to(&volume, claim) {
            return self.bind(claim, &volume).await;
        }
        let message = "Two claims are bound to the same volume, this one is bound incorrectly";
        self.lose(claim, "ClaimMisbound", message).await
    }

    /// The informers of volumes and claims run apart, so a volume that one does not know may well exist.
    async fn live_volume(&self, name: &str) -> Result<Option<Arc<PersistentVolume>>, ReconcileError> {
        if let Some(known) = self.volumes.get("", name) {
            return Ok(Some(known));
        }
        Ok(Api::<PersistentVolume>::all(self.client.clone()).get_opt(name).await?.map(Arc::new))
    }

    async fn lose(
        &self,
        claim: &PersistentVolumeClaim,
        reason: &str,
        message: &str,
    ) -> Result<Action, ReconcileError> {
        if claim_phase(claim) != Some("Lost") {
            self.write_phase(claim, "Lost").await?;
            self.recorder.warning(claim, reason, message);
        }
        Ok(Action::AwaitChange)
    }

    async fn take_named(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        name: &str,
    ) -> Result<Action, ReconcileError> {
        let Some(volume) = self.volumes.get("", name) else { return self.pend(claim).await };
        let problem = plan::mismatch(&volume, claim);
        match (facts::claim_ref(&volume), problem) {
            (None, Some(problem)) => {
                let message = format!("Cannot bind to requested volume \"{name}\": {problem}");
                self.recorder.warning(claim.as_ref(), "VolumeMismatch", message);
                self.pend(claim).await
            }
            (None, None) => self.bind(claim, &volume).await,
            (Some(_), _) if facts::is_bound_to(&volume, claim) => self.bind(claim, &volume).await,
            (Some(_), _) => {
                let message = format!("volume \"{name}\" already bound to a different claim.");
                self.recorder.warning(claim.as_ref(), "FailedBinding", message);
                self.pend(claim).await
            }
        }
    }

    async fn find_volume(&self, claim: &Arc<PersistentVolumeClaim>) -> Result<Action, ReconcileError> {
        let class = self.classes.get("", facts::class_of(claim));
        let selected = facts::annotation(claim.as_ref(), SELECTED_NODE);
        // With a node selected too: the scheduler looked for a volume, found none, and wants one made.
        let delayed = class.as_deref().is_some_and(waits_for_consumer);
        let node = selected.and_then(|name| self.nodes.get("", name));
        let volumes = self.volumes.list();
        if let Some(volume) = plan::best_match(&volumes, claim, delayed, node.as_deref()) {
            return self.bind(claim, volume).await;
        }
        if self.take_default_class(claim).await? {
            return Ok(Action::AwaitChange);
        }
        if delayed && selected.is_none() {
            self.report_waiting(claim);
        } else if facts::class_of(claim).is_empty() {
            let message = "no persistent volumes available for this claim and no storage class is set";
            self.recorder.normal(claim.as_ref(), "FailedBinding", message);
        } else {
            return self.provision(claim, class.as_deref()).await;
        }
        self.pend(claim).await
    }

    /// A claim that was made when there was no default class, and names none, gets the one that there is now.
    async fn take_default_class(&self, claim: &Arc<PersistentVolumeClaim>) -> Result<bool, ReconcileError> {
        if facts::names_class(claim) {
            return Ok(false);
        }
        let classes = self.classes.list();
        let Some(class) = facts::default_class(&classes) else { return Ok(false) };
        let mut changed = PersistentVolumeClaim::clone(claim);
        changed.spec.get_or_insert_default().storage_class_name = Some(class.name_any());
        let api: Api<PersistentVolumeClaim> = api_for(&self.client, &ObjectKey::of(claim.as_ref()));
        let given = api.replace(&claim.name_any(), &PostParams::default(), &changed).await;
        let metric = if given.is_ok() { Metric::LateClasses } else { Metric::LateClassErrors };
        self.metrics.add(metric, &[], 1);
        given?;
        Ok(true)
    }

    fn report_waiting(&self, claim: &PersistentVolumeClaim) {
        let name = claim.name_any();
        let waits = |pod: &Arc<Pod>| {
            let spec = pod.spec.as_ref();
            spec.and_then(|s| s.node_name.as_deref()).is_none_or(str::is_empty)
                && !is_terminal(pod.as_ref())
                && !deleting(pod.as_ref())
                && crate::protection::uses(pod, &name)
        };
        let pods = self.pods.iter_in(&claim.namespace().unwrap_or_default());
        let mut waiting: Vec<String> = pods.filter(waits).map(|p| p.name_any()).collect();
        waiting.sort_unstable();
        let message = match waiting.as_slice() {
            [] => {
                let message = "waiting for first consumer to be created before binding";
                return self.recorder.normal(claim, WAIT_FOR_FIRST_CONSUMER, message);
            }
            [one] => format!("waiting for pod {one} to be scheduled"),
            many => format!("waiting for pods {} to be scheduled", many.join(",")),
        };
        self.recorder.normal(claim, "WaitForPodScheduled", message);
    }

    /// Hands the claim to its class's provisioner, which is told by annotations.
    async fn provision(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        class: Option<&StorageClass>,
    ) -> Result<Action, ReconcileError> {
        let Some(class) = class else {
            let name = facts::class_of(claim);
            let message = format!("storageclass.storage.k8s.io \"{name}\" not found");
            self.recorder.warning(claim.as_ref(), "ProvisioningFailed", message);
            return self.pend(claim).await;
        };
        let provisioner = &class.provisioner;
        if has_no_plugin(provisioner) {
            let message = format!("no volume plugin matched name: {provisioner}");
            self.recorder.warning(claim.as_ref(), "ProvisioningFailed", message);
            return self.pend(claim).await;
        }
        let mut changed = PersistentVolumeClaim::clone(claim);
        for key in STORAGE_PROVISIONER {
            changed.annotations_mut().insert(key.to_owned(), provisioner.clone());
        }
        if provisioner == LOCAL_PATH && facts::annotation(claim.as_ref(), SELECTED_NODE).is_none() {
            let Some(node) = self.any_ready_node(claim) else {
                let message = "no ready node to make the volume on";
                self.recorder.warning(claim.as_ref(), "ProvisioningFailed", message);
                return Err(ReconcileError::Other(message.to_owned()));
            };
            changed.annotations_mut().insert(SELECTED_NODE.to_owned(), node);
        }
        if &changed != claim.as_ref() {
            let api: Api<PersistentVolumeClaim> = api_for(&self.client, &ObjectKey::of(claim.as_ref()));
            api.replace(&claim.name_any(), &PostParams::default(), &changed).await?;
            return Ok(Action::AwaitChange);
        }
        let message = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
        );
        self.recorder.normal(claim.as_ref(), "ExternalProvisioning", message);
        self.pend(claim).await
    }

    /// A Ready, schedulable node, for claims that do not wait for a pod; the claim's UID spreads them.
    fn any_ready_node(&self, claim: &PersistentVolumeClaim) -> Option<String> {
        let nodes = self.nodes.list();
        let usable: Vec<&Arc<Node>> = nodes.iter().filter(|n| is_usable(n)).collect();
        let spread: usize = claim.uid().unwrap_or_default().bytes().map(usize::from).sum();
        usable.get(spread.checked_rem(usable.len())?).map(|n| n.name_any())
    }

    async fn pend(&self, claim: &PersistentVolumeClaim) -> Result<Action, ReconcileError> {
        if claim_phase(claim) != Some("Pending") {
            self.write_phase(claim, "Pending").await?;
        }
        Ok(Action::AwaitChange)
    }

    /// Writes the phase of a claim that has no volume.
    async fn write_phase(&self, claim: &PersistentVolumeClaim, phase: &str) -> Result<(), ReconcileError> {
        let mut changed = claim.clone();
        let status = changed.status.get_or_insert_default();
        status.phase = Some(phase.to_owned());
        (status.access_modes, status.capacity) = (None, None);
        let api: Api<PersistentVolumeClaim> = api_for(&self.client, &ObjectKey::of(claim));
        api.replace_status(&claim.name_any(), &PostParams::default(), &changed).await?;
        Ok(())
    }

    /// Four writes, each harmless to repeat: the volume's claimRef and phase, then the claim's volumeName and phase.
    async fn bind(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        volume: &Arc<PersistentVolume>,
    ) -> Result<Action, ReconcileError> {
        let volume = self.bind_volume(claim, volume).await?;
        self.set_volume_phase(&volume, "Bound", None).await?;
        let api: Api<PersistentVolumeClaim> = api_for(&self.client, &ObjectKey::of(claim.as_ref()));
        let mut changed = PersistentVolumeClaim::clone(claim);
        if facts::volume_name(claim).is_none() {
            changed.spec.get_or_insert_default().volume_name = volume.metadata.name.clone();
            changed.annotations_mut().insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
        }
        changed.annotations_mut().insert(BIND_COMPLETED.to_owned(), "yes".to_owned());
        if &changed != claim.as_ref() {
            changed = api.replace(&claim.name_any(), &PostParams::default(), &changed).await?;
        }
        let status = bound_status(&changed, &volume);
        if changed.status.as_ref() != Some(&status) {
            changed.status = Some(status);
            api.replace_status(&claim.name_any(), &PostParams::default(), &changed).await?;
        }
        Ok(Action::AwaitChange)
    }

    async fn bind_volume(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &Arc<PersistentVolume>,
    ) -> Result<Arc<PersistentVolume>, ReconcileError> {
        let reference = facts::claim_ref(volume);
        if reference.is_some_and(|r| r.uid.is_some() && r.uid == claim.metadata.uid) {
            return Ok(volume.clone());
        }
        let mut changed = PersistentVolume::clone(volume);
        if reference.is_none() {
            changed.annotations_mut().insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
        }
        changed.spec.get_or_insert_default().claim_ref = Some(facts::reference_to(claim));
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        Ok(Arc::new(api.replace(&volume.name_any(), &PostParams::default(), &changed).await?))
    }

    pub(super) async fn set_volume_phase(
        &self,
        volume: &Arc<PersistentVolume>,
        phase: &str,
        message: Option<&str>,
    ) -> Result<(), ReconcileError> {
        if facts::phase(volume) == phase && volume.status.is_some() {
            return Ok(());
        }
        let mut changed = PersistentVolume::clone(volume);
        let status = changed.status.get_or_insert_default();
        status.phase = Some(phase.to_owned());
        status.message = message.map(str::to_owned);
        status.last_phase_transition_time = Some(Time(Timestamp::now()));
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        api.replace_status(&volume.name_any(), &PostParams::default(), &changed).await?;
        Ok(())
    }
}

/// The status of a claim that has this volume. The capacity is the volume's when the claim gets it; from then on it is for
/// those to write who resize.
fn bound_status(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> PersistentVolumeClaimStatus {
    let mut status = claim.status.clone().unwrap_or_default();
    let spec = volume.spec.clone().unwrap_or_default();
    status.access_modes = spec.access_modes;
    if status.phase.as_deref() != Some("Bound") {
        status.phase = Some("Bound".to_owned());
        status.capacity = spec.capacity;
        status.current_volume_attributes_class_name = spec.volume_attributes_class_name;
    }
    status
}

fn is_usable(node: &Node) -> bool {
    let unschedulable = node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false);
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    !unschedulable && conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}
