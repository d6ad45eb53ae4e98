//! The objects that this node's pods reference, each watched by name for as long as a pod needs it.
//!
//! The Node authorizer lets a kubelet read by name only what its pods reference, so there is no informer of a kind
//! here but one small watch per object.

use crate::last_seen::{LastSeen, of_object, of_pod};
use crate::references::{Reference, references};
use async_trait::async_trait;
use coracle_client::informer::Kind;
use coracle_client::{FollowedObject, ObjectKey};
use coracle_storage::volumes::{ObjectError, Objects, Token, TokenRequest};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::authentication::v1::{
    BoundObjectReference, TokenRequest as ApiTokenRequest, TokenRequestSpec,
};
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret, ServiceAccount,
};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long a look-up waits for the first answer of a new watch before it asks directly.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The same while this process has not heard of the server: a pod may read many, and they are kept.
const AWAY_RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// A token is renewed after this share of its life, or after a day; upstream's rule.
const RENEW_PERCENT: i32 = 80;
const MAX_TOKEN_AGE: SignedDuration = SignedDuration::from_hours(24);

/// Told which pods reference an object that has changed.
pub type Changed = Arc<dyn Fn(&str) + Send + Sync>;

struct Entry<K> {
    /// `None` until the first answer; then the object, or that there is none.
    value: watch::Receiver<Option<Option<Arc<K>>>>,
    users: Arc<Mutex<HashSet<String>>>,
    _stop: DropGuard,
}

/// The watched objects of one kind.
struct Watched<K> {
    client: kube::Client,
    changed: Changed,
    entries: Mutex<HashMap<ObjectKey, Entry<K>>>,
}

impl<K: Kind + Resource<Scope = NamespaceResourceScope>> Watched<K> {
    fn new(client: kube::Client, changed: Changed) -> Self {
        Self { client, changed, entries: Mutex::default() }
    }

    fn track(&self, key: ObjectKey, uid: &str) {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get(&key) {
            entry.users.lock().insert(uid.to_owned());
            return;
        }
        let (sender, value) = watch::channel(None);
        let stop = CancellationToken::new();
        let users = Arc::new(Mutex::new(HashSet::from([uid.to_owned()])));
        let among = K::url_path(&(), Some(&key.namespace));
        tokio::spawn(stop.clone().run_until_cancelled_owned(follow(
            FollowedObject::new(self.client.clone(), &among, &key.name),
            sender,
            users.clone(),
            self.changed.clone(),
        )));
        entries.insert(key, Entry { value, users, _stop: stop.drop_guard() });
    }

    fn release(&self, uid: &str) {
        self.entries.lock().retain(|_, entry| {
            let mut users = entry.users.lock();
            users.remove(uid);
            !users.is_empty()
        });
    }

    async fn get(
        &self,
        kind: &'static str,
        namespace: &str,
        name: &str,
        patience: Duration,
    ) -> Result<Arc<K>, ObjectError> {
        let key = ObjectKey::new(namespace, name);
        let receiver = self.entries.lock().get(&key).map(|entry| entry.value.clone());
        if let Some(mut receiver) = receiver {
            let answered = tokio::time::timeout(patience, receiver.wait_for(Option::is_some)).await;
            if let Ok(Ok(value)) = answered
                && let Some(Some(object)) = &*value
            {
                return Ok(object.clone());
            }
        }
        // A watch may be a moment behind; only the server's word counts for absence.
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        found(kind, name, api.get_opt(name).await)
    }
}

fn found<K>(
    kind: &'static str,
    name: &str,
    answer: Result<Option<K>, kube::Error>,
) -> Result<Arc<K>, ObjectError> {
    let name = name.to_owned();
    match answer {
        Ok(Some(object)) => Ok(Arc::new(object)),
        Ok(None) => Err(ObjectError::NotFound { kind, name }),
        Err(error) => Err(ObjectError::Failed { kind, name, message: error.to_string() }),
    }
}

async fn follow<K: Kind>(
    mut followed: FollowedObject<K>,
    value: watch::Sender<Option<Option<Arc<K>>>>,
    users: Arc<Mutex<HashSet<String>>>,
    changed: Changed,
) {
    loop {
        let new = followed.next().await.map(Arc::new);
        let version =
            |object: &Option<Arc<K>>| object.as_ref().and_then(|o| o.meta().resource_version.clone());
        let first = value.borrow().is_none();
        let same = value.borrow().as_ref().is_some_and(|old| version(old) == version(&new));
        value.send_replace(Some(new));
        if !first && !same {
            let users: Vec<String> = users.lock().iter().cloned().collect();
            users.iter().for_each(|uid| changed(uid));
        }
    }
}

