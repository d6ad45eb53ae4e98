//! The events of one request, from its arrival to its end.

use super::{Level, Log, Rule};
use bytes::Bytes;
use coracle_api::meta::time::format_micros;
use coracle_api::{ApiError, Object, UserInfo};
use coracle_requests::RequestInfo;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

impl Stage {
    pub fn name(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// What is known of a request before anything is decided.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub audit_id: &'a str,
    /// With its query.
    pub uri: &'a str,
    pub user_agent: &'a str,
    /// The address of the client's side of the connection; `None` in memory.
    pub address: Option<std::net::IpAddr>,
    /// `X-Forwarded-For`, which anybody can write.
    pub forwarded_for: &'a str,
}

/// A request that is recorded.
pub struct Record {
    log: Arc<Log>,
    level: Level,
    omit_stages: Vec<String>,
    omit_managed_fields: bool,
    event: Value,
    annotations: BTreeMap<String, String>,
}

fn user_value(user: &UserInfo) -> Value {
    let mut value = json!({ "username": user.name });
    if !user.uid.is_empty() {
        value["uid"] = user.uid.clone().into();
    }
    if !user.groups.is_empty() {
        value["groups"] = user.groups.clone().into();
    }
    if !user.extra.is_empty() {
        value["extra"] = json!(user.extra);
    }
    value
}

fn object_ref(info: &RequestInfo) -> Value {
    let fields = [
        ("resource", &info.resource),
        ("namespace", &info.namespace),
        ("name", &info.name),
        ("apiGroup", &info.group),
        ("apiVersion", &info.version),
        ("subresource", &info.subresource),
    ];
    let set = fields.into_iter().filter(|(_, value)| !value.is_empty());
    set.map(|(name, value)| (name.to_owned(), Value::from(value.as_str())))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// As upstream: the first addresses are what the client says, the last is where it really is.
fn addresses(source: &Source<'_>) -> Vec<String> {
    let said = source.forwarded_for.split(',').map(str::trim);
    let mut all: Vec<String> =
        said.filter(|a| a.parse::<std::net::IpAddr>().is_ok()).map(str::to_owned).collect();
    if let Some(address) = source.address {
        let address = address.to_string();
        if all.last() != Some(&address) {
            all.push(address);
        }
    }
    all
}

impl Record {
    pub(super) fn new(
        log: Arc<Log>,
        rule: &Rule,
        source: Source<'_>,
        user: &UserInfo,
        info: &RequestInfo,
    ) -> Self {
        let now = Timestamp::now();
        let mut event = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": rule.level.name(),
            "auditID": source.audit_id, "stage": "", "requestURI": source.uri, "verb": info.verb,
            "user": user_value(user), "requestReceivedTimestamp": format_micros(now),
        });
        let from = addresses(&source);
        if !from.is_empty() {
            event["sourceIPs"] = from.into();
        }
        if !source.user_agent.is_empty() {
            event["userAgent"] = source.user_agent.chars().take(1024).collect::<String>().into();
        }
        if info.is_resource {
            event["objectRef"] = object_ref(info);
        }
        Self {
            log,
            level: rule.level,
            omit_stages: rule.omit_stages.clone(),
            omit_managed_fields: rule.omit_managed_fields,
            event,
            annotations: BTreeMap::new(),
        }
    }

    pub fn wants_request(&self) -> bool {
        self.level >= Level::Request
    }

    pub fn wants_response(&self) -> bool {
        self.level >= Level::RequestResponse
    }

    pub fn impersonated(&mut self, user: &UserInfo) {
        self.event["impersonatedUser"] = user_value(user);
    }

    pub fn annotate(&mut self, key: &str, value: &str) {
        self.annotations.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }

    pub fn request_object(&mut self, content_type: &str, bytes: &Bytes) {
        if let Some(object) = self.object(content_type, bytes) {
            // A creation names its object in the body only.
            let reference = &mut self.event["objectRef"];
            if reference["name"].is_null()
                && let Some(name) = object["metadata"]["name"].as_str()
            {
                reference["name"] = name.into();
            }
            self.event["requestObject"] = object;
        }
    }

    /// The answer: its status, and at level RequestResponse all of it.
    pub fn response(&mut self, code: u16, content_type: &str, bytes: &Bytes) {
        let object = self.object(content_type, bytes);
        let mut status = json!({ "metadata": {} });
        if let Some(object) = &object
            && object["kind"] == "Status"
        {
            for field in ["status", "message", "reason", "details"] {
                if !object[field].is_null() {
                    status[field] = object[field].clone();
                }
            }
        }
        status["code"] = code.into();
        self.event["responseStatus"] = status;
        if self.wants_response()
            && let Some(object) = object
        {
            self.event["responseObject"] = object;
        }
    }

    /// The code of an answer whose body is not kept.
    pub fn code(&mut self, code: u16) {
        if self.event["responseStatus"].is_null() {
            self.event["responseStatus"] = json!({ "metadata": {}, "code": code });
        }
    }

    fn object(&self, content_type: &str, bytes: &Bytes) -> Option<Object> {
        let mut object = super::sink::decode(content_type, bytes)?;
        if self.omit_managed_fields {
            strip(&mut object);
            if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
                items.iter_mut().for_each(strip);
            }
        }
        Some(object)
    }

    /// Writes the event of the request's arrival; an error if the request must not go on without it.
    pub async fn arrived(&mut self) -> Result<(), ApiError> {
        if !self.enter(Stage::RequestReceived) || Box::pin(self.log.write_first(&self.event)).await {
            return Ok(());
        }
        self.log.refuse();
        Err(ApiError::internal("failed to store audit event"))
    }

    /// Writes the event of a stage, unless the policy leaves it out. It is too late to stop the request.
    pub fn stage(&mut self, stage: Stage) {
        if self.enter(stage) {
            self.log.write(&self.event);
        }
    }

    /// Whether there is an event of this stage.
    fn enter(&mut self, stage: Stage) -> bool {
        if self.omit_stages.iter().any(|omitted| omitted == stage.name()) {
            return false;
        }
        self.event["stage"] = stage.name().into();
        self.event["stageTimestamp"] = format_micros(Timestamp::now()).into();
        if !self.annotations.is_empty() {
            self.event["annotations"] = json!(self.annotations);
        }
        true
    }
}

fn strip(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}
