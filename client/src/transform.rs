//! What shared copies of objects leave out: what no component of the control plane reads, and what costs memory for every
//! object of a cluster.

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, Volume};
use kube::Resource;
use std::any::Any;

/// managedFields are half of many objects; an update without them leaves them alone. Pods lose what only their kubelet
/// needs, which reads them by a watch of its own: in memory that is more than half of an ordinary pod (a decoded
/// environment variable takes 360 bytes, a volume 3,208).
pub(crate) fn slim<K: Resource + 'static>(object: &mut K) {
    object.meta_mut().managed_fields = None;
    if let Some(pod) = (object as &mut dyn Any).downcast_mut::<Pod>() {
        slim_pod(pod);
    }
}

/// StatefulSets write their pods back as a whole, so those stay as they are.
fn slim_pod(pod: &mut Pod) {
    let owners = pod.metadata.owner_references.iter().flatten();
    if owners.into_iter().any(|owner| owner.kind == "StatefulSet") {
        return;
    }
    let Some(spec) = &mut pod.spec else { return };
    // Decoded lists have room for four elements at the least, of a kilobyte each.
    spec.containers.shrink_to_fit();
    spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()).for_each(container);
    spec.ephemeral_containers.iter_mut().flatten().for_each(ephemeral);
    if let Some(volumes) = &mut spec.volumes {
        volumes.retain(matters);
        volumes.shrink_to_fit();
    }
}

fn container(container: &mut Container) {
    container.env = None;
    container.env_from = None;
    container.command = None;
    container.args = None;
    container.volume_mounts = None;
    container.lifecycle = None;
    container.liveness_probe = None;
    container.readiness_probe = None;
    container.startup_probe = None;
}

fn ephemeral(container: &mut EphemeralContainer) {
    container.env = None;
    container.env_from = None;
    container.command = None;
    container.args = None;
    container.volume_mounts = None;
}

/// Volumes that the kubelet fills by itself matter to nobody else; claims and disks do.
fn matters(volume: &Volume) -> bool {
    let filled = volume.config_map.is_some()
        || volume.downward_api.is_some()
        || volume.empty_dir.is_some()
        || volume.projected.is_some()
        || volume.secret.is_some();
    !filled
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(owner: &str) -> Pod {
        let container = json!({
            "name": "c", "image": "i", "env": [{ "name": "E", "value": "1" }], "args": ["-x"],
            "ports": [{ "containerPort": 80 }], "resources": { "requests": { "cpu": "1" } },
        });
        let volumes = json!([
            { "name": "t", "projected": { "sources": [] } }, { "name": "d", "emptyDir": {} },
            { "name": "p", "persistentVolumeClaim": { "claimName": "c" } },
        ]);
        let owner =
            json!({ "apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "u", "controller": true });
        serde_json::from_value(json!({
            "metadata": { "name": "p", "managedFields": [{}], "ownerReferences": [owner] },
            "spec": { "containers": [container], "initContainers": [container], "volumes": volumes },
        }))
        .unwrap()
    }

    #[test]
    fn what_others_than_the_kubelet_read_stays() {
        let mut slimmed = pod("ReplicaSet");
        slim(&mut slimmed);
        let kept: Value = serde_json::to_value(&slimmed).unwrap();
        let container = json!({
            "name": "c", "image": "i", "ports": [{ "containerPort": 80 }], "resources": { "requests": { "cpu": "1" } },
        });
        assert_eq!(kept["spec"]["containers"], json!([container]));
        assert_eq!(kept["spec"]["initContainers"], json!([container]));
        let claim = json!([{ "name": "p", "persistentVolumeClaim": { "claimName": "c" } }]);
        assert_eq!(kept["spec"]["volumes"], claim);
        assert!(kept["metadata"].get("managedFields").is_none());
    }

    #[test]
    fn pods_that_are_written_back_stay_whole() {
        let mut whole = pod("StatefulSet");
        slim(&mut whole);
        let expected = Pod { metadata: whole.metadata.clone(), ..pod("StatefulSet") };
        assert_eq!(whole, expected);
    }
}
