//! One reconcile of one Deployment: carries out what the plan says and keeps the results.

use super::plan::{self, Resize};
use super::revision::{self, REVISION};
use super::shape::{SetView, Shape};
use super::status;
use crate::common::{code_of, message_of, namespace_terminating, ownership};
use coracle_client::informer::{api_for, uid_of};
use coracle_client::{ObjectKey, ReconcileError, Recorder};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use std::sync::Arc;

pub struct Pass<'a> {
    /// As last stored, but for `status`, which collects what is to be written.
    pub deployment: Deployment,
    pub shape: Shape,
    stored: DeploymentStatus,
    /// The annotation as last stored.
    stored_revision: Option<String>,
    new: Option<Arc<ReplicaSet>>,
    old: Vec<Arc<ReplicaSet>>,
    pub(super) deployments: Api<Deployment>,
    sets: Api<ReplicaSet>,
    pub(super) recorder: &'a Recorder,
    now: Timestamp,
}

impl<'a> Pass<'a> {
    pub fn new(
        client: &kube::Client,
        recorder: &'a Recorder,
        deployment: &Deployment,
        sets: Vec<Arc<ReplicaSet>>,
        now: Timestamp,
    ) -> Self {
        let key = ObjectKey::of(deployment);
        let (new, old) = revision::split(deployment, sets);
        Self {
            shape: Shape::of(deployment),
            stored: deployment.status.clone().unwrap_or_default(),
            stored_revision: deployment.annotations().get(REVISION).cloned(),
            deployment: deployment.clone(),
            new,
            old,
            deployments: api_for(client, &key),
            sets: api_for(client, &key),
            recorder,
            now,
        }
    }

    pub fn old(&self) -> &[Arc<ReplicaSet>] {
        &self.old
    }

    pub fn status(&self) -> DeploymentStatus {
        self.deployment.status.clone().unwrap_or_default()
    }

    pub fn is_paused(&self) -> bool {
        self.deployment.spec.as_ref().and_then(|s| s.paused).unwrap_or(false)
    }

    pub fn is_scaling(&self) -> bool {
        plan::is_scaling(&self.shape, &self.views())
    }

    pub fn is_complete(&self) -> bool {
        status::is_complete(&self.deployment, &self.stored)
    }

