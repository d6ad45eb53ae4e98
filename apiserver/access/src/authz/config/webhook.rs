//! The `webhook` of an authorizer.

use super::{AGENT, AUTHORIZED_TTL, UNAUTHORIZED_TTL};
use crate::authz::webhook::{Settings, Version, Webhook, compile};
use coracle_api::{FieldError, duration};
use coracle_webhook::kubeconfig::{RETRY_BACKOFF, Remote};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// The longest timeout, as upstream.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WebhookFields {
    #[serde(rename = "authorizedTTL", default)]
    authorized_ttl: String,
    #[serde(rename = "unauthorizedTTL", default)]
    unauthorized_ttl: String,
    #[serde(default = "yes")]
    cache_authorized_requests: bool,
    #[serde(default = "yes")]
    cache_unauthorized_requests: bool,
    #[serde(default)]
    timeout: String,
    #[serde(default)]
    subject_access_review_version: String,
    #[serde(default)]
    match_condition_subject_access_review_version: String,
    #[serde(default)]
    failure_policy: String,
    #[serde(default)]
    connection_info: ConnectionInfo,
    #[serde(default)]
    match_conditions: Vec<MatchCondition>,
}

fn yes() -> bool {
    true
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct ConnectionInfo {
    #[serde(rename = "type")]
    kind: String,
    kube_config_file: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MatchCondition {
    #[serde(default)]
    expression: String,
}

/// Upstream names these fields below the authorizer itself. `None` where there is a mistake, which is noted.
pub(super) fn read(
    at: &str,
    name: &str,
    fields: WebhookFields,
    mistakes: &mut Vec<FieldError>,
) -> Option<Webhook> {
    let before = mistakes.len();
    let mut judging = Judging { at, mistakes };
    let timeout = judging.timeout(&fields.timeout);
    let authorized = judging.ttl("authorizedTTL", &fields.authorized_ttl, AUTHORIZED_TTL);
    let unauthorized = judging.ttl("unauthorizedTTL", &fields.unauthorized_ttl, UNAUTHORIZED_TTL);
    let version = judging.version(&fields.subject_access_review_version);
    judging.condition_version(&fields);
    let denies_on_error = judging.failure_policy(&fields.failure_policy);
    let remote = judging.connection(&fields.connection_info);
    let expressions: Vec<String> =
        fields.match_conditions.into_iter().map(|condition| condition.expression).collect();
    let conditions = compile(&format!("{at}.matchConditions"), &expressions, mistakes);
    if mistakes.len() > before {
        return None;
    }
    let kept = |time: Duration, keep: bool| if keep { time } else { Duration::ZERO };
    let settings = Settings {
        name: name.to_owned(),
        timeout: timeout?,
        backoff: RETRY_BACKOFF,
        version: version?,
        authorized_ttl: kept(authorized?, fields.cache_authorized_requests),
        unauthorized_ttl: kept(unauthorized?, fields.cache_unauthorized_requests),
        denies_on_error: denies_on_error?,
    };
    Some(Webhook::new(settings, conditions, remote?))
}

/// Each answer is `None` where there is a mistake.
struct Judging<'a> {
    at: &'a str,
    mistakes: &'a mut Vec<FieldError>,
}

impl Judging<'_> {
    fn field(&self, name: &str) -> String {
        format!("{}.{name}", self.at)
    }

    fn refuse<T>(&mut self, mistake: FieldError) -> Option<T> {
        self.mistakes.push(mistake);
        None
    }

    fn required<T>(&mut self, name: &str) -> Option<T> {
        self.refuse(FieldError::required(self.field(name), ""))
    }

    fn invalid<T>(&mut self, name: &str, value: &str, why: &str) -> Option<T> {
        self.refuse(FieldError::invalid(self.field(name), &value.into(), why))
    }

    fn timeout(&mut self, text: &str) -> Option<Duration> {
        match duration::parse(text) {
            _ if text.is_empty() => self.required("timeout"),
            Some(time) if time.is_zero() => self.required("timeout"),
            Some(time) if time <= LONGEST_TIMEOUT => Some(time),
            _ => self.invalid("timeout", text, "must be > 0s and <= 30s"),
        }
    }

    /// What is absent or zero has the default.
    fn ttl(&mut self, name: &str, text: &str, default: Duration) -> Option<Duration> {
        match duration::parse(text) {
            _ if text.is_empty() => Some(default),
            Some(time) if time.is_zero() => Some(default),
            Some(time) => Some(time),
            None => self.invalid(name, text, "must be > 0s"),
        }
    }

    fn version(&mut self, text: &str) -> Option<Version> {
        const FIELD: &str = "subjectAccessReviewVersion";
        match text {
            "v1" => Some(Version::V1),
            "v1beta1" => Some(Version::V1beta1),
            "" => self.required(FIELD),
            _ => {
                let supported = ["v1", "v1beta1"];
                self.refuse(FieldError::not_supported(self.field(FIELD), &text.into(), &supported))
            }
        }
    }

    fn condition_version(&mut self, fields: &WebhookFields) {
        let field = self.field("matchConditionSubjectAccessReviewVersion");
        match &*fields.match_condition_subject_access_review_version {
            "v1" => {}
            "" if fields.match_conditions.is_empty() => {}
            "" => {
                let why = "required if match conditions are specified";
                self.mistakes.push(FieldError::required(field, why));
            }
            other => self.mistakes.push(FieldError::not_supported(field, &other.into(), &["v1"])),
        }
    }

    /// Whether failures deny.
    fn failure_policy(&mut self, text: &str) -> Option<bool> {
        match text {
            "NoOpinion" => Some(false),
            "Deny" => Some(true),
            "" => self.required("failurePolicy"),
            _ => {
                let field = self.field("failurePolicy");
                self.refuse(FieldError::not_supported(field, &text.into(), &["NoOpinion", "Deny"]))
            }
        }
    }

    fn connection(&mut self, info: &ConnectionInfo) -> Option<Remote> {
        const TYPE: &str = "connectionInfo.type";
        match &*info.kind {
            "KubeConfigFile" => self.kubeconfig(info.kube_config_file.as_deref().unwrap_or_default()),
            "" => self.required(TYPE),
            "InClusterConfig" => {
                if let Some(file) = &info.kube_config_file {
                    let why = "can only be set when type=KubeConfigFile";
                    self.invalid::<()>("connectionInfo.kubeConfigFile", file, why);
                }
                self.invalid(
                    TYPE,
                    "InClusterConfig",
                    "is not allowed for kube-apiserver, which would ask itself",
                )
            }
            other => {
                let supported = ["InClusterConfig", "KubeConfigFile"];
                self.refuse(FieldError::not_supported(self.field(TYPE), &Value::from(other), &supported))
            }
        }
    }

    fn kubeconfig(&mut self, file: &str) -> Option<Remote> {
        const FIELD: &str = "connectionInfo.kubeConfigFile";
        let path = Path::new(file);
        if file.is_empty() {
            return self.required(FIELD);
        }
        if !path.is_absolute() {
            return self.invalid(FIELD, file, "must be an absolute path");
        }
        match std::fs::metadata(path) {
            Err(error) => return self.invalid(FIELD, file, &format!("error loading file: {error}")),
            Ok(info) if !info.is_file() => return self.invalid(FIELD, file, "must be a regular file"),
            Ok(_) => {}
        }
        match Remote::load(path, AGENT) {
            Ok(remote) => Some(remote),
            Err(error) => self.invalid(FIELD, file, &error.mistakes.join("; ")),
        }
    }
}
