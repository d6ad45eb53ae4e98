//! Options of requests, read from their query whole before anything happens.
//!
//! See <https://kubernetes.io/docs/reference/using-api/api-concepts/>.

use super::{Query, Selectors};
use coracle_api::decode::FieldValidation;
use coracle_api::{ApiError, FieldError};
use std::sync::Arc;

/// Upstream's limit of `fieldManager`, in bytes.
const FIELD_MANAGER_BYTES: usize = 128;

/// Options of create, update and patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub field_validation: FieldValidation,
    pub force: bool,
    pub field_manager: String,
    pub sent: SentOptions,
    /// Whether the request is a PATCH, which is another right than `update`.
    pub patch: bool,
}

/// What the client has sent, before anything was filled in: webhooks and policies see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentOptions {
    pub field_manager: String,
    pub field_validation: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    Exact,
    NotOlderThan,
}

/// Options of list, watch and deletecollection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// None where everything is selected.
    pub selectors: Option<Arc<Selectors>>,
    /// The name in the path of a watch of one object (the old form).
    pub name: Option<String>,
    /// 0 is no limit.
    pub limit: usize,
    pub continue_token: String,
    /// Empty when unset.
    pub resource_version: String,
    pub version_match: Option<VersionMatch>,
    pub timeout_seconds: Option<i64>,
    pub bookmarks: bool,
    pub send_initial_events: Option<bool>,
}

impl Query {
    pub fn write_options(&self, kind: &str) -> Result<WriteOptions, ApiError> {
        let mut errors = Vec::new();
        let dry_run = dry_run(&self.all("dryRun"), &mut errors);
        let field_manager = self.get("fieldManager").unwrap_or_default().to_owned();
        check_field_manager(&field_manager, &mut errors);
        let asked = self.get("fieldValidation").unwrap_or_default();
        let field_validation = FieldValidation::parse(asked).unwrap_or_else(|| {
            let supported = ["", "Ignore", "Strict", "Warn"];
            errors.push(FieldError::not_supported("fieldValidation", &asked.into(), &supported));
            FieldValidation::default()
        });
        refuse(kind, errors)?;
        let force = self.flag("force").unwrap_or(false);
        let sent = SentOptions { field_manager: field_manager.clone(), field_validation: asked.to_owned() };
        let patch = kind == "PatchOptions";
        Ok(WriteOptions { dry_run, field_validation, force, field_manager, sent, patch })
    }

    /// `selectors` are those that the request was authorized for.
    pub fn list_options(&self, selectors: Option<Arc<Selectors>>) -> Result<ListOptions, ApiError> {
        selectors.as_ref().map_or(Ok(()), |selectors| selectors.check_readable())?;
        let text = |name: &str| self.get(name).unwrap_or_default().to_owned();
        let timeout_seconds = self.integer("timeoutSeconds")?;
        let limit = self.integer("limit")?.unwrap_or(0);
        let options = ListOptions {
            selectors,
            name: None,
            // Not an error, and no limit, as upstream.
            limit: usize::try_from(limit).unwrap_or(0),
            continue_token: text("continue"),
            resource_version: text("resourceVersion"),
            version_match: match self.get("resourceVersionMatch") {
                Some("Exact") => Some(VersionMatch::Exact),
                Some("NotOlderThan") => Some(VersionMatch::NotOlderThan),
                _ => None,
            },
            timeout_seconds,
            bookmarks: self.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: self.flag("sendInitialEvents"),
        };
        let mut errors = Vec::new();
        let asked = self.get("resourceVersionMatch").unwrap_or_default();
        if self.flag("watch").unwrap_or(false) {
            check_watch(&options, asked, &mut errors);
        } else {
            check_list(&options, asked, &mut errors);
        }
        refuse("ListOptions", errors)?;
        Ok(options)
    }
}

/// `matching` is the text of `resourceVersionMatch`.
fn check_list(options: &ListOptions, matching: &str, errors: &mut Vec<FieldError>) {
    let field = "resourceVersionMatch";
    if !matching.is_empty() {
        if options.resource_version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(FieldError::forbidden(field, why));
        }
        if !options.continue_token.is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(field, why));
        }
        if options.version_match.is_none() {
            let supported = ["Exact", "NotOlderThan", ""];
            errors.push(FieldError::not_supported(field, &matching.into(), &supported));
        }
        if options.version_match == Some(VersionMatch::Exact) && options.resource_version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden(field, why));
        }
    }
    if options.send_initial_events.is_some() {
        let why = "sendInitialEvents is forbidden for list";
        errors.push(FieldError::forbidden("sendInitialEvents", why));
    }
}

