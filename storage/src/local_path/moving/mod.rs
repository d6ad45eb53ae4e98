//! Volumes that are moved to another node, or to another place of their node.
//!
//! Whoever may write PersistentVolumes asks for it by an annotation ([`state`]); the provisioner does it step by step, each
//! written down before the next one begins, so that it goes on from there whoever dies. Pods are held off by the scheduler
//! and by the kubelets for as long as the annotation says so; only then it is looked whether some have the volume already.
//! A PersistentVolume's place cannot change, so it is made anew under its name ([`switch`]).

mod carrier;
mod plan;
mod state;
mod switch;

pub use carrier::{ByteStream, Carrier, NodeProxy};
pub use plan::{Route, Snapshot};
pub use state::{Move, Remains, Spot, Step, is_held};

use super::job::Job;
use super::transfer::{Contents, TransferError, Written};
use super::work::{Home, Outcome};
use super::{LocalPath, mail, plan as volumes};
use crate::place::directory_in;
use coracle_api::storage::MOVE;
use coracle_client::{Action, ObjectKey, ReconcileError};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Between two notes of how much was copied: each is a write that is kept. Longer, and people think that nothing moves.
const NOTE_INTERVAL: Duration = Duration::from_secs(2);

/// Before another attempt. Shorter, and a node that is away is asked all the time; longer, and one that begins anew is
/// waited for.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// What would be moved.
#[derive(Debug)]
pub struct Outlook {
    pub route: Route,
    pub contents: Contents,
}

/// Looks whether the volume can be moved now, and changes nothing.
///
/// # Errors
/// Why it cannot be.
pub async fn look(client: &kube::Client, volume: PersistentVolume, to: &Spot) -> Result<Outlook, String> {
    let snapshot = Snapshot::of(client, volume).await.map_err(|error| coracle_api::error::chain(&error))?;
    let route = plan::route(&snapshot, to, |node| Home::told(node, mail::root(node)?))?;
    plan::in_use(&snapshot)?;
    let carrier = NodeProxy(client.clone());
    let contents =
        carrier.look(&route.from.node, &route.from.directory).await.map_err(|error| error.to_string())?;
    has_room(&snapshot.nodes, &route, to, contents)?;
    Ok(Outlook { route, contents })
}

/// The name of the node that a volume of local-path lies on.
pub fn node_of(volume: &PersistentVolume, nodes: &[Node]) -> Option<String> {
    let label = volumes::home(volume)?;
    super::holder(nodes.iter(), label).map(ResourceExt::name_any)
}

/// Refuses what cannot fit. Of further places nobody knows before it is tried.
fn has_room(nodes: &[Node], route: &Route, to: &Spot, contents: Contents) -> Result<(), String> {
    let target = nodes.iter().find(|node| node.name_any() == route.to.node);
    let room = target.and_then(mail::room).and_then(|room| u64::try_from(room).ok());
    match room.filter(|_| to.place.is_empty()) {
        Some(room) if room < contents.bytes => Err(format!(
            "node {} has room for {room} bytes, the volume takes {}",
            route.to.node, contents.bytes
        )),
        _ => Ok(()),
    }
}

