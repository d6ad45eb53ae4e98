//! AdmissionReview, there and back
//! (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#request>).

use crate::Write;
use crate::policy::request_of;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use coracle_api::{ApiError, Object, Resource};
use coracle_requests::value::str_at;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A request in the version that a webhook asks for.
pub(super) struct Shown<'a> {
    pub resource: Arc<Resource>,
    pub object: Option<Cow<'a, Object>>,
    pub old: Option<Cow<'a, Object>>,
    /// Everything of the request but its objects and its uid.
    pub request: Value,
}

impl<'a> Shown<'a> {
    /// # Errors
    /// A conversion that failed.
    pub async fn new(
        write: &Write<'_>,
        resource: Arc<Resource>,
        object: Option<&'a Object>,
        old: Option<&'a Object>,
    ) -> Result<Self, ApiError> {
        let attributes = write.attributes;
        let object = match object {
            Some(object) => Some(attributes.to_version(object, &resource).await?),
            None => None,
        };
        let old = match old {
            Some(old) => Some(attributes.to_version(old, &resource).await?),
            None => None,
        };
        let request = request_of(attributes, &resource);
        Ok(Self { resource, object, old, request })
    }

    /// The body of a call.
    pub fn review(&self, version: &str, uid: &str) -> Bytes {
        let shown = |object: &Option<Cow<'_, Object>>| match object {
            Some(object) => object.to_string(),
            None => "null".to_owned(),
        };
        let (object, old) = (shown(&self.object), shown(&self.old));
        // The facts are spliced in without their braces, so that the objects need not be copied into them.
        let facts = self.request.to_string();
        let facts = facts.strip_prefix('{').and_then(|facts| facts.strip_suffix('}')).unwrap_or_default();
        let text = format!(
            "{{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/{version}\",\"request\":{{\"uid\":\"{uid}\",\
             {facts},\"object\":{object},\"oldObject\":{old}}}}}\n"
        );
        Bytes::from(text)
    }
}

/// What a webhook says.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub allowed: bool,
    /// A Status, or null.
    pub status: Value,
    /// A JSON patch; empty where nothing is to change.
    pub patch: Vec<u8>,
    pub annotations: BTreeMap<String, String>,
    pub warnings: Vec<String>,
}

/// Where a webhook's answer cannot be believed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Nonsense {
    /// It is of types that no AdmissionReview has: as if the call had failed.
    Types(String),
    /// It contradicts itself or the question.
    Content(String),
}

type Read<T> = Result<T, Nonsense>;

fn mistyped<T>(value: &Value, field: &str, wanted: &str) -> Read<T> {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    Err(Nonsense::Types(format!(
        "json: cannot unmarshal {found} into Go struct field AdmissionResponse.{field} of type {wanted}"
    )))
}

fn text<'v>(response: &'v Value, field: &str) -> Read<Option<&'v str>> {
    match &response[field] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        other => mistyped(other, field, "string"),
    }
}

impl Verdict {
    /// Checks an answer to the question `uid`, asked in `version`, as upstream does: strictly in v1, leniently in v1beta1.
    pub fn read(answer: &Value, version: &str, uid: &str, mutating: bool) -> Read<Self> {
        let response = &answer["response"];
        if !response.is_object() {
            if !response.is_null() {
                return mistyped(response, "response", "v1.AdmissionResponse");
            }
            return Err(Nonsense::Content("webhook response was absent".to_owned()));
        }
        let verdict = Self::types(response)?;
        let kind = text(response, "patchType")?;
        if version == "v1" {
            let uid_sent = text(response, "uid")?.unwrap_or_default();
            consistent(answer, (uid, uid_sent), kind, !verdict.patch.is_empty(), mutating)
                .map_err(Nonsense::Content)?;
        }
        let patch = if mutating { verdict.patch } else { Vec::new() };
        Ok(Self { patch, ..verdict })
    }

    fn types(response: &Value) -> Read<Self> {
        let allowed = match &response["allowed"] {
            Value::Null => false,
            Value::Bool(allowed) => *allowed,
            other => return mistyped(other, "allowed", "bool"),
        };
        let patch = match text(response, "patch")? {
            None => Vec::new(),
            Some(patch) => BASE64_STANDARD
                .decode(patch.replace(['\n', '\r'], ""))
                .map_err(|_| Nonsense::Types("illegal base64 data in response.patch".to_owned()))?,
        };
        let status = response["status"].clone();
        if !status.is_null() && !status.is_object() {
            return mistyped(&status, "status", "v1.Status");
        }
        Ok(Self {
            allowed,
            status,
            patch,
            annotations: annotations(response)?,
            warnings: warnings(response)?,
        })
    }
}

fn annotations(response: &Value) -> Read<BTreeMap<String, String>> {
    let map = match &response["auditAnnotations"] {
        Value::Null => return Ok(BTreeMap::new()),
        Value::Object(map) => map,
        other => return mistyped(other, "auditAnnotations", "map[string]string"),
    };
    let one = |(key, value): (&String, &Value)| match value {
        Value::String(text) => Ok((key.clone(), text.clone())),
        other => mistyped(other, "auditAnnotations", "string"),
    };
    map.iter().map(one).collect()
}

fn warnings(response: &Value) -> Read<Vec<String>> {
    let list = match &response["warnings"] {
        Value::Null => return Ok(Vec::new()),
        Value::Array(list) => list,
        other => return mistyped(other, "warnings", "[]string"),
    };
    let one = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        other => mistyped(other, "warnings", "string"),
    };
    list.iter().map(one).collect()
}

/// What v1 asks of an answer. `uids` are the one asked and the one answered.
fn consistent(
    answer: &Value,
    uids: (&str, &str),
    patch_type: Option<&str>,
    has_patch: bool,
    mutating: bool,
) -> Result<(), String> {
    let (uid, sent) = uids;
    if sent != uid {
        return Err(format!("expected response.uid={uid:?}, got {sent:?}"));
    }
    let (version, kind) = (str_at(answer, "apiVersion"), str_at(answer, "kind"));
    if (version, kind) != ("admission.k8s.io/v1", "AdmissionReview") {
        let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
        let wanted = "admission.k8s.io/v1, Kind=AdmissionReview";
        return Err(format!("expected webhook response of {wanted}, got {version}, Kind={kind}"));
    }
    match (mutating, has_patch, patch_type) {
        (true, true, None) => Err("webhook returned response.patch but not response.patchType".to_owned()),
        (true, false, Some(_)) => {
            Err("webhook returned response.patchType but not response.patch".to_owned())
        }
        (true, true, Some("")) => Err("webhook returned invalid response.patchType of \"\"".to_owned()),
        (true, true, Some(kind)) if kind != "JSONPatch" => Err(format!("unsupported patch type {kind:?}")),
        (false, true, _) => Err("validating webhook may not return response.patch".to_owned()),
        (false, _, Some(_)) => Err("validating webhook may not return response.patchType".to_owned()),
        _ => Ok(()),
    }
}
