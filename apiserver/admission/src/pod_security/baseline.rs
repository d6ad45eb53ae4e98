//! The baseline standard: known ways out of a container are closed
//! (<https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline>).

use super::super::items;
use super::rules::{Bad, Pod, Rule, Violation, between, quoted_set, since, violation};
use serde_json::Value;
use std::collections::BTreeSet;

/// In the order of upstream's identifiers, in which a refusal lists them.
pub(super) const RULES: &[Rule] = &[
    since(0, app_armor),
    since(0, capabilities).replaced(22),
    since(0, host_namespaces),
    since(0, host_path).replaced(0),
    since(0, host_ports),
    since(34, host_probes),
    since(0, privileged),
    between(0, 35, proc_mount),
    since(35, |pod| if pod.has_user_namespace() { None } else { proc_mount(pod) }).replaced(35),
    between(0, 31, |pod| se_linux(pod, &SELINUX_TYPES[..4])),
    since(31, |pod| se_linux(pod, &SELINUX_TYPES)),
    between(0, 19, seccomp_annotations),
    since(19, seccomp).replaced(19),
    between(0, 27, |pod| sysctls(pod, &SYSCTLS[..5])),
    between(27, 29, |pod| sysctls(pod, &SYSCTLS[..6])),
    between(29, 32, |pod| sysctls(pod, &SYSCTLS[..10])),
    since(32, |pod| sysctls(pod, &SYSCTLS)),
    since(0, windows_host_process),
];

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

/// In the order in which they came to be allowed: five at first, one in 1.27, four in 1.29, two in 1.32.
const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// The last one since 1.31.
const SELINUX_TYPES: [&str; 5] =
    ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

const APP_ARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn plural(word: &str, count: usize) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

fn host_namespaces(pod: Pod) -> Option<Violation> {
    let set = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|f| pod.spec[*f] == true);
    let set: Vec<String> = set.map(|f| format!("{f}=true")).collect();
    if set.is_empty() { None } else { violation("host namespaces", set.join(", ")) }
}

fn privileged(pod: Pod) -> Option<Violation> {
    let bad = pod.bad_containers(|c| c["securityContext"]["privileged"] == true)?;
    violation("privileged", format!("{} must not set securityContext.privileged=true", bad.text))
}

fn capabilities(pod: Pod) -> Option<Violation> {
    let added = |context: &Value| -> Vec<String> {
        let all = items(&context["capabilities"]["add"]).iter().filter_map(Value::as_str);
        all.filter(|name| !CAPABILITIES.contains(name)).map(str::to_owned).collect()
    };
    let bad = pod.bad_containers(|c| !added(&c["securityContext"]).is_empty())?;
    let list = quoted_set(&pod.containers().flat_map(|c| added(&c["securityContext"])).collect());
    let detail = format!("{} must not include {list} in securityContext.capabilities.add", bad.text);
    violation("non-default capabilities", detail)
}

fn host_path(pod: Pod) -> Option<Violation> {
    let bad = items(&pod.spec["volumes"]).iter().filter(|v| v["hostPath"].is_object());
    let names: Vec<&str> = bad.map(|v| text(v, "name")).collect();
    violation("hostPath volumes", Bad::of("volume", &names)?.text)
}

fn host_ports(pod: Pod) -> Option<Violation> {
    let ports = |c: &Value| -> Vec<String> {
        let all = items(&c["ports"]).iter().filter_map(|p| p["hostPort"].as_i64());
        all.filter(|p| *p != 0).map(|p| p.to_string()).collect()
    };
    let bad = pod.bad_containers(|c| !ports(c).is_empty())?;
    let all: BTreeSet<String> = pod.containers().flat_map(ports).collect();
    let list = all.iter().cloned().collect::<Vec<_>>().join(", ");
    violation("hostPort", format!("{} {} {} {list}", bad.text, bad.uses(), plural("hostPort", all.len())))
}

/// Probes and hooks that reach another host than the pod's own address.
fn host_probes(pod: Pod) -> Option<Violation> {
    const HANDLERS: [&str; 5] =
        ["/livenessProbe", "/readinessProbe", "/startupProbe", "/lifecycle/postStart", "/lifecycle/preStop"];
    let hosts = |c: &Value| -> Vec<String> {
        let handlers = HANDLERS.iter().filter_map(|path| c.pointer(path));
        let named = handlers.flat_map(|h| [text(&h["httpGet"], "host"), text(&h["tcpSocket"], "host")]);
        named.filter(|host| !host.is_empty()).map(str::to_owned).collect()
    };
    let bad = pod.bad_containers(|c| !hosts(c).is_empty())?;
    let all: BTreeSet<String> = pod.containers().flat_map(hosts).collect();
    let what = plural("probe or lifecycle host", all.len());
    violation("probe or lifecycle host", format!("{} {} {what} {}", bad.text, bad.uses(), quoted_set(&all)))
}

