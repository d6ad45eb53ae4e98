//! Which objects the pods of a node lead to.

use coracle_api::Object;
use coracle_api::well_known;
use coracle_requests::ObjectReader;
use serde_json::Value;
use std::sync::Arc;

const CLAIMS: &str = "persistentvolumeclaims";

pub(super) struct Relations<'a> {
    pub read: &'a dyn ObjectReader,
    pub node: &'a str,
}

impl Relations<'_> {
    /// Whether the object of this plural and name is the node's business.
    pub fn has(&self, resource: &str, namespace: &str, name: &str) -> bool {
        match resource {
            "persistentvolumes" => self.volume(name),
            "volumeattachments" => self.is_of_node("volumeattachments.storage.k8s.io", name),
            "resourceslices" => self.is_of_node("resourceslices.resource.k8s.io", name),
            _ if namespace.is_empty() => false,
            "pods" => {
                let pod = self.read.get("pods.", namespace, name);
                pod.is_some_and(|pod| pod["spec"]["nodeName"] == self.node)
            }
            "secrets" => self.a_pod_names(resource, namespace, name) || self.a_volume_names(namespace, name),
            _ => self.a_pod_names(resource, namespace, name),
        }
    }

    fn is_of_node(&self, resource: &str, name: &str) -> bool {
        self.read.get(resource, "", name).is_some_and(|object| object["spec"]["nodeName"] == self.node)
    }

    fn pods(&self, namespace: &str) -> Vec<Arc<Object>> {
        self.read.list_where("pods.", namespace, "spec.nodeName", self.node)
    }

    fn a_pod_names(&self, resource: &str, namespace: &str, name: &str) -> bool {
        self.pods(namespace).iter().any(|pod| refers(pod, resource, name))
    }

    /// A volume is reached by way of the claim that it is bound to.
    fn volume(&self, name: &str) -> bool {
        self.read.get("persistentvolumes.", "", name).is_some_and(|volume| self.uses(&volume))
    }

    fn uses(&self, volume: &Object) -> bool {
        let claim = &volume["spec"]["claimRef"];
        match (claim["namespace"].as_str(), claim["name"].as_str()) {
            (Some(namespace), Some(name)) => self.a_pod_names(CLAIMS, namespace, name),
            _ => false,
        }
    }

    /// Secrets by which the node mounts volumes.
    fn a_volume_names(&self, namespace: &str, name: &str) -> bool {
        let volumes = self.read.list("persistentvolumes.", "");
        volumes.iter().any(|volume| volume_secret(volume, namespace, name) && self.uses(volume))
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether the pod's spec or status names the object, as upstream's graph has edges.
fn refers(pod: &Object, resource: &str, name: &str) -> bool {
    let spec = &pod["spec"];
    // A mirror pod leads to nothing: the node itself wrote it.
    if pod["metadata"]["annotations"][well_known::CONFIG_MIRROR].is_string() {
        return false;
    }
    let mut volumes = items(&spec["volumes"]).iter();
    match resource {
        "serviceaccounts" => spec["serviceAccountName"] == name,
        CLAIMS => volumes.any(|v| {
            v["persistentVolumeClaim"]["claimName"] == name
                || (v["ephemeral"].is_object() && Some(name) == ephemeral_claim(pod, &v["name"]).as_deref())
        }),
        "secrets" => {
            items(&spec["imagePullSecrets"]).iter().any(|s| s["name"] == name)
                || volumes.any(|v| pod_volume_secret(v, name))
                || containers(spec).any(|c| environment(c, "secretRef", "secretKeyRef", name))
        }
        "configmaps" => {
            volumes.any(|v| {
                v["configMap"]["name"] == name
                    || items(&v["projected"]["sources"]).iter().any(|s| s["configMap"]["name"] == name)
            }) || containers(spec).any(|c| environment(c, "configMapRef", "configMapKeyRef", name))
        }
        "resourceclaims" => {
            let status = &pod["status"];
            items(&spec["resourceClaims"]).iter().any(|c| c["resourceClaimName"] == name)
                || items(&status["resourceClaimStatuses"]).iter().any(|c| c["resourceClaimName"] == name)
                || status["extendedResourceClaimStatus"]["resourceClaimName"] == name
        }
        _ => false,
    }
}

fn ephemeral_claim(pod: &Object, volume: &Value) -> Option<String> {
    Some(format!("{}-{}", pod["metadata"]["name"].as_str()?, volume.as_str()?))
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["containers", "initContainers", "ephemeralContainers"].into_iter().flat_map(|list| items(&spec[list]))
}

fn environment(container: &Value, from: &str, key: &str, name: &str) -> bool {
    items(&container["envFrom"]).iter().any(|e| e[from]["name"] == name)
        || items(&container["env"]).iter().any(|e| e["valueFrom"][key]["name"] == name)
}

/// Secrets of volume plugins stand in `secret.secretName`, `<plugin>.secretRef.name` and projected sources.
fn pod_volume_secret(volume: &Value, name: &str) -> bool {
    let plugins = volume.as_object().into_iter().flat_map(|v| v.values());
    let mut direct = plugins.filter(|p| p.is_object());
    volume["secret"]["secretName"] == name
        || volume["azureFile"]["secretName"] == name
        || volume["csi"]["nodePublishSecretRef"]["name"] == name
        || items(&volume["projected"]["sources"]).iter().any(|s| s["secret"]["name"] == name)
        || direct.any(|p| p["secretRef"]["name"] == name)
}

/// Whether a kubelet needs this Secret to mount the volume. Plugins that name no namespace mean the claim's.
fn volume_secret(volume: &Object, namespace: &str, name: &str) -> bool {
    let spec = &volume["spec"];
    let own = spec["claimRef"]["namespace"].as_str().unwrap_or_default();
    let is = |reference: &Value| {
        reference["name"] == name && reference["namespace"].as_str().unwrap_or(own) == namespace
    };
    let csi = &spec["csi"];
    let azure = &spec["azureFile"];
    let mut plugins = spec.as_object().into_iter().flat_map(|s| s.values()).filter(|p| p.is_object());
    ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"].iter().any(|key| is(&csi[*key]))
        || plugins.any(|plugin| is(&plugin["secretRef"]))
        || (azure["secretName"] == name && azure["secretNamespace"].as_str().unwrap_or(own) == namespace)
}