/// What volumes and environments read, and the tokens of this node's pods.
pub struct ObjectCache {
    client: kube::Client,
    last_seen: Arc<LastSeen>,
    config_maps: Watched<ConfigMap>,
    secrets: Watched<Secret>,
    tokens: Mutex<HashMap<TokenRequest, Token>>,
}

impl ObjectCache {
    /// What cannot be asked for is as it was last seen.
    pub fn new(client: kube::Client, last_seen: Arc<LastSeen>, changed: Changed) -> Self {
        Self {
            last_seen,
            config_maps: Watched::new(client.clone(), changed.clone()),
            secrets: Watched::new(client.clone(), changed),
            tokens: Mutex::default(),
            client,
        }
    }

    fn track(&self, uid: &str, pod: &Pod) {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let names = references(pod);
        for (kind, name) in names {
            let key = ObjectKey::new(&namespace, name);
            match kind {
                Reference::ConfigMap => self.config_maps.track(key, uid),
                Reference::Secret => self.secrets.track(key, uid),
            }
        }
    }

    fn release(&self, uid: &str) {
        self.config_maps.release(uid);
        self.secrets.release(uid);
        self.tokens.lock().retain(|request, _| request.pod_uid != uid);
    }

    /// How long a watch is waited for.
    fn patience(&self) -> Duration {
        if self.last_seen.is_heard() { FIRST_ANSWER_TIMEOUT } else { AWAY_RETRY_INTERVAL }
    }

    /// Keeps what was found, as something of the entry `of` where it goes with that. Where the server is away, what it
    /// said last counts.
    fn remembered<K: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        of: impl FnOnce(&K) -> Option<String>,
        found: Result<Arc<K>, ObjectError>,
    ) -> Result<Arc<K>, ObjectError> {
        match &found {
            Ok(object) => self.last_seen.put(name, of(object), object.as_ref()),
            Err(ObjectError::NotFound { .. }) => self.last_seen.remove(name),
            Err(ObjectError::Failed { .. }) if self.last_seen.is_heard() => {}
            Err(ObjectError::Failed { .. }) => {
                if let Some(kept) = self.last_seen.get(name) {
                    tracing::debug!(name, "the server is away, the object is as it was last seen");
                    return Ok(Arc::new(kept));
                }
            }
        }
        found
    }

    /// Objects that are watched at this moment.
    pub fn watched(&self) -> usize {
        self.config_maps.entries.lock().len() + self.secrets.entries.lock().len()
    }
}

/// What one pod references. It is watched from [`follow`](Self::follow) to [`release`](Self::release), or for as long as
/// this value lives: however its owner ends, no watch outlives the last pod that needs it.
pub struct References {
    objects: Arc<ObjectCache>,
    uid: String,
}

impl References {
    pub fn new(objects: Arc<ObjectCache>, uid: String) -> Self {
        Self { objects, uid }
    }

    /// Follows everything that the pod's spec references.
    pub fn follow(&self, pod: &Pod) {
        self.objects.track(&self.uid, pod);
    }

    /// Gives back the watches and tokens that no other pod needs.
    pub fn release(&self) {
        self.objects.release(&self.uid);
    }
}

impl Drop for References {
    fn drop(&mut self) {
        self.release();
    }
}

