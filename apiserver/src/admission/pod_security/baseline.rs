//! The baseline standard: known ways out of a container are closed
//! (<https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline>).

use super::super::items;
use super::{Check, Violation, bad_containers, containers, name_of, plural};
use serde_json::Value;
use std::collections::BTreeSet;

/// Rules that hold on the restricted level too.
pub(super) const COMMON: &[Check] = &[
    app_armor,
    host_namespaces,
    host_ports,
    host_probes,
    privileged,
    proc_mount,
    se_linux,
    sysctls,
    windows_host_process,
];

/// Rules that the restricted level replaces by stricter ones.
pub(super) const ONLY: &[Check] = &[capabilities, host_path, seccomp];

const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

const SYSCTLS: [&str; 10] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
];

const SELINUX_TYPES: [&str; 5] =
    ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

fn violation(reason: &'static str, detail: String) -> Option<Violation> {
    Some(Violation { reason, detail })
}

fn host_namespaces(spec: &Value) -> Option<Violation> {
    let set = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|f| spec[*f] == true);
    let set: Vec<String> = set.map(|f| format!("{f}=true")).collect();
    if set.is_empty() { None } else { violation("host namespaces", set.join(", ")) }
}

fn privileged(spec: &Value) -> Option<Violation> {
    let bad = bad_containers(spec, |c| c["securityContext"]["privileged"] == true)?;
    violation("privileged", format!("{bad} must not set securityContext.privileged=true"))
}

fn capabilities(spec: &Value) -> Option<Violation> {
    let added = |c: &Value| items(&c["securityContext"]["capabilities"]["add"]).to_vec();
    let bad = |v: &Value| v.as_str().is_some_and(|name| !CAPABILITIES.contains(&name));
    let names = bad_containers(spec, |c| added(c).iter().any(bad))?;
    let all: BTreeSet<String> = containers(spec).flat_map(added).filter(bad).map(|v| v.to_string()).collect();
    let list = all.into_iter().collect::<Vec<_>>().join(", ");
    violation(
        "non-default capabilities",
        format!("{names} must not include {list} in securityContext.capabilities.add"),
    )
}

fn host_path(spec: &Value) -> Option<Violation> {
    let bad = items(&spec["volumes"]).iter().filter(|v| v["hostPath"].is_object());
    let names: Vec<String> = bad.map(name_of).collect();
    if names.is_empty() { None } else { violation("hostPath volumes", plural("volume", &names)) }
}

fn host_ports(spec: &Value) -> Option<Violation> {
    let ports = |c: &Value| -> Vec<i64> {
        let all = items(&c["ports"]).iter().filter_map(|p| p["hostPort"].as_i64());
        all.filter(|p| *p != 0).collect()
    };
    let bad = bad_containers(spec, |c| !ports(c).is_empty())?;
    let all: BTreeSet<i64> = containers(spec).flat_map(ports).collect();
    let s = if all.len() == 1 { "" } else { "s" };
    let list = all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    violation("hostPort", format!("{bad} uses hostPort{s} {list}"))
}

/// Probes and hooks that reach another host than the pod's own address.
fn host_probes(spec: &Value) -> Option<Violation> {
    const HANDLERS: [&str; 5] =
        ["/livenessProbe", "/readinessProbe", "/startupProbe", "/lifecycle/postStart", "/lifecycle/preStop"];
    let away = |c: &Value| {
        HANDLERS.iter().filter_map(|path| c.pointer(path)).any(|handler| {
            ["httpGet", "tcpSocket"]
                .iter()
                .any(|kind| handler[*kind]["host"].as_str().is_some_and(|h| !h.is_empty()))
        })
    };
    let bad = bad_containers(spec, away)?;
    violation(
        "probe or lifecycle host",
        format!("{bad} must not set the host field of probes or lifecycle hooks"),
    )
}

fn proc_mount(spec: &Value) -> Option<Violation> {
    let unmasked = |c: &Value| c["securityContext"]["procMount"].as_str().is_some_and(|p| p != "Default");
    let bad = bad_containers(spec, unmasked)?;
    violation("procMount", format!("{bad} must not set securityContext.procMount to \"Unmasked\""))
}

/// Whether pod or containers set something, as `pod must not ...; container "c" must not ...`.
fn pod_and_containers(spec: &Value, bad: impl Fn(&Value) -> bool, must_not: &str) -> Option<String> {
    let pod = bad(spec).then(|| "pod".to_owned());
    let who: Vec<String> = pod.into_iter().chain(bad_containers(spec, bad)).collect();
    (!who.is_empty()).then(|| format!("{} {must_not}", who.join(" and ")))
}

fn seccomp(spec: &Value) -> Option<Violation> {
    let bad = |o: &Value| o["securityContext"]["seccompProfile"]["type"] == "Unconfined";
    let must_not = "must not set securityContext.seccompProfile.type to \"Unconfined\"";
    pod_and_containers(spec, bad, must_not).and_then(|detail| violation("seccompProfile", detail))
}

fn app_armor(spec: &Value) -> Option<Violation> {
    let bad = |o: &Value| o["securityContext"]["appArmorProfile"]["type"] == "Unconfined";
    let must_not = "must not set AppArmor profile type to \"Unconfined\"";
    pod_and_containers(spec, bad, must_not).and_then(|detail| violation("forbidden AppArmor profile", detail))
}

fn se_linux(spec: &Value) -> Option<Violation> {
    let bad = |o: &Value| {
        let options = &o["securityContext"]["seLinuxOptions"];
        let text = |field: &str| options[field].as_str().unwrap_or_default();
        !SELINUX_TYPES.contains(&text("type")) || !text("user").is_empty() || !text("role").is_empty()
    };
    let what = "set forbidden securityContext.seLinuxOptions: only type may be set, to a container's type";
    pod_and_containers(spec, bad, what).and_then(|detail| violation("seLinuxOptions", detail))
}

fn sysctls(spec: &Value) -> Option<Violation> {
    let names = items(&spec["securityContext"]["sysctls"]).iter().filter_map(|s| s["name"].as_str());
    let bad: Vec<&str> = names.filter(|n| !SYSCTLS.contains(n)).collect();
    if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
}

fn windows_host_process(spec: &Value) -> Option<Violation> {
    let bad = |o: &Value| o["securityContext"]["windowsOptions"]["hostProcess"] == true;
    let must_not = "must not set securityContext.windowsOptions.hostProcess=true";
    pod_and_containers(spec, bad, must_not).and_then(|detail| violation("hostProcess", detail))
}
