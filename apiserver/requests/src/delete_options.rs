//! What a DELETE may ask for, in its body or else in its query.

use super::Query;
use super::options::{dry_run, refuse};
use coracle_api::{ApiError, FieldError};
use serde_json::{Value, json};

/// What happens to the objects that this one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Orphan,
    Background,
    Foreground,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub dry_run: bool,
    /// Negative is one second, as upstream.
    pub grace_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    /// The deprecated `orphanDependents: false` is answered with 202 while the object still exists.
    pub accepted: bool,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    /// Of an object that the store cannot read, nothing is looked at before it goes.
    pub ignore_read_errors: bool,
}

impl DeleteOptions {
    /// The DeleteOptions of meta.k8s.io/v1, for webhooks and policies.
    pub fn to_value(&self) -> Value {
        let mut value = json!({ "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1" });
        if let Some(seconds) = self.grace_seconds {
            value["gracePeriodSeconds"] = seconds.into();
        }
        for (field, text) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            if let Some(text) = text {
                value["preconditions"][field] = text.as_str().into();
            }
        }
        match self.propagation {
            _ if self.accepted => value["orphanDependents"] = false.into(),
            Some(Propagation::Orphan) => value["propagationPolicy"] = "Orphan".into(),
            Some(Propagation::Background) => value["propagationPolicy"] = "Background".into(),
            Some(Propagation::Foreground) => value["propagationPolicy"] = "Foreground".into(),
            None => {}
        }
        if self.dry_run {
            value["dryRun"] = json!(["All"]);
        }
        value
    }
}

/// As sent, before anything is checked but types.
#[derive(Default)]
struct Sent<'a> {
    dry_run: Vec<&'a str>,
    grace_seconds: Option<i64>,
    policy: Option<&'a str>,
    orphan: Option<bool>,
    ignore_read_errors: bool,
    uid: Option<&'a str>,
    resource_version: Option<&'a str>,
}

impl Query {
    /// From the body where there is one, otherwise from the query. What either asks only to be tried is only tried.
    pub fn delete_options(&self, body: Option<&Value>) -> Result<DeleteOptions, ApiError> {
        match body {
            Some(body) => {
                let options = Sent::from_body(body)?.check()?;
                let tried = Sent { dry_run: self.all("dryRun"), ..Sent::default() }.check()?;
                Ok(DeleteOptions { dry_run: options.dry_run || tried.dry_run, ..options })
            }
            None => Sent {
                dry_run: self.all("dryRun"),
                grace_seconds: self.integer("gracePeriodSeconds")?,
                policy: self.get("propagationPolicy"),
                orphan: self.flag("orphanDependents"),
                ignore_read_errors: self
                    .flag("ignoreStoreReadErrorWithClusterBreakingPotential")
                    .unwrap_or(false),
                uid: self.get("uid").filter(|v| !v.is_empty()),
                resource_version: None,
            }
            .check(),
        }
    }
}

impl<'a> Sent<'a> {
    fn from_body(body: &'a Value) -> Result<Self, ApiError> {
        let text = |value: &'a Value, path: &str| match value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.as_str())),
            other => Err(mistyped(other, path, "string")),
        };
        let flag = |name: &str| match &body[name] {
            Value::Null => Ok(None),
            Value::Bool(flag) => Ok(Some(*flag)),
            other => Err(mistyped(other, name, "bool")),
        };
        let dry_run = match &body["dryRun"] {
            Value::Null => Vec::new(),
            Value::Array(list) => {
                let each = list.iter().map(|v| text(v, "dryRun").map(Option::unwrap_or_default));
                each.collect::<Result<_, _>>()?
            }
            other => return Err(mistyped(other, "dryRun", "[]string")),
        };
        let grace = &body["gracePeriodSeconds"];
        if !grace.is_null() && grace.as_i64().is_none() {
            return Err(mistyped(grace, "gracePeriodSeconds", "int64"));
        }
        let conditions = &body["preconditions"];
        if !conditions.is_null() && !conditions.is_object() {
            return Err(mistyped(conditions, "preconditions", "v1.Preconditions"));
        }
        Ok(Self {
            dry_run,
            grace_seconds: grace.as_i64(),
            policy: text(&body["propagationPolicy"], "propagationPolicy")?,
            orphan: flag("orphanDependents")?,
            ignore_read_errors: flag("ignoreStoreReadErrorWithClusterBreakingPotential")?.unwrap_or(false),
            uid: text(&conditions["uid"], "preconditions.uid")?,
            resource_version: text(&conditions["resourceVersion"], "preconditions.resourceVersion")?,
        })
    }

    fn check(self) -> Result<DeleteOptions, ApiError> {
        let mut errors = Vec::new();
        if let (Some(policy), Some(_)) = (self.policy, self.orphan) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid("propagationPolicy", &policy.into(), why));
        }
        let propagation = match self.policy {
            None => {
                self.orphan.map(|orphan| if orphan { Propagation::Orphan } else { Propagation::Background })
            }
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", &other.into(), &supported));
                None
            }
        };
        let dry_run = dry_run(&self.dry_run, &mut errors);
        if self.ignore_read_errors {
            self.check_unsafe(&mut errors);
        }
        refuse("DeleteOptions", errors)?;
        Ok(DeleteOptions {
            dry_run,
            grace_seconds: self.grace_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds }),
            propagation,
            accepted: self.orphan == Some(false),
            uid: self.uid.map(str::to_owned),
            resource_version: self.resource_version.map(str::to_owned),
            ignore_read_errors: self.ignore_read_errors,
        })
    }

    /// Deletion of what cannot be read is about nothing else. Where an object can be read, the option changes
    /// nothing.
    fn check_unsafe(&self, errors: &mut Vec<FieldError>) {
        let conditions = self.uid.is_some() || self.resource_version.is_some();
        for (set, name) in [
            (!self.dry_run.is_empty(), "dryRun"),
            (self.policy.is_some(), "propagationPolicy"),
            (self.orphan.is_some(), "orphanDependents"),
            (self.grace_seconds.is_some(), "gracePeriodSeconds"),
            (conditions, "preconditions"),
        ] {
            if set {
                let field = "ignoreStoreReadErrorWithClusterBreakingPotential";
                let why = format!("cannot be set together with .{name}");
                errors.push(FieldError::invalid(field, &true.into(), &why));
            }
        }
    }
}

