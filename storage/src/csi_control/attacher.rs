//! Attaches volumes where VolumeAttachments ask for it, as upstream's external-attacher does.
//!
//! <https://kubernetes-csi.github.io/docs/external-attacher.html>

use super::create::capability_of;
use super::secrets::{self, SecretError};
use super::services::Services;
use super::topology::node_id;
use super::{CsiConfig, WORKERS, requeue_for_drivers};
use crate::csi::controller_messages::{
    CONTROLLER_PUBLISH_VOLUME, CONTROLLER_UNPUBLISH_VOLUME, ControllerPublishVolumeRequest,
    ControllerPublishVolumeResponse, ControllerRpcType, ControllerUnpublishVolumeRequest,
};
use crate::csi::messages::Empty;
use crate::csi::{CallError, ControllerService};
use crate::facts;
use coracle_client::beat::Patience;
use coracle_client::informer::deleting;
use coracle_client::{Action, Context, Controller, Informer, ReconcileError, Reconciler, WorkQueue};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolume};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

/// By which a volume can be detached after its CSINode has gone; upstream's annotation.
const NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";

#[derive(Debug, thiserror::Error)]
enum AttachError {
    #[error("the volume {0} is not there, or is not of this driver")]
    NoVolume(String),
    #[error("node {0:?} has no NodeID for the driver: it is not registered there")]
    NoNode(String),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the attachment is not written")]
    Write(#[from] kube::Error),
}

struct Attacher {
    client: kube::Client,
    attachments: Informer<VolumeAttachment>,
    volumes: Informer<PersistentVolume>,
    csi_nodes: Informer<CSINode>,
    services: Services,
}

/// Runs until `context.stop` is cancelled.
pub async fn run(context: &Context, config: &CsiConfig, services: Services) {
    let informers = &context.informers;
    let this = Attacher {
        client: context.client.clone(),
        attachments: informers.of(),
        volumes: informers.of(),
        csi_nodes: informers.of(),
        services,
    };
    let (attachments, volumes, csi_nodes) =
        (this.attachments.clone(), this.volumes.clone(), this.csi_nodes.clone());
    let objects = informers.of::<CSIDriver>();
    let everything = {
        let attachments = attachments.clone();
        move || attachments.iter().map(|attachment| attachment.name_any()).collect::<Vec<_>>()
    };
    let queue = WorkQueue::new();
    requeue_for_drivers(context, config, &queue, everything.clone());
    let (for_node, of_volume) = (everything.clone(), attachments.clone());
    Controller::with_queue(this, queue)
        .watch(&attachments, |delta| {
            let new = delta.new.as_deref()?;
            // Errors are what this controller writes itself: they would wake it before its pause is over.
            (delta.old.as_deref().map(matters) != Some(matters(new))).then(|| new.name_any())
        })
        .watch(&csi_nodes, move |_| for_node())
        .watch(&volumes, move |delta| {
            // Others wait for nothing of their volume.
            let volume = delta.new.as_ref().filter(|volume| deleting(volume.as_ref())).map(|v| v.name_any());
            let of = move |a: &Arc<VolumeAttachment>| volume.is_some() && volume_of(a) == volume.as_deref();
            of_volume.iter().filter(of).map(|attachment| attachment.name_any()).collect::<Vec<_>>()
        })
        .watch(&objects, move |_| everything())
        .workers(WORKERS)
        .run(context.stop.clone())
        .await;
}

/// What of an attachment there is to act on.
fn matters(attachment: &VolumeAttachment) -> (bool, bool, &[String]) {
    let attached = attachment.status.as_ref().is_some_and(|status| status.attached);
    (deleting(attachment), attached, attachment.finalizers())
}

fn volume_of(attachment: &VolumeAttachment) -> Option<&str> {
    attachment.spec.source.persistent_volume_name.as_deref()
}

/// Upstream's, by the driver's name: what no finalizer may hold is replaced.
fn finalizer(driver: &str) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let mut name: String = driver.chars().map(clean).collect();
    if name.ends_with('-') {
        name.push('X');
    }
    format!("external-attacher/{name}")
}

impl Reconciler for Attacher {
    /// A VolumeAttachment.
    type Key = String;
    const PATIENCE: Option<Patience> = Some(Patience::Long);

    fn name(&self) -> &'static str {
        "csi-attacher"
    }

    async fn reconcile(&self, name: &String) -> Result<Action, ReconcileError> {
        let Some(attachment) = self.attachments.get("", name) else { return Ok(Action::AwaitChange) };
        let driver = &attachment.spec.attacher;
        // Volumes that are written in a pod are migrated plugins', which there are none of.
        if !self.services.is_ours(driver) || volume_of(&attachment).is_none() {
            return Ok(Action::AwaitChange);
        }
        let service =
            self.services.of(driver).await.map_err(|error| ReconcileError::Other(error.to_string()))?;
        let Some(service) = service else { return Ok(Action::AwaitChange) };
        let attached = attachment.status.as_ref().is_some_and(|status| status.attached);
        let done = match (deleting(attachment.as_ref()), attached) {
            (true, _) => self.detach(&attachment, &service).await,
            (false, true) => return Ok(Action::AwaitChange),
            (false, false) => self.attach(&attachment, &service).await,
        };
        let Err(error) = done else { return Ok(Action::AwaitChange) };
        let message = coracle_api::error::chain(&error);
        let kind = if deleting(attachment.as_ref()) { "detachError" } else { "attachError" };
        let told = json!({ "attached": attached, kind: { "message": message, "time": Timestamp::now().to_string() } });
        self.write_status(name, told).await?;
        Err(ReconcileError::Other(message))
    }
}

