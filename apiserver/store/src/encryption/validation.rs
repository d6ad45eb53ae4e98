//! What upstream's API server refuses of an EncryptionConfiguration, in its words; all mistakes at once.

use super::config::{EncryptionConfiguration, Key, Keys, KmsConfiguration, ProviderConfiguration};
use super::rules::Pattern;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::HashSet;

const AES: &[usize] = &[16, 24, 32];
const SECRETBOX: &[usize] = &[32];
/// Names in upstream's storage that are no resources.
const NO_RESOURCES: [&str; 3] = ["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"];

#[derive(Default)]
struct Mistakes(Vec<String>);

impl Mistakes {
    fn required(&mut self, field: &str, why: impl std::fmt::Display) {
        self.0.push(format!("{field}: Required value: {why}"));
    }

    fn invalid(&mut self, field: &str, value: impl std::fmt::Debug, why: impl std::fmt::Display) {
        self.0.push(format!("{field}: Invalid value: {value:?}: {why}"));
    }
}

/// Each with its field's path.
pub(super) fn mistakes(config: &EncryptionConfiguration) -> Vec<String> {
    let mut mistakes = Mistakes::default();
    if config.resources.is_empty() {
        mistakes.required("resources", "at least one resources is required");
    }
    let mut kms_names = HashSet::new();
    for (index, part) in config.resources.iter().enumerate() {
        let field = format!("resources[{index}].resources");
        if part.resources.is_empty() {
            mistakes.required(&field, format_args!("at least one {field} is required"));
        }
        overlaps(&part.resources, &field, &mut mistakes);
        for (index, name) in part.resources.iter().enumerate() {
            if let Some(why) = wrong_name(name) {
                mistakes.invalid(&format!("{field}[{index}]"), name, why);
            }
        }
        let field = format!("resources[{index}].providers");
        if part.providers.is_empty() {
            mistakes.required(&field, format_args!("at least one {field} is required"));
        }
        for (index, one) in part.providers.iter().enumerate() {
            provider(one, &format!("{field}[{index}]"), &mut kms_names, &mut mistakes);
        }
    }
    mistakes.0
}

fn overlaps(resources: &[String], field: &str, mistakes: &mut Mistakes) {
    let patterns: Vec<Pattern> = resources.iter().map(|name| Pattern::parse(name)).collect();
    let pairs =
        || patterns.iter().enumerate().flat_map(|(i, a)| patterns[i + 1..].iter().map(move |b| (a, b)));
    if pairs().any(|(a, b)| a == b) {
        mistakes.invalid(field, resources, "the same resource cannot be specified multiple times");
    }
    if pairs().any(|(a, b)| a != b && a.overlaps(b)) {
        let why = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not \
                   allowed as they will be masked";
        mistakes.invalid(field, resources, why);
    }
}

fn wrong_name(name: &str) -> Option<&'static str> {
    let pattern = Pattern::parse(name);
    if name.to_lowercase() != name {
        return Some("resource name should not contain capital letters");
    }
    if name == "*" {
        return Some(
            "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources",
        );
    }
    if NO_RESOURCES.contains(&name) {
        return Some("resources which do not have REST API/s cannot be encrypted");
    }
    if pattern.group == "events.k8s.io" {
        return Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in \
             the config file",
        );
    }
    if pattern.group == "extensions" {
        return Some("'extensions' group has been removed and cannot be used for encryption");
    }
    let across = pattern.group == "*" && pattern.resource != "*";
    across.then_some("encrypting the same resource across groups is not supported")
}

fn provider<'a>(
    provider: &'a ProviderConfiguration,
    field: &str,
    kms_names: &mut HashSet<&'a str>,
    mistakes: &mut Mistakes,
) {
    let ProviderConfiguration { aesgcm, aescbc, secretbox, identity, kms } = provider;
    let given = [aesgcm.is_some(), aescbc.is_some(), secretbox.is_some(), identity.is_some(), kms.is_some()];
    match given.iter().filter(|given| **given).count() {
        1 => {}
        0 => {
            let why = "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, \
                       Identity";
            return mistakes.0.push(format!("{field}: Invalid value: {why}"));
        }
        _ => {
            let why = "more than one provider specified in a single element, should split into different list \
                       elements";
            return mistakes.0.push(format!("{field}: Invalid value: {why}"));
        }
    }
    if let Some(found) = aesgcm {
        keys(found, &format!("{field}.aesgcm.keys"), AES, mistakes);
        for (index, _) in found.keys.iter().enumerate().filter(|(_, key)| key_bytes(key) == Some(24)) {
            let why = "AES-192 is not supported by aesgcm here, use a key of 16 or 32 bytes";
            mistakes.invalid(&format!("{field}.aesgcm.keys[{index}].secret"), "REDACTED", why);
        }
    }
    if let Some(found) = aescbc {
        keys(found, &format!("{field}.aescbc.keys"), AES, mistakes);
    }
    if let Some(found) = secretbox {
        keys(found, &format!("{field}.secretbox.keys"), SECRETBOX, mistakes);
    }
    if let Some(found) = kms {
        kms_provider(found, &format!("{field}.kms"), kms_names, mistakes);
        kms_names.insert(&found.name);
    }
}

