//! PATCH bodies, applied to the present object.

use super::apply::Configuration;
use super::commit::Written;
use super::decode::{Expected, media_type};
use super::metadata::{of, text};
use super::ownership::Owners;
use super::subresource::Sub;
use super::update::{How, Part};
use super::{Scope, WriteOptions};
use bytes::Bytes;
use coracle_api::decode::{self, FieldValidation};
use coracle_api::patch::{self, PatchType};
use coracle_api::{ApiError, FieldError, Object};
use coracle_component_base::large_work;
use coracle_resources::custom::Memo;
use serde_json::Value;

const ACCEPTED: [PatchType; 4] =
    [PatchType::Json, PatchType::Merge, PatchType::StrategicMerge, PatchType::Apply];

/// A patch as it came in.
pub struct Patch {
    kind: PatchType,
    body: Bytes,
    /// Of server-side apply.
    configuration: Option<Configuration>,
    /// Whether it says which version it is for, so that a conflict is the client's business.
    names_version: bool,
}

impl Patch {
    /// 415 for other media types. Strategic merges need what no schema of a custom resource says.
    pub fn media_type(content_type: &str, custom: bool) -> Result<PatchType, ApiError> {
        let accepted: Vec<PatchType> =
            ACCEPTED.into_iter().filter(|kind| !custom || *kind != PatchType::StrategicMerge).collect();
        let names = || accepted.iter().map(|kind| kind.media_type()).collect::<Vec<_>>();
        PatchType::from_media_type(media_type(content_type))
            .filter(|kind| accepted.contains(kind))
            .ok_or_else(|| ApiError::unsupported_media_type(&names()))
    }

    pub fn new(kind: PatchType, body: Bytes) -> Result<Self, ApiError> {
        if kind == PatchType::Apply {
            let configuration = Configuration::parse(&body)?;
            let names_version = configuration.names_version();
            return Ok(Self { kind, body, configuration: Some(configuration), names_version });
        }
        let names_version =
            may_name_version(&body) && names_version(&serde_json::from_slice(&body).unwrap_or(Value::Null));
        Ok(Self { kind, body, configuration: None, names_version })
    }

    pub fn configuration(&self) -> Option<&Configuration> {
        self.configuration.as_ref()
    }

    /// What the patch makes of an object, checked as upstream checks it. `expected` names the kind whose schema says
    /// how lists are merged. With the warnings for the client.
    pub fn apply(
        &self,
        expected: &Expected<'_>,
        current: &Object,
        validation: FieldValidation,
    ) -> Result<(Object, Vec<String>), ApiError> {
        let work = || {
            let merged = self.merged(expected, current)?;
            expected.check_patched(self.kind, merged, validation, &|| self.quoted(expected, current))
        };
        if self.body.len() < large_work::LARGE_BYTES { work() } else { large_work::beside(work) }
    }

    /// What the patch makes of an object, unchecked.
    fn merged(
        &self,
        expected: &Expected<'_>,
        current: &Object,
    ) -> Result<(Object, decode::Problems), ApiError> {
        let (mut object, problems) = patch::apply(self.kind, current, &self.body, expected.schema()?)?;
        let unchanged = text(&object, "resourceVersion") == text(current, "resourceVersion");
        if unchanged && !self.names_version && object["metadata"].is_object() {
            of(&mut object).remove("resourceVersion");
        }
        Ok((object, problems))
    }

    /// What a refusal quotes: of strategic merges the patch as Go prints a map, of others the result.
    fn quoted(&self, expected: &Expected<'_>, current: &Object) -> String {
        match self.kind {
            PatchType::StrategicMerge => {
                coracle_api::go::value(&serde_json::from_slice(&self.body).unwrap_or(Value::Null))
            }
            // Merged once more: checking drops what it does not know.
            _ => self.merged(expected, current).map(|(object, _)| object.to_string()).unwrap_or_default(),
        }
    }
}

/// Checks what belongs to patches alone. `forced` is whether the query has `force` at all.
pub fn check_options(kind: PatchType, options: &WriteOptions, forced: bool) -> Result<(), ApiError> {
    let error = match kind {
        PatchType::Apply if options.field_manager.is_empty() => {
            FieldError::required("fieldManager", "is required for apply patch")
        }
        PatchType::Apply => return Ok(()),
        _ if forced => FieldError::forbidden("force", "may not be specified for non-apply patch"),
        _ => return Ok(()),
    };
    Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]))
}

/// Whether the patch has to be read to know: most do not even have the word. An escape may spell it otherwise.
fn may_name_version(body: &[u8]) -> bool {
    const WORD: &[u8] = b"resourceVersion";
    body.contains(&b'\\') || body.windows(WORD.len()).any(|window| window == WORD)
}

