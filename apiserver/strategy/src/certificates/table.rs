//! Columns of `kubectl get csr`.

use super::conditions::{APPROVED, DENIED, FAILED};
use crate::{Column, duration, table};
use coracle_api::Object;
use coracle_requests::value::*;
use jiff::Timestamp;
use serde_json::Value;

pub(super) const COLUMNS: &[Column] = &[
    table::NAME,
    table::AGE,
    table::string("SignerName", "Signer that is asked for the certificate"),
    table::string("Requestor", "User who made the request"),
    table::string("RequestedDuration", "Life of the certificate that is asked for"),
    table::string("Condition", "State of approval and issue"),
];

pub(super) fn row(object: &Object, now: Timestamp) -> Vec<Value> {
    let duration =
        i64_at(object, "spec.expirationSeconds").map_or_else(|| "<none>".to_owned(), duration::duration);
    vec![
        name(object).into(),
        table::age(object, now),
        str_at(object, "spec.signerName").into(),
        str_at(object, "spec.username").into(),
        duration.into(),
        state(object).into(),
    ]
}

/// `Pending`, or what the conditions and the certificate add up to, as `Approved,Issued`.
fn state(object: &Object) -> String {
    let has = |kind: &str| list_at(object, "status.conditions").iter().any(|c| str_at(c, "type") == kind);
    let mut words = Vec::new();
    // Whoever finds both is told of the denial, as upstream.
    if has(DENIED) {
        words.push(DENIED);
    } else if has(APPROVED) {
        words.push(APPROVED);
    } else {
        words.push("Pending");
    }
    if has(FAILED) {
        words.push(FAILED);
    }
    if !str_at(object, "status.certificate").is_empty() {
        words.push("Issued");
    }
    words.join(",")
}
