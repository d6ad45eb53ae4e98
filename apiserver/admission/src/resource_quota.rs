//! ResourceQuota: how much a namespace may hold (<https://kubernetes.io/docs/concepts/policy/resource-quotas/>).
//!
//! What a write adds is charged to `status.used` of its quotas before the write happens, by compare and swap, so that two
//! writes at the same moment cannot both take the last place. The quota controller recounts, and so gives back what
//! deletions free and what was charged for a write that failed later. An amount that the status does not limit yet is
//! counted here, from the objects that are there.

use super::{Operation, Request, items};
use bytes::Bytes;
use coracle_api::encode::to_storage_bytes;
use coracle_api::quota::{self, Amounts};
use coracle_api::{ApiError, Object, Quantity};
use coracle_store::{Durability, KeyValue, Op, Precondition, Store, StoreError, Txn};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Namespaces that share a lock: more would not help, since one write of a quota takes a disk's sync.
const LOCKS: usize = 16;

/// Attempts against other servers and the controller, which write the same quotas; upstream's number.
const ATTEMPTS: usize = 3;

#[derive(Default)]
pub(super) struct ResourceQuota {
    locks: [tokio::sync::Mutex<()>; LOCKS],
}

/// A quota as it is now, and where it is stored.
struct Current {
    object: Arc<Object>,
    stored: Option<KeyValue>,
}

impl ResourceQuota {
    /// Refuses the write, or charges it. Dry runs are judged and not charged.
    pub(super) async fn charge(
        &self,
        request: &Request<'_>,
        store: Option<&Arc<dyn Store>>,
        object: &Object,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        if !handles(request) || request.read.list("resourcequotas.", request.namespace).is_empty() {
            return Ok(());
        }
        let mut hasher = DefaultHasher::new();
        request.namespace.hash(&mut hasher);
        let slot = usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or_default();
        let _turn = self.locks[slot].lock().await;
        for _ in 0..ATTEMPTS {
            let mut charges = Vec::new();
            for current in current(request, store).await? {
                if let Some(charged) = judge(request, &current.object, object, old)? {
                    charges.extend(current.stored.map(|stored| (stored, charged)));
                }
            }
            let Some(store) = store.filter(|_| !request.dry_run && !charges.is_empty()) else {
                return Ok(());
            };
            match store.commit(transaction(&charges)).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Conflict { .. }) => {}
                Err(other) => return Err(coracle_requests::store_error(other)),
            }
        }
        let why = "Operation cannot be fulfilled on resourcequotas: the quotas of the namespace change too quickly; please try again";
        Err(ApiError::new(409, "Conflict", why))
    }
}

/// Which writes can raise what is used.
fn handles(request: &Request) -> bool {
    if request.namespace.is_empty() {
        return false;
    }
    matches!(
        (request.group, request.resource, request.operation, request.subresource),
        ("", "pods", Operation::Update, "resize")
            | ("", "services" | "persistentvolumeclaims", Operation::Update, "")
            | ("resource.k8s.io", "resourceclaims", Operation::Update, "")
            | (_, _, Operation::Create, "")
    )
}

async fn current(request: &Request<'_>, store: Option<&Arc<dyn Store>>) -> Result<Vec<Current>, ApiError> {
    let cached = request.read.list("resourcequotas.", request.namespace);
    let Some(store) = store else {
        return Ok(cached.into_iter().map(|object| Current { object, stored: None }).collect());
    };
    let mut all = Vec::with_capacity(cached.len());
    for quota in cached {
        let name = quota["metadata"]["name"].as_str().unwrap_or_default();
        let key = format!("resourcequotas./{}/{name}", request.namespace);
        // Deleted since: it no longer limits.
        let Some(stored) = store.get(&key).await.map_err(coracle_requests::store_error)? else { continue };
        let object: Object = serde_json::from_slice(&stored.value.bytes()).map_err(ApiError::internal)?;
        all.push(Current { object: Arc::new(object), stored: Some(stored) });
    }
    Ok(all)
}

fn transaction(charges: &[(KeyValue, Object)]) -> Txn {
    let guard = |kv: &KeyValue| Precondition { key: kv.key.clone(), expect: Some(kv.modified) };
    let put = |(kv, quota): &(KeyValue, Object)| {
        let value = Bytes::from(to_storage_bytes(quota, "v1", "ResourceQuota"));
        Op::Put { key: kv.key.clone(), value }
    };
    Txn {
        guards: charges.iter().map(|(kv, _)| guard(kv)).collect(),
        ops: charges.iter().map(put).collect(),
        durability: Durability::Synced,
    }
}

