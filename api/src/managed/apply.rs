//! Server-side apply.

use super::collect::to_set;
use super::compare::compare;
use super::conflict::{self, Claim, Conflict};
use super::entry::{Entry, Operation, decode, encode};
use super::merge::merge;
use super::owners::{Request, disown, strip};
use super::prune::prune;
use super::set::Set;
use super::update::track;
use super::validate::validate;
use crate::meta::{ANNOTATIONS_MAX_BYTES, metadata_mut};
use crate::{ApiError, Object};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// kubectl's own manager, whose applies take over from its client-side ones.
const KUBECTL: &str = "kubectl";
/// Owns what an object was made of before it was first applied to.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
pub const LAST_APPLIED: &str = crate::well_known::LAST_APPLIED;

/// The object that an apply makes, with its managedFields; it has still to be checked like the body of an update.
pub type Applied = Object;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error("{}", conflict::message(.0))]
    Conflicts(Vec<Conflict>),
    /// The configuration says something that only the server may say.
    #[error("{0}")]
    Refused(String),
    /// The configuration or the live object is not what the schema says.
    #[error("{0}")]
    Failed(String),
}

impl From<ApplyError> for ApiError {
    fn from(error: ApplyError) -> Self {
        let text = error.to_string();
        match error {
            ApplyError::Conflicts(list) => {
                Self::new(409, "Conflict", text).with_details(json!({ "causes": conflict::causes(&list) }))
            }
            ApplyError::Refused(_) => Self::bad_request(text),
            ApplyError::Failed(_) => Self::new(500, "", text),
        }
    }
}

static NOTHING: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

/// Applies `config` to `live`, or makes a new object of it. Both are of the request's version, and `config` says its
/// kind. Fields that others own and that would change are conflicts, unless `force` takes them over.
///
/// Applying the same once more changes nothing.
pub fn apply(
    request: &Request<'_>,
    live: Option<&Value>,
    config: &Value,
    force: bool,
) -> Result<Applied, ApplyError> {
    if config["metadata"].get("managedFields").is_some_and(|list| !list.is_null()) {
        return Err(ApplyError::Refused("metadata.managedFields must be nil".to_owned()));
    }
    let failed = |what: &str, why: &str| ApplyError::Failed(format!("{what} ({}): {why}", describe(config)));
    if let Some(why) = validate(config, request.ty) {
        return Err(failed("failed to create typed patch object", &why));
    }
    let before = live.unwrap_or(&NOTHING);
    let mut entries = decode(&before["metadata"]["managedFields"])
        .map_err(|e| ApplyError::Failed(format!("failed to decode managed fields: {e}")))?;
    if entries.is_empty() && live.is_some() {
        let first = Request { manager: BEFORE_FIRST_APPLY, ..*request };
        entries = track(&first, entries, (&NOTHING, before), compare(&NOTHING, before, request.ty));
    }
    let merged = merge(before, config, request.ty)
        .map_err(|e| ApplyError::Failed(format!("failed to merge config: {e}")))?;
    let (own, last) = claim(request, &mut entries, config);
    let last_entry = last.as_ref();
    let object = prune(request, merged, last_entry, &entries);
    let entries = settle(request, entries, own, (before, &object), force)?;
    finish(request, entries, before, &object, config)
}

/// Puts the configuration's fields in the place of what the manager owned before, which is returned.
fn claim<'a>(
    request: &Request<'a>,
    entries: &mut Vec<Entry<'a>>,
    config: &'a Value,
) -> (usize, Option<Entry<'a>>) {
    let fields = to_set(config, request.ty).recursive_difference(request.reset);
    let mut own = request.entry(Operation::Apply, fields);
    match entries.iter().position(|known| known.same_owner(&own)) {
        Some(at) => {
            own.time = entries[at].time.clone();
            let mut last = std::mem::replace(&mut entries[at], own);
            last.fields = std::mem::take(&mut last.fields).recursive_difference(request.reset);
            (at, Some(last))
        }
        None => {
            entries.push(own);
            (entries.len() - 1, None)
        }
    }
}

