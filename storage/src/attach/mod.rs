//! The attach/detach controller: says by VolumeAttachments which volumes of CSI drivers are to be attached to which nodes.
//!
//! The drivers' attachers (upstream's external-attacher) do it and say so in the status; kubelets wait for that, and say in
//! their Node's `volumesInUse` until when a volume may not be taken away.
//! <https://github.com/kubernetes/design-proposals-archive/blob/main/storage/container-storage-interface.md>

mod plan;
mod users;

use crate::metrics::{Attached, ByDriver, Metrics};
use crate::{Clients, facts};
use coracle_client::informer::deleting;
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler, Recorder};
use k8s_openapi::api::core::v1::{AttachedVolume, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{
    CSIDriver, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec,
};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use plan::{Attachable, Detach, NodeState};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use users::Users;

/// The service account, and the events' source.
const ACCOUNT: &str = "attachdetach-controller";
/// Until a volume that another node has is looked at again, beside what its attachment's changes tell.
const RETRY_INTERVAL: Duration = Duration::from_secs(15);

/// A volume that pods of a node want.
#[derive(Clone, Debug)]
struct Wanted {
    attachable: Attachable,
    claim: ObjectKey,
    pods: Vec<ObjectKey>,
}

/// What is remembered of one attachment, by its name.
#[derive(Clone, Debug, Default)]
struct Memory {
    /// Made by this process, and not said to be attached yet.
    made: bool,
    /// Since when no pod wants it.
    unwanted: Option<Instant>,
    /// The last that pods were told of it.
    told: String,
}

struct AttachDetach {
    client: kube::Client,
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    nodes: Informer<Node>,
    attachments: Informer<VolumeAttachment>,
    drivers: Informer<CSIDriver>,
    recorder: Recorder,
    users: Arc<Users>,
    memory: Mutex<HashMap<String, Memory>>,
    attached: Attached,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, metrics: Arc<Metrics>, stop: CancellationToken) {
    let client = clients.client(ACCOUNT);
    let (informers, users) = (&clients.informers, Arc::<Users>::default());
    let reconciler = AttachDetach {
        recorder: Recorder::new(client.clone(), ACCOUNT, ""),
        client,
        pods: informers.of(),
        claims: informers.of(),
        volumes: informers.of(),
        nodes: informers.of(),
        attachments: informers.of(),
        drivers: informers.of(),
        users: users.clone(),
        memory: Mutex::default(),
        attached: Attached::new(metrics),
    };
    let (pods, claims, volumes) =
        (reconciler.pods.clone(), reconciler.claims.clone(), reconciler.volumes.clone());
    let (nodes, attachments, drivers) =
        (reconciler.nodes.clone(), reconciler.attachments.clone(), reconciler.drivers.clone());
    let of_claim = {
        let users = users.clone();
        move |claim: &ObjectKey| users.of_claim(claim).into_iter().map(|(node, _)| node).collect::<Vec<_>>()
    };
    let of_volume = {
        let of_claim = of_claim.clone();
        move |volume: &PersistentVolume| facts::claim_ref(volume).map(claim_key).map(|key| of_claim(&key))
    };
    let of_attachment = {
        let (of_volume, volumes) = (of_volume.clone(), volumes.clone());
        move |attachment: &VolumeAttachment| {
            let volume = plan::volume_of(attachment).and_then(|name| volumes.get("", name));
            let mut nodes = volume.and_then(|volume| of_volume(&volume)).unwrap_or_default();
            nodes.push(attachment.spec.node_name.clone());
            nodes
        }
    };
    let of_pod = users.clone();
    Controller::new(reconciler)
        .watch(&pods, move |delta| of_pod.note(delta))
        .watch(&claims, move |delta| {
            delta.object().map(|claim| of_claim(&ObjectKey::of(claim.as_ref()))).unwrap_or_default()
        })
        .watch(&volumes, move |delta| delta.object().and_then(|volume| of_volume(volume)).unwrap_or_default())
        .watch(&attachments, move |delta| delta.object().map(|a| of_attachment(a)).unwrap_or_default())
        .watch(&nodes, {
            let users = users.clone();
            move |delta| delta.object().filter(|node| concerns(&users, node)).map(|node| node.name_any())
        })
        .watch(&drivers, move |_| users.nodes())
        .run(stop)
        .await;
}

/// Nodes write their status again and again, and most of them have no volume that is attached.
fn concerns(users: &Users, node: &Node) -> bool {
    let attached = node.status.as_ref().and_then(|status| status.volumes_attached.as_ref());
    attached.is_some_and(|attached| !attached.is_empty()) || users.has(&node.name_any())
}

fn claim_key(reference: &k8s_openapi::api::core::v1::ObjectReference) -> ObjectKey {
    ObjectKey::new(
        reference.namespace.clone().unwrap_or_default(),
        reference.name.clone().unwrap_or_default(),
    )
}

impl Reconciler for AttachDetach {
    /// A node.
    type Key = String;

    fn name(&self) -> &'static str {
        ACCOUNT
    }

    async fn reconcile(&self, node: &String) -> Result<Action, ReconcileError> {
        let wanted = self.wanted(node);
        let there = self.there(node);
        self.count(node, &wanted, &there);
        let (unwanted, again) = self.unwanted(node, &wanted, &there);
        self.tell_node(node, &there, &unwanted).await?;
        for name in &unwanted {
            self.detach(name).await?;
        }
        let mut again = again;
        for wanted in wanted.values() {
            let next = match there.get(&wanted.attachable.attachment) {
                // Where it is on its way out it is made again once it is gone, which its change tells.
                Some(attachment) => self.follow(wanted, attachment),
                None => self.attach(node, wanted).await?,
            };
            again = again.into_iter().chain(next).min();
        }
        Ok(again.map_or(Action::AwaitChange, Action::RequeueAfter))
    }
}

