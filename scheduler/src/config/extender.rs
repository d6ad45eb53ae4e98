//! An extender: somebody else who is asked over HTTP (upstream's scheduler extender).

use super::fields::{Fields, Notes};
use coracle_api::duration;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Upstream's default of `httpTimeout`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A resource that the extender looks after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedResource {
    pub name: String,
    pub ignored_by_scheduler: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtenderTls {
    pub insecure: bool,
    pub server_name: Option<String>,
    pub ca_file: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    /// PEM, base64 in the configuration as everywhere in Kubernetes.
    pub ca_data: Option<String>,
    pub cert_data: Option<String>,
    pub key_data: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extender {
    pub url_prefix: String,
    pub filter_verb: Option<String>,
    pub preempt_verb: Option<String>,
    pub prioritize_verb: Option<String>,
    pub bind_verb: Option<String>,
    pub weight: i64,
    pub tls: ExtenderTls,
    pub timeout: Duration,
    /// Whether it keeps nodes itself, so that names are enough.
    pub node_cache_capable: bool,
    /// Asked only about pods that want one of these; about all pods when there are none.
    pub managed_resources: Vec<ManagedResource>,
    /// Whether pods are scheduled without it while it does not answer.
    pub ignorable: bool,
}

fn tls(path: &str, value: Value, notes: &mut Notes) -> ExtenderTls {
    let mut fields = Fields::new(path, value, notes);
    let tls = ExtenderTls {
        insecure: fields.flag("insecure").unwrap_or(false),
        server_name: fields.text("serverName"),
        ca_file: fields.text("caFile").map(PathBuf::from),
        cert_file: fields.text("certFile").map(PathBuf::from),
        key_file: fields.text("keyFile").map(PathBuf::from),
        ca_data: fields.text("caData"),
        cert_data: fields.text("certData"),
        key_data: fields.text("keyData"),
    };
    fields.finish();
    if tls.insecure && (tls.ca_data.is_some() || tls.ca_file.is_some()) {
        notes.mistake(path, "Invalid value: caData and caFile make no sense with insecure");
    }
    tls
}

fn managed(list: Vec<(String, Value)>, notes: &mut Notes) -> Vec<ManagedResource> {
    let mut resources: Vec<ManagedResource> = Vec::new();
    for (path, value) in list {
        let mut fields = Fields::new(&path, value, notes);
        let name = fields.text("name").unwrap_or_default();
        let ignored_by_scheduler = fields.flag("ignoredByScheduler").unwrap_or(false);
        if !name.contains('/') || name.starts_with("kubernetes.io/") {
            fields.refuse("name", &name.clone().into(), "is an invalid extended resource name");
        }
        fields.finish();
        resources.push(ManagedResource { name, ignored_by_scheduler });
    }
    resources
}

/// Reads one element of `extenders`.
pub fn parse(path: &str, value: Value, notes: &mut Notes) -> Extender {
    let mut fields = Fields::new(path, value, notes);
    let verb = |fields: &mut Fields<'_>, name| fields.text(name).filter(|v| !v.is_empty());
    let (filter_verb, preempt_verb) = (verb(&mut fields, "filterVerb"), verb(&mut fields, "preemptVerb"));
    let prioritize_verb = verb(&mut fields, "prioritizeVerb");
    let bind_verb = verb(&mut fields, "bindVerb");
    let https = fields.flag("enableHTTPS").unwrap_or(false);
    let mut url_prefix = fields.text("urlPrefix").unwrap_or_default();
    let scheme = url_prefix.parse::<http::Uri>().ok().and_then(|u| u.scheme_str().map(str::to_owned));
    if !matches!(scheme.as_deref(), Some("http" | "https")) {
        fields.refuse("urlPrefix", &url_prefix.clone().into(), "must be an http or https URL");
    }
    if https && scheme.as_deref() == Some("http") {
        url_prefix = url_prefix.replacen("http", "https", 1);
    }
    let weight = fields.number("weight", |_| true, "must be an integer").unwrap_or(0);
    if prioritize_verb.is_some() && weight <= 0 {
        fields.refuse("weight", &weight.into(), "must have a positive weight applied to it");
    }
    let timeout = fields.text("httpTimeout").map(|text| {
        let parsed = duration::parse(&text);
        if parsed.is_none() {
            fields.refuse("httpTimeout", &text.into(), "must be a duration such as 500ms or 5s");
        }
        parsed.filter(|t| !t.is_zero()).unwrap_or(DEFAULT_TIMEOUT)
    });
    let node_cache_capable = fields.flag("nodeCacheCapable").unwrap_or(false);
    let ignorable = fields.flag("ignorable").unwrap_or(false);
    let resources = fields.list("managedResources");
    let tls_path = fields.path("tlsConfig");
    let tls_value = fields.take("tlsConfig");
    fields.finish();
    Extender {
        url_prefix: url_prefix.trim_end_matches('/').to_owned(),
        filter_verb,
        preempt_verb,
        prioritize_verb,
        bind_verb,
        weight,
        tls: tls_value.map(|value| tls(&tls_path, value, notes)).unwrap_or_default(),
        timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
        node_cache_capable,
        managed_resources: managed(resources, notes),
        ignorable,
    }
}