fn mistyped(value: &Value, path: &str, wanted: &str) -> ApiError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    ApiError::bad_request(format!(
        "json: cannot unmarshal {found} into Go struct field DeleteOptions.{path} of type {wanted}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_makes_it_a_trial() {
        let of = |query, body| Query::new(Some(query)).delete_options(Some(&body));
        assert!(of("dryRun=All", json!({})).unwrap().dry_run);
        assert!(of("", json!({ "dryRun": ["All"] })).unwrap().dry_run);
        assert!(!of("gracePeriodSeconds=5", json!({})).unwrap().dry_run);
        assert_eq!(of("gracePeriodSeconds=5", json!({})).unwrap().grace_seconds, None);
        assert_eq!(of("dryRun=", json!({ "dryRun": ["All"] })).unwrap_err().code, 422);
    }

    #[test]
    fn from_query_and_body() {
        let query = Query::new(Some("gracePeriodSeconds=5&propagationPolicy=Orphan&dryRun=All&uid=u"));
        let from_query = query.delete_options(None).unwrap();
        assert_eq!(from_query.grace_seconds, Some(5));
        assert_eq!(from_query.propagation, Some(Propagation::Orphan));
        assert_eq!(from_query.uid.as_deref(), Some("u"));
        assert!(from_query.dry_run);
        let body = json!({"preconditions": {"uid": "", "resourceVersion": "5"}, "orphanDependents": false});
        let from_body = query.delete_options(Some(&body)).unwrap();
        assert_eq!(from_body.uid.as_deref(), Some(""));
        assert_eq!(from_body.resource_version.as_deref(), Some("5"));
        assert!(from_body.accepted && from_body.dry_run, "what is asked to be tried is tried");
        assert_eq!(from_body.propagation, Some(Propagation::Background));
    }

    #[test]
    fn refused() {
        let of = "DeleteOptions.meta.k8s.io \"\" is invalid: ";
        let policies = "supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"";
        for (body, words) in [
            (json!({"propagationPolicy": "Never"}), format!("propagationPolicy: Unsupported value: \"Never\": {policies}")),
            (json!({"dryRun": ["x"]}), "dryRun: Unsupported value: [\"x\"]: supported values: \"All\"".into()),
            (
                json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
                "propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set"
                    .into(),
            ),
            (
                json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true, "gracePeriodSeconds": 1}),
                "ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: cannot be set together with \
                 .gracePeriodSeconds"
                    .into(),
            ),
        ] {
            let error = Query::new(None).delete_options(Some(&body)).unwrap_err();
            assert_eq!((error.code, error.message), (422, format!("{of}{words}")));
        }
        let typed = Query::new(None).delete_options(Some(&json!({"gracePeriodSeconds": "5"}))).unwrap_err();
        assert_eq!(
            (typed.code, &*typed.message),
            (
                400,
                "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
            )
        );
    }

    #[test]
    fn negative_grace_is_one_second() {
        let options = Query::new(Some("gracePeriodSeconds=-7")).delete_options(None).unwrap();
        assert_eq!(options.grace_seconds, Some(1));
        assert_eq!(Query::new(Some("gracePeriodSeconds=x")).delete_options(None).unwrap_err().code, 400);
    }
}
