//! The labels and annotations by which sandboxes and containers in the runtime are recognised; upstream's own, so
//! that `crictl`, log shippers and a kubelet that takes over read them.

use coracle_api::well_known;
use k8s_openapi::api::core::v1::{Container, Pod};
use sha2::{Digest, Sha256};
use std::collections::HashMap;

pub const POD_NAME: &str = "io.kubernetes.pod.name";
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub const POD_UID: &str = "io.kubernetes.pod.uid";
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
pub const HASH: &str = "io.kubernetes.container.hash";
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
const TERMINATION_PATH: &str = "io.kubernetes.container.terminationMessagePath";
const TERMINATION_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
const POD_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";

/// The resources that a container was started with, as JSON.
pub const RESOURCES: &str = "kubelet.coracle.local/resources";

/// Where a pod came from; `api` for those of the API server, `file` for static ones.
pub const CONFIG_SOURCE: &str = well_known::CONFIG_SOURCE;
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
pub const CONFIG_MIRROR: &str = well_known::CONFIG_MIRROR;
pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";

pub type Map = HashMap<String, String>;

fn identity(pod: &Pod) -> Map {
    let meta = &pod.metadata;
    [(POD_NAME, &meta.name), (POD_NAMESPACE, &meta.namespace), (POD_UID, &meta.uid)]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.clone().unwrap_or_default()))
        .collect()
}

/// The pod's labels and its identity.
pub fn sandbox_labels(pod: &Pod) -> Map {
    let mut labels: Map = pod.metadata.labels.clone().unwrap_or_default().into_iter().collect();
    labels.extend(identity(pod));
    labels
}

/// The pod's annotations.
pub fn sandbox_annotations(pod: &Pod) -> Map {
    let mut annotations: Map = pod.metadata.annotations.clone().unwrap_or_default().into_iter().collect();
    annotations.entry(CONFIG_SOURCE.to_owned()).or_insert_with(|| "api".to_owned());
    // kubectl's copy of the whole object; the runtime has no use for it.
    annotations.remove(well_known::LAST_APPLIED);
    annotations
}

pub fn container_labels(pod: &Pod, container: &Container) -> Map {
    let mut labels = identity(pod);
    labels.insert(CONTAINER_NAME.to_owned(), container.name.clone());
    labels
}

pub fn container_annotations(pod: &Pod, container: &Container, attempt: u32) -> Map {
    let grace = pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds).unwrap_or(30);
    let path = container.termination_message_path.as_deref().unwrap_or("/dev/termination-log");
    let policy = container.termination_message_policy.as_deref().unwrap_or("File");
    // Serializing plain maps of strings cannot fail.
    let resources =
        serde_json::to_string(&container.resources.clone().unwrap_or_default()).unwrap_or_default();
    [
        (HASH, spec_hash(container)),
        (RESOURCES, resources),
        (RESTART_COUNT, attempt.to_string()),
        (TERMINATION_PATH, path.to_owned()),
        (TERMINATION_POLICY, policy.to_owned()),
        (POD_GRACE, grace.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// Changes when a running container must be replaced: of what may change in a container's spec, the image.
pub fn spec_hash(container: &Container) -> String {
    let mut hash = Sha256::new();
    hash.update(&container.name);
    hash.update([0]);
    hash.update(container.image.as_deref().unwrap_or_default());
    coracle_api::hex::text(&hash.finalize()[..4])
}

/// Where a static pod comes from, as its annotation says.
pub const FILE: &str = "file";
pub const HTTP: &str = "http";
/// A part of this process.
pub const COMPONENT: &str = well_known::COMPONENT_SOURCE;

/// Whether a pod comes from a file or a web server, or shows a part of this process. Pods of the API server have been through
/// [`came_from_api`](crate::static_pods::came_from_api).
pub fn is_static(pod: &Pod) -> bool {
    let source = pod.metadata.annotations.as_ref().and_then(|all| all.get(CONFIG_SOURCE));
    source.is_some_and(|source| [FILE, HTTP, COMPONENT].contains(&source.as_str()))
}

/// Whether an object of the API server only shows a static pod.
pub fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(CONFIG_MIRROR))
}