impl Attacher {
    async fn attach(
        &self,
        attachment: &VolumeAttachment,
        service: &ControllerService,
    ) -> Result<(), AttachError> {
        let name = attachment.name_any();
        if !service.can(ControllerRpcType::PublishUnpublishVolume) {
            // Such a driver's volumes are wherever they are wanted.
            return Ok(self.write_status(&name, json!({ "attached": true })).await?);
        }
        let (volume, source) = self.volume(attachment)?;
        let node = &attachment.spec.node_name;
        let csi = self.csi_nodes.get("", node);
        let node_id = csi.and_then(|csi| node_id(&csi, &source.driver));
        let node_id = node_id.ok_or_else(|| AttachError::NoNode(node.clone()))?;
        let secrets = secrets::read(&self.client, source.controller_publish_secret_ref.as_ref()).await?;
        let finalizer = finalizer(&source.driver);
        let annotations = [(NODE_ID.to_owned(), node_id.clone())].into();
        keep(&Api::<PersistentVolume>::all(self.client.clone()), volume.as_ref(), &finalizer, None).await?;
        keep(&Api::all(self.client.clone()), attachment, &finalizer, Some(annotations)).await?;
        let request = ControllerPublishVolumeRequest {
            volume_id: source.volume_handle.clone(),
            node_id,
            volume_capability: Some(capability_of(
                &volume,
                service.can(ControllerRpcType::SingleNodeMultiWriter),
            )),
            readonly: source.read_only == Some(true) && service.can(ControllerRpcType::PublishReadonly),
            secrets,
            volume_context: source.volume_attributes.clone().unwrap_or_default(),
        };
        let answer: ControllerPublishVolumeResponse =
            service.client.call(CONTROLLER_PUBLISH_VOLUME, request).await?;
        let told = json!({ "attached": true, "attachmentMetadata": answer.publish_context, "attachError": null, "detachError": null });
        Ok(self.write_status(&name, told).await?)
    }

    /// Takes the volume away and lets the attachment go. One that was never begun has no finalizer, and nothing to undo.
    async fn detach(
        &self,
        attachment: &VolumeAttachment,
        service: &ControllerService,
    ) -> Result<(), AttachError> {
        let finalizer = finalizer(&attachment.spec.attacher);
        if !attachment.finalizers().contains(&finalizer) {
            return Ok(());
        }
        let (_, source) = self.volume(attachment)?;
        let node = &attachment.spec.node_name;
        let csi = self.csi_nodes.get("", node).and_then(|csi| node_id(&csi, &source.driver));
        let noted = facts::annotation(attachment, NODE_ID).map(str::to_owned);
        let request = ControllerUnpublishVolumeRequest {
            volume_id: source.volume_handle.clone(),
            node_id: noted.or(csi).ok_or_else(|| AttachError::NoNode(node.clone()))?,
            secrets: secrets::read(&self.client, source.controller_publish_secret_ref.as_ref()).await?,
        };
        service.client.call::<_, Empty>(CONTROLLER_UNPUBLISH_VOLUME, request).await?;
        let volume = volume_of(attachment).unwrap_or_default();
        let others = self.attachments.iter().any(|other| {
            volume_of(&other) == Some(volume) && other.metadata.name != attachment.metadata.name
        });
        // The attachment is what is waited for; the volume is let go before it, so that nothing forgets that.
        if !others {
            release(&Api::<PersistentVolume>::all(self.client.clone()), volume, &finalizer).await?;
        }
        let all: Api<VolumeAttachment> = Api::all(self.client.clone());
        Ok(release(&all, &attachment.name_any(), &finalizer).await?)
    }

    fn volume(
        &self,
        attachment: &VolumeAttachment,
    ) -> Result<(Arc<PersistentVolume>, CSIPersistentVolumeSource), AttachError> {
        let name = volume_of(attachment).unwrap_or_default();
        let missing = || AttachError::NoVolume(name.to_owned());
        let volume = self.volumes.get("", name).ok_or_else(missing)?;
        let source = volume.spec.as_ref().and_then(|spec| spec.csi.clone());
        let source = source.filter(|source| source.driver == attachment.spec.attacher).ok_or_else(missing)?;
        Ok((volume, source))
    }

    async fn write_status(&self, name: &str, status: Value) -> Result<(), kube::Error> {
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({ "status": status }));
        match api.patch_status(name, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            written => written.map(drop),
        }
    }
}

/// Adds the finalizer and the annotations, where they are not there.
async fn keep<K>(
    api: &Api<K>,
    object: &K,
    finalizer: &str,
    annotations: Option<BTreeMap<String, String>>,
) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    if object.finalizers().iter().any(|known| known == finalizer) {
        return Ok(());
    }
    let mut finalizers = object.finalizers().to_vec();
    finalizers.push(finalizer.to_owned());
    let version = object.resource_version();
    let mut patch = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": version } });
    if let Some(annotations) = annotations {
        patch["metadata"]["annotations"] = json!(annotations);
    }
    api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

async fn release<K>(api: &Api<K>, name: &str, finalizer: &str) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Serialize,
{
    let Some(mut live) = api.get_opt(name).await? else { return Ok(()) };
    let before = live.finalizers().len();
    live.finalizers_mut().retain(|known| known != finalizer);
    if live.finalizers().len() == before {
        return Ok(());
    }
    match api.replace(name, &PostParams::default(), &live).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        written => written.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::finalizer;

    #[test]
    fn finalizers_are_upstreams() {
        assert_eq!(finalizer("ebs.csi.aws.com"), "external-attacher/ebs-csi-aws-com");
        assert_eq!(finalizer("disk."), "external-attacher/disk-X");
    }
}