impl AttachDetach {
    fn count(
        &self,
        node: &str,
        wanted: &BTreeMap<String, Wanted>,
        there: &BTreeMap<String, Arc<VolumeAttachment>>,
    ) {
        let mut by_driver = ByDriver::new();
        for wanted in wanted.values() {
            by_driver.entry(wanted.attachable.driver.clone()).or_default().0 += 1;
        }
        for attachment in there.values().filter(|attachment| plan::is_attached(attachment)) {
            by_driver.entry(attachment.spec.attacher.clone()).or_default().1 += 1;
        }
        self.attached.look_at(node, by_driver);
    }

    /// The attachable volumes that the node's pods have bound claims of, by their attachments' names.
    fn wanted(&self, node: &str) -> BTreeMap<String, Wanted> {
        let of_claim = |(claim, pods): (ObjectKey, Vec<ObjectKey>)| {
            let bound = self.claims.get_key(&claim)?;
            let volume = self.volumes.get("", facts::volume_name(&bound)?)?;
            if !facts::is_bound_to(&volume, &bound) {
                return None;
            }
            let attachable = plan::attachable(&volume, node)?;
            let driver = self.drivers.get("", &attachable.driver);
            let wants = plan::wants_attachment(driver.as_deref());
            wants.then(|| (attachable.attachment.clone(), Wanted { attachable, claim, pods }))
        };
        self.users.on_node(node).into_iter().filter_map(of_claim).collect()
    }

    /// The attachments of the node that are this controller's to look after: by their name, or because it made them.
    /// Others may make attachments of their own.
    fn there(&self, node: &str) -> BTreeMap<String, Arc<VolumeAttachment>> {
        let ours = |attachment: &Arc<VolumeAttachment>| {
            let name = attachment.name_any();
            let volume = plan::volume_of(attachment).and_then(|name| self.volumes.get("", name));
            let named = volume.and_then(|volume| plan::attachable(&volume, node)).map(|a| a.attachment);
            named.as_deref() == Some(name.as_str()) || self.memory.lock().contains_key(&name)
        };
        let all = self.attachments.list();
        let of_node = all.iter().filter(|attachment| attachment.spec.node_name == node && ours(attachment));
        of_node.map(|attachment| (attachment.name_any(), attachment.clone())).collect()
    }

    /// What is to be detached now, and when to look again at the rest.
    fn unwanted(
        &self,
        node: &str,
        wanted: &BTreeMap<String, Wanted>,
        there: &BTreeMap<String, Arc<VolumeAttachment>>,
    ) -> (Vec<String>, Option<Duration>) {
        let (mut now, mut again) = (Vec::new(), None);
        let object = self.nodes.get("", node);
        for (name, attachment) in there {
            if wanted.contains_key(name) {
                self.memory.lock().entry(name.clone()).or_default().unwanted = None;
                continue;
            }
            if deleting(attachment.as_ref()) {
                continue;
            }
            let since = *self
                .memory
                .lock()
                .entry(name.clone())
                .or_default()
                .unwanted
                .get_or_insert_with(Instant::now);
            let volume = plan::volume_of(attachment).and_then(|volume| self.volumes.get("", volume));
            let unique = volume.and_then(|volume| plan::attachable(&volume, node)).map(|a| a.unique);
            let state = NodeState::of(object.as_deref(), &unique.unwrap_or_default());
            match plan::detach(state, since.elapsed()) {
                Detach::Now => now.push(name.clone()),
                Detach::ByForce => {
                    tracing::warn!(
                        node,
                        attachment = name,
                        "detached by force: the node does not unmount it"
                    );
                    self.attached.forced(if state.out_of_service { "out-of-service" } else { "timeout" });
                    now.push(name.clone());
                }
                Detach::Wait(limit) => again = again.into_iter().chain(limit).min(),
            }
        }
        (now, again)
    }

