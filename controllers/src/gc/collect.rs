//! What happens to one object: kept, freed of dead owners, or deleted.

use super::api;
use super::graph::{FOREGROUND, Id, Node, ORPHAN, Shared, Work, lock};
use super::monitors::Monitors;
use crate::discovery::Served;
use coracle_client::{Action, ReconcileError, Reconciler, Recorder, WorkQueue};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{DynamicObject, ObjectMeta, PropagationPolicy};
use std::sync::Arc;
use std::time::Duration;

/// While a new resource is being listed, nothing may be decided from the absence of dependents.
const UNSYNCED_TIMEOUT: Duration = Duration::from_secs(1);

pub struct Collector {
    pub client: kube::Client,
    pub graph: Shared,
    pub monitors: Arc<Monitors>,
    pub queue: WorkQueue<Work>,
    pub recorder: Recorder,
}

/// What an owner reference points at.
enum Standing {
    Solid,
    /// The owner is gone, or was never there.
    Dangling,
    /// The owner is being deleted in the foreground.
    Waiting,
}

impl Reconciler for Collector {
    type Key = Work;

    fn name(&self) -> &'static str {
        "generic-garbage-collector"
    }

    async fn reconcile(&self, work: &Work) -> Result<Action, ReconcileError> {
        match *work {
            Work::Collect(id) => self.collect(id).await,
            Work::Orphan(id) => self.orphan_dependents(id).await,
        }
    }
}

impl Collector {
    fn node(&self, id: Id) -> Option<Node> {
        lock(&self.graph).node(id).cloned()
    }

    async fn collect(&self, id: Id) -> Result<Action, ReconcileError> {
        let Some(node) = self.node(id) else { return Ok(Action::AwaitChange) };
        let settled = node.deleting || lock(&self.graph).owners_are_solid(&node);
        if settled && !node.foreground {
            return Ok(Action::AwaitChange);
        }
        let api = api::api(&self.client, &node.resource, &node.namespace);
        let forsaken = lock(&self.graph).is_forsaken(id, &node);
        if forsaken && api::delete_unchanged(&api, &node.name, &node.version).await? {
            tracing::debug!(kind = %node.resource.resource.kind, namespace = %node.namespace, name = %node.name, "deleted, its owners are gone");
            return Ok(Action::AwaitChange);
        }
        let Some(meta) = api::live(&api, &node.name, |uid| Id::of(uid) == id).await? else {
            let work = lock(&self.graph).remove(id);
            work.into_iter().for_each(|w| self.queue.add(w));
            return Ok(Action::AwaitChange);
        };
        if meta.deletion_timestamp.is_some() {
            let foreground = meta.finalizers.iter().flatten().any(|f| f == FOREGROUND);
            return if foreground {
                self.finish_foreground(id, &node, &meta).await
            } else {
                Ok(Action::AwaitChange)
            };
        }
        self.judge(id, &node, &meta).await
    }

    /// Lets an object go whose blocking dependents are gone, and sends the others on their way.
    async fn finish_foreground(
        &self,
        id: Id,
        node: &Node,
        meta: &ObjectMeta,
    ) -> Result<Action, ReconcileError> {
        if !self.monitors.synced() {
            return Ok(Action::RequeueAfter(UNSYNCED_TIMEOUT));
        }
        let blocking = lock(&self.graph).blocking(id);
        if blocking.is_empty() {
            let api = api::api(&self.client, &node.resource, &node.namespace);
            api::remove_finalizer(&api, meta, FOREGROUND).await?;
        }
        let waiting = blocking.into_iter().filter(|(_, foreground)| !foreground);
        waiting.for_each(|(dependent, _)| self.queue.add(Work::Collect(dependent)));
        Ok(Action::AwaitChange)
    }

    async fn judge(&self, id: Id, node: &Node, meta: &ObjectMeta) -> Result<Action, ReconcileError> {
        let owners = meta.owner_references.clone().unwrap_or_default();
        let (mut solid, mut dead, mut waiting) = (Vec::new(), 0, 0);
        for owner in owners {
            match self.standing(node, meta, &owner).await? {
                None => return Ok(Action::AwaitChange),
                Some(Standing::Solid) => solid.push(owner),
                Some(Standing::Dangling) => dead += 1,
                Some(Standing::Waiting) => waiting += 1,
            }
        }
        let api = api::api(&self.client, &node.resource, &node.namespace);
        if !solid.is_empty() {
            if dead + waiting > 0 {
                api::set_owners(&api, meta, &solid).await?;
            }
            return Ok(Action::AwaitChange);
        }
        if dead + waiting == 0 {
            return Ok(Action::AwaitChange);
        }
        let dependents = lock(&self.graph).dependents(id);
        let policy = if waiting > 0 && !dependents.is_empty() {
            if dependents.iter().any(|id| self.node(*id).is_some_and(|node| node.foreground)) {
                return self.unblock(&api, meta).await;
            }
            PropagationPolicy::Foreground
        } else if meta.finalizers.iter().flatten().any(|f| f == ORPHAN) {
            PropagationPolicy::Orphan
        } else if meta.finalizers.iter().flatten().any(|f| f == FOREGROUND) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        tracing::info!(kind = %node.resource.resource.kind, namespace = %node.namespace, name = %node.name, ?policy, "deleting, its owners are gone");
        api::delete(&api, meta, policy).await?;
        Ok(Action::AwaitChange)
    }