#[async_trait]
impl Objects for ObjectCache {
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Arc<ConfigMap>, ObjectError> {
        let found = self.config_maps.get("configmap", namespace, name, self.patience()).await;
        self.remembered(&of_object("configmap", namespace, name), |_| None, found)
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Arc<Secret>, ObjectError> {
        let found = self.secrets.get("secret", namespace, name, self.patience()).await;
        self.remembered(&of_object("secret", namespace, name), |_| None, found)
    }

    async fn claim(&self, namespace: &str, name: &str) -> Result<Arc<PersistentVolumeClaim>, ObjectError> {
        // Claims are read when they are needed: the Node authorizer lets a kubelet get them, not watch them.
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let found = found("persistentvolumeclaim", name, api.get_opt(name).await);
        self.remembered(&of_object("persistentvolumeclaim", namespace, name), |_| None, found)
    }

    async fn volume(&self, name: &str) -> Result<Arc<PersistentVolume>, ObjectError> {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        let found = found("persistentvolume", name, api.get_opt(name).await);
        self.remembered(&of_object("persistentvolume", "", name), of_claim, found)
    }

    async fn csi_driver(&self, name: &str) -> Result<Option<CSIDriver>, ObjectError> {
        let api: Api<CSIDriver> = Api::all(self.client.clone());
        let found = found("csidriver", name, api.get_opt(name).await);
        absent_or(self.remembered(&of_object("csidriver", "", name), |_| None, found))
    }

    async fn attachment(&self, name: &str) -> Result<Option<VolumeAttachment>, ObjectError> {
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        match api.get_opt(name).await {
            // A node may read none that is not its own, and one that is not there is nobody's.
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
            answer => absent_or(found("volumeattachment", name, answer)),
        }
    }

    async fn expanded(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<(), ObjectError> {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let patch = Patch::Merge(grown(claim, volume));
        let written = api.patch_status(name, &PatchParams::default(), &patch).await;
        found("persistentvolumeclaim", name, written.map(Some)).map(drop)
    }

    async fn expansion_refused(
        &self,
        claim: &PersistentVolumeClaim,
        message: &str,
    ) -> Result<(), ObjectError> {
        let Some(patch) = refused(claim, message, Timestamp::now()) else { return Ok(()) };
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let written = api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        found("persistentvolumeclaim", name, written.map(Some)).map(drop)
    }

    async fn token(&self, request: &TokenRequest) -> Result<Token, ObjectError> {
        let cached = self.tokens.lock().get(request).cloned();
        if let Some(token) = cached.filter(|t| t.refresh_at > Timestamp::now()) {
            return Ok(token);
        }
        let name = token_name(request);
        match self.request_token(request).await {
            Ok(token) => {
                self.tokens.lock().insert(request.clone(), token.clone());
                let kept = KeptToken { token: token.token.clone(), expires_at: token.expires_at };
                self.last_seen.put(&name, Some(of_pod(&request.pod_uid)), &kept);
                Ok(token)
            }
            Err(error) => match self.last_seen.get::<KeptToken>(&name) {
                // It may be over; the pod starts all the same, and gets the next one when there is one.
                Some(KeptToken { token, expires_at }) if !self.last_seen.is_heard() => {
                    Ok(Token { token, refresh_at: Timestamp::now(), expires_at })
                }
                _ => Err(error),
            },
        }
    }
}

/// What is kept of a token.
#[derive(Serialize, Deserialize)]
struct KeptToken {
    token: String,
    expires_at: Timestamp,
}

fn token_name(request: &TokenRequest) -> String {
    let TokenRequest { namespace, service_account, audience, expiration_seconds, pod_uid, .. } = request;
    format!("token/{namespace}/{service_account}/{pod_uid}/{expiration_seconds}/{audience}")
}

/// The entry of the claim that has the volume.
fn of_claim(volume: &PersistentVolume) -> Option<String> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    let (namespace, name) = (claim.namespace.as_deref()?, claim.name.as_deref()?);
    Some(of_object("persistentvolumeclaim", namespace, name))
}

impl ObjectCache {
    /// The next that asks for a token gets a new one.
    pub fn forget_tokens(&self) {
        self.tokens.lock().clear();
    }

    async fn request_token(&self, request: &TokenRequest) -> Result<Token, ObjectError> {
        let audiences = Some(vec![request.audience.clone()]).filter(|_| !request.audience.is_empty());
        let body = ApiTokenRequest {
            spec: Some(TokenRequestSpec {
                audiences,
                expiration_seconds: Some(request.expiration_seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: Some(request.pod_name.clone()),
                    uid: Some(request.pod_uid.clone()),
                }),
            }),
            ..ApiTokenRequest::default()
        };
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &request.namespace);
        let name = request.service_account.as_str();
        let failed = |message: String| ObjectError::Failed { kind: "token", name: name.to_owned(), message };
        let answer = api.create_token_request(name, &PostParams::default(), &body).await;
        let status = answer.map_err(|e| failed(e.to_string()))?.status;
        let issued = status.and_then(|s| Some((s.token?, s.expiration_timestamp?.0)));
        let (token, expires) = issued.ok_or_else(|| failed("answer without a token".to_owned()))?;
        Ok(Token { token, refresh_at: renewal(Timestamp::now(), expires), expires_at: expires })
    }
}

