//! Request bodies: media type, syntax, kind.

use bytes::Bytes;
use coracle_api::decode::{self, DecodeError, FieldValidation, Problems};
use coracle_api::patch::PatchType;
use coracle_api::schema::{self, TypeRef};
use coracle_api::{ApiError, FieldError, Object, protobuf, yaml};
use coracle_resources::custom::CustomResource;
use serde_json::{Value, json};

/// Largest request body, as upstream's.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

const ACCEPTED: &[&str] = &["application/json", "application/yaml", protobuf::MEDIA_TYPE];

/// The media type of a `Content-Type`, without its parameters; empty when the client named none.
pub fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// Any JSON or YAML document.
pub fn document(content_type: &str, body: &[u8], wanted: &str) -> Result<Value, ApiError> {
    match media_type(content_type).to_ascii_lowercase().as_str() {
        "" | "application/json" => json(body, wanted),
        "application/yaml" => from_yaml(body, wanted).map(|document| document.value),
        protobuf::MEDIA_TYPE => from_protobuf(body, ("v1", wanted)),
        _ => Err(ApiError::unsupported_media_type(ACCEPTED)),
    }
}

fn json(body: &[u8], wanted: &str) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|e| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {wanted}): couldn't get version/kind; json parse \
             error: {e}"
        ))
    })
}

/// `fallback` are apiVersion and kind of a body that names none.
fn from_protobuf(body: &[u8], fallback: (&str, &str)) -> Result<Value, ApiError> {
    protobuf::decode(body, Some(fallback)).map_err(|e| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {e}",
            fallback.1
        ))
    })
}

fn from_yaml(body: &[u8], wanted: &str) -> Result<yaml::Document, ApiError> {
    yaml::document(body).map_err(|error| decode::unrecognized(wanted, &error.to_string(), body))
}

/// What was given twice in YAML is one mistake, or a warning each.
fn judge(
    validation: FieldValidation,
    (repeated, mut problems): (Vec<String>, Problems),
    version: &str,
    kind: &str,
) -> Result<Vec<String>, ApiError> {
    let repeated = match validation {
        FieldValidation::Strict => Vec::from_iter(yaml::Document::strict_error(&repeated)),
        _ => repeated,
    };
    problems.splice(..0, repeated);
    validation.judge(problems, version, kind)
}

/// The kind of object that a request expects in its body.
#[derive(Clone)]
pub struct Expected<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    /// Set where the body is a custom resource, whose definition has the schema.
    pub custom: Option<&'a CustomResource>,
}