fn check_watch(options: &ListOptions, matching: &str, errors: &mut Vec<FieldError>) {
    let field = "resourceVersionMatch";
    let not_older = options.version_match == Some(VersionMatch::NotOlderThan);
    if options.send_initial_events.is_some() && !not_older {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(FieldError::forbidden(field, why));
    }
    if matching.is_empty() {
        return;
    }
    if options.send_initial_events.is_none() {
        let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        errors.push(FieldError::forbidden(field, why));
    }
    if !not_older {
        errors.push(FieldError::not_supported(field, &matching.into(), &["NotOlderThan"]));
    }
    if !options.continue_token.is_empty() {
        let why = "resourceVersionMatch is forbidden when continue is provided";
        errors.push(FieldError::forbidden(field, why));
    }
}

fn check_field_manager(manager: &str, errors: &mut Vec<FieldError>) {
    if manager.len() > FIELD_MANAGER_BYTES {
        errors.push(FieldError::too_long("fieldManager", FIELD_MANAGER_BYTES));
    }
    if let Some((at, c)) = manager.char_indices().find(|(_, c)| c.is_control()) {
        let why = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        errors.push(FieldError::invalid("fieldManager", &manager.into(), &why));
    }
}

pub fn dry_run(values: &[&str], errors: &mut Vec<FieldError>) -> bool {
    if values.iter().any(|v| *v != "All") {
        errors.push(FieldError::not_supported("dryRun", &values.to_vec().into(), &["All"]));
    }
    !values.is_empty()
}

/// 422 for options that contradict each other or that nobody knows.
pub fn refuse(kind: &str, errors: Vec<FieldError>) -> Result<(), ApiError> {
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", kind, "", &errors)) }
}

pub fn invalid_options(kind: &str, error: FieldError) -> ApiError {
    ApiError::invalid("meta.k8s.io", kind, "", &[error])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(query: &str) -> (u16, String) {
        let error = Query::new(Some(query)).list_options(None).unwrap_err();
        (error.code, error.message)
    }

    #[test]
    fn numbers_that_are_none() {
        for (query, words) in [
            ("limit=many", "strconv.ParseInt: parsing \"many\": invalid syntax"),
            ("limit=", "strconv.ParseInt: parsing \"\": invalid syntax"),
            ("limit=1.5", "strconv.ParseInt: parsing \"1.5\": invalid syntax"),
            (
                "timeoutSeconds=99999999999999999999",
                "strconv.ParseInt: parsing \"99999999999999999999\": value out of range",
            ),
        ] {
            assert_eq!(refused(query), (400, words.to_owned()), "{query}");
        }
        assert_eq!(Query::new(Some("limit=-1")).list_options(None).unwrap().limit, 0);
        assert_eq!(
            Query::new(Some("timeoutSeconds=-1")).list_options(None).unwrap().timeout_seconds,
            Some(-1)
        );
    }

    #[test]
    fn contradictions() {
        let of = "ListOptions.meta.k8s.io \"\" is invalid: ";
        let forbidden = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden";
        for (query, words) in [
            ("resourceVersionMatch=Exact", format!("{forbidden} unless resourceVersion is provided")),
            (
                "resourceVersionMatch=Exact&resourceVersion=0",
                "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"".into(),
            ),
            (
                "resourceVersionMatch=x&resourceVersion=1",
                "resourceVersionMatch: Unsupported value: \"x\": supported values: \"Exact\", \"NotOlderThan\", \"\"".into(),
            ),
            (
                "resourceVersionMatch=Exact&resourceVersion=5&continue=a",
                format!("{forbidden} when continue is provided"),
            ),
            ("sendInitialEvents=true", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list".into()),
            (
                "watch=1&sendInitialEvents=false",
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan".into(),
            ),
            (
                "watch=1&resourceVersionMatch=NotOlderThan",
                format!("{forbidden} for watch unless sendInitialEvents is provided"),
            ),
        ] {
            assert_eq!(refused(query), (422, format!("{of}{words}")), "{query}");
        }
        let both = refused("watch=1&sendInitialEvents=true&resourceVersionMatch=Exact").1;
        assert!(both.contains("[resourceVersionMatch: Forbidden: sendInitialEvents requires"), "{both}");
        assert!(both.ends_with("supported values: \"NotOlderThan\"]"), "{both}");
    }

    #[test]
    fn write_options() {
        for query in ["dryRun=Some", "fieldValidation=Maybe", "fieldManager=a%01b"] {
            let error = Query::new(Some(query)).write_options("CreateOptions").unwrap_err();
            assert_eq!(error.code, 422, "{query}");
        }
        let long = format!("fieldManager={}", "x".repeat(129));
        let error = Query::new(Some(&long)).write_options("PatchOptions").unwrap_err();
        assert!(error.message.ends_with("fieldManager: Too long: may not be more than 128 bytes"), "{error}");
    }
}