    /// Deletes an object of which both an owner and a dependent wait for their dependents: it may be part of a circle, in
    /// which all would wait for ever. So its owners do not wait for it.
    async fn unblock(&self, api: &Api<DynamicObject>, meta: &ObjectMeta) -> Result<Action, ReconcileError> {
        let mut owners = meta.owner_references.clone().unwrap_or_default();
        owners.iter_mut().for_each(|o| o.block_owner_deletion = Some(false));
        api::set_owners(api, meta, &owners).await?;
        // Now of another version.
        let (name, uid) = (meta.name.as_deref().unwrap_or_default(), meta.uid.as_deref().unwrap_or_default());
        if let Some(meta) = api::live(api, name, |found| found == uid).await? {
            api::delete(api, &meta, PropagationPolicy::Foreground).await?;
        }
        Ok(Action::AwaitChange)
    }

    /// `None` when the reference cannot be followed: a namespaced owner of a cluster-scoped object.
    async fn standing(
        &self,
        node: &Node,
        meta: &ObjectMeta,
        owner: &OwnerReference,
    ) -> Result<Option<Standing>, ReconcileError> {
        if lock(&self.graph).is_dead(Id::of(&owner.uid)) {
            return Ok(Some(Standing::Dangling));
        }
        let Some(served) = self.monitors.served(&owner.api_version, &owner.kind) else {
            self.monitors.rediscover();
            let what = format!("{} of {}", owner.kind, owner.api_version);
            return Err(ReconcileError::Other(format!("no resource is served for owner kind {what}")));
        };
        if served.namespaced && node.namespace.is_empty() {
            self.report_invalid(node, meta, owner);
            return Ok(None);
        }
        let id = Id::of(&owner.uid);
        let api = api::api(&self.client, &served, &node.namespace);
        Ok(Some(match api::live(&api, &owner.name, |uid| Id::of(uid) == id).await? {
            None => {
                if lock(&self.graph).is_live(id) {
                    self.report_invalid(node, meta, owner);
                }
                Standing::Dangling
            }
            Some(live) => {
                let foreground = live.finalizers.iter().flatten().any(|f| f == FOREGROUND);
                if live.deletion_timestamp.is_some() && foreground {
                    Standing::Waiting
                } else {
                    Standing::Solid
                }
            }
        }))
    }

    fn report_invalid(&self, node: &Node, meta: &ObjectMeta, owner: &OwnerReference) {
        let resource = &node.resource.resource;
        let regarding = ObjectReference {
            api_version: Some(resource.api_version.clone()),
            kind: Some(resource.kind.clone()),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            ..ObjectReference::default()
        };
        let OwnerReference { api_version, kind, name, uid, .. } = owner;
        let namespace = &node.namespace;
        let message = format!(
            "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}] does not exist in namespace \"{namespace}\""
        );
        self.recorder.event(regarding, "Warning", "OwnerRefInvalidNamespace", message);
    }

    async fn orphan_dependents(&self, id: Id) -> Result<Action, ReconcileError> {
        let Some(node) = self.node(id) else { return Ok(Action::AwaitChange) };
        if !self.monitors.synced() {
            return Ok(Action::RequeueAfter(UNSYNCED_TIMEOUT));
        }
        let api = api::api(&self.client, &node.resource, &node.namespace);
        let Some(meta) = api::live(&api, &node.name, |uid| Id::of(uid) == id).await? else {
            return Ok(Action::AwaitChange);
        };
        let uid = meta.uid.as_deref().unwrap_or_default();
        let dependents = lock(&self.graph).dependents(id);
        for dependent in dependents.into_iter().filter_map(|dependent| self.node(dependent)) {
            let api = api::api(&self.client, &dependent.resource, &dependent.namespace);
            api::release(&api, &dependent.name, uid).await?;
        }
        api::remove_finalizer(&api, &meta, ORPHAN).await?;
        Ok(Action::AwaitChange)
    }
}

/// The resource that an owner reference names, whatever its version.
pub fn find(all: &[Arc<Served>], api_version: &str, kind: &str) -> Option<Arc<Served>> {
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    all.iter().find(|s| s.resource.group == group && s.resource.kind == kind).cloned()
}