    pub(super) fn all(&self) -> Vec<&Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new).collect()
    }

    fn views(&self) -> Vec<SetView> {
        self.all().into_iter().map(|s| SetView::of(s)).collect()
    }

    fn old_views(&self) -> Vec<SetView> {
        self.old.iter().map(|s| SetView::of(s)).collect()
    }

    fn condition(&mut self, value: &str, reason: &str, message: String) {
        if status::deadline(&self.deployment).is_some() {
            let status = self.deployment.status.get_or_insert_default();
            status::set_condition(status, status::PROGRESSING, value, reason, message, self.now);
        }
    }

    /// A pause stops the deadline's clock, and its end starts it anew.
    pub fn note_pause(&mut self) {
        let current = self.status();
        let reason = status::condition(&current, status::PROGRESSING).and_then(|c| c.reason.as_deref());
        let noted = reason == Some(status::PAUSED);
        if reason == Some("ProgressDeadlineExceeded") {
            // A failed rollout says so, paused or not.
            return;
        }
        match (self.is_paused(), noted) {
            (true, false) => self.condition("Unknown", status::PAUSED, "Deployment is paused".into()),
            (false, true) => self.condition("Unknown", "DeploymentResumed", "Deployment is resumed".into()),
            _ => {}
        }
    }

    /// One step of a rolling update: first up, then down.
    pub async fn roll(&mut self) -> Result<(), ReconcileError> {
        self.refresh_new().await?;
        self.ensure_new().await?;
        let Some(new) = self.new.as_ref().map(|s| SetView::of(s)) else { return Ok(()) };
        let size = plan::new_set_size(&self.shape, &self.views(), new.replicas);
        if size != new.replicas {
            return self.resize(&[(new.name, size)]).await;
        }
        let down = plan::shrink_old(&self.shape, &new, &self.old_views());
        self.resize(&down).await
    }

    /// Scales all old sets to nothing; whether there was anything to do.
    pub async fn drain_old(&mut self) -> Result<bool, ReconcileError> {
        let active = self.old_views().into_iter().filter(|s| s.replicas > 0);
        let down: Vec<Resize> = active.map(|s| (s.name, 0)).collect();
        self.resize(&down).await?;
        Ok(!down.is_empty())
    }

    /// Scales the newest set to full size.
    pub async fn fill_new(&mut self) -> Result<(), ReconcileError> {
        let name = self.new.as_ref().map(|s| s.name_any());
        let size = self.shape.replicas;
        self.resize(&name.map(|name| (name, size)).into_iter().collect::<Vec<_>>()).await
    }

    /// Shares a new size out, and notes it on every active set, so that it is not shared out again.
    pub async fn scale(&mut self) -> Result<(), ReconcileError> {
        let new = self.new.as_ref().map(|s| SetView::of(s));
        let live = self.stored.replicas.unwrap_or(0);
        let resizes = plan::scale(&self.shape, new.as_ref(), &self.old_views(), live);
        self.resize(&resizes).await?;
        let active: Vec<Arc<ReplicaSet>> = self.all().into_iter().cloned().collect();
        for set in active.iter().filter(|s| SetView::of(s).replicas > 0) {
            let size = SetView::of(set).replicas;
            self.write_size(set, size).await?;
        }
        Ok(())
    }

    async fn resize(&mut self, resizes: &[Resize]) -> Result<(), ReconcileError> {
        for (name, size) in resizes {
            let set = self.all().into_iter().find(|s| s.name_any() == *name).cloned();
            let Some(set) = set else { continue };
            let from = SetView::of(&set).replicas;
            if from == *size {
                continue;
            }
            self.write_size(&set, *size).await?;
            let direction = if *size > from { "up" } else { "down" };
            let message = format!("Scaled {direction} replica set {name} from {from} to {size}");
            self.recorder.normal(&self.deployment, "ScalingReplicaSet", message);
        }
        Ok(())
    }

    async fn write_size(&mut self, set: &Arc<ReplicaSet>, size: i32) -> Result<(), ReconcileError> {
        let mut changed = ReplicaSet::clone(set);
        changed.annotations_mut().extend(revision::size_annotations(&self.shape));
        changed.spec.get_or_insert_default().replicas = Some(size);
        self.write_set(set, changed).await
    }

    async fn write_set(&mut self, before: &ReplicaSet, changed: ReplicaSet) -> Result<(), ReconcileError> {
        if &changed == before {
            return Ok(());
        }
        let stored = self.sets.replace(&before.name_any(), &PostParams::default(), &changed).await?;
        let stored = Arc::new(stored);
        for set in self.old.iter_mut().chain(&mut self.new) {
            if uid_of(set.as_ref()) == uid_of(stored.as_ref()) {
                *set = stored.clone();
            }
        }
        Ok(())
    }

    /// Keeps the existing newest set's annotations and minReadySeconds up to date, and the Deployment's revision.
    pub async fn refresh_new(&mut self) -> Result<(), ReconcileError> {
        let Some(new) = self.new.clone() else { return Ok(()) };
        let mut changed = ReplicaSet::clone(&new);
        let revision = revision::next_revision(&self.old);
        *changed.annotations_mut() = revision::annotations(&self.deployment, new.annotations(), revision);
        let min_ready = self.deployment.spec.as_ref().and_then(|s| s.min_ready_seconds);
        changed.spec.get_or_insert_default().min_ready_seconds = min_ready;
        self.write_set(&new, changed).await?;
        let current = self.status();
        if status::condition(&current, status::PROGRESSING).is_none() {
            let message = format!("Found new replica set \"{}\"", new.name_any());
            self.condition("True", "FoundNewReplicaSet", message);
        }
        self.note_revision();
        Ok(())
    }

    /// The newest set's revision stands on the Deployment, where `kubectl rollout` looks for it. It is written together
    /// with the status.
    fn note_revision(&mut self) {
        let revision = self.new.as_ref().and_then(|new| new.annotations().get(REVISION)).cloned();
        if let Some(revision) = revision {
            self.deployment.annotations_mut().insert(REVISION.to_owned(), revision);
        }
    }

    /// Creates the set of the present template if there is none.
    pub async fn ensure_new(&mut self) -> Result<(), ReconcileError> {
        if self.new.is_some() {
            return Ok(());
        }
        let size = plan::new_set_size(&self.shape, &self.old_views(), 0);
        let revision = revision::next_revision(&self.old);
        let wanted = revision::new_set(&self.deployment, &self.shape, size, revision);
        let name = wanted.name_any();
        match self.sets.create(&PostParams::default(), &wanted).await {
            Ok(set) => {
                if size > 0 {
                    let message = format!("Scaled up replica set {name} from 0 to {size}");
                    self.recorder.normal(&self.deployment, "ScalingReplicaSet", message);
                }
                self.condition("True", "NewReplicaSetCreated", format!("Created new replica set \"{name}\""));
                self.new = Some(Arc::new(set));
                self.note_revision();
                Ok(())
            }
            Err(error) if code_of(&error) == 409 => self.meet_namesake(&name).await,
            Err(error) if namespace_terminating(&error) => Ok(()),
            Err(error) => {
                let message = format!("Failed to create new replica set \"{name}\": {}", message_of(&error));
                self.recorder.warning(&self.deployment, "ReplicaSetCreateError", message.clone());
                self.condition("False", "ReplicaSetCreateError", message);
                Err(error.into())
            }
        }
    }

    /// The name is taken: by our own set that the informer has not shown yet, or by a hash collision.
    async fn meet_namesake(&mut self, name: &str) -> Result<(), ReconcileError> {
        let Some(found) = self.sets.get_opt(name).await? else {
            return Err(ReconcileError::Other(format!("replica set {name} went while it was looked at")));
        };
        let ours = ownership::controller_of(&found.metadata)
            .is_some_and(|owner| Some(&owner.uid) == self.deployment.metadata.uid.as_ref());
        if ours && revision::is_current(&self.deployment, &found) {
            self.new = Some(Arc::new(found));
            self.note_revision();
            return Ok(());
        }
        let status = self.deployment.status.get_or_insert_default();
        status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
        Err(ReconcileError::Other(format!("the hash of replica set {name} collides, taking another")))
    }

    /// Deletes old sets beyond revisionHistoryLimit.
    pub async fn clean_up(&mut self) -> Result<(), ReconcileError> {
        for set in revision::beyond_history(&self.deployment, &self.old) {
            let preconditions = Preconditions { uid: set.uid(), resource_version: set.resource_version() };
            let params = DeleteParams::background().preconditions(preconditions);
            match self.sets.delete(&set.name_any(), &params).await {
                Err(error) if code_of(&error) != 404 => return Err(error.into()),
                _ => self.old.retain(|s| s.uid() != set.uid()),
            }
        }
        Ok(())
    }

    pub async fn write_counts(&mut self) -> Result<(), ReconcileError> {
        let status = status::counts(&self.deployment, self.new.as_ref(), &self.all(), self.now);
        self.write(status).await
    }

    pub async fn write_rollout(&mut self) -> Result<(), ReconcileError> {
        let status = status::rollout(&self.deployment, self.new.as_ref(), &self.all(), self.now);
        self.write(status).await
    }

    /// Writes what the pass noted before it failed: a condition or a collision.
    pub async fn write_failure(&mut self) -> Result<(), ReconcileError> {
        let status = self.status();
        self.write(status).await
    }

    async fn write(&mut self, status: DeploymentStatus) -> Result<(), ReconcileError> {
        let revision = self.deployment.annotations().get(REVISION);
        if status == self.stored && revision == self.stored_revision.as_ref() {
            return Ok(());
        }
        self.deployment.status = Some(status);
        let name = self.deployment.name_any();
        let stored = self.deployments.replace_status(&name, &PostParams::default(), &self.deployment).await?;
        self.stored = stored.status.clone().unwrap_or_default();
        self.stored_revision = stored.annotations().get(REVISION).cloned();
        self.deployment = stored;
        Ok(())
    }
}
