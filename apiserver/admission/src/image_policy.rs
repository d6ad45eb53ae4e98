//! ImagePolicyWebhook: somebody outside says which images pods may run
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#imagepolicywebhook>).

use super::annotations::annotate;
use super::{Operation, ValidatingStep, Write, items};
use coracle_api::{ApiError, Object};
use coracle_webhook::kubeconfig::{RETRY_BACKOFF, Remote};
use coracle_webhook::remembered::Remembered;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(super) const NAME: &str = "ImagePolicyWebhook";

const API_VERSION: &str = "imagepolicy.k8s.io/v1alpha1";

/// Before what the webhook wants to have in the audit log, and what this step says there itself.
const AUDIT_PREFIX: &str = "imagepolicywebhook.image-policy.k8s.io/";

/// Annotations of pods that the webhook may see: `*.image-policy.k8s.io/*`.
const ANNOTATIONS: &str = ".image-policy.k8s.io/";

/// Answers that are kept, as upstream.
const MOST_ANSWERS: usize = 1024;

/// For one attempt: upstream's limit of calls of webhooks.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// How this server names itself to the webhook.
const AGENT: &str = "kube-apiserver";

/// The defaults and limits of the configuration's numbers, all upstream's.
const DEFAULT_ALLOW_TTL: Duration = Duration::from_secs(5 * 60);
const DEFAULT_DENY_TTL: Duration = Duration::from_secs(30);
const TTL_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30 * 60));
const BACKOFF_RANGE: (Duration, Duration) = (Duration::from_nanos(1), Duration::from_secs(5 * 60));

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct File {
    image_policy: Fields,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Fields {
    #[serde(default)]
    kube_config_file: String,
    /// Seconds.
    #[serde(rename = "allowTTL", default)]
    allow_ttl: i64,
    /// Seconds.
    #[serde(rename = "denyTTL", default)]
    deny_ttl: i64,
    /// Milliseconds.
    #[serde(default)]
    retry_backoff: i64,
    #[serde(default)]
    default_allow: bool,
}

/// See the module.
pub struct ImagePolicy {
    remote: Remote,
    allow_ttl: Duration,
    deny_ttl: Duration,
    backoff: Duration,
    /// What counts when the webhook cannot be asked.
    default_allow: bool,
    answers: Remembered<Status>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Status {
    allowed: bool,
    reason: String,
    audit_annotations: Vec<(String, String)>,
}

impl std::fmt::Debug for ImagePolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImagePolicy").field("url", &self.remote.url()).finish_non_exhaustive()
    }
}

impl ImagePolicy {
    /// A relative path of the kubeconfig begins at `beside`.
    ///
    /// # Errors
    /// Every mistake, with its field.
    pub(super) fn of(file: &File, beside: &Path) -> Result<Arc<Self>, Vec<String>> {
        let Fields { kube_config_file, allow_ttl, deny_ttl, retry_backoff, default_allow } =
            &file.image_policy;
        let mut mistakes = Vec::new();
        let mut number = |field: &str, value: i64, unit: Duration, range, default| {
            duration(value, unit, range, default)
                .map_err(|why| mistakes.push(format!("imagePolicy.{field}: {why}")))
                .unwrap_or(default)
        };
        let second = Duration::from_secs(1);
        let allow_ttl = number("allowTTL", *allow_ttl, second, TTL_RANGE, DEFAULT_ALLOW_TTL);
        let deny_ttl = number("denyTTL", *deny_ttl, second, TTL_RANGE, DEFAULT_DENY_TTL);
        let millisecond = Duration::from_millis(1);
        let backoff = number("retryBackoff", *retry_backoff, millisecond, BACKOFF_RANGE, RETRY_BACKOFF);
        let remote = match kube_config_file.as_str() {
            "" => Err("Required value".to_owned()),
            file => Remote::load(&beside.join(file), AGENT).map_err(|error| error.to_string()),
        };
        match remote.map_err(|why| mistakes.push(format!("imagePolicy.kubeConfigFile: {why}"))) {
            Ok(remote) if mistakes.is_empty() => {
                let answers = Remembered::new(MOST_ANSWERS);
                let default_allow = *default_allow;
                Ok(Arc::new(Self { remote, allow_ttl, deny_ttl, backoff, default_allow, answers }))
            }
            _ => Err(mistakes),
        }
    }

    async fn review(&self, spec: &Value) -> Result<Status, String> {
        let key = spec.to_string();
        if let Some(known) = self.answers.get(&key) {
            return Ok(known);
        }
        let body = json!({
            "kind": "ImageReview",
            "apiVersion": API_VERSION,
            "metadata": { "creationTimestamp": null },
            "spec": spec,
            "status": { "allowed": false },
        });
        let body = body.to_string().into();
        let answer = self.remote.post_repeatedly(WEBHOOK_TIMEOUT, self.backoff, body, |_, _| {}).await;
        let status = Status::read(&answer.map_err(|error| error.to_string())?)?;
        let time = if status.allowed { self.allow_ttl } else { self.deny_ttl };
        if !time.is_zero() {
            self.answers.put(&key, status.clone(), time);
        }
        Ok(status)
    }

