//! Defaults of volumes, in pods and in persistent volumes (upstream's `SetDefaults_*VolumeSource`).

use super::super::value::*;
use super::defaults::pull_policy;
use serde_json::{Value, json};

/// Mode bits of files made from ConfigMaps, Secrets and the like: 0644.
const FILE_MODE: i64 = 0o644;
/// Seconds that a projected service account token is valid for.
const TOKEN_SECONDS: i64 = 3600;

pub fn volume(volume: &mut Value) {
    let sources =
        volume.as_object().map_or(0, |v| v.iter().filter(|(k, v)| *k != "name" && !v.is_null()).count());
    if sources == 0 {
        set(volume, "emptyDir", json!({}));
    }
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = at_mut(volume, source) {
            default(source, "defaultMode", FILE_MODE);
        }
    }
    each_mut(volume, "downwardAPI.items").for_each(field_ref);
    each_mut(volume, "projected.sources").for_each(projection);
    if let Some(source) = at_mut(volume, "image") {
        let policy = pull_policy(str_at(source, "reference"));
        default_str(source, "pullPolicy", policy);
    }
    if let Some(claim) = at_mut(volume, "ephemeral.volumeClaimTemplate.spec") {
        default(claim, "volumeMode", "Filesystem");
    }
    source(volume);
}

/// Sources that pods' volumes and persistent volumes share; `holder` has the source as a field.
pub fn source(holder: &mut Value) {
    if let Some(source) = at_mut(holder, "hostPath") {
        default(source, "type", "");
    }
    if let Some(source) = at_mut(holder, "iscsi") {
        default_str(source, "iscsiInterface", "default");
    }
    if let Some(source) = at_mut(holder, "rbd") {
        default_str(source, "pool", "rbd");
        default_str(source, "user", "admin");
        default_str(source, "keyring", "/etc/ceph/keyring");
    }
    if let Some(source) = at_mut(holder, "azureDisk") {
        default(source, "cachingMode", "ReadWrite");
        default(source, "kind", "Shared");
        default(source, "fsType", "ext4");
        default(source, "readOnly", false);
    }
    if let Some(source) = at_mut(holder, "scaleIO") {
        default_str(source, "storageMode", "ThinProvisioned");
        default_str(source, "fsType", "xfs");
    }
}

/// Sources of projected volumes whose gates are off (ClusterTrustBundleProjection, PodCertificateRequest). As upstream's, such
/// a source is dropped and an empty one is left in its place, which shows nothing.
const GATED: [&str; 2] = ["clusterTrustBundle", "podCertificate"];

fn projection(source: &mut Value) {
    for gated in GATED {
        remove(source, gated);
    }
    each_mut(source, "downwardAPI.items").for_each(field_ref);
    if let Some(token) = at_mut(source, "serviceAccountToken") {
        default(token, "expirationSeconds", TOKEN_SECONDS);
    }
}

fn field_ref(item: &mut Value) {
    if let Some(field) = at_mut(item, "fieldRef") {
        default_str(field, "apiVersion", "v1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projected_sources_of_gates_that_are_off_are_dropped() {
        let secret = json!({ "secret": { "name": "s" } });
        let mut given = json!({ "name": "v", "projected": { "sources": [secret,
            { "clusterTrustBundle": { "name": "n", "path": "p" } },
            { "podCertificate": { "signerName": "s/n", "keyType": "ED25519", "keyPath": "k" } }] } });
        volume(&mut given);
        assert_eq!(given["projected"]["sources"], json!([secret, {}, {}]));
    }

    #[test]
    fn every_source_gets_its_own_defaults() {
        for (given, expected) in [
            (json!({}), json!({ "emptyDir": {} })),
            (json!({ "hostPath": { "path": "/x" } }), json!({ "hostPath": { "path": "/x", "type": "" } })),
            (json!({ "secret": {} }), json!({ "secret": { "defaultMode": 420 } })),
            (json!({ "configMap": { "defaultMode": 256 } }), json!({ "configMap": { "defaultMode": 256 } })),
            (
                json!({ "projected": { "sources": [{ "serviceAccountToken": { "path": "t" } },
                    { "downwardAPI": { "items": [{ "path": "n", "fieldRef": { "fieldPath": "metadata.name" } }] } }] } }),
                json!({ "projected": { "defaultMode": 420, "sources": [
                    { "serviceAccountToken": { "path": "t", "expirationSeconds": 3600 } },
                    { "downwardAPI": { "items": [{ "path": "n",
                        "fieldRef": { "fieldPath": "metadata.name", "apiVersion": "v1" } }] } }] } }),
            ),
        ] {
            let mut result = given;
            volume(&mut result);
            assert_eq!(result, expected);
        }
    }
}
