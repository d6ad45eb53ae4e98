//! A ConversionReview: what is asked, and what of the answer is good. Pure.

use super::{described, metadata};
use coracle_api::Object;
use coracle_api::go::type_name;
use coracle_requests::value::{at, str_at, strings_at};
use serde_json::{Value, json};

const GROUP: &str = "apiextensions.k8s.io";

/// One question.
pub struct Review {
    pub uid: String,
    /// What messages call it.
    pub what: String,
    objects: Vec<Object>,
    api_version: String,
    list: bool,
}

/// The first version of the review that the webhook and this server both know.
pub fn version(webhook: &Value) -> Result<&'static str, String> {
    let known = |version: &str| ["v1", "v1beta1"].into_iter().find(|known| *known == version);
    let mut versions = strings_at(webhook, "conversionReviewVersions").filter_map(known);
    versions.next().ok_or_else(|| "no supported conversion review versions".to_owned())
}

impl Review {
    pub fn new(objects: Vec<Object>, api_version: &str, what: String, list: bool) -> Self {
        let uid = uuid::Uuid::new_v4().to_string();
        Self { uid, what, objects, api_version: api_version.to_owned(), list }
    }

    pub fn request(&self, version: &str) -> Value {
        json!({
            "kind": "ConversionReview", "apiVersion": format!("{GROUP}/{version}"),
            "request": { "uid": self.uid, "desiredAPIVersion": self.api_version, "objects": self.objects },
        })
    }

    /// The converted objects, each with the metadata that it had, but for labels and annotations.
    pub fn accept(&self, version: &str, answer: Value) -> Result<Vec<Object>, String> {
        let what = &self.what;
        let failed = |why: String| format!("conversion webhook for {what} failed: {why}");
        let converted = self.response(version, answer).map_err(failed)?;
        let (got, expected) = (converted.len(), self.objects.len());
        if got != expected {
            return Err(format!("conversion webhook for {what} returned {got} objects, expected {expected}"));
        }
        let pairs = converted.into_iter().zip(&self.objects).enumerate();
        pairs.map(|(index, (new, old))| self.object(index, new, old)).collect()
    }

    fn response(&self, version: &str, mut answer: Value) -> Result<Vec<Object>, String> {
        if !answer["response"].is_object() {
            return Err("no response provided".to_owned());
        }
        // Upstream never looked at these of the beta version, and webhooks rely on it.
        if version == "v1" {
            let wanted = described(&format!("{GROUP}/v1"), "ConversionReview");
            let group_version = match str_at(&answer, "apiVersion") {
                "" => "/",
                other => other,
            };
            let got = described(group_version, str_at(&answer, "kind"));
            if got != wanted {
                return Err(format!("expected webhook response of {wanted}, got {got}"));
            }
            let uid = str_at(&answer, "response.uid");
            if uid != self.uid {
                return Err(format!("expected response.uid={:?}, got {uid:?}", self.uid));
            }
        }
        let result = at(&answer, "response.result");
        if str_at(result, "status") != "Success" {
            return Err(match str_at(result, "message") {
                "" => format!("response.result.status was '{}', not 'Success'", str_at(result, "status")),
                message => message.to_owned(),
            });
        }
        match answer["response"]["convertedObjects"].take() {
            Value::Array(list) => Ok(list),
            _ => Ok(Vec::new()),
        }
    }

    fn object(&self, index: usize, new: Object, old: &Object) -> Result<Object, String> {
        let what = &self.what;
        let head = format!("conversion webhook for {what} returned invalid");
        let place =
            if self.list { format!("converted object at index {index}") } else { "object".to_owned() };
        let at_index = if self.list { place.clone() } else { format!("object at index {index}") };
        if !new.is_object() {
            return Err(format!("{head} {at_index}: {} is no object", type_name(&new)));
        }
        let (expected, got) = (&self.api_version, str_at(&new, "apiVersion"));
        if got != expected {
            return Err(format!(
                "{head} {at_index}: invalid groupVersion (expected {expected}, received {got})"
            ));
        }
        let (expected, got) = (str_at(old, "kind"), str_at(&new, "kind"));
        if got != expected {
            return Err(format!("{head} {at_index}: invalid kind (expected {expected}, received {got})"));
        }
        self.unchanged(&new, old).map_err(|why| format!("{head} {place}: {why}"))?;
        let metadata_of =
            if self.list { format!("metadata in object at index {index}") } else { "metadata".to_owned() };
        metadata::restore(old, new).map_err(|why| format!("{head} {metadata_of}: {why}"))
    }

    fn unchanged(&self, new: &Object, old: &Object) -> Result<(), String> {
        for (field, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
            let value = |object| str_at(at(object, "metadata"), field);
            if value(old) != value(new) {
                return Err(format!("must have the same {name}: {} != {}", value(old), value(new)));
            }
        }
        Ok(())
    }
}