impl LocalPath {
    fn api(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    /// Goes on with a volume that is being moved; `None` where nothing is to be done.
    pub(super) async fn move_on(&self, name: &str) -> Result<Option<Action>, ReconcileError> {
        let is_unreadable = |volume: &PersistentVolume| Move::of(volume).is_none() && is_held(volume);
        let Some(known) = self.volumes.get("", name) else { return Ok(None) };
        if !is_unreadable(&known) && !Move::of(&known).is_some_and(|state| state.is_open()) {
            return Ok(None);
        }
        // The copy here may be of before the last step.
        let Some(mut volume) = self.api().get_opt(name).await? else { return Ok(Some(Action::AwaitChange)) };
        if is_unreadable(&volume) {
            self.release(&volume).await?;
            return Ok(Some(Action::AwaitChange));
        }
        while let Some(state) = Move::of(&volume).filter(Move::is_open) {
            let elsewhere = !state.holds() && !self.is_left_at_home(&volume, &state);
            match Box::pin(self.step(&volume, state)).await? {
                Some(next) => volume = next,
                // Another node is asked: meanwhile the volume is one as any other.
                None if elsewhere => return Ok(None),
                None => break,
            }
        }
        Ok(Some(Action::AwaitChange))
    }

    /// What nobody understands would hold pods off for ever.
    async fn release(&self, volume: &PersistentVolume) -> Result<(), ReconcileError> {
        // Whoever writes one that can be read at this very moment is right.
        let seen = json!({ "uid": volume.uid(), "resourceVersion": volume.resource_version(), "annotations": { MOVE: null } });
        let nothing = json!({ "metadata": seen });
        self.api().patch(&volume.name_any(), &PatchParams::default(), &Patch::Merge(nothing)).await?;
        self.warn(volume, "VolumeMoveFailed", format!("The volume was not moved: {MOVE} cannot be read"));
        Ok(())
    }

    /// Whether what is left lies on the volume's own node, which is asked for one thing at a time.
    fn is_left_at_home(&self, volume: &PersistentVolume, state: &Move) -> bool {
        let home = volumes::home(volume).and_then(|hostname| self.home_by_hostname(hostname));
        home.is_some_and(|home| state.left.as_ref().is_some_and(|left| left.node == home.node))
    }

    /// The volume after the next step; `None` where somebody else has to do something first.
    async fn step(
        &self,
        volume: &PersistentVolume,
        state: Move,
    ) -> Result<Option<PersistentVolume>, ReconcileError> {
        if !state.holds() {
            return self.clear(volume, state).await;
        }
        let snapshot = Snapshot::of(&self.client, volume.clone()).await?;
        let route = plan::route(&snapshot, &state.to, |node| self.home(&node.name_any()));
        let route = match route {
            Ok(route) => route,
            Err(why) => return self.refuse(volume, state, why).await,
        };
        if state.take_back {
            return self.refuse(volume, state, "taken back").await;
        }
        let given_up = volume.metadata.deletion_timestamp.is_some();
        match state.step {
            // This is how its old object goes.
            Step::Copied if given_up && self.has_journal(&volume.name_any()).await? => {}
            _ if given_up => return self.refuse(volume, state, "the volume is being deleted").await,
            _ => {}
        }
        match state.step {
            Step::Asked => self.begin(volume, state, &snapshot, &route).await,
            Step::Copying => self.copy(volume, state, &route).await,
            _ => Box::pin(self.switch(volume, state, &snapshot, &route)).await,
        }
    }

    async fn begin(
        &self,
        volume: &PersistentVolume,
        state: Move,
        snapshot: &Snapshot,
        route: &Route,
    ) -> Result<Option<PersistentVolume>, ReconcileError> {
        if let Err(why) = plan::in_use(snapshot) {
            return self.refuse(volume, state, why).await;
        }
        let asked = |node: &&Node| mail::directory(node, &volume.name_any()).is_some();
        if let Some(node) = snapshot.nodes.iter().find(asked) {
            let why = format!("node {} is asked to do something with the volume yet", node.name_any());
            return self.later(volume, state, why).await;
        }
        let Remains { node, directory } = &route.from;
        let contents = match self.carrier.look(node, directory).await {
            Ok(contents) => contents,
            Err(TransferError::Refused(why)) => return self.refuse(volume, state, why).await,
            Err(TransferError::Again(why)) => return self.later(volume, state, why).await,
        };
        if let Err(why) = has_room(&snapshot.nodes, route, &state.to, contents) {
            return self.refuse(volume, state, why).await;
        }
        self.tell(
            volume,
            "VolumeMoving",
            format!("Moving the volume from node {node} to {}", route.path().display()),
        );
        let state =
            Move { step: Step::Copying, total_bytes: contents.bytes, message: String::new(), ..state };
        self.write_state(volume, &state).await.map(Some)
    }

    async fn copy(
        &self,
        volume: &PersistentVolume,
        state: Move,
        route: &Route,
    ) -> Result<Option<PersistentVolume>, ReconcileError> {
        // Whoever has begun an attempt later is the one whose copy counts.
        let name = volume.name_any();
        let attempt = state.attempt + 1;
        let state = Move { attempt, sent_bytes: 0, ..state };
        self.write_state(volume, &state).await?;
        let done = self.transfer(&name, route).await;
        // Notes were written meanwhile.
        let volume = self.api().get(&name).await?;
        let now = Move::of(&volume).filter(|now| now.id == state.id && now.attempt == attempt);
        let Some(now) = now.filter(|now| now.step == Step::Copying) else { return Ok(Some(volume)) };
        match done {
            Ok(Some(written)) => {
                let sent_bytes = now.total_bytes.max(now.sent_bytes);
                let (step, written) = (Step::Copied, Some(written));
                let now = Move { step, written, sent_bytes, message: String::new(), ..now };
                self.write_state(&volume, &now).await.map(Some)
            }
            // It is to be taken back.
            Ok(None) => Ok(Some(volume)),
            Err(TransferError::Refused(why)) => self.refuse(&volume, now, why).await,
            Err(TransferError::Again(why)) => self.later(&volume, now, why).await,
        }
    }

    /// Copies; `None` where somebody wants it no more.
    async fn transfer(&self, name: &str, route: &Route) -> Result<Option<Written>, TransferError> {
        let Remains { node, directory } = &route.from;
        let sent = Arc::new(AtomicU64::new(0));
        let counted = sent.clone();
        let stream = self.carrier.read(node, directory).await?.inspect(move |piece| {
            let bytes = piece.as_ref().map_or(0, |piece| piece.len() as u64);
            counted.fetch_add(bytes, Ordering::Relaxed);
        });
        let mut copying = self.carrier.write(&route.to.node, &route.wanted, stream.boxed());
        loop {
            match tokio::time::timeout(NOTE_INTERVAL, &mut copying).await {
                Ok(written) => return written.map(Some),
                Err(_) if self.note(name, sent.load(Ordering::Relaxed)).await => {}
                Err(_) => return Ok(None),
            }
        }
    }

    /// Notes how far it is; whether it is still wanted. What cannot be written now is not missed.
    async fn note(&self, name: &str, sent_bytes: u64) -> bool {
        let Ok(Some(volume)) = self.api().get_opt(name).await else { return true };
        let Some(state) = Move::of(&volume) else { return false };
        if state.take_back || volume.metadata.deletion_timestamp.is_some() {
            return false;
        }
        let state = Move { sent_bytes, message: String::new(), ..state };
        if let Err(error) = self.write_state(&volume, &state).await {
            tracing::debug!(name, %error, "how far the move of a volume is was not written");
        }
        true
    }

    /// Everything stays as it was. What was made of the copy goes afterwards: nobody waits for that.
    async fn refuse(
        &self,
        volume: &PersistentVolume,
        state: Move,
        why: impl Into<String>,
    ) -> Result<Option<PersistentVolume>, ReconcileError> {
        let left = (state.step != Step::Asked).then(|| copy_of(volume, &state.to)).flatten();
        let state = state.refused(why, left);
        let written = self.write_state(volume, &state).await?;
        self.close_journal(volume).await?;
        self.warn(volume, "VolumeMoveFailed", format!("The volume was not moved: {}", state.message));
        Ok(Some(written))
    }

    /// Says why it does not go on, and tries again later.
    async fn later(
        &self,
        volume: &PersistentVolume,
        state: Move,
        why: String,
    ) -> Result<Option<PersistentVolume>, ReconcileError> {
        if state.message != why {
            self.write_state(volume, &Move { message: why.clone(), ..state }).await?;
        }
        // What is written of an attempt wakes the volume at once.
        tokio::time::sleep(RETRY_INTERVAL).await;
        Err(ReconcileError::Other(why))
    }

    /// Removes what is left, on whichever node it lies.
    async fn clear(
        &self,
        volume: &PersistentVolume,
        state: Move,
    ) -> Result<Option<PersistentVolume>, ReconcileError> {
        let Some(left) = state.left.clone() else { return Ok(None) };
        if state.step == Step::Moved {
            self.close_journal(volume).await?;
        }
        // What lies on a node that is gone went with it. Whoever writes something else there has it ignored.
        if let Some(home) = self.home(&left.node).filter(|home| is_remains(volume, home, &left)) {
            match self.removed(&home, &volume.name_any(), &left.directory).await {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                // Half a copy, perhaps on a disk that is not there: nobody waits for it, and the next one takes its place.
                Err(ReconcileError::Other(why)) if state.step == Step::Refused => {
                    self.warn(volume, "VolumeMoveFailed", format!("What was copied was not removed: {why}"));
                }
                Err(error) => return Err(error),
            }
        }
        self.write_state(volume, &Move { left: None, ..state }).await.map(Some)
    }

    /// Whether it is not there any more; otherwise its node was asked.
    async fn removed(&self, home: &Home, name: &str, directory: &str) -> Result<bool, ReconcileError> {
        match self.work(home, name, &Job::Remove { directory: directory.to_owned() }).await? {
            Outcome::Waits { .. } => Ok(false),
            Outcome::Failed { error, .. } => Err(ReconcileError::Other(error)),
            Outcome::Done => self.close_mail(home, name).await.map(|()| true),
        }
    }

    async fn write_state(
        &self,
        volume: &PersistentVolume,
        state: &Move,
    ) -> Result<PersistentVolume, ReconcileError> {
        let name = volume.name_any();
        Ok(self.api().replace(&name, &PostParams::default(), &state.on(volume.clone())).await?)
    }

    fn claim_of(
        &self,
        volume: &PersistentVolume,
    ) -> Option<Arc<k8s_openapi::api::core::v1::PersistentVolumeClaim>> {
        let reference = crate::facts::claim_ref(volume)?;
        let key = ObjectKey::new(reference.namespace.as_deref()?, reference.name.as_deref()?);
        self.claims.get_key(&key)
    }

    fn tell(&self, volume: &PersistentVolume, reason: &str, message: String) {
        if let Some(claim) = self.claim_of(volume) {
            self.recorder.normal(claim.as_ref(), reason, message);
        }
    }

    fn warn(&self, volume: &PersistentVolume, reason: &str, message: String) {
        if let Some(claim) = self.claim_of(volume) {
            self.recorder.warning(claim.as_ref(), reason, message);
        }
    }
}

/// Where the copy of a volume lies that is to lie there.
fn copy_of(volume: &PersistentVolume, to: &Spot) -> Option<Remains> {
    let source = volume.spec.as_ref()?.host_path.as_ref()?;
    let directory = directory_in(&to.place, source.path.rsplit('/').next()?);
    Some(Remains { node: to.node.clone(), directory })
}

/// Whether a directory is what this volume has left: it has the volume's own name, and is not the volume.
fn is_remains(volume: &PersistentVolume, home: &Home, left: &Remains) -> bool {
    let path =
        volume.spec.as_ref().and_then(|spec| spec.host_path.as_ref()).map(|source| source.path.clone());
    let name = |path: &str| path.rsplit('/').next().map(str::to_owned);
    let (Some(path), Some(here)) = (path, volumes::home(volume)) else { return false };
    let is_itself = here == home.hostname
        && volumes::directory_of(volume, &home.root).is_none_or(|own| own == left.directory);
    name(&path) == name(&left.directory) && !is_itself
}
