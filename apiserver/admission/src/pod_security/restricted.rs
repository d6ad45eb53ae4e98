//! The restricted standard: current practice of hardening
//! (<https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted>).

use super::super::items;
use super::baseline::proc_mount;
use super::rules::{Bad, Pod, Rule, Violation, between, quoted_set, since, violation};
use serde_json::Value;
use std::collections::BTreeSet;

/// Beside those of the baseline that none of these replaces. Since 1.25 rules that make no sense for Windows leave it out, since 1.35 those
/// about root leave out pods with a user namespace.
pub(super) const RULES: &[Rule] = &[
    between(8, 25, privilege_escalation),
    since(25, |pod| if pod.is_windows() { None } else { privilege_escalation(pod) }),
    between(22, 25, capabilities),
    since(25, |pod| if pod.is_windows() { None } else { capabilities(pod) }),
    since(35, proc_mount),
    since(0, volumes),
    between(0, 35, run_as_non_root),
    since(35, |pod| if pod.has_user_namespace() { None } else { run_as_non_root(pod) }),
    between(23, 35, run_as_user),
    since(35, |pod| if pod.has_user_namespace() { None } else { run_as_user(pod) }),
    between(19, 25, seccomp),
    since(25, |pod| if pod.is_windows() { None } else { seccomp(pod) }),
];

const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

fn privilege_escalation(pod: Pod) -> Option<Violation> {
    let bad = pod.bad_containers(|c| c["securityContext"]["allowPrivilegeEscalation"] != false)?;
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", bad.text);
    violation("allowPrivilegeEscalation != false", detail)
}

fn capabilities(pod: Pod) -> Option<Violation> {
    let list = |c: &Value, field: &str| items(&c["securityContext"]["capabilities"][field]).to_vec();
    let mut parts = Vec::new();
    if let Some(bad) = pod.bad_containers(|c| !list(c, "drop").iter().any(|d| d == "ALL")) {
        parts.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", bad.text));
    }
    let adds = |c: &Value| -> Vec<String> {
        let added = list(c, "add");
        let names = added.iter().filter_map(Value::as_str).filter(|a| *a != "NET_BIND_SERVICE");
        names.map(str::to_owned).collect()
    };
    if let Some(bad) = pod.bad_containers(|c| !adds(c).is_empty()) {
        let names = quoted_set(&pod.containers().flat_map(adds).collect());
        parts.push(format!("{} must not include {names} in securityContext.capabilities.add", bad.text));
    }
    if parts.is_empty() { None } else { violation("unrestricted capabilities", parts.join("; ")) }
}

fn volumes(pod: Pod) -> Option<Violation> {
    let mut names = Vec::new();
    let mut kinds = BTreeSet::new();
    for volume in items(&pod.spec["volumes"]) {
        let sources = volume.as_object().into_iter().flatten().filter(|(k, v)| *k != "name" && !v.is_null());
        let sources: Vec<&String> = sources.map(|(kind, _)| kind).collect();
        if sources.iter().any(|kind| VOLUMES.contains(&kind.as_str())) {
            continue;
        }
        names.push(volume["name"].as_str().unwrap_or_default());
        kinds.extend(sources.into_iter().cloned());
    }
    let bad = Bad::of("volume", &names)?;
    let s = if kinds.len() == 1 { "" } else { "s" };
    let kinds = quoted_set(&kinds);
    let detail = format!("{} {} restricted volume type{s} {kinds}", bad.text, bad.uses());
    violation("restricted volume types", detail)
}

fn run_as_non_root(pod: Pod) -> Option<Violation> {
    let reason = "runAsNonRoot != true";
    if let Some(who) = pod.bad_setters(|context| context["runAsNonRoot"] == false) {
        return violation(reason, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    if pod.spec["securityContext"]["runAsNonRoot"] == true {
        return None;
    }
    let bad = pod.bad_containers(|c| !c["securityContext"]["runAsNonRoot"].is_boolean())?;
    violation(reason, format!("pod or {} must set securityContext.runAsNonRoot=true", bad.text))
}

fn run_as_user(pod: Pod) -> Option<Violation> {
    let who = pod.bad_setters(|context| context["runAsUser"] == 0)?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
}

fn seccomp(pod: Pod) -> Option<Violation> {
    let reason = "seccompProfile";
    let kind = |context: &Value| context["seccompProfile"]["type"].as_str().map(str::to_owned);
    let good = |kind: &String| kind == "RuntimeDefault" || kind == "Localhost";
    let odd = |context: &Value| kind(context).filter(|k| !good(k));
    if let Some(who) = pod.bad_setters(|context| odd(context).is_some()) {
        let kinds = quoted_set(&pod.found(|context| odd(context).into_iter().collect()));
        return violation(
            reason,
            format!("{who} must not set securityContext.seccompProfile.type to {kinds}"),
        );
    }
    if kind(&pod.spec["securityContext"]).is_some() {
        return None;
    }
    let bad = pod.bad_containers(|c| kind(&c["securityContext"]).is_none())?;
    let must = "must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"";
    violation(reason, format!("pod or {} {must}", bad.text))
}
