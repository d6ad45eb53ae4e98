//! Query parameters and option objects of requests, parsed whole before anything happens.
//!
//! See <https://kubernetes.io/docs/reference/using-api/api-concepts/>.

use coracle_api::decode::FieldValidation;
use coracle_api::{ApiError, FieldError};
use serde_json::Value;

/// Options of create, update and patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub field_validation: FieldValidation,
    pub force: bool,
    pub field_manager: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    Exact,
    NotOlderThan,
}

/// Options of list, watch and deletecollection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    pub limit: usize,
    pub continue_token: String,
    /// Empty when unset.
    pub resource_version: String,
    pub version_match: Option<VersionMatch>,
    pub timeout_seconds: Option<u64>,
    pub bookmarks: bool,
    pub send_initial_events: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Orphan,
    Background,
    Foreground,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub dry_run: bool,
    pub grace_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    /// The deprecated `orphanDependents: false` is answered with 202 while the object still exists.
    pub accepted: bool,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

/// The values of a query by name.
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn new(query: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self(pairs.map(|(k, v)| (k.into_owned(), v.into_owned())).collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(k, _)| k == name).map(|(_, v)| v.as_str()).collect()
    }

    /// Present without a value counts as true, as in upstream's conversion.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|v| !matches!(v, "false" | "0"))
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, ApiError> {
        match self.get(name) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                ApiError::bad_request(format!(
                    "unable to decode query parameter {name}: invalid number \"{text}\""
                ))
            }),
        }
    }

    pub fn write_options(&self, kind: &str) -> Result<WriteOptions, ApiError> {
        let asked = self.get("fieldValidation").unwrap_or_default();
        let Some(field_validation) = FieldValidation::parse(asked) else {
            let supported = ["", "Ignore", "Strict", "Warn"];
            let error = FieldError::not_supported("fieldValidation", &asked.into(), &supported);
            return Err(invalid_options(kind, error));
        };
        let field_manager = self.get("fieldManager").unwrap_or_default().to_owned();
        if field_manager.len() > 128 {
            return Err(invalid_options(kind, FieldError::too_long("fieldManager", 128)));
        }
        Ok(WriteOptions {
            dry_run: dry_run(&self.all("dryRun"), kind)?,
            field_validation,
            force: self.flag("force").unwrap_or(false),
            field_manager,
        })
    }

    pub fn list_options(&self) -> Result<ListOptions, ApiError> {
        let text = |name: &str| self.get(name).unwrap_or_default().to_owned();
        let options = ListOptions {
            label_selector: text("labelSelector"),
            field_selector: text("fieldSelector"),
            limit: self.number::<usize>("limit")?.unwrap_or(0),
            continue_token: text("continue"),
            resource_version: text("resourceVersion"),
            version_match: self.version_match()?,
            timeout_seconds: self.number("timeoutSeconds")?,
            bookmarks: self.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: self.flag("sendInitialEvents"),
        };
        Ok(options)
    }

    fn version_match(&self) -> Result<Option<VersionMatch>, ApiError> {
        match self.get("resourceVersionMatch") {
            None | Some("") => Ok(None),
            Some("Exact") => Ok(Some(VersionMatch::Exact)),
            Some("NotOlderThan") => Ok(Some(VersionMatch::NotOlderThan)),
            Some(other) => Err(invalid_options(
                "ListOptions",
                FieldError::not_supported(
                    "resourceVersionMatch",
                    &other.into(),
                    &["Exact", "NotOlderThan", ""],
                ),
            )),
        }
    }

    /// From the body where there is one, otherwise from the query.
    pub fn delete_options(&self, body: Option<&Value>) -> Result<DeleteOptions, ApiError> {
        match body {
            Some(body) => delete_options_of(body),
            None => {
                let mut options = DeleteOptions {
                    dry_run: dry_run(&self.all("dryRun"), "DeleteOptions")?,
                    grace_seconds: self.number("gracePeriodSeconds")?,
                    ..DeleteOptions::default()
                };
                propagate(&mut options, self.get("propagationPolicy"), self.flag("orphanDependents"))?;
                check_grace(&options)?;
                Ok(options)
            }
        }
    }
}

