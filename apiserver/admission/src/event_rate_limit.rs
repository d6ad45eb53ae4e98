//! EventRateLimit: how many Events are let in
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#eventratelimit>).

use super::{Operation, Plugin, Request};
use coracle_api::{ApiError, FieldError, Object};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use tokio::time::Instant;

pub(super) const NAME: &str = "EventRateLimit";

/// Buckets of one limit where its `cacheSize` says nothing, as upstream. With fewer, whoever makes many different events
/// has others' buckets forgotten, and those begin full again.
const DEFAULT_CACHE_SIZE: u32 = 4096;

/// What events are counted together by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Server,
    Namespace,
    User,
    SourceAndObject,
}

const KINDS: [(&str, Kind); 4] = [
    ("Server", Kind::Server),
    ("Namespace", Kind::Namespace),
    ("User", Kind::User),
    ("SourceAndObject", Kind::SourceAndObject),
];

/// One limit of the configuration, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    kind: Kind,
    /// Events a second.
    qps: f64,
    /// Events at once after a pause.
    burst: f64,
    cache_size: usize,
}

/// A limit as a Configuration of eventratelimit.admission.k8s.io/v1alpha1 writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LimitFields {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    qps: i32,
    #[serde(default)]
    burst: i32,
    #[serde(default)]
    cache_size: i32,
}

/// # Errors
/// Every mistake, in upstream's words.
pub(super) fn limits(fields: &[LimitFields]) -> Result<Vec<Limit>, Vec<FieldError>> {
    let mut mistakes = Vec::new();
    if fields.is_empty() {
        mistakes.push(FieldError::invalid("limits", &Value::Null, "must not be empty"));
    }
    let mut limits = Vec::new();
    for (i, limit) in fields.iter().enumerate() {
        let field = |name: &str| format!("limits[{i}].{name}");
        let kind = KINDS.iter().find(|(name, _)| *name == limit.kind).map(|(_, kind)| *kind);
        if kind.is_none() {
            let known = KINDS.map(|(name, _)| name);
            mistakes.push(FieldError::not_supported(field("type"), &limit.kind.as_str().into(), &known));
        }
        for (name, number) in [("burst", limit.burst), ("qps", limit.qps)] {
            if number <= 0 {
                mistakes.push(FieldError::invalid(field(name), &number.into(), "must be positive"));
            }
        }
        if kind != Some(Kind::Server) && limit.cache_size < 0 {
            let why = "must not be negative";
            mistakes.push(FieldError::invalid(field("cacheSize"), &limit.cache_size.into(), why));
        }
        let size =
            u32::try_from(limit.cache_size).ok().filter(|size| *size > 0).unwrap_or(DEFAULT_CACHE_SIZE);
        limits.extend(kind.map(|kind| Limit {
            kind,
            qps: limit.qps.into(),
            burst: limit.burst.into(),
            cache_size: if kind == Kind::Server { 1 } else { size as usize },
        }));
    }
    if mistakes.is_empty() { Ok(limits) } else { Err(mistakes) }
}

/// See the module.
pub(super) struct EventRateLimit(Vec<Enforcer>);

impl EventRateLimit {
    pub fn new(limits: &[Limit]) -> Self {
        let enforcer = |limit: &Limit| Enforcer { limit: limit.clone(), buckets: Mutex::default() };
        Self(limits.iter().map(enforcer).collect())
    }
}

impl Plugin for EventRateLimit {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Every limit counts every event, and the last one that is exceeded is told.
    fn validate(
        &self,
        request: &Request,
        object: Option<&Object>,
        _old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let is_event = request.resource == "events" && matches!(request.group, "" | "events.k8s.io");
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let Some(event) = object.filter(|_| is_event && writes && request.subresource.is_empty()) else {
            return Ok(());
        };
        let now = Instant::now();
        let mut refused = Ok(());
        for enforcer in &self.0 {
            let key = enforcer.key(request, event);
            if !enforcer.accepts(&key, now) {
                let kind = KINDS.iter().find(|(_, kind)| *kind == enforcer.limit.kind).map_or("", |(n, _)| n);
                let why = format!("Too many requests: limit reached on type {kind} for key {key}");
                refused = Err(ApiError::new(429, "TooManyRequests", why));
            }
        }
        refused
    }
}

struct Enforcer {
    limit: Limit,
    buckets: Mutex<Buckets>,
}

/// The fullest bucket is a new one, so what was not used for long may be forgotten.
#[derive(Default)]
struct Buckets {
    by_key: HashMap<String, Bucket>,
    /// Keys by when they were last used, which is counted.
    by_use: BTreeMap<u64, String>,
    uses: u64,
}

#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
    used: u64,
}

impl Enforcer {
    fn key(&self, request: &Request, event: &Object) -> String {
        let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default();
        // Both versions are shown here as one of them or the other.
        let either = |one: &str, other: &str| {
            if text(one).is_empty() { text(other).to_owned() } else { text(one).to_owned() }
        };
        match self.limit.kind {
            Kind::Server => String::new(),
            Kind::Namespace => request.namespace.to_owned(),
            Kind::User => request.user.name.clone(),
            Kind::SourceAndObject => {
                let of =
                    |field: &str| either(&format!("/involvedObject/{field}"), &format!("/regarding/{field}"));
                [
                    either("/source/component", "/deprecatedSource/component"),
                    either("/source/host", "/deprecatedSource/host"),
                    of("kind"),
                    of("namespace"),
                    of("name"),
                    of("uid"),
                    of("apiVersion"),
                ]
                .concat()
            }
        }
    }

    fn accepts(&self, key: &str, now: Instant) -> bool {
        let Limit { qps, burst, cache_size, .. } = self.limit;
        let mut buckets = self.buckets.lock();
        let Buckets { by_key, by_use, uses } = &mut *buckets;
        *uses += 1;
        let mut bucket = match by_key.get(key) {
            Some(known) => {
                by_use.remove(&known.used);
                *known
            }
            None => Bucket { tokens: burst, at: now, used: 0 },
        };
        let gained = now.saturating_duration_since(bucket.at).as_secs_f64() * qps;
        bucket.tokens = (bucket.tokens + gained).min(burst);
        let accepted = bucket.tokens >= 1.0;
        if accepted {
            bucket.tokens -= 1.0;
        }
        by_use.insert(*uses, key.to_owned());
        by_key.insert(key.to_owned(), Bucket { at: now, used: *uses, ..bucket });
        while by_key.len() > cache_size {
            let Some((_, oldest)) = by_use.pop_first() else { break };
            by_key.remove(&oldest);
        }
        accepted
    }
}

#[cfg(test)]
#[path = "event_rate_limit_tests.rs"]
mod tests;
