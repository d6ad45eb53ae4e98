//! `spec.conversion`.

use super::*;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::collections::BTreeSet;

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Paths are those of upstream's internal form, which has no `webhook` in between.
pub fn check(new: &Object, old: Option<&Object>, errors: &mut Errors) {
    let (spec, path) = (&new["spec"], Path::root("spec").field("conversion"));
    let conversion = at(spec, "conversion");
    rules::one_of(conversion, "strategy", &["None", "Webhook"], &path, errors);
    let webhook = at(conversion, "webhook");
    let versions = path.field("conversionReviewVersions");
    if str_at(conversion, "strategy") != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if has(webhook, "clientConfig") {
            errors.forbidden(&path.field("webhookClientConfig"), detail);
        }
        if !list_at(webhook, "conversionReviewVersions").is_empty() {
            errors.forbidden(&versions, detail);
        }
        return;
    }
    if bool_at(spec, "preserveUnknownFields") {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.invalid(&path.field("strategy"), "Webhook", detail);
    }
    let here = path.field("webhookClientConfig");
    if has(webhook, "clientConfig") {
        client_config(at(webhook, "clientConfig"), true, &here, errors);
        bundle(new, old, &here.field("caBundle"), errors);
    } else {
        errors.required(&here, "required when strategy is set to Webhook");
    }
    let old_versions =
        |old| strings_at(old, "spec.conversion.webhook.conversionReviewVersions").collect::<Vec<_>>();
    let recognized = old.map(old_versions).is_none_or(|list| list.is_empty() || knows_one(&list));
    review_versions(webhook, recognized, &versions, errors);
}

fn knows_one(versions: &[&str]) -> bool {
    REVIEW_VERSIONS.iter().any(|known| versions.contains(known))
}

fn review_versions(webhook: &Value, recognized: bool, path: &Path, errors: &mut Errors) {
    let list: Vec<&str> = strings_at(webhook, "conversionReviewVersions").collect();
    if list.is_empty() {
        errors.required(path, "");
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, version) in list.iter().enumerate() {
        if !seen.insert(version) {
            errors.invalid(&path.index(i), *version, "duplicate version");
            continue;
        }
        for message in validation::dns1035_label(version) {
            errors.invalid(&path.index(i), *version, &message);
        }
    }
    if recognized && !knows_one(&list) {
        let detail = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.invalid(path, json!(list), &detail);
    }
}

/// A bundle may be wrong as long as nothing is served, and as long as it was wrong before: tools fill it in later.
fn bundle(new: &Object, old: Option<&Object>, path: &Path, errors: &mut Errors) {
    let Some(old) = old.filter(|old| is_established(old)) else { return };
    let text = |object| str_at(object, "spec.conversion.webhook.clientConfig.caBundle").to_owned();
    let (now, before) = (text(new), text(old));
    if now.is_empty() || is_bundle(&now) || (!before.is_empty() && !is_bundle(&before)) {
        return;
    }
    errors.invalid(
        path,
        "<CABundle>",
        "unable to load root certificates: unable to parse bytes as PEM block",
    );
}

fn is_bundle(base64: &str) -> bool {
    use base64::Engine;
    let Ok(pem) = base64::engine::general_purpose::STANDARD.decode(base64) else { return false };
    let mut certificates = CertificateDer::pem_slice_iter(&pem).peekable();
    certificates.peek().is_some() && certificates.all(|certificate| certificate.is_ok())
}