    /// # Errors
    /// Why the images are refused.
    async fn judge(&self, spec: &Value) -> Result<(), String> {
        let status = match self.review(spec).await {
            Ok(status) => status,
            Err(why) if self.default_allow => {
                tracing::warn!(why, "images are allowed although their policy could not be asked for");
                annotate(&format!("{AUDIT_PREFIX}failed-open"), "true");
                return Ok(());
            }
            Err(why) => return Err(why),
        };
        for (key, value) in status.audit_annotations {
            annotate(&format!("{AUDIT_PREFIX}{key}"), value);
        }
        match (status.allowed, status.reason.as_str()) {
            (true, _) => Ok(()),
            (false, "") => Err("one or more images rejected by webhook backend".to_owned()),
            (false, reason) => {
                Err(format!("image policy webhook backend denied one or more images: {reason}"))
            }
        }
    }
}

/// 0 is the default, -1 none at all; else within the range.
fn duration(
    value: i64,
    unit: Duration,
    (above, most): (Duration, Duration),
    default: Duration,
) -> Result<Duration, String> {
    match value {
        -1 => return Ok(Duration::ZERO),
        0 => return Ok(default),
        _ => {}
    }
    let time = u32::try_from(value).ok().and_then(|value| unit.checked_mul(value));
    time.filter(|time| *time > above && *time <= most)
        .ok_or_else(|| format!("valid value is between {above:?} and {most:?}, got {value} times {unit:?}"))
}

impl Status {
    /// # Errors
    /// What is no ImageReview, or says what is neither true nor false.
    fn read(answer: &Value) -> Result<Self, String> {
        if answer["kind"] != "ImageReview" || answer["apiVersion"] != API_VERSION {
            let (version, kind) = (&answer["apiVersion"], &answer["kind"]);
            return Err(format!("the webhook answered with {version} {kind} instead of an ImageReview"));
        }
        let status = &answer["status"];
        let allowed = match &status["allowed"] {
            Value::Null => false,
            Value::Bool(allowed) => *allowed,
            other => return Err(format!("status.allowed is {other}, neither true nor false")),
        };
        let annotations = status["auditAnnotations"].as_object().into_iter().flatten();
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        Ok(Self {
            allowed,
            reason: status["reason"].as_str().unwrap_or_default().to_owned(),
            audit_annotations: annotations.filter_map(text).collect(),
        })
    }
}

/// The part of a pod that the webhook sees, without what is empty.
fn spec(pod: &Object, lists: &[&str], namespace: &str) -> Value {
    let containers = lists.iter().flat_map(|list| items(&pod["spec"][list]));
    let images: Vec<Value> = containers
        .map(|container| match &container["image"] {
            Value::String(image) if !image.is_empty() => json!({ "image": image }),
            _ => json!({}),
        })
        .collect();
    let all = pod["metadata"]["annotations"].as_object().into_iter().flatten();
    let shown: Map<String, Value> =
        all.filter(|(key, _)| key.contains(ANNOTATIONS)).map(|(k, v)| (k.clone(), v.clone())).collect();
    let mut spec = Map::new();
    for (field, value, is_empty) in [
        ("containers", json!(images), images.is_empty()),
        ("annotations", json!(shown), shown.is_empty()),
        ("namespace", json!(namespace), namespace.is_empty()),
    ] {
        if !is_empty {
            spec.insert(field.to_owned(), value);
        }
    }
    Value::Object(spec)
}

/// The step of the plugin; the webhook and its answers are shared by whoever runs it.
pub(super) struct Step(pub Arc<ImagePolicy>);

#[async_trait::async_trait]
impl ValidatingStep for Step {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn validate(
        &self,
        write: &Write<'_>,
        object: Option<&Object>,
        _old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let attributes = write.attributes;
        let is_pod = attributes.resource.group.is_empty() && attributes.resource.plural == "pods";
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        let Some(pod) = object.filter(|_| is_pod && writes) else { return Ok(()) };
        let lists: &[&str] = match attributes.subresource {
            "" => &["containers", "initContainers"],
            "ephemeralcontainers" => &["ephemeralContainers"],
            _ => return Ok(()),
        };
        let judged = self.0.judge(&spec(pod, lists, attributes.namespace)).await;
        judged.map_err(|why| ApiError::forbidden("", "pods", attributes.name, &why))
    }
}

#[cfg(test)]
#[path = "image_policy_tests.rs"]
mod tests;
