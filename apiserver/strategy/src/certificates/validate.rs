//! What a CertificateSigningRequest may be and become.

use super::conditions::{APPROVAL, APPROVED, DENIED, FAILED, of};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_api::well_known;
use coracle_api::{Object, validation};
use coracle_pki::{CertificateRequest, USAGES, check_certificates};
use coracle_requests::value::*;
use serde_json::Value;

/// Upstream's least lifetime, ten minutes.
const MIN_SECONDS: i64 = 600;
const LEGACY_SIGNER: &str = well_known::SIGNER_LEGACY_UNKNOWN;
/// Of the part of a signer's name before the slash: a DNS subdomain.
const MAX_DOMAIN_BYTES: usize = 253;
/// Of the part after it: a label, a dot and a subdomain, upstream's room for names made of it.
const MAX_PATH_BYTES: usize = 253 + 63 + 1;

/// What this update may do, and which mistakes the stored object already has and may keep.
#[derive(Clone, Copy, Default)]
pub(super) struct Allowed {
    pub certificate: bool,
    pub approval: bool,
    pub legacy_signer: bool,
    pub both_decisions: bool,
    pub duplicate_conditions: bool,
    pub empty_condition_type: bool,
    pub any_certificate: bool,
    pub unknown_usages: bool,
    pub duplicate_usages: bool,
}

impl Allowed {
    pub fn as_in(old: &Object) -> Self {
        let kinds: Vec<&str> = list_at(old, "status.conditions").iter().map(|c| str_at(c, "type")).collect();
        let usages: Vec<&str> = strings_at(old, "spec.usages").collect();
        Self {
            certificate: false,
            approval: false,
            legacy_signer: str_at(old, "spec.signerName") == LEGACY_SIGNER,
            both_decisions: kinds.contains(&APPROVED) && kinds.contains(&DENIED),
            duplicate_conditions: has_duplicates(&kinds),
            empty_condition_type: kinds.contains(&""),
            any_certificate: certificate(old).is_some_and(|c| check_certificates(&c).is_err()),
            unknown_usages: usages.iter().any(|u| !USAGES.contains(u)),
            duplicate_usages: has_duplicates(&usages),
        }
    }
}

fn has_duplicates(words: &[&str]) -> bool {
    words.iter().enumerate().any(|(i, word)| words[..i].contains(word))
}

fn bytes(text: &str) -> Vec<u8> {
    STANDARD.decode(text).unwrap_or_default()
}

/// `status.certificate`, decoded; `None` when it is empty.
pub(super) fn certificate(object: &Object) -> Option<Vec<u8>> {
    Some(bytes(str_at(object, "status.certificate"))).filter(|c| !c.is_empty())
}

pub(super) fn request(object: &Object, allowed: &Allowed, errors: &mut Errors) {
    let path = Path::root("spec");
    let sent = str_at(object, "spec.request");
    if let Err(error) = CertificateRequest::from_pem(&bytes(sent)) {
        errors.invalid(&path.field("request"), at(object, "spec.request").clone(), &error.to_string());
    }
    usages(object, allowed, &path.field("usages"), errors);
    let signer = str_at(object, "spec.signerName");
    if signer == LEGACY_SIGNER && !allowed.legacy_signer {
        let why = "the legacy signerName is not allowed via this API version";
        errors.invalid(&path.field("signerName"), signer, why);
    } else {
        signer_name(signer, &path.field("signerName"), errors);
    }
    if let Some(seconds) = i64_at(object, "spec.expirationSeconds").filter(|s| *s < MIN_SECONDS) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&path.field("expirationSeconds"), seconds, why);
    }
    conditions(object, allowed, errors);
    if let Some(pem) = certificate(object).filter(|_| !allowed.any_certificate)
        && let Err(why) = check_certificates(&pem)
    {
        errors.invalid(&Path::root("status").field("certificate"), "<certificate data>", &why);
    }
}

/// Only of new requests: whether the requester holds the key, as upstream, and whether the subject names one user at most.
pub(super) fn signature(object: &Object, errors: &mut Errors) {
    let sent = str_at(object, "spec.request");
    let Ok(request) = CertificateRequest::from_pem(&bytes(sent)) else { return };
    if let Err(error) = request.check_signature().and_then(|()| request.check_subject()) {
        errors.invalid(&Path::root("spec").field("request"), sent, &error.to_string());
    }
}

