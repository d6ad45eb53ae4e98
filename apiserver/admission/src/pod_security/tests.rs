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
    Try::create(&world(level), "pods.").validate(&PodSecurity::default(), pod, None).map_err(|e| e.message)
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
         unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), \
         runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), \
         seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \
         \"Localhost\")"
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
            "probe or lifecycle host (container \"c\" uses probe or lifecycle host \"x\")",
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
fn a_refusal_lists_the_rules_in_upstreams_order() {
    let mut pod = pod();
    pod["spec"] = json!({
        "hostNetwork": true, "volumes": [{ "name": "v", "hostPath": {} }],
        "containers": [{ "name": "c", "securityContext": { "privileged": true, "capabilities": { "add": ["BPF"] },
            "seLinuxOptions": { "user": "u" }, "seccompProfile": { "type": "Unconfined" } } }],
    });
    let baseline = check("baseline", &pod).unwrap_err();
    let order = [
        "non-default capabilities",
        "host namespaces",
        "hostPath volumes",
        "privileged",
        "seLinuxOptions",
        "seccompProfile",
    ];
    let places: Vec<_> = order.iter().map(|reason| baseline.find(&format!("{reason} ("))).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{baseline}");
}

fn labelled(labels: &[(&str, &str)]) -> std::sync::Arc<World> {
    let world = World::new();
    let mut map = json!({});
    for (name, value) in labels {
        map[format!("{PREFIX}{name}")] = (*value).into();
    }
    world.put("namespaces.", json!({ "metadata": { "name": "a", "labels": map } }));
    world
}

#[test]
fn versions_pin_the_rules() {
    let check = |version: &str, pod: &Object| {
        let world = labelled(&[("enforce", "restricted"), ("enforce-version", version)]);
        Try::create(&world, "pods.").validate(&PodSecurity::default(), pod, None).map_err(|e| e.message)
    };
    let root = with(hardened(), "/spec/containers/0/securityContext/runAsUser", json!(0));
    check("v1.22", &root).unwrap();
    assert!(check("v1.23", &root).unwrap_err().contains("PodSecurity \"restricted:v1.23\": runAsUser=0"));
    let mut nested = root.clone();
    nested["spec"]["hostUsers"] = false.into();
    assert!(check("v1.34", &nested).is_err());
    check("v1.35", &nested).unwrap();
    check("latest", &nested).unwrap();
    // What restricts more came later than what it replaces.
    let adds = with(
        hardened(),
        "/spec/containers/0/securityContext/capabilities",
        json!({ "add": ["NET_ADMIN"], "drop": ["ALL"] }),
    );
    assert!(check("v1.21", &adds).unwrap_err().contains("\": non-default capabilities ("));
    assert!(check("v1.22", &adds).unwrap_err().contains("\": unrestricted capabilities ("));
    let annotations = json!({ "seccomp.security.alpha.kubernetes.io/pod": "unconfined" });
    let unconfined = with(hardened(), "/metadata/annotations", annotations);
    assert!(check("v1.18", &unconfined).unwrap_err().contains("\": seccompProfile (forbidden annotation "));
    check("v1.19", &unconfined).unwrap();
    let mut unmasked = with(hardened(), "/spec/containers/0/securityContext/procMount", json!("Unmasked"));
    unmasked["spec"]["hostUsers"] = false.into();
    for version in ["v1.34", "v1.35", "latest"] {
        assert!(check(version, &unmasked).unwrap_err().contains("\": procMount ("), "{version}");
    }
    let world = labelled(&[("enforce", "baseline")]);
    Try::create(&world, "pods.").validate(&PodSecurity::default(), &unmasked, None).unwrap();
    let sysctl = with(hardened(), "/spec/securityContext/sysctls", json!([{ "name": "net.ipv4.tcp_rmem" }]));
    assert!(check("v1.31", &sysctl).is_err());
    check("v1.99", &sysctl).unwrap();
    let mut windows = pod();
    windows["spec"]["os"] = json!({ "name": "windows" });
    windows["spec"]["securityContext"] = json!({ "runAsNonRoot": true });
    check("latest", &windows).unwrap();
    assert!(check("v1.24", &windows).unwrap_err().contains("unrestricted capabilities"));
}

