//! The restricted standard: current practice of hardening
//! (<https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted>).

use super::super::items;
use super::{Check, Violation, bad_containers, containers};
use serde_json::Value;

pub(super) const CHECKS: &[Check] =
    &[privilege_escalation, capabilities, volumes, run_as_non_root, run_as_user, seccomp];

const VOLUMES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
];

fn violation(reason: &'static str, detail: String) -> Option<Violation> {
    Some(Violation { reason, detail })
}

fn privilege_escalation(spec: &Value) -> Option<Violation> {
    let bad = bad_containers(spec, |c| c["securityContext"]["allowPrivilegeEscalation"] != false)?;
    let detail = format!("{bad} must set securityContext.allowPrivilegeEscalation=false");
    violation("allowPrivilegeEscalation != false", detail)
}

fn capabilities(spec: &Value) -> Option<Violation> {
    let list = |c: &Value, field: &str| items(&c["securityContext"]["capabilities"][field]).to_vec();
    let mut parts = Vec::new();
    if let Some(bad) = bad_containers(spec, |c| !list(c, "drop").iter().any(|d| d == "ALL")) {
        parts.push(format!("{bad} must set securityContext.capabilities.drop=[\"ALL\"]"));
    }
    let adds = |c: &Value| list(c, "add").into_iter().filter(|a| a != "NET_BIND_SERVICE").collect::<Vec<_>>();
    if let Some(bad) = bad_containers(spec, |c| !adds(c).is_empty()) {
        let mut names: Vec<String> = containers(spec).flat_map(adds).map(|v| v.to_string()).collect();
        names.sort();
        names.dedup();
        let names = names.join(", ");
        parts.push(format!("{bad} must not include {names} in securityContext.capabilities.add"));
    }
    if parts.is_empty() { None } else { violation("unrestricted capabilities", parts.join("; ")) }
}

fn volumes(spec: &Value) -> Option<Violation> {
    let mut bad = Vec::new();
    for volume in items(&spec["volumes"]) {
        let plugins = volume.as_object().into_iter().flat_map(|v| v.keys());
        let other = plugins.filter(|k| *k != "name" && *k != "secret" && !VOLUMES.contains(&k.as_str()));
        for plugin in other {
            bad.push(format!("volume {} uses restricted volume type \"{plugin}\"", super::name_of(volume)));
        }
    }
    if bad.is_empty() { None } else { violation("restricted volume types", bad.join("; ")) }
}

fn run_as_non_root(spec: &Value) -> Option<Violation> {
    let pod = &spec["securityContext"]["runAsNonRoot"];
    let own = |c: &Value| c["securityContext"]["runAsNonRoot"].clone();
    if let Some(bad) = bad_containers(spec, |c| own(c) == false) {
        let detail = format!("{bad} must not set securityContext.runAsNonRoot=false");
        return violation("runAsNonRoot != true", detail);
    }
    if *pod == true {
        return None;
    }
    let bad = bad_containers(spec, |c| own(c) != true)?;
    let detail = format!("pod or {bad} must set securityContext.runAsNonRoot=true");
    violation("runAsNonRoot != true", detail)
}

fn run_as_user(spec: &Value) -> Option<Violation> {
    let root = |o: &Value| o["securityContext"]["runAsUser"] == 0;
    let pod = root(spec).then(|| "pod".to_owned());
    let who: Vec<String> = pod.into_iter().chain(bad_containers(spec, root)).collect();
    if who.is_empty() {
        None
    } else {
        violation("runAsUser=0", format!("{} must not set runAsUser=0", who.join(" and ")))
    }
}

fn seccomp(spec: &Value) -> Option<Violation> {
    let kind =
        |o: &Value| o["securityContext"]["seccompProfile"]["type"].as_str().unwrap_or_default().to_owned();
    let good = |kind: &str| kind == "RuntimeDefault" || kind == "Localhost";
    let pod = kind(spec);
    let bad = |c: &Value| if kind(c).is_empty() { !good(&pod) } else { !good(&kind(c)) };
    if !pod.is_empty() && !good(&pod) {
        let detail = format!("pod must not set securityContext.seccompProfile.type to \"{pod}\"");
        return violation("seccompProfile", detail);
    }
    let bad = bad_containers(spec, bad)?;
    let must = "must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"";
    violation("seccompProfile", format!("pod or {bad} {must}"))
}