fn usages(object: &Object, allowed: &Allowed, path: &Path, errors: &mut Errors) {
    let usages: Vec<&str> = strings_at(object, "spec.usages").collect();
    if usages.is_empty() {
        errors.required(path, "");
    }
    for (i, usage) in usages.iter().enumerate() {
        if !allowed.unknown_usages && !USAGES.contains(usage) {
            errors.not_supported(&path.index(i), usage, &USAGES);
        }
    }
    for (i, usage) in usages.iter().enumerate() {
        if !allowed.duplicate_usages && usages[..i].contains(usage) {
            errors.duplicate(&path.index(i), *usage);
        }
    }
}

/// `example.com/name` (upstream's `ValidateSignerName`).
fn signer_name(signer: &str, path: &Path, errors: &mut Errors) {
    if signer.is_empty() {
        return errors.required(path, "");
    }
    let parts: Vec<&str> = signer.split('/').collect();
    let [domain, name] = parts[..] else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(path, signer, why);
    };
    if domain.len() > MAX_DOMAIN_BYTES {
        errors.too_long(path, MAX_DOMAIN_BYTES);
    }
    let labels: Vec<&str> = domain.split('.').collect();
    first_bad(&labels, domain, validation::dns1123_label, path, errors);
    if labels.len() < 2 {
        errors.invalid(path, domain, "should be a domain with at least two segments separated by dots");
    }
    let pieces: Vec<&str> = name.split('.').collect();
    first_bad(&pieces, name, validation::dns1123_subdomain, path, errors);
    if signer.len() > MAX_DOMAIN_BYTES + MAX_PATH_BYTES + 1 {
        errors.too_long(path, MAX_DOMAIN_BYTES + MAX_PATH_BYTES + 1);
    }
}

fn first_bad(
    labels: &[&str],
    whole: &str,
    check: impl Fn(&str) -> Vec<String>,
    path: &Path,
    errors: &mut Errors,
) {
    let Some((label, found)) = labels.iter().map(|l| (l, check(l))).find(|(_, e)| !e.is_empty()) else {
        return;
    };
    for why in found {
        errors.invalid(path, whole, &format!("validating label \"{label}\": {why}"));
    }
}

fn conditions(object: &Object, allowed: &Allowed, errors: &mut Errors) {
    let all = Path::root("status").field("conditions");
    let mut seen: Vec<&str> = Vec::new();
    for (i, condition) in list_at(object, "status.conditions").iter().enumerate() {
        let (kind, path) = (str_at(condition, "type"), all.index(i));
        if kind.is_empty() && !allowed.empty_condition_type {
            errors.required(&path.field("type"), "");
        }
        condition_status(kind, str_at(condition, "status"), &path.field("status"), errors);
        let opposite = match kind {
            APPROVED => DENIED,
            DENIED => APPROVED,
            _ => "-",
        };
        if seen.contains(&opposite) && !allowed.both_decisions {
            let why = "Approved and Denied conditions are mutually exclusive";
            errors.invalid(&all, kind, why);
        }
        if seen.contains(&kind) && !allowed.duplicate_conditions {
            errors.duplicate(&path.field("type"), kind);
        }
        seen.push(kind);
    }
}

fn condition_status(kind: &str, status: &str, path: &Path, errors: &mut Errors) {
    let supported: &[&str] =
        if matches!(kind, APPROVED | DENIED | FAILED) { &["True"] } else { &["False", "True", "Unknown"] };
    if status.is_empty() {
        errors.required(path, "");
    } else if !supported.contains(&status) {
        errors.not_supported(path, status, supported);
    }
}

pub(super) fn update(new: &Object, old: &Object, allowed: Allowed, errors: &mut Errors) {
    request(new, &allowed, errors);
    let path = Path::root("status").field("conditions");
    for kind in [APPROVED, DENIED, FAILED] {
        if of(new, kind).len() < of(old, kind).len() {
            errors.forbidden(&path, &format!("updates may not remove a condition of type \"{kind}\""));
        }
    }
    for kind in APPROVAL.into_iter().filter(|_| !allowed.approval) {
        let (now, before): (Vec<&Value>, Vec<&Value>) = (of(new, kind), of(old, kind));
        if now.len() > before.len() {
            errors.forbidden(&path, &format!("updates may not add a condition of type \"{kind}\""));
        } else if now.len() == before.len() && now != before {
            errors.forbidden(&path, &format!("updates may not modify a condition of type \"{kind}\""));
        }
    }
    let path = Path::root("status").field("certificate");
    if certificate(new) != certificate(old) {
        if !allowed.certificate {
            errors.forbidden(&path, "updates may not set certificate content");
        } else if certificate(old).is_some() {
            errors.forbidden(&path, "updates may not modify existing certificate content");
        }
    }
}
