//! Query parameters, media types and codes: the sets that operations share.

use super::operations::Payload;
use super::v3::META;

pub const ANYTHING: &[&str] = &["*/*"];
pub const OBJECTS: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
pub const STREAMS: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
pub const TEXT_OR_OBJECTS: &[&str] =
    &["text/plain", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
pub const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// Of custom resources.
pub const CUSTOM: &[&str] = &["application/json", "application/yaml"];
/// Of reading one. Built-in resources take the parameter too, but upstream describes it for custom ones alone.
pub const CUSTOM_GET: &[&str] = &["pretty", "resourceVersion"];
pub const CUSTOM_PATCHES: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

pub const OK: &[(&str, &str)] = &[("200", "OK")];
pub const OK_CREATED: &[(&str, &str)] = &[("200", "OK"), ("201", "Created")];
pub const OK_ACCEPTED: &[(&str, &str)] = &[("200", "OK"), ("202", "Accepted")];
pub const OK_CREATED_ACCEPTED: &[(&str, &str)] = &[("200", "OK"), ("201", "Created"), ("202", "Accepted")];

pub const PRETTY: &[&str] = &["pretty"];
pub const CREATE: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "pretty"];
pub const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force", "pretty"];
pub const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "pretty",
    "propagationPolicy",
];
pub const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "pretty",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
pub const DELETE_COLLECTION: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "labelSelector",
    "limit",
    "orphanDependents",
    "pretty",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
];
pub const LOG: &[&str] = &[
    "container",
    "follow",
    "insecureSkipTLSVerifyBackend",
    "limitBytes",
    "pretty",
    "previous",
    "sinceSeconds",
    "stream",
    "tailLines",
    "timestamps",
];

/// Of a connection, by the kind of its options.
pub fn connect_query(kind: &str) -> &'static [&'static str] {
    match kind {
        "PodExecOptions" => &["command", "container", "stderr", "stdin", "stdout", "tty"],
        "PodAttachOptions" => &["container", "stderr", "stdin", "stdout", "tty"],
        "PodPortForwardOptions" => &["ports"],
        _ => &["path"],
    }
}

/// The JSON type of a query parameter.
pub fn query_type(name: &str) -> &'static str {
    match name {
        "limit" | "timeoutSeconds" | "gracePeriodSeconds" | "limitBytes" | "sinceSeconds" | "tailLines"
        | "ports" => "integer",
        "watch"
        | "allowWatchBookmarks"
        | "sendInitialEvents"
        | "orphanDependents"
        | "force"
        | "follow"
        | "insecureSkipTLSVerifyBackend"
        | "previous"
        | "timestamps"
        | "stderr"
        | "stdin"
        | "stdout"
        | "tty"
        | "ignoreStoreReadErrorWithClusterBreakingPotential" => "boolean",
        _ => "string",
    }
}

/// A type of the common group.
pub fn meta(kind: &str) -> Payload {
    Payload::Named(format!("{META}.{kind}"))
}