fn absent_or<K: Clone>(found: Result<Arc<K>, ObjectError>) -> Result<Option<K>, ObjectError> {
    match found {
        Err(ObjectError::NotFound { .. }) => Ok(None),
        found => found.map(|object| Some(K::clone(&object))),
    }
}

/// The status of a claim whose volume has grown as far as it should: upstream's `MarkFSResizeFinished`.
fn grown(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> serde_json::Value {
    const OF_RESIZING: [&str; 4] =
        ["Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"];
    let status = claim.status.clone().unwrap_or_default();
    let size = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage").cloned());
    let mut conditions = status.conditions.unwrap_or_default();
    conditions.retain(|condition| !OF_RESIZING.contains(&condition.type_.as_str()));
    let mut patch = serde_json::json!({ "capacity": { "storage": size }, "conditions": conditions });
    if status.allocated_resource_statuses.is_some() {
        patch["allocatedResourceStatuses"] = serde_json::json!({ "storage": null });
    }
    serde_json::json!({ "status": patch })
}

/// The status of a claim whose size the node's driver refuses: upstream's `MarkNodeExpansionInfeasible`. `None` where it says
/// so already.
fn refused(claim: &PersistentVolumeClaim, message: &str, now: Timestamp) -> Option<serde_json::Value> {
    let status = claim.status.clone().unwrap_or_default();
    let states = status.allocated_resource_statuses.unwrap_or_default();
    if states.get("storage").is_some_and(|state| state == "NodeResizeInfeasible") {
        return None;
    }
    let mut conditions = status.conditions.unwrap_or_default();
    conditions.retain(|condition| condition.type_ != "NodeResizeError");
    let mut conditions: Vec<_> = conditions.iter().map(|condition| serde_json::json!(condition)).collect();
    conditions.push(serde_json::json!({ "type": "NodeResizeError", "status": "True", "message": message,
        "lastTransitionTime": now.to_string() }));
    let states = serde_json::json!({ "storage": "NodeResizeInfeasible" });
    Some(serde_json::json!({ "status": { "allocatedResourceStatuses": states, "conditions": conditions } }))
}

fn renewal(now: Timestamp, expires: Timestamp) -> Timestamp {
    let share = expires.duration_since(now) * RENEW_PERCENT / 100;
    now.checked_add(share.min(MAX_TOKEN_AGE)).unwrap_or(expires)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_claim_is_told_once_that_its_node_refuses_its_size() {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({ "metadata": {}, "status": {
            "conditions": [{ "type": "FileSystemResizePending", "status": "True" }] } }))
        .unwrap();
        let patch = refused(&claim, "no room", Timestamp::UNIX_EPOCH).unwrap();
        let types =
            patch["status"]["conditions"].as_array().unwrap().iter().map(|c| c["type"].as_str().unwrap());
        assert_eq!(types.collect::<Vec<_>>(), ["FileSystemResizePending", "NodeResizeError"]);
        let told = serde_json::from_value(json!({ "metadata": {}, "status": patch["status"] })).unwrap();
        assert_eq!(refused(&told, "no room", Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn all_references_are_found() {
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": {
            "imagePullSecrets": [{ "name": "pull" }],
            "containers": [{ "name": "c", "envFrom": [{ "secretRef": { "name": "es" } }],
                "env": [{ "name": "x", "valueFrom": { "configMapKeyRef": { "name": "ec", "key": "k" } } }] }],
            "volumes": [
                { "name": "a", "configMap": { "name": "vc" } }, { "name": "b", "secret": { "secretName": "vs" } },
                { "name": "c", "persistentVolumeClaim": { "claimName": "claim" } }, { "name": "d", "ephemeral": {} },
                { "name": "e", "projected": { "sources": [{ "configMap": { "name": "pc" } }, { "secret": { "name": "ps" } }] } }
            ] } }))
        .unwrap();
        let names: Vec<String> = references(&pod).into_iter().map(|(k, n)| format!("{k:?}:{n}")).collect();
        assert_eq!(
            names,
            [
                "ConfigMap:ec",
                "ConfigMap:pc",
                "ConfigMap:vc",
                "Secret:es",
                "Secret:ps",
                "Secret:pull",
                "Secret:vs",
            ]
        );
    }

    #[test]
    fn tokens_are_renewed_in_time() {
        let now = Timestamp::UNIX_EPOCH;
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        assert_eq!(renewal(now, at(1000)), at(800));
        assert_eq!(renewal(now, at(365 * 86_400)), at(86_400));
    }
}
