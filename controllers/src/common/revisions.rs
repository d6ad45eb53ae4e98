//! The history of a template, kept as ControllerRevisions: StatefulSets and DaemonSets.

use super::{code_of, ownership};
use crate::common::pod_control::{Owner, patch_owner};
use coracle_client::informer::{Kind, api_for, deleting, uid_of};
use coracle_client::{Informer, ObjectKey, ReconcileError};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::core::{Selector, SelectorExt};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The letters of upstream's safe encoding: no vowels and nothing that looks like another.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A name-safe hash; a collision count makes it another one.
pub fn safe_hash(mut bytes: Vec<u8>, collisions: Option<i32>) -> String {
    bytes.extend(collisions.unwrap_or(0).to_le_bytes());
    let hash = bytes.iter().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(*b)).wrapping_mul(0x0100_0193));
    hash.to_string().bytes().map(|digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()])).collect()
}

/// Whose template it is.
pub struct Subject<'a, K> {
    pub owner: &'a K,
    pub template: &'a PodTemplateSpec,
    pub selector: &'a Selector,
    pub collisions: Option<i32>,
    /// The label of a revision that holds its hash.
    pub hash_label: &'static str,
}

/// The revisions of one owner, the oldest first, and the one of its present template.
pub struct History {
    pub all: Vec<Arc<ControllerRevision>>,
    pub update: Arc<ControllerRevision>,
    /// Others that hold the present template too: somebody else made them.
    pub twins: Vec<Arc<ControllerRevision>>,
}

impl History {
    fn new(all: Vec<Arc<ControllerRevision>>, update: Arc<ControllerRevision>) -> Self {
        let twin =
            |r: &&Arc<ControllerRevision>| r.data == update.data && r.metadata.uid != update.metadata.uid;
        let twins = all.iter().filter(twin).cloned().collect();
        Self { all, update, twins }
    }
}

/// What came of looking for the present revision.
pub enum Found {
    History(History),
    /// Another revision has its name: try again with this count.
    Collision(i32),
}

fn data(template: &PodTemplateSpec) -> Value {
    let mut template = json!(template);
    template["$patch"] = json!("replace");
    json!({ "spec": { "template": template } })
}

/// The template that a revision holds.
pub fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.get("spec")?.get("template")?.clone();
    template.as_object_mut()?.remove("$patch");
    // From text, like every object: decoding from a `Value` would be all this type's code once more.
    serde_json::from_str(&template.to_string()).ok()
}

/// Finds the revision of the present template among the owner's, or makes it; orphans are adopted.
pub async fn sync<K: Owner + Kind>(
    client: &kube::Client,
    informer: &Informer<ControllerRevision>,
    subject: &Subject<'_, K>,
) -> Result<Found, ReconcileError> {
    let api: Api<ControllerRevision> = api_for(client, &ObjectKey::of(subject.owner));
    let mut all = owned(&api, informer, subject).await?;
    all.sort_by_key(|r| (r.revision, r.metadata.creation_timestamp.as_ref().map(|t| t.0), r.name_any()));
    let next = all.last().map_or(0, |r| r.revision) + 1;
    let wanted = data(subject.template);
    let same = |r: &&Arc<ControllerRevision>| r.data.as_ref().is_some_and(|d| d.0 == wanted);
    let Some(found) = all.iter().rfind(same).cloned() else { return create(&api, subject, all, next).await };
    if all.last().is_some_and(|last| last.metadata.uid == found.metadata.uid) {
        return Ok(Found::History(History::new(all, found)));
    }
    // The template has come back: its revision is the newest again.
    let mut renewed = ControllerRevision::clone(&found);
    renewed.revision = next;
    let update = Arc::new(api.replace(&found.name_any(), &PostParams::default(), &renewed).await?);
    all.retain(|r| r.metadata.uid != found.metadata.uid);
    all.push(update.clone());
    Ok(Found::History(History::new(all, update)))
}

async fn owned<K: Owner + Kind>(
    api: &Api<ControllerRevision>,
    informer: &Informer<ControllerRevision>,
    subject: &Subject<'_, K>,
) -> Result<Vec<Arc<ControllerRevision>>, ReconcileError> {
    let (owner, uid) = (subject.owner, uid_of(subject.owner));
    let reach = informer.claimable(&owner.namespace().unwrap_or_default(), &uid);
    let claims = ownership::claim(reach, &uid, subject.selector, false);
    let mut owned = claims.keep;
    if deleting(owner) {
        // Those that were taken from it for good are its history still: without them it would begin another one.
        owned.extend(claims.adopt);
        return Ok(owned);
    }
    for orphan in claims.adopt {
        let patch = ownership::adopt_patch(owner, &uid_of(orphan.as_ref()));
        owned.extend(patch_owner(api, orphan.as_ref(), patch).await?.map(Arc::new));
    }
    Ok(owned)
}

async fn create<K: Owner + Kind>(
    api: &Api<ControllerRevision>,
    subject: &Subject<'_, K>,
    mut all: Vec<Arc<ControllerRevision>>,
    next: i64,
) -> Result<Found, ReconcileError> {
    let revision = new(subject, next);
    let made = match api.create(&PostParams::default(), &revision).await {
        Err(error) if code_of(&error) == 409 => {
            let there = api.get(&revision.name_any()).await?;
            let ours = ownership::controller_of(&there.metadata)
                .is_some_and(|owner| owner.uid == uid_of(subject.owner));
            if !ours || there.data != revision.data {
                return Ok(Found::Collision(subject.collisions.unwrap_or(0) + 1));
            }
            there
        }
        other => other?,
    };
    let update = Arc::new(made);
    all.push(update.clone());
    Ok(Found::History(History::new(all, update)))
}

fn new<K: Owner + Kind>(subject: &Subject<'_, K>, revision: i64) -> ControllerRevision {
    let data = data(subject.template);
    let hash = safe_hash(data.to_string().into_bytes(), subject.collisions);
    let mut labels: BTreeMap<String, String> =
        subject.template.metadata.as_ref().and_then(|m| m.labels.clone()).unwrap_or_default();
    labels.insert(subject.hash_label.to_owned(), hash.clone());
    debug_assert!(subject.selector.matches(&labels), "a template has the labels that are selected");
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", subject.owner.name_any())),
            namespace: subject.owner.namespace(),
            labels: Some(labels),
            annotations: subject.owner.meta().annotations.clone(),
            owner_references: Some(vec![ownership::controller_reference(subject.owner)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision,
    }
}

/// Deletes the oldest revisions beyond the limit; those that `used` says are in use do not count.
pub async fn truncate(
    client: &kube::Client,
    key: &ObjectKey,
    history: &History,
    limit: Option<i32>,
    used: impl Fn(&ControllerRevision) -> bool,
) -> Result<(), ReconcileError> {
    let idle: Vec<_> = history.all.iter().filter(|r| !used(r)).collect();
    // A negative limit keeps all.
    let limit = usize::try_from(limit.unwrap_or(10)).unwrap_or(usize::MAX);
    for revision in idle.iter().take(idle.len().saturating_sub(limit)) {
        delete(client, key, revision).await?;
    }
    Ok(())
}

/// Deletes a revision of the owner `key`.
pub async fn delete(
    client: &kube::Client,
    key: &ObjectKey,
    revision: &ControllerRevision,
) -> Result<(), ReconcileError> {
    let api: Api<ControllerRevision> = api_for(client, key);
    match api.delete(&revision.name_any(), &DeleteParams::default()).await {
        Err(error) if code_of(&error) != 404 => Err(error.into()),
        _ => Ok(()),
    }
}