pub(super) fn proc_mount(pod: Pod) -> Option<Violation> {
    let mount = |c: &Value| c["securityContext"]["procMount"].as_str().map(str::to_owned);
    let odd = |c: &Value| mount(c).filter(|m| m != "Default");
    let bad = pod.bad_containers(|c| odd(c).is_some())?;
    let kinds = quoted_set(&pod.containers().filter_map(odd).collect());
    violation("procMount", format!("{} must not set securityContext.procMount to {kinds}", bad.text))
}

fn seccomp(pod: Pod) -> Option<Violation> {
    let odd = |context: &Value| -> Vec<String> {
        let kind = context["seccompProfile"]["type"].as_str();
        let odd = kind.filter(|k| !matches!(*k, "RuntimeDefault" | "Localhost"));
        odd.map(str::to_owned).into_iter().collect()
    };
    let who = pod.bad_setters(|context| !odd(context).is_empty())?;
    let kinds = quoted_set(&pod.found(odd));
    violation("seccompProfile", format!("{who} must not set securityContext.seccompProfile.type to {kinds}"))
}

/// Until 1.18 profiles were chosen by annotations.
fn seccomp_annotations(pod: Pod) -> Option<Violation> {
    let allowed = |v: &str| matches!(v, "runtime/default" | "docker/default") || v.starts_with("localhost/");
    let own = pod.containers().map(|c| format!("{SECCOMP_CONTAINER}{}", text(c, "name")));
    let keys = std::iter::once(SECCOMP_POD.to_owned()).chain(own);
    let bad: BTreeSet<String> = keys
        .filter_map(|key| {
            let value = pod.metadata["annotations"][&key].as_str().filter(|v| !allowed(v))?;
            Some(format!("{key}={value:?}"))
        })
        .collect();
    if bad.is_empty() {
        return None;
    }
    let list = bad.iter().cloned().collect::<Vec<_>>().join(", ");
    violation("seccompProfile", format!("forbidden {} {list}", plural("annotation", bad.len())))
}

fn app_armor(pod: Pod) -> Option<Violation> {
    let odd = |context: &Value| -> Vec<String> {
        let kind = context["appArmorProfile"]["type"].as_str();
        let odd = kind.filter(|k| !matches!(*k, "RuntimeDefault" | "Localhost"));
        odd.map(str::to_owned).into_iter().collect()
    };
    let allowed = |v: &str| v.is_empty() || v == "runtime/default" || v.starts_with("localhost/");
    let annotations = pod.metadata["annotations"].as_object().into_iter().flatten();
    let annotated: BTreeSet<String> = annotations
        .filter(|(key, value)| key.starts_with(APP_ARMOR_PREFIX) && !allowed(value.as_str().unwrap_or("")))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let mut who: Vec<String> = pod.bad_setters(|context| !odd(context).is_empty()).into_iter().collect();
    if !annotated.is_empty() {
        who.push(plural("annotation", annotated.len()));
    }
    if who.is_empty() {
        return None;
    }
    let values: Vec<String> = pod.found(odd).into_iter().chain(annotated).collect();
    let list = super::rules::quoted(values.iter().map(String::as_str));
    let detail = format!("{} must not set AppArmor profile type to {list}", who.join(" and "));
    violation(&plural("forbidden AppArmor profile", values.len()), detail)
}

fn se_linux(pod: Pod, types: &[&str]) -> Option<Violation> {
    let options = |context: &Value| context["seLinuxOptions"].clone();
    let bad_type = |o: &Value| !types.contains(&text(o, "type"));
    let sets = |o: &Value, field: &str| !text(o, field).is_empty();
    let who = pod.bad_setters(|context| {
        let options = options(context);
        bad_type(&options) || sets(&options, "user") || sets(&options, "role")
    })?;
    let mut what = Vec::new();
    let odd = pod.found(|context| {
        Some(options(context)).filter(bad_type).map(|o| text(&o, "type").to_owned()).into_iter().collect()
    });
    if !odd.is_empty() {
        what.push(format!("{} {}", plural("type", odd.len()), quoted_set(&odd)));
    }
    for field in ["user", "role"] {
        if !pod.found(|context| vec![text(&options(context), field).to_owned()]).iter().all(String::is_empty)
        {
            what.push(format!("{field} may not be set"));
        }
    }
    let what = what.join("; ");
    violation("seLinuxOptions", format!("{who} set forbidden securityContext.seLinuxOptions: {what}"))
}

fn sysctls(pod: Pod, allowed: &[&str]) -> Option<Violation> {
    let names = items(&pod.spec["securityContext"]["sysctls"]).iter().map(|s| text(s, "name"));
    let bad: Vec<&str> = names.filter(|n| !allowed.contains(n)).collect();
    if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
}

fn windows_host_process(pod: Pod) -> Option<Violation> {
    let who = pod.bad_setters(|context| context["windowsOptions"]["hostProcess"] == true)?;
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}