/// Refuses what is too much; otherwise the quota with the write charged, if that changes it.
fn judge(
    request: &Request,
    quota: &Object,
    object: &Object,
    old: Option<&Object>,
) -> Result<Option<Object>, ApiError> {
    let (group, resource) = (request.group, request.resource);
    let hard = quota::amounts(&quota["spec"]["hard"]);
    if !quota::concerns(quota, &hard, group, resource, object) {
        return Ok(None);
    }
    let name = quota["metadata"]["name"].as_str().unwrap_or_default();
    if resource == "pods" && group.is_empty() {
        let lacking = unspecified(&hard, object);
        if !lacking.is_empty() {
            let why = format!("failed quota: {name}: must specify {}", lacking.join("; "));
            return Err(request.forbidden(&why));
        }
    }
    let unknown = unknown(quota, group, resource);
    if !unknown.is_empty() {
        let why = format!("status unknown for quota: {name}, resources: {}", unknown.join(","));
        return Err(request.forbidden(&why));
    }
    let now = Timestamp::now();
    let mut asked = quota::usage(group, resource, object, now);
    // Only growth is judged, so that what is over quota can still shrink.
    if let Some(old) = old.filter(|old| quota::matches_scopes(quota, group, resource, old)) {
        let before = quota::usage(group, resource, old, now);
        for (key, quantity) in &mut asked {
            *quantity -= before.get(key).copied().unwrap_or_default();
        }
    }
    asked.retain(|key, quantity| hard.contains_key(key) && !quantity.is_zero() && !quantity.is_negative());
    if asked.is_empty() {
        return Ok(None);
    }
    let used = used(request, quota, &asked, object, now);
    let over = |key: &String| used[key] + asked[key] > hard[key];
    let exceeded: Vec<&String> = asked.keys().filter(|key| over(key)).collect();
    if exceeded.is_empty() {
        return Ok(charged(quota, &used, &asked));
    }
    let only = |of: &Amounts| -> String {
        let chosen = exceeded.iter().map(|key| ((*key).clone(), of[*key])).collect();
        quota::listed(&chosen)
    };
    let why = format!(
        "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
        only(&asked),
        only(&used),
        only(&hard)
    );
    Err(request.forbidden(&why))
}

/// What the status limits of the resource, in order, if it does not say of all of it how much is used: then nobody knows
/// how much is left.
fn unknown<'a>(quota: &'a Object, group: &str, resource: &str) -> Vec<&'a str> {
    let hard = quota["status"]["hard"].as_object().into_iter().flatten();
    let mut limited: Vec<&str> =
        hard.map(|(name, _)| name.as_str()).filter(|name| quota::is_of(name, group, resource)).collect();
    if limited.iter().all(|name| !quota["status"]["used"][*name].is_null()) {
        return Vec::new();
    }
    limited.sort_unstable();
    limited
}

/// Whether the controller has counted this amount: what it limits it has, once nothing is [`unknown`].
fn is_counted(quota: &Object, key: &str) -> bool {
    !quota["status"]["hard"][key].is_null()
}

/// What is used of each amount that is asked for: as the status says, or counted.
fn used(request: &Request, quota: &Object, asked: &Amounts, object: &Object, now: Timestamp) -> Amounts {
    let known = quota::amounts(&quota["status"]["used"]);
    let mut used: Amounts =
        asked.keys().map(|key| (key.clone(), known.get(key).copied().unwrap_or_default())).collect();
    let open: Vec<&String> = asked.keys().filter(|key| !is_counted(quota, key)).collect();
    if open.is_empty() {
        return used;
    }
    for key in &open {
        used.insert((*key).clone(), Quantity::ZERO);
    }
    let full = format!("{}.{}", request.resource, request.group);
    let name = &object["metadata"]["name"];
    for present in request.read.list(&full, request.namespace) {
        let itself = request.operation == Operation::Create && present["metadata"]["name"] == *name;
        if itself || !quota::matches_scopes(quota, request.group, request.resource, &present) {
            continue;
        }
        for (key, quantity) in quota::usage(request.group, request.resource, &present, now) {
            if open.contains(&&key) {
                *used.entry(key).or_default() += quantity;
            }
        }
    }
    used
}

/// The quota with `status.used` raised, where the controller keeps it.
fn charged(quota: &Object, used: &Amounts, asked: &Amounts) -> Option<Object> {
    let mut charged = quota.clone();
    let counted: Vec<&String> = asked.keys().filter(|key| is_counted(quota, key)).collect();
    for key in &counted {
        charged["status"]["used"][key.as_str()] = (used[*key] + asked[*key]).to_string().into();
    }
    (!counted.is_empty()).then_some(charged)
}

/// CPU and memory that the quota limits and some container leaves open, as `cpu for: a,b`. What the pod says for itself
/// speaks for its containers.
fn unspecified(hard: &Amounts, pod: &Object) -> Vec<String> {
    let mut lacking: BTreeMap<&str, String> = BTreeMap::new();
    for key in hard.keys() {
        let (field, resource) = match key.as_str() {
            "cpu" | "memory" => ("requests", key.as_str()),
            "requests.cpu" => ("requests", "cpu"),
            "requests.memory" => ("requests", "memory"),
            "limits.cpu" => ("limits", "cpu"),
            "limits.memory" => ("limits", "memory"),
            _ => continue,
        };
        if !pod["spec"]["resources"][field][resource].is_null() {
            continue;
        }
        let all = ["containers", "initContainers"].into_iter().flat_map(|list| items(&pod["spec"][list]));
        let open = all.filter(|c: &&Value| c["resources"][field][resource].is_null());
        let mut names: Vec<&str> = open.filter_map(|c| c["name"].as_str()).collect();
        names.sort_unstable();
        if !names.is_empty() {
            lacking.insert(key, names.join(","));
        }
    }
    lacking.into_iter().map(|(key, names)| format!("{key} for: {names}")).collect()
}

#[cfg(test)]
#[path = "resource_quota_tests.rs"]
mod tests;
