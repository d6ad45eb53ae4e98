//! PATCH `application/apply-patch+yaml`: server-side apply.

use super::decode::Expected;
use super::metadata::{of, text};
use super::{Scope, WriteOptions};
use coracle_api::decode::FieldValidation;
use coracle_api::managed::{self, Request};
use coracle_api::{ApiError, Object, yaml};
use coracle_resources::custom::Memo;
use serde_json::Value;

/// An applied configuration as it came in.
pub struct Configuration {
    pub object: Object,
    /// Keys that are given twice.
    repeated: Vec<String>,
}

impl Configuration {
    /// 400 for what is no YAML, or no map.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let bad = |why: &str| ApiError::bad_request(format!("error decoding YAML: {why}"));
        let yaml::Document { value: object, repeated } =
            yaml::document(body).map_err(|why| bad(&format!("error converting YAML to JSON: {why}")))?;
        if !object.is_object() {
            let what = match object {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Number(_) => "number",
                _ => return Ok(Self { object: serde_json::json!({}), repeated }),
            };
            return Err(bad(&format!(
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {what} into Go value of type \
                 map[string]interface {{}}"
            )));
        }
        Ok(Self { object, repeated })
    }

    pub fn names_version(&self) -> bool {
        !text(&self.object, "resourceVersion").is_empty()
    }

    /// Duplicate keys, as warnings or as a refusal.
    fn judge(&self, validation: FieldValidation) -> Result<Vec<String>, ApiError> {
        match validation {
            FieldValidation::Ignore => Ok(Vec::new()),
            FieldValidation::Warn => Ok(self.repeated.clone()),
            FieldValidation::Strict => match yaml::Document::strict_error(&self.repeated) {
                None => Ok(Vec::new()),
                Some(problem) => Err(ApiError::bad_request(format!(
                    "error strict decoding YAML: error converting YAML to JSON: {problem}"
                ))),
            },
        }
    }

    /// What the configuration makes of `live`, in served form and with its owners.
    pub(super) fn apply(
        &self,
        request: &Request<'_>,
        expected: &Expected<'_>,
        live: Option<&Object>,
        options: &WriteOptions,
    ) -> Result<(Object, Vec<String>), ApiError> {
        let kind = self.object["kind"].as_str().unwrap_or_default();
        let version = self.object["apiVersion"].as_str().unwrap_or_default();
        if kind != expected.kind || version != request.api_version {
            let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
            return Err(ApiError::bad_request(format!("invalid object type: {version}, Kind={kind}")));
        }
        let mut object = managed::apply(request, live, &self.object, options.force)?;
        let warnings = self.judge(options.field_validation)?;
        // Unknown fields were refused before; what is left is values that no type has.
        expected.conform_merged(&mut object)?.map_err(|e| {
            ApiError::new(500, "", format!("failed to convert new typed object to object: {e}"))
        })?;
        if !self.names_version() && object["metadata"].is_object() {
            of(&mut object).remove("resourceVersion");
        }
        Ok((object, warnings))
    }
}

impl Scope<'_> {
    /// The object that `configuration` makes of the present one, in stored form, for a write whose owners are given.
    pub(super) fn applied(
        &self,
        configuration: &Configuration,
        expected: &Expected<'_>,
        current: Option<&Object>,
        memo: &Memo,
        options: &WriteOptions,
    ) -> Result<Object, ApiError> {
        let served = match current {
            Some(current) if self.is_converted() => Some(self.to_served(current.clone())),
            _ => None,
        };
        let live = served.as_ref().or(current);
        let applied = self.managing(&options.field_manager, memo, |request| {
            configuration.apply(request, expected, live, options)
        });
        if !memo.is_complete() {
            return Err(ApiError::internal("the object is still to be converted to other versions"));
        }
        let (object, warnings) =
            applied.ok_or_else(|| ApiError::internal(format!("no schema for {}", expected.kind)))??;
        self.warn_once(warnings);
        let uid = text(&object, "uid");
        if current.is_none() && !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(self.conflict(self.name, &why));
        }
        self.check_patched(&object, current)?;
        Ok(self.to_stored(object))
    }
}
