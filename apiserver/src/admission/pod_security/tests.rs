use super::super::testing::*;
use super::*;
use serde_json::json;

fn world(level: &str) -> std::sync::Arc<World> {
    let world = World::new();
    let labels = json!({ "pod-security.kubernetes.io/enforce": level });
    world.put("namespaces.", json!({ "metadata": { "name": "a", "labels": labels } }));
    world
}

fn hardened() -> Object {
    let mut pod = pod();
    pod["spec"]["securityContext"] =
        json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } });
    pod["spec"]["containers"][0]["securityContext"] =
        json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    pod
}

fn check(level: &str, pod: &Object) -> Result<(), String> {
    Try::create(&world(level), "pods.").validate(&PodSecurity, pod, None).map_err(|e| e.message)
}

fn with(pod: Object, pointer: &str, value: Value) -> Object {
    let mut pod = pod;
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = pod.pointer_mut(parent).unwrap_or_else(|| panic!("{parent}"));
    parent[field] = value;
    pod
}

#[test]
fn a_plain_pod_is_baseline_but_not_restricted() {
    check("privileged", &pod()).unwrap();
    check("baseline", &pod()).unwrap();
    assert_eq!(
        check("restricted", &pod()).unwrap_err(),
        "pods \"web\" is forbidden: violates PodSecurity \"restricted:latest\": \
         allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), \
         runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), \
         seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \
         \"Localhost\"), \
         unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"])"
    );
    check("restricted", &hardened()).unwrap();
}

/// One pod for each rule, which breaks exactly that one.
#[test]
fn every_rule_refuses_its_pod() {
    let c = "/spec/containers/0/securityContext";
    let cases: Vec<(&str, String, Value, &str)> = vec![
        ("baseline", "/spec/hostNetwork".into(), json!(true), "host namespaces (hostNetwork=true)"),
        ("baseline", format!("{c}/privileged"), json!(true), "privileged (container \"c\""),
        (
            "baseline",
            format!("{c}/capabilities"),
            json!({ "add": ["NET_ADMIN"], "drop": ["ALL"] }),
            "non-default capabilities (container \"c\" must not include \"NET_ADMIN\"",
        ),
        (
            "baseline",
            "/spec/volumes".into(),
            json!([{ "name": "v", "hostPath": {} }]),
            "hostPath volumes (volume \"v\")",
        ),
        (
            "baseline",
            "/spec/containers/0/ports".into(),
            json!([{ "hostPort": 80 }]),
            "hostPort (container \"c\" uses hostPort 80)",
        ),
        (
            "baseline",
            "/spec/containers/0/livenessProbe".into(),
            json!({ "tcpSocket": { "host": "x" } }),
            "probe or lifecycle host",
        ),
        ("baseline", format!("{c}/procMount"), json!("Unmasked"), "procMount"),
        ("baseline", format!("{c}/seccompProfile"), json!({ "type": "Unconfined" }), "seccompProfile"),
        (
            "baseline",
            format!("{c}/appArmorProfile"),
            json!({ "type": "Unconfined" }),
            "forbidden AppArmor profile",
        ),
        ("baseline", format!("{c}/seLinuxOptions"), json!({ "type": "spc_t" }), "seLinuxOptions"),
        (
            "baseline",
            "/spec/securityContext/sysctls".into(),
            json!([{ "name": "kernel.msgmax" }]),
            "forbidden sysctls (kernel.msgmax)",
        ),
        ("baseline", format!("{c}/windowsOptions"), json!({ "hostProcess": true }), "hostProcess"),
        (
            "restricted",
            format!("{c}/allowPrivilegeEscalation"),
            json!(true),
            "allowPrivilegeEscalation != false",
        ),
        (
            "restricted",
            format!("{c}/capabilities"),
            json!({ "drop": ["NET_RAW"] }),
            "unrestricted capabilities",
        ),
        (
            "restricted",
            "/spec/volumes".into(),
            json!([{ "name": "v", "nfs": {} }]),
            "restricted volume types (volume \"v\" uses restricted volume type \"nfs\")",
        ),
        ("restricted", format!("{c}/runAsNonRoot"), json!(false), "runAsNonRoot != true"),
        ("restricted", format!("{c}/runAsUser"), json!(0), "runAsUser=0"),
        (
            "restricted",
            "/spec/securityContext/seccompProfile".into(),
            json!({ "type": "Unconfined" }),
            "seccompProfile",
        ),
    ];
    for (level, pointer, value, message) in cases {
        let pod = with(hardened(), &pointer, value);
        let error = check(level, &pod).unwrap_err();
        let rules = error.split_once("\": ").unwrap().1;
        assert!(rules.starts_with(message), "{pointer}: {rules}");
        assert_eq!(rules.matches(" (").count(), 1, "only one rule: {rules}");
        assert!(check("restricted", &pod).is_err(), "restricted includes baseline: {pointer}");
        check("privileged", &pod).unwrap();
    }
}

#[test]
fn labels_of_namespaces_are_checked() {
    let world = World::new();
    let check = |level: &str| {
        let labels = json!({ "pod-security.kubernetes.io/warn": level });
        let namespace = json!({ "metadata": { "name": "a", "labels": labels } });
        Try::create(&world, "namespaces.").validate(&PodSecurity, &namespace, None)
    };
    check("baseline").unwrap();
    assert_eq!(check("strict").unwrap_err().code, 422);
}