fn names_version(patch: &Value) -> bool {
    let path = "/metadata/resourceVersion";
    match patch {
        Value::Array(operations) => operations.iter().any(|o| o["path"] == path),
        _ => patch.pointer(path).is_some(),
    }
}

impl Scope<'_> {
    /// Patches the object itself. Only server-side apply creates one that does not exist, if `may_create` lets it; the
    /// flag is true if it has.
    pub async fn patch(
        &self,
        patch: &Patch,
        expected: &Expected<'_>,
        options: &WriteOptions,
        may_create: &(dyn Fn() -> Result<(), ApiError> + Send + Sync),
    ) -> Result<(Written, bool), ApiError> {
        let Some(configuration) = patch.configuration() else {
            let apply = |current: Option<&Object>| {
                let current = current.ok_or_else(|| self.not_found(self.name))?;
                self.patched(patch, expected, current, options)
            };
            let how = How { part: Part::Main, owners: Owners::Follow, creates: false };
            return self.update_as(how, options, apply).await;
        };
        let memo = Memo::default();
        let apply = |current: Option<&Object>| {
            let object = self.applied(configuration, expected, current, &memo, options)?;
            if current.is_none() {
                may_create()?;
            }
            Ok(object)
        };
        let how = How { part: Part::Main, owners: Owners::Given, creates: true };
        loop {
            let outcome = self.update_as(how, options, apply).await;
            if !self.complete(&memo).await? {
                return outcome;
            }
        }
    }

    /// Patches through a subresource that shows the object.
    pub async fn patch_sub(
        &self,
        sub: Sub,
        patch: &Patch,
        expected: &Expected<'_>,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        match patch.configuration() {
            Some(configuration) => {
                let memo = Memo::default();
                let apply =
                    |object: &Object| self.applied(configuration, expected, Some(object), &memo, options);
                loop {
                    let outcome = self.update_sub_as(sub, Owners::Given, options, apply).await;
                    if !self.complete(&memo).await? {
                        return outcome;
                    }
                }
            }
            None => {
                let apply = |object: &Object| self.patched(patch, expected, object, options);
                self.update_sub(sub, options, apply).await
            }
        }
    }

    /// The patched form of an object, checked like the body of an update.
    fn patched(
        &self,
        patch: &Patch,
        expected: &Expected<'_>,
        current: &Object,
        options: &WriteOptions,
    ) -> Result<Object, ApiError> {
        let validation = options.field_validation;
        let (object, warnings) = if self.is_converted() {
            patch.apply(expected, &self.to_served(current.clone()), validation)?
        } else {
            patch.apply(expected, current, validation)?
        };
        self.warn_once(warnings);
        let namespace = text(&object, "namespace");
        if !self.namespace.is_empty() && !namespace.is_empty() && namespace != self.namespace {
            let text =
                "the namespace of the provided object does not match the namespace sent on the request";
            return Err(ApiError::bad_request(text));
        }
        self.check_patched(&object, Some(current))?;
        Ok(self.to_stored(object))
    }

    /// A patch leads to the object that the URL names.
    pub(super) fn check_patched(&self, object: &Object, current: Option<&Object>) -> Result<(), ApiError> {
        let (name, namespace) = (text(object, "name"), text(object, "namespace"));
        if name.is_empty() {
            return Err(self.nameless());
        }
        if name != self.name {
            return Err(self.misnamed(name));
        }
        if !self.namespace.is_empty() && !namespace.is_empty() && namespace != self.namespace {
            return Err(ApiError::bad_request(format!(
                "the namespace of the object ({namespace}) does not match the namespace on the URL ({})",
                self.namespace
            )));
        }
        let uid = text(object, "uid");
        if current.is_some_and(|current| !uid.is_empty() && uid != text(current, "uid")) {
            let error = FieldError::invalid("metadata.uid", &uid.into(), "field is immutable");
            return Err(self.invalid(&[error]));
        }
        Ok(())
    }

    pub(super) fn misnamed(&self, name: &str) -> ApiError {
        ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            self.name
        ))
    }

    pub(super) fn nameless(&self) -> ApiError {
        ApiError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            self.name
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn versions_in_patches() {
        let named = |body: &'static str| {
            Patch::new(PatchType::Merge, Bytes::from_static(body.as_bytes())).unwrap().names_version
        };
        assert!(named(r#"{"metadata":{"resourceVersion":"1"}}"#));
        assert!(named(r#"{"metadata":{"\u0072esourceVersion":"1"}}"#));
        assert!(!named(r#"{"metadata":{"uid":"1"}}"#) && !named(r#"{"data":{"resourceVersion":"1"}}"#));
        assert!(names_version(&json!({"metadata": {"resourceVersion": "1"}})));
        assert!(names_version(&json!([{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}])));
        assert!(!names_version(&json!({"metadata": {"labels": {}}})));
    }
}