fn delete_options_of(body: &Value) -> Result<DeleteOptions, ApiError> {
    let dry: Vec<&str> = body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let text = |value: &Value| value.as_str().filter(|s| !s.is_empty()).map(str::to_owned);
    let grace = &body["gracePeriodSeconds"];
    if !grace.is_null() && grace.as_i64().is_none() {
        return Err(ApiError::bad_request("json: cannot unmarshal gracePeriodSeconds into an integer"));
    }
    let mut options = DeleteOptions {
        dry_run: dry_run(&dry, "DeleteOptions")?,
        grace_seconds: grace.as_i64(),
        uid: text(&body["preconditions"]["uid"]),
        resource_version: text(&body["preconditions"]["resourceVersion"]),
        ..DeleteOptions::default()
    };
    propagate(&mut options, body["propagationPolicy"].as_str(), body["orphanDependents"].as_bool())?;
    check_grace(&options)?;
    Ok(options)
}

fn propagate(
    options: &mut DeleteOptions,
    policy: Option<&str>,
    orphan: Option<bool>,
) -> Result<(), ApiError> {
    if policy.is_some() && orphan.is_some() {
        let error = FieldError::invalid(
            "propagationPolicy",
            &policy.unwrap_or_default().into(),
            "orphanDependents and deletionPropagation cannot be both set",
        );
        return Err(invalid_options("DeleteOptions", error));
    }
    options.accepted = orphan == Some(false);
    options.propagation = match policy {
        None => orphan.map(|orphan| if orphan { Propagation::Orphan } else { Propagation::Background }),
        Some("Orphan") => Some(Propagation::Orphan),
        Some("Background") => Some(Propagation::Background),
        Some("Foreground") => Some(Propagation::Foreground),
        Some(other) => {
            let error = FieldError::not_supported(
                "propagationPolicy",
                &other.into(),
                &["Background", "Foreground", "Orphan"],
            );
            return Err(invalid_options("DeleteOptions", error));
        }
    };
    Ok(())
}

fn check_grace(options: &DeleteOptions) -> Result<(), ApiError> {
    match options.grace_seconds {
        Some(seconds) if seconds < 0 => Err(invalid_options(
            "DeleteOptions",
            FieldError::invalid("gracePeriodSeconds", &seconds.into(), "must be greater than or equal to 0"),
        )),
        _ => Ok(()),
    }
}

fn dry_run(values: &[&str], kind: &str) -> Result<bool, ApiError> {
    match values.iter().find(|v| **v != "All") {
        Some(other) => {
            let error = FieldError::not_supported("dryRun", &(*other).into(), &["All"]);
            Err(invalid_options(kind, error))
        }
        None => Ok(!values.is_empty()),
    }
}

pub fn invalid_options(kind: &str, error: FieldError) -> ApiError {
    ApiError::invalid("meta.k8s.io", kind, "", &[error])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn delete_options_from_query_and_body() {
        let query = Query::new(Some("gracePeriodSeconds=5&propagationPolicy=Orphan&dryRun=All"));
        let from_query = query.delete_options(None).unwrap();
        assert_eq!(from_query.grace_seconds, Some(5));
        assert_eq!(from_query.propagation, Some(Propagation::Orphan));
        assert!(from_query.dry_run);
        let body = json!({"preconditions": {"uid": "u"}, "orphanDependents": false});
        let from_body = query.delete_options(Some(&body)).unwrap();
        assert_eq!(from_body.uid.as_deref(), Some("u"));
        assert!(from_body.accepted && !from_body.dry_run);
        assert_eq!(from_body.propagation, Some(Propagation::Background));
    }

    #[test]
    fn refuses_unknown_values() {
        for query in ["dryRun=Some", "fieldValidation=Maybe"] {
            assert_eq!(
                Query::new(Some(query)).write_options("CreateOptions").unwrap_err().code,
                422,
                "{query}"
            );
        }
        for query in ["gracePeriodSeconds=-1", "propagationPolicy=Never", "dryRun=x"] {
            assert_eq!(Query::new(Some(query)).delete_options(None).unwrap_err().code, 422, "{query}");
        }
        assert_eq!(Query::new(Some("limit=many")).list_options().unwrap_err().code, 400);
        assert_eq!(Query::new(Some("resourceVersionMatch=x")).list_options().unwrap_err().code, 422);
    }
}
