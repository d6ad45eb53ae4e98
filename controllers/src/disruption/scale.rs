//! How many pods the owners of some pods want, together.

use crate::common::ownership::controller_of;
use crate::discovery::{Known, Served};
use coracle_client::informer::uid_of;
use coracle_client::{Informer, ReconcileError};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt};
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
                None => self.asked(owner, pod).await?,
            };
            by_owner.insert(uid, scale);
        }
        wanted.pods = by_owner.values().sum();
        Ok(wanted)
    }

    /// The uid and size of the owner, or of the Deployment behind it.
    fn known(&self, owner: &OwnerReference, namespace: &str) -> Option<(String, i32)> {
        match (group_of(owner), owner.kind.as_str()) {
            ("", "ReplicationController") => {
                let found = self.replicationcontrollers.get(namespace, &owner.name)?;
                let size = found.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1);
                (uid_of(found.as_ref()) == owner.uid).then(|| (owner.uid.clone(), size))
            }
            ("apps", "ReplicaSet") => {
                let set = self.replicasets.get(namespace, &owner.name)?;
                if uid_of(set.as_ref()) != owner.uid {
                    return None;
                }
                let above = controller_of(&set.metadata);
                let above = above.filter(|above| above.kind == "Deployment" && group_of(above) == "apps");
                let found =
                    above.and_then(|above| Some((self.deployments.get(namespace, &above.name)?, above)));
                let deployment = found.filter(|(found, above)| uid_of(found.as_ref()) == above.uid);
                if let Some((deployment, _)) = deployment {
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
    async fn asked(&self, owner: &OwnerReference, pod: &Pod) -> Result<(String, i32), ReconcileError> {
        let is_it = |s: &Served| s.resource.group == group_of(owner) && s.resource.kind == owner.kind;
        let served = self.known.find(is_it).await?;
        let path = scale_path(served.as_ref(), owner, &pod.namespace().unwrap_or_default());
        let path = path.map_err(ReconcileError::Other)?;
        let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let nobody = || ReconcileError::Other(format!("found no controllers for pod {:?}", pod.name_any()));
        let scale: Value = self.client.request(request).await.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 404 => nobody(),
            _ => error.into(),
        })?;
        // Another of the same name is not the owner.
        if scale["metadata"]["uid"] != owner.uid.as_str() {
            return Err(nobody());
        }
        let size = scale["spec"]["replicas"].as_i64().unwrap_or(0);
        Ok((owner.uid.clone(), i32::try_from(size).unwrap_or(i32::MAX)))
    }
}

fn group_of(owner: &OwnerReference) -> &str {
    owner.api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Where the owner's size is read.
///
/// # Errors
/// An owner that is of no kind served, or of one that cannot be scaled, in upstream's words.
fn scale_path(served: Option<&Served>, owner: &OwnerReference, namespace: &str) -> Result<String, String> {
    let Some(served) = served else {
        return Err(format!("no matches for kind {:?} in version {:?}", owner.kind, owner.api_version));
    };
    let resource = &served.resource;
    if !served.has("scale") {
        let dot = if resource.group.is_empty() { "" } else { "." };
        let name = format!("{}{dot}{}", resource.plural, resource.group);
        return Err(format!("{name} does not implement the scale subresource"));
    }
    Ok(format!("{}/{}/scale", DynamicObject::url_path(resource, Some(namespace)), owner.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_an_owners_size_is_read() {
        let path = |group: &str, kind: &str, plural: &str, scale: bool| {
            let version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1alpha1") };
            let owner = OwnerReference {
                api_version: version,
                kind: kind.to_owned(),
                name: "o".to_owned(),
                ..OwnerReference::default()
            };
            assert_eq!(group_of(&owner), group);
            let served = Served::for_tests(group, "v1", kind, plural);
            let served = if scale { served.with("scale") } else { served };
            scale_path((!plural.is_empty()).then_some(&served), &owner, "ns")
        };
        // Whatever version the owner is named in, its size is asked for in the one preferred.
        let good = path("apps.test.io", "Flock", "flocks", true);
        assert_eq!(good.unwrap(), "/apis/apps.test.io/v1/namespaces/ns/flocks/o/scale");
        let core = path("", "ReplicationController", "replicationcontrollers", true);
        assert_eq!(core.unwrap(), "/api/v1/namespaces/ns/replicationcontrollers/o/scale");
        let jobs = path("batch", "Job", "jobs", false);
        assert_eq!(jobs.unwrap_err(), "jobs.batch does not implement the scale subresource");
        let nodes = path("", "Node", "nodes", false);
        assert_eq!(nodes.unwrap_err(), "nodes does not implement the scale subresource");
        let unknown = path("apps.test.io", "Flock", "", false).unwrap_err();
        assert_eq!(unknown, "no matches for kind \"Flock\" in version \"apps.test.io/v1alpha1\"");
    }
}