impl Expected<'_> {
    pub fn schema(&self) -> Result<TypeRef<'_>, ApiError> {
        if let Some(custom) = self.custom {
            return Ok(TypeRef::dynamic(custom.schema().ty()));
        }
        schema::root(self.group, self.version, self.kind).ok_or_else(|| {
            ApiError::internal(format!("no schema for {}/{} {}", self.group, self.version, self.kind))
        })
    }

    /// Makes the object what its schema says; what it does not know comes back. The inner error is of a value.
    ///
    /// # Errors
    /// A kind without a schema.
    pub fn conform(&self, object: &mut Object) -> Result<Result<Problems, DecodeError>, ApiError> {
        match self.custom {
            Some(custom) => Ok(custom.coerce(object)),
            None => Ok(decode::conform(object, self.schema()?)),
        }
    }

    /// As [`conform`](Self::conform), of what apply has made of an object.
    ///
    /// # Errors
    /// A kind without a schema.
    pub fn conform_merged(&self, object: &mut Object) -> Result<Result<Problems, DecodeError>, ApiError> {
        match self.custom {
            Some(custom) => Ok(custom.coerce_merged(object)),
            None => self.conform(object),
        }
    }

    fn decode_custom(
        &self,
        custom: &CustomResource,
        content_type: &str,
        body: &Bytes,
        validation: FieldValidation,
    ) -> Result<(Object, Vec<String>), ApiError> {
        let (json, repeated) = match media_type(content_type).to_ascii_lowercase().as_str() {
            "" | "application/json" => (body.clone(), Vec::new()),
            "application/yaml" => {
                let document = from_yaml(body, self.kind)?;
                (serde_json::to_vec(&document.value).map_err(ApiError::internal)?.into(), document.repeated)
            }
            _ => return Err(ApiError::unsupported_media_type(&ACCEPTED[..2])),
        };
        let (mut object, mut problems) = decode::decode_untyped(&json, self.group, self.version, self.kind)?;
        let unknown = custom
            .coerce(&mut object)
            .map_err(|e| decode::cannot_handle(self.version, self.kind, &e.to_string()))?;
        problems.extend(unknown);
        Ok((object, judge(validation, (repeated, problems), self.version, self.kind)?))
    }

    /// Decodes a body and checks it against the schema facts. Returns what to warn the client of.
    pub fn decode(
        &self,
        content_type: &str,
        body: &Bytes,
        validation: FieldValidation,
    ) -> Result<(Object, Vec<String>), ApiError> {
        if let Some(custom) = self.custom {
            return self.decode_custom(custom, content_type, body, validation);
        }
        let mut repeated = Vec::new();
        let json = match media_type(content_type).to_ascii_lowercase().as_str() {
            "" | "application/json" => body.clone(),
            "application/yaml" => {
                let document = from_yaml(body, self.kind)?;
                repeated = document.repeated;
                serde_json::to_vec(&document.value).map_err(ApiError::internal)?.into()
            }
            protobuf::MEDIA_TYPE => {
                let version = coracle_api::catalogue::api_version(self.group, self.version);
                let object = from_protobuf(body, (&version, self.kind))?;
                serde_json::to_vec(&object).map_err(ApiError::internal)?.into()
            }
            _ => return Err(ApiError::unsupported_media_type(ACCEPTED)),
        };
        let (object, problems) =
            decode::decode_body(&json, self.schema()?, self.group, self.version, self.kind)?;
        Ok((object, judge(validation, (repeated, problems), self.version, self.kind)?))
    }

    /// As [`decode`](Self::decode), for what a patch has made of an object: its mistakes are mistakes of the patch.
    /// `problems` are those found in the patch itself, `quoted` makes what a refusal quotes.
    pub fn check_patched(
        &self,
        kind: PatchType,
        (object, problems): (Object, Vec<String>),
        validation: FieldValidation,
        quoted: &dyn Fn() -> String,
    ) -> Result<(Object, Vec<String>), ApiError> {
        let (mut object, mut problems) = (object, problems);
        let conformed = if kind == PatchType::StrategicMerge {
            self.keep_kind(&mut object);
            Ok(decode::conform_merged(&mut object, self.schema()?))
        } else {
            self.check_kind(&object)?;
            self.conform(&mut object)
        };
        match conformed? {
            Ok(more) => problems.extend(more),
            Err(error) => return Err(refused_patch(&quoted(), &error.to_string())),
        }
        match validation {
            FieldValidation::Ignore => Ok((object, Vec::new())),
            FieldValidation::Strict if !problems.is_empty() => {
                Err(refused_patch(&quoted(), &format!("strict decoding error: {}", problems.join(", "))))
            }
            _ => Ok((object, problems)),
        }
    }

    /// What a strategic merge says of the kind is lost, as it is in upstream's conversion to the internal type.
    fn keep_kind(&self, object: &mut Object) {
        if let Some(fields) = object.as_object_mut() {
            fields.insert("kind".to_owned(), self.kind.into());
            let version = coracle_api::catalogue::api_version(self.group, self.version);
            fields.insert("apiVersion".to_owned(), (*version).into());
        }
    }

    /// A patch may not turn an object into one of another kind.
    fn check_kind(&self, object: &Object) -> Result<(), ApiError> {
        let version = coracle_api::catalogue::api_version(self.group, self.version);
        if object["kind"] == self.kind && object["apiVersion"] == *version {
            return Ok(());
        }
        Err(ApiError::bad_request(format!(
            "the patched object is no {} in version {version:?}: a patch may not change kind and apiVersion",
            self.kind
        )))
    }
}

/// The 422 for a patch whose result cannot be.
fn refused_patch(patched: &str, why: &str) -> ApiError {
    let error = FieldError::invalid("patch", &patched.into(), why);
    ApiError::invalid("", "", "", &[error]).with_details(json!({ "causes": [{
        "reason": "FieldValueInvalid", "field": "patch",
        "message": format!("Invalid value: {}: {why}", Value::from(patched)),
    }] }))
}
