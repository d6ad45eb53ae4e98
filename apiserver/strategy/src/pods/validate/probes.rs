//! Probes and lifecycle hooks.

use super::super::super::rules;
use super::super::super::value::*;
use super::Context;
use serde_json::Value;

pub fn all(container: &Value, context: &Context, path: &Path, errors: &mut Errors) {
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if has(container, kind) {
            probe(at(container, kind), kind, &path.field(kind), errors);
        }
    }
    for hook in ["postStart", "preStop"] {
        let handler = at(at(container, "lifecycle"), hook);
        if !handler.is_null() {
            let here = path.field("lifecycle").field(hook);
            action(handler, &["exec", "httpGet", "tcpSocket", "sleep"], &here, errors);
            sleep(handler, context.grace_seconds, &here, errors);
        }
    }
}

fn probe(probe: &Value, kind: &str, path: &Path, errors: &mut Errors) {
    action(probe, &["exec", "httpGet", "tcpSocket", "grpc"], path, errors);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        if let Some(n) = i64_at(probe, field) {
            rules::non_negative(n, &path.field(field), errors);
        }
    }
    let success = i64_at(probe, "successThreshold").unwrap_or(1);
    if kind != "readinessProbe" && success != 1 {
        errors.invalid(&path.field("successThreshold"), success, "must be 1");
    }
    if let Some(seconds) = i64_at(probe, "terminationGracePeriodSeconds") {
        let here = path.field("terminationGracePeriodSeconds");
        if kind == "readinessProbe" {
            errors.invalid(&here, seconds, "must not be set for readinessProbes");
        } else if seconds <= 0 {
            errors.invalid(&here, seconds, "must be greater than 0");
        }
    }
}

fn action(handler: &Value, kinds: &[&str], path: &Path, errors: &mut Errors) {
    let mut count = 0;
    for kind in kinds.iter().filter(|kind| has(handler, kind)) {
        let (action, here) = (at(handler, kind), path.field(kind));
        count += 1;
        if count > 1 {
            errors.forbidden(&here, "may not specify more than 1 handler type");
            continue;
        }
        match *kind {
            "exec" if list_at(action, "command").is_empty() => errors.required(&here.field("command"), ""),
            "httpGet" => http_get(action, &here, errors),
            "tcpSocket" => rules::int_or_name_port(at(action, "port"), &here.field("port"), errors),
            "grpc" => rules::port(i64_at(action, "port").unwrap_or(0), &here.field("port"), errors),
            _ => {}
        }
    }
    if count == 0 {
        errors.required(path, "must specify a handler type");
    }
}

/// No longer than the pod has to end.
fn sleep(handler: &Value, grace_seconds: Option<i64>, path: &Path, errors: &mut Errors) {
    // Beside another action it is refused as a whole.
    let alone = !["exec", "httpGet", "tcpSocket"].iter().any(|other| has(handler, other));
    let Some(seconds) = i64_at(handler, "sleep.seconds").filter(|_| alone) else { return };
    let grace = grace_seconds.unwrap_or(30);
    if seconds < 0 || seconds > grace {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid(&path.field("sleep"), seconds, &detail);
    }
}

fn http_get(action: &Value, path: &Path, errors: &mut Errors) {
    if str_at(action, "path").is_empty() {
        errors.required(&path.field("path"), "");
    }
    rules::int_or_name_port(at(action, "port"), &path.field("port"), errors);
    rules::one_of(action, "scheme", &["HTTP", "HTTPS"], path, errors);
    for header in list_at(action, "httpHeaders") {
        rules::header_name(str_at(header, "name"), &path.field("httpHeaders"), errors);
    }
}