    /// Writes the Node's `volumesAttached`: what is about to be detached is taken away first.
    async fn tell_node(
        &self,
        node: &str,
        there: &BTreeMap<String, Arc<VolumeAttachment>>,
        unwanted: &[String],
    ) -> Result<(), ReconcileError> {
        let Some(object) = self.nodes.get("", node) else { return Ok(()) };
        let stay = there.iter().filter(|(name, attachment)| {
            plan::is_attached(attachment) && !deleting(attachment.as_ref()) && !unwanted.contains(name)
        });
        let volumes = stay.filter_map(|(_, attachment)| {
            let volume = self.volumes.get("", plan::volume_of(attachment)?)?;
            Some(AttachedVolume { name: plan::attachable(&volume, node)?.unique, device_path: String::new() })
        });
        let mut volumes: Vec<AttachedVolume> = volumes.collect();
        volumes.sort_by(|one, other| one.name.cmp(&other.name));
        let known = object.status.as_ref().and_then(|status| status.volumes_attached.clone());
        if known.unwrap_or_default() == volumes {
            return Ok(());
        }
        let api: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({ "status": { "volumesAttached": volumes } }));
        match api.patch_status(node, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            told => told.map(drop).map_err(ReconcileError::from),
        }
    }

    async fn detach(&self, name: &str) -> Result<(), ReconcileError> {
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        match api.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted?),
        }
        self.memory.lock().remove(name);
        Ok(())
    }

    /// Makes the attachment, unless another node has a volume that one alone may have.
    async fn attach(&self, node: &str, wanted: &Wanted) -> Result<Option<Duration>, ReconcileError> {
        let Attachable { volume, driver, attachment, exclusive, .. } = &wanted.attachable;
        if *exclusive && self.is_elsewhere(node, volume) {
            let users = self.users.of_claim(&wanted.claim).into_iter().filter(|(other, _)| other != node);
            let users: Vec<String> = users.flat_map(|(_, pods)| pods).collect();
            let why = if users.is_empty() {
                "Volume is already exclusively attached to one node and can't be attached to another"
                    .to_owned()
            } else {
                format!("Volume is already used by pod(s) {}", users.join(", "))
            };
            self.tell_pods(wanted, true, &format!("Multi-Attach error for volume {volume:?} {why}"));
            return Ok(Some(RETRY_INTERVAL));
        }
        let made = VolumeAttachment {
            metadata: ObjectMeta { name: Some(attachment.clone()), ..ObjectMeta::default() },
            spec: VolumeAttachmentSpec {
                attacher: driver.clone(),
                node_name: node.to_owned(),
                source: VolumeAttachmentSource {
                    persistent_volume_name: Some(volume.clone()),
                    ..VolumeAttachmentSource::default()
                },
            },
            status: None,
        };
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        match api.create(&PostParams::default(), &made).await {
            // The informer is a moment behind.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created?),
        }
        self.memory.lock().entry(attachment.clone()).or_default().made = true;
        Ok(None)
    }

    /// Whether another node has an attachment of the volume, on its way in or out as well.
    fn is_elsewhere(&self, node: &str, volume: &str) -> bool {
        self.attachments.list().iter().any(|a| plan::volume_of(a) == Some(volume) && a.spec.node_name != node)
    }

    /// Tells the pods what became of an attachment that they wait for.
    fn follow(&self, wanted: &Wanted, attachment: &VolumeAttachment) -> Option<Duration> {
        let volume = &wanted.attachable.volume;
        if plan::is_attached(attachment) {
            let made = std::mem::take(&mut self.memory.lock().entry(attachment.name_any()).or_default().made);
            if made {
                let message = format!("AttachVolume.Attach succeeded for volume {volume:?} ");
                self.tell_pods(wanted, false, &message);
            }
            return None;
        }
        let error = attachment.status.as_ref().and_then(|status| status.attach_error.as_ref());
        if let Some(message) = error.and_then(|error| error.message.as_deref()) {
            self.tell_pods(
                wanted,
                true,
                &format!("AttachVolume.Attach failed for volume {volume:?} : {message}"),
            );
        }
        None
    }

    /// Says it once, until there is something else to say.
    fn tell_pods(&self, wanted: &Wanted, warning: bool, message: &str) {
        let name = &wanted.attachable.attachment;
        let last = std::mem::replace(
            &mut self.memory.lock().entry(name.clone()).or_default().told,
            message.to_owned(),
        );
        if last == message {
            return;
        }
        for pod in wanted.pods.iter().filter_map(|key| self.pods.get_key(key)) {
            if warning {
                self.recorder.warning(pod.as_ref(), "FailedAttachVolume", message);
            } else {
                self.recorder.normal(pod.as_ref(), "SuccessfulAttachVolume", message);
            }
        }
    }
}
