//! How many pods the owners of some pods want, together.

use crate::common::ownership::controller_of;
use crate::discovery::{Known, Served};
use coracle_client::informer::uid_of;
use coracle_client::{Informer, ReconcileError};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

pub struct Owners {
    pub client: kube::Client,
    pub known: Known,
    pub replicasets: Informer<ReplicaSet>,
    pub deployments: Informer<Deployment>,
    pub statefulsets: Informer<StatefulSet>,
    pub replicationcontrollers: Informer<ReplicationController>,
}

/// What the owners of the pods want.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub pods: i32,
    /// Pods that nobody controls.
    pub unmanaged: Vec<String>,
}

impl Owners {
    /// # Errors
    /// A pod's owner that cannot be scaled, in upstream's words, or a failing request.
    pub async fn wanted(&self, pods: &[Arc<Pod>]) -> Result<Wanted, ReconcileError> {
        let (mut wanted, mut by_owner) = (Wanted::default(), HashMap::new());
        for pod in pods {
            let Some(owner) = controller_of(&pod.metadata) else {
                wanted.unmanaged.push(pod.name_any());
                continue;
            };
            if by_owner.contains_key(&owner.uid) {
                continue;
            }
            let namespace = pod.namespace().unwrap_or_default();
            let (uid, scale) = match self.known(owner, &namespace) {
                Some(known) => known,
                None => self.asked(owner, &namespace).await?,
            };
            by_owner.insert(uid, scale);
        }
        wanted.pods = by_owner.values().sum();
        Ok(wanted)
    }

    /// The uid and size of the owner, or of the Deployment behind it.
    fn known(&self, owner: &OwnerReference, namespace: &str) -> Option<(String, i32)> {
        let group = owner.api_version.split('/').next().unwrap_or_default();
        match (group, owner.kind.as_str()) {
            ("v1", "ReplicationController") => {
                let found = self.replicationcontrollers.get(namespace, &owner.name)?;
                let size = found.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1);
                (uid_of(found.as_ref()) == owner.uid).then(|| (owner.uid.clone(), size))
            }
            ("apps", "ReplicaSet") => {
                let set = self.replicasets.get(namespace, &owner.name)?;
                if uid_of(set.as_ref()) != owner.uid {
                    return None;
                }
                let above = controller_of(&set.metadata).filter(|above| above.kind == "Deployment");
                let deployment = above.and_then(|above| self.deployments.get(namespace, &above.name));
                if let Some(deployment) = deployment {
                    let size = deployment.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1);
                    return Some((uid_of(deployment.as_ref()), size));
                }
                Some((owner.uid.clone(), set.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)))
            }
            ("apps", "StatefulSet") => {
                let set = self.statefulsets.get(namespace, &owner.name)?;
                let size = set.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1);
                (uid_of(set.as_ref()) == owner.uid).then(|| (owner.uid.clone(), size))
            }
            _ => None,
        }
    }

    /// Any other kind that has the subresource `scale`.
    async fn asked(&self, owner: &OwnerReference, namespace: &str) -> Result<(String, i32), ReconcileError> {
        let is_it = |s: &Served| s.resource.api_version == owner.api_version && s.resource.kind == owner.kind;
        let refused = || {
            let kind = owner.kind.to_lowercase();
            ReconcileError::Other(format!(
                "{kind}s.{} does not implement the scale subresource",
                owner.api_version
            ))
        };
        let resource = self.known.find(is_it).await?.ok_or_else(refused)?.resource;
        let path = format!(
            "/apis/{}/namespaces/{namespace}/{}/{}/scale",
            resource.api_version, resource.plural, owner.name
        );
        let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let scale: Value = self.client.request(request).await.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 404 => refused(),
            _ => error.into(),
        })?;
        let size = scale["spec"]["replicas"].as_i64().unwrap_or(0);
        Ok((owner.uid.clone(), i32::try_from(size).unwrap_or(i32::MAX)))
    }
}