fn key_bytes(key: &Key) -> Option<usize> {
    STANDARD.decode(&key.secret).ok().map(|bytes| bytes.len())
}

fn keys(found: &Keys, field: &str, lengths: &[usize], mistakes: &mut Mistakes) {
    if found.keys.is_empty() {
        mistakes.required(field, "at least one keys is required");
    }
    for (index, key) in found.keys.iter().enumerate() {
        let field = format!("{field}[{index}]");
        if key.name.is_empty() {
            mistakes.required(&format!("{field}.name"), "name is a mandatory field for a key");
        }
        let field = format!("{field}.secret");
        if key.secret.is_empty() {
            mistakes.required(&field, "secret is a mandatory field for a key");
            continue;
        }
        match key_bytes(key) {
            None => mistakes.invalid(&field, "REDACTED", "secrets must be base64 encoded"),
            Some(length) if !lengths.contains(&length) => {
                let expected: Vec<String> = lengths.iter().map(usize::to_string).collect();
                let expected = expected.join(" ");
                let why = format!(
                    "secret is not of the expected length, got {length}, expected one of [{expected}]"
                );
                mistakes.invalid(&field, "REDACTED", why);
            }
            Some(_) => {}
        }
    }
}

fn kms_provider(kms: &KmsConfiguration, field: &str, names: &HashSet<&str>, mistakes: &mut Mistakes) {
    let name = format!("{field}.name");
    if kms.name.is_empty() {
        mistakes.required(&name, "name is a mandatory field for a provider");
    }
    if kms.name.contains(':') {
        let why = format!("invalid KMS provider name {}, must not contain ':'", kms.name);
        mistakes.invalid(&name, &kms.name, why);
    }
    if names.contains(kms.name.as_str()) {
        let why = format!("duplicate KMS provider name {}, names must be unique", kms.name);
        mistakes.invalid(&name, &kms.name, why);
    }
    if kms.timeout().is_none() {
        let given = kms.timeout.clone().unwrap_or_default();
        mistakes.invalid(&format!("{field}.timeout"), given, "timeout should be a positive value");
    }
    kms_endpoint(&kms.endpoint, &format!("{field}.endpoint"), mistakes);
    if let Some(size) = kms.cachesize {
        mistakes.invalid(&format!("{field}.cachesize"), size, "cachesize is not supported in v2");
    }
    // Upstream takes a provider that names no version for v1.
    match kms.api_version.as_deref().filter(|version| !version.is_empty()).unwrap_or("v1") {
        "v2" => {}
        "v1" => {
            let why = "KMSv1 is deprecated and not supported, use KMSv2 instead: apiVersion v2";
            mistakes.invalid(&format!("{field}.apiVersion"), "v1", why);
        }
        other => {
            let why = "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported";
            mistakes.invalid(&format!("{field}.apiVersion"), other, why);
        }
    }
}

fn kms_endpoint(endpoint: &str, field: &str, mistakes: &mut Mistakes) {
    if endpoint.is_empty() {
        return mistakes.invalid(field, "", "endpoint is a mandatory field for a kms");
    }
    match endpoint.split_once("://") {
        Some(("unix", path)) if !path.is_empty() => {}
        Some(("unix", _)) => {
            mistakes.invalid(field, endpoint, "invalid endpoint for kms provider, error: no path");
        }
        other => {
            let scheme = other.map_or("", |(scheme, _)| scheme);
            let why = format!("unsupported scheme {scheme:?} for KMS provider, only unix is supported");
            mistakes.invalid(field, endpoint, why);
        }
    }
}
