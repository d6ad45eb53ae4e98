//! Tokens by which further servers join: kubeadm's certificate key, and the Secret that it opens, in one word.

use super::{Wanted, expiration, keep, known, said, secret};
use crate::handover::{self, Handover};
use crate::join::{Pin, ServerToken};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use rand::Rng;
use std::collections::BTreeMap;
use std::path::Path;

/// As kubeadm's certificate key.
const TTL: &str = "2h";
const NAMESPACE: &str = "kube-system";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Makes the token, and what it opens; returns what is printed. Everything goes with the token's own Secret.
pub(super) async fn create(client: kube::Client, wanted: Wanted, data_dir: &Path) -> Result<String, String> {
    let Some(end) = expiration(wanted.ttl.as_deref().unwrap_or(TTL), Timestamp::now())? else {
        return Err("ttl: keys do not lie in the cluster for ever".to_owned());
    };
    let (url, pins) = known(client.clone()).await?;
    let given =
        Handover::of(&data_dir.join("pki"), cluster_cidr(&client).await, service_cidr(&client).await)?;
    let pin = Pin::of(given.ca_pem())?;
    if !pins.contains(&pin) {
        return Err(format!(
            "{} is not the state of a server of the cluster at {url}: --data-dir says where that is",
            data_dir.display()
        ));
    }
    let mut token = ServerToken { token: wanted.token, key: [0; 32] };
    rand::rng().fill(&mut token.key[..]);
    let sealed = given.seal(&token)?;
    let id = &token.token.id;
    let own = secret(&token.token, Some(end), wanted.description, &handover::group(id));
    let kept = keep(&client, &token.token, own).await?;
    if let Err(why) = publish(&client, &kept, id, sealed).await {
        let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
        let name = kept.metadata.name.unwrap_or_default();
        // What it owns goes with it.
        let removed = secrets.delete(&name, &DeleteParams::default()).await;
        return Err(removed.err().map_or(why.clone(), |error| format!("{why}; and {name} is left: {error}")));
    }
    if !wanted.print_join_command {
        return Ok(token.whole());
    }
    Ok(format!(
        "coracle server --join {url} --token {} --discovery-token-ca-cert-hash {pin} --storage-backend etcd --etcd-servers ...",
        token.whole()
    ))
}

/// The Secret, and the right to read it and no other.
async fn publish(client: &kube::Client, owner: &Secret, id: &str, sealed: Vec<u8>) -> Result<(), String> {
    let metadata = || ObjectMeta {
        name: Some(handover::name(id)),
        owner_references: Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            name: owner.metadata.name.clone().unwrap_or_default(),
            uid: owner.metadata.uid.clone().unwrap_or_default(),
            ..OwnerReference::default()
        }]),
        ..ObjectMeta::default()
    };
    let keys = Secret {
        metadata: metadata(),
        data: Some(BTreeMap::from([(handover::ENTRY.to_owned(), ByteString(sealed))])),
        ..Secret::default()
    };
    let rule = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["secrets".to_owned()]),
        resource_names: Some(vec![handover::name(id)]),
        verbs: vec!["get".to_owned()],
        ..PolicyRule::default()
    };
    let role = Role { metadata: metadata(), rules: Some(vec![rule]) };
    let binding = RoleBinding {
        metadata: metadata(),
        role_ref: RoleRef {
            api_group: Some(RBAC.to_owned()),
            kind: "Role".to_owned(),
            name: handover::name(id),
        },
        subjects: Some(vec![Subject {
            api_group: Some(RBAC.to_owned()),
            kind: "Group".to_owned(),
            name: handover::group(id),
            namespace: None,
        }]),
    };
    let post = PostParams::default();
    Api::namespaced(client.clone(), NAMESPACE).create(&post, &keys).await.map_err(said)?;
    Api::namespaced(client.clone(), NAMESPACE).create(&post, &role).await.map_err(said)?;
    Api::namespaced(client.clone(), NAMESPACE).create(&post, &binding).await.map(drop).map_err(said)
}

/// What the nodes are told; a map that somebody broke says nothing.
async fn cluster_cidr(client: &kube::Client) -> Option<String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    crate::cluster::cidr_of(&maps.get("kube-proxy").await.ok()?).ok()
}

/// That of the first server.
async fn service_cidr(client: &kube::Client) -> Option<String> {
    let all: Api<ServiceCIDR> = Api::all(client.clone());
    Some(all.get("kubernetes").await.ok()?.spec?.cidrs?.join(","))
}
