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

/// The options of a deletion. As upstream's decoder of them knows no other objects and nobody rewords its errors, what it
/// cannot read is an error of 500 without a reason.
pub fn delete_options(content_type: &str, body: &[u8]) -> Result<Value, ApiError> {
    let unread = |why: String| ApiError::new(500, "", why);
    let mut value = match media_type(content_type).to_ascii_lowercase().as_str() {
        "" | "application/json" => decode::object(body).map_err(unread)?.0,
        "application/yaml" => {
            let document = yaml::document(body).map_err(|error| unread(error.to_string()))?;
            decode::object(document.value.to_string().as_bytes()).map_err(unread)?.0
        }
        protobuf::MEDIA_TYPE => {
            protobuf::decode(body, Some(("v1", DELETE_OPTIONS))).map_err(|error| unread(error.to_string()))?
        }
        _ => return Err(ApiError::unsupported_media_type(ACCEPTED)),
    };
    let said = |field: &str| value[field].as_str().filter(|text| !text.is_empty());
    match (said("kind").unwrap_or(DELETE_OPTIONS), said("apiVersion").unwrap_or(META_VERSION)) {
        (DELETE_OPTIONS, _) => {}
        (kind, version) if is_known_beside(kind, version) => {
            return Err(unread("decoded object cannot be converted to DeleteOptions".to_owned()));
        }
        (kind, version) => {
            let scheme = META_SCHEME;
            return Err(unread(format!(
                "no kind {kind:?} is registered for version {version:?} in scheme {scheme:?}"
            )));
        }
    }
    let ty = schema::by_name(DELETE_OPTIONS_TYPE).ok_or_else(|| unread("no type for options".to_owned()))?;
    decode::conform(&mut value, ty).map_err(|error| unread(error.to_string()))?;
    Ok(value)
}

const DELETE_OPTIONS: &str = "DeleteOptions";
const DELETE_OPTIONS_TYPE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const META_VERSION: &str = "meta.k8s.io/v1";
/// How upstream calls the set of all its types.
const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";
/// How upstream calls the set of types that it reads options with.
const META_SCHEME: &str = "pkg/apis/meta/internalversion/scheme/register.go:27";

/// What that set knows beside: some in every version, some in its own.
fn is_known_beside(kind: &str, version: &str) -> bool {
    const ANYWHERE: [&str; 5] = ["Status", "APIVersions", "APIGroupList", "APIGroup", "APIResourceList"];
    const OWN: [&str; 9] = [
        "WatchEvent",
        "ListOptions",
        "GetOptions",
        "CreateOptions",
        "UpdateOptions",
        "PatchOptions",
        "Table",
        "PartialObjectMetadata",
        "PartialObjectMetadataList",
    ];
    ANYWHERE.contains(&kind) || (version == META_VERSION && OWN.contains(&kind))
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
            self.check_kind(&object, quoted)?;
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

    /// A patch may not turn an object into one of another kind: of a custom resource its validation says so, of others
    /// decoding, as upstream.
    fn check_kind(&self, object: &Object, quoted: &dyn Fn() -> String) -> Result<(), ApiError> {
        let version = coracle_api::catalogue::api_version(self.group, self.version);
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let (kind, said) = (text("kind"), text("apiVersion"));
        if kind == self.kind && *said == *version {
            return Ok(());
        }
        if kind.is_empty() {
            let quoted = quoted();
            return Err(refused_patch(&quoted, &format!("Object 'Kind' is missing in '{quoted}'")));
        }
        if self.custom.is_none() {
            let why = format!("no kind {kind:?} is registered for version {said:?} in scheme {SCHEME:?}");
            return Err(refused_patch(&quoted(), &why));
        }
        let must = |field: &str, has: &str, be: &str| {
            (has != be).then(|| FieldError::invalid(field, &has.into(), &format!("must be {be}")))
        };
        let errors = [must("kind", kind, self.kind), must("apiVersion", said, &version)];
        let errors: Vec<FieldError> = errors.into_iter().flatten().collect();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        Err(ApiError::invalid(self.group, self.kind, name, &errors))
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