#[tokio::test]
async fn warnings_and_audit_refuse_nothing() {
    let world = labelled(&[("warn", "baseline"), ("audit", "restricted"), ("audit-version", "v1.30")]);
    let bad = with(pod(), "/spec/hostNetwork", json!(true));
    for resource in ["pods.", "deployments.apps", "cronjobs.batch", "podtemplates."] {
        let template = json!({ "metadata": {}, "spec": bad["spec"] });
        let object = match resource {
            "pods." => bad.clone(),
            "podtemplates." => json!({ "metadata": bad["metadata"], "template": template }),
            "cronjobs.batch" => {
                json!({ "metadata": bad["metadata"], "spec": { "jobTemplate": { "spec": { "template": template } } } })
            }
            _ => json!({ "metadata": bad["metadata"], "spec": { "template": template } }),
        };
        let attempt = Try::create(&world, resource);
        let run = async { attempt.validate(&PodSecurity::default(), &object, None) };
        let (result, notes) = annotations::collect(run).await;
        result.unwrap();
        let warned = "would violate PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)";
        assert_eq!(*attempt.warnings.lock(), [warned], "{resource}");
        let audit = &notes["pod-security.kubernetes.io/audit-violations"];
        assert!(
            audit.starts_with("would violate PodSecurity \"restricted:v1.30\": host namespaces"),
            "{audit}"
        );
    }
}

#[test]
fn only_what_matters_is_judged_again() {
    let world = world("restricted");
    let update = |resource, new: &Object| {
        let attempt = Try { operation: Operation::Update, ..Try::create(&world, resource) };
        attempt.validate(&PodSecurity::default(), new, Some(&pod()))
    };
    let mut labelled = pod();
    labelled["metadata"]["labels"] = json!({ "a": "b" });
    update("pods.", &labelled).unwrap();
    update("pods./status", &with(pod(), "/spec/containers/0/image", json!("j"))).unwrap();
    assert!(update("pods.", &with(pod(), "/spec/containers/0/image", json!("j"))).is_err());
    let debugged = with(pod(), "/spec/ephemeralContainers", json!([{ "name": "d", "image": "d" }]));
    assert!(update("pods./ephemeralcontainers", &debugged).is_err());
}

#[test]
fn exemptions() {
    let world = world("restricted");
    let settings = Settings { exempt_runtime_classes: vec!["vm".to_owned()], ..Settings::default() };
    let class = with(pod(), "/spec/runtimeClassName", json!("vm"));
    Try::create(&world, "pods.").validate(&PodSecurity { settings }, &class, None).unwrap();
    let settings = Settings { exempt_users: vec!["jane".to_owned()], ..Settings::default() };
    Try::create(&world, "pods.").validate(&PodSecurity { settings }, &pod(), None).unwrap();
    let settings = Settings { exempt_namespaces: vec!["a".to_owned()], ..Settings::default() };
    Try::create(&world, "pods.").validate(&PodSecurity { settings }, &pod(), None).unwrap();
}

#[test]
fn namespaces_are_warned_of_their_pods() {
    let world = World::new();
    let namespace = |level: &str| json!({ "metadata": { "name": "a", "labels": { "pod-security.kubernetes.io/enforce": level } } });
    let error =
        Try::create(&world, "namespaces.").validate(&PodSecurity::default(), &namespace("strict"), None);
    let error = error.unwrap_err();
    assert_eq!((error.code, error.reason), (422, "Invalid"));
    assert!(error.message.contains("must be one of privileged, baseline, restricted"), "{}", error.message);
    for name in ["p1", "p2", "p3"] {
        let mut pod = with(pod(), "/spec/hostPID", json!(name != "p3"));
        pod["metadata"]["name"] = name.into();
        world.put("pods.", pod);
    }
    let raise = |from: &str, to: &str| {
        let attempt = Try { operation: Operation::Update, ..Try::create(&world, "namespaces.") };
        attempt.validate(&PodSecurity::default(), &namespace(to), Some(&namespace(from))).unwrap();
        attempt.warnings.into_inner()
    };
    assert_eq!(
        raise("privileged", "baseline"),
        [
            "existing pods in namespace \"a\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "p1 (and 1 other pod): host namespaces",
        ]
    );
    assert_eq!(raise("baseline", "restricted").len(), 3);
    assert!(raise("restricted", "baseline").is_empty());
    assert!(raise("strict", "strict").is_empty(), "old mistakes may stay");
}