/// Takes the changed fields from the others, if they or `force` allow it.
fn settle<'a>(
    request: &Request<'_>,
    entries: Vec<Entry<'a>>,
    own: usize,
    (before, after): (&Value, &Value),
    force: bool,
) -> Result<Vec<Entry<'a>>, ApplyError> {
    let change = compare(before, after, request.ty).without(request.reset);
    let one_version = entries.iter().all(|entry| entry.api_version == request.api_version);
    if force || (one_version && change.added.is_empty() && change.modified.is_empty()) {
        let mut settled = entries;
        // Nobody objects to a forced change, nor to one that takes nothing.
        let _ = disown(&mut settled, Some(own), request, (before, after), &change, true);
        return Ok(settled);
    }
    let mut settled = entries.clone();
    let Err(claims) = disown(&mut settled, Some(own), request, (before, after), &change, force) else {
        return Ok(settled);
    };
    let claims = without_last_applied(request, claims, before);
    if !claims.is_empty() {
        return Err(ApplyError::Conflicts(claims.iter().flat_map(Claim::conflicts).collect()));
    }
    let mut settled = entries;
    // Nobody objects to a forced change.
    let _ = disown(&mut settled, Some(own), request, (before, after), &change, true);
    Ok(settled)
}

/// The conflicts that are left when kubectl takes over what it has applied from the client's side.
fn without_last_applied(request: &Request<'_>, claims: Vec<Claim>, live: &Value) -> Vec<Claim> {
    if request.manager != KUBECTL {
        return claims;
    }
    let text = live["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap_or_default();
    let Ok(last) = serde_json::from_str::<Value>(text) else { return claims };
    if last["apiVersion"] != request.api_version || validate(&last, request.ty).is_some() {
        return claims;
    }
    // What somebody has changed since is not kubectl's any more.
    let change = compare(&last, live, request.ty);
    let allowed = to_set(&last, request.ty)
        .difference(&change.modified)
        .difference(&change.added)
        .difference(&change.removed);
    let keep = |mut claim: Claim| {
        claim.fields = std::mem::take(&mut claim.fields).difference(&allowed);
        (!claim.fields.is_empty()).then_some(claim)
    };
    claims.into_iter().filter_map(keep).collect()
}

/// The object with its owners, the time of the manager's entry set if anything but ownership has changed.
fn finish<'a>(
    request: &Request<'a>,
    mut entries: Vec<Entry<'a>>,
    before: &Value,
    object: &Value,
    config: &Value,
) -> Result<Applied, ApplyError> {
    let this = request.entry(Operation::Apply, Set::new());
    if let Some(own) = entries.iter_mut().find(|entry| entry.same_owner(&this)) {
        own.fields = strip(std::mem::take(&mut own.fields));
        own.api_version = request.api_version.into();
        // Who comes to own what is there already has no time, as upstream.
        if object != before {
            own.time = Some(request.now.into());
        }
    }
    entries.retain(|entry| !entry.fields.is_empty());
    let list = encode(entries);
    let mut object = object.clone();
    match list {
        Some(list) => metadata_mut(&mut object).insert("managedFields".to_owned(), list),
        None => metadata_mut(&mut object).remove("managedFields"),
    };
    if request.manager == KUBECTL {
        renew_last_applied(&mut object, config);
    }
    Ok(object)
}

/// Keeps the annotation of client-side apply up to date where there is one, so that either kind of apply can follow.
fn renew_last_applied(object: &mut Value, config: &Value) {
    let Some(annotations) = object["metadata"]["annotations"].as_object_mut() else { return };
    if annotations.get(LAST_APPLIED).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    let mut plain = config.clone();
    if let Some(own) =
        plain.get_mut("metadata").and_then(|m| m.get_mut("annotations")).and_then(Value::as_object_mut)
    {
        own.remove(LAST_APPLIED);
    }
    annotations.insert(LAST_APPLIED.to_owned(), format!("{plain}\n").into());
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
    if size > ANNOTATIONS_MAX_BYTES {
        annotations.remove(LAST_APPLIED);
    }
}

/// `default/web; apps/v1, Kind=Deployment`, as upstream names the object in messages.
fn describe(config: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &config["metadata"];
    let version = text(&config["apiVersion"]);
    let version = if version.contains('/') { version } else { format!("/{version}") };
    format!(
        "{}/{}; {version}, Kind={}",
        text(&metadata["namespace"]),
        text(&metadata["name"]),
        text(&config["kind"])
    )
}
