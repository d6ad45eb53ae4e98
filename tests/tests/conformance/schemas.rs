//! Objects against the published schemas: what OpenAPI v3 says of a kind holds for what the server takes and answers.

use coracle_tests::rest::Rest;
use serde_json::Value;

/// The document of a group and version.
pub struct Document(Value);

impl Document {
    /// `path` as in `/apis/apps/v1`.
    pub fn get(rest: &Rest, path: &str) -> Self {
        Self(rest.get(&format!("/openapi/v3{path}")))
    }

    /// What does not fit, each with its place.
    pub fn misfits(&self, api_version: &str, kind: &str, object: &Value) -> Vec<String> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let is_of = |schema: &&Value| {
            let identities = schema["x-kubernetes-group-version-kind"].as_array();
            identities.into_iter().flatten().any(|identity| {
                identity["group"] == group && identity["version"] == version && identity["kind"] == kind
            })
        };
        let schemas = self.0["components"]["schemas"].as_object().expect("schemas");
        let Some(schema) = schemas.values().find(is_of) else {
            return vec![format!("{api_version} {kind} is not published")];
        };
        let mut misfits = Vec::new();
        self.check(schema, object, kind, &mut misfits);
        misfits
    }

    /// References, bare or in company, lead to the schemas. Null is how Go writes a time, a list or a map that is not there;
    /// schemas do not say so.
    fn check(&self, schema: &Value, value: &Value, place: &str, misfits: &mut Vec<String>) {
        if value.is_null() {
            return;
        }
        let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
        if let Some(pointer) = reference.and_then(|reference| reference.strip_prefix('#')) {
            let target =
                self.0.pointer(pointer).unwrap_or_else(|| panic!("{place}: {pointer} leads nowhere"));
            return self.check(target, value, place, misfits);
        }
        let fits = |schema: &Value| match schema["type"].as_str() {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("boolean") => value.is_boolean(),
            Some("integer") => value.is_i64() || value.is_u64(),
            Some("number") => value.is_number(),
            _ => true,
        };
        let either = schema["oneOf"].as_array();
        if !fits(schema) || either.is_some_and(|either| !either.iter().any(fits)) {
            return misfits.push(format!("{place}: {value} for {schema}"));
        }
        if let Some(values) = schema["enum"].as_array().filter(|values| !values.contains(value)) {
            misfits.push(format!("{place}: {value} is none of {values:?}"));
        }
        self.check_inside(schema, value, place, misfits);
    }

    fn check_inside(&self, schema: &Value, value: &Value, place: &str, misfits: &mut Vec<String>) {
        for (i, item) in value.as_array().into_iter().flatten().enumerate() {
            self.check(&schema["items"], item, &format!("{place}[{i}]"), misfits);
        }
        let of_all = &schema["additionalProperties"];
        let is_free = schema["properties"].is_null() && of_all.is_null();
        for (field, inner) in value.as_object().into_iter().flatten().filter(|_| !is_free) {
            let place = format!("{place}.{field}");
            match schema["properties"].get(field) {
                Some(property) => self.check(property, inner, &place, misfits),
                None if of_all.is_null() => misfits.push(format!("{place} is not published")),
                None => self.check(of_all, inner, &place, misfits),
            }
        }
        for field in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if value.get(field).is_none() {
                misfits.push(format!("{place}.{field} is missing"));
            }
        }
    }
}
