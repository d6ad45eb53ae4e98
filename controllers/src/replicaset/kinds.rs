//! ReplicaSet and ReplicationController as one kind of thing: so many pods of a template.

use crate::common::narrow_selector;
use coracle_client::informer::Kind;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use kube::Resource;
use kube::core::Selector;
use serde::Serialize;

/// Something that keeps so many pods alive. Its status is spoken of as a ReplicaSet's.
pub trait Replicated: Kind + Serialize + Resource<Scope = NamespaceResourceScope> {
    /// Upstream's controller name, which is also its events' source and its service account.
    const CONTROLLER: &'static str;

    /// `None` when it selects nothing or everything.
    fn selector(&self) -> Option<Selector>;
    fn replicas(&self) -> i32;
    fn min_ready_seconds(&self) -> i32;
    fn template(&self) -> Option<&PodTemplateSpec>;
    fn status(&self) -> ReplicaSetStatus;
    fn with_status(&self, status: ReplicaSetStatus) -> Self;
}

impl Replicated for ReplicaSet {
    const CONTROLLER: &'static str = "replicaset-controller";

    fn selector(&self) -> Option<Selector> {
        narrow_selector(&self.spec.as_ref()?.selector)
    }

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.min_ready_seconds).unwrap_or(0)
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn status(&self) -> ReplicaSetStatus {
        self.status.clone().unwrap_or_default()
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        Self { status: Some(status), ..self.clone() }
    }
}

impl Replicated for ReplicationController {
    const CONTROLLER: &'static str = "replication-controller";

    fn selector(&self) -> Option<Selector> {
        let labels = self.spec.as_ref()?.selector.clone().filter(|s| !s.is_empty())?;
        Some(labels.into_iter().collect())
    }

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.min_ready_seconds).unwrap_or(0)
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn status(&self) -> ReplicaSetStatus {
        let Some(status) = self.status.clone() else { return ReplicaSetStatus::default() };
        ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            observed_generation: status.observed_generation,
            terminating_replicas: None,
            conditions: status.conditions.map(|all| all.into_iter().map(from_controller).collect()),
        }
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        let status = ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            observed_generation: status.observed_generation,
            conditions: status.conditions.map(|all| all.into_iter().map(to_controller).collect()),
        };
        Self { status: Some(status), ..self.clone() }
    }
}

fn from_controller(c: ReplicationControllerCondition) -> ReplicaSetCondition {
    ReplicaSetCondition {
        type_: c.type_,
        status: c.status,
        reason: c.reason,
        message: c.message,
        last_transition_time: c.last_transition_time,
    }
}

fn to_controller(c: ReplicaSetCondition) -> ReplicationControllerCondition {
    ReplicationControllerCondition {
        type_: c.type_,
        status: c.status,
        reason: c.reason,
        message: c.message,
        last_transition_time: c.last_transition_time,
    }
}
