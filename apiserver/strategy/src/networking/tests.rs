use super::*;
use crate::testing::{World, errors, texts, update_errors};

#[test]
fn ingresses() {
    let path = |backend: Value| {
        json!({ "metadata": { "name": "i" }, "spec": { "rules": [{ "host": "a.org",
            "http": { "paths": [{ "path": "/", "pathType": "Prefix", "backend": backend }] } }] } })
    };
    let good = path(json!({ "service": { "name": "s", "port": { "number": 80 } } }));
    assert_eq!(errors(&Ingresses, good.clone()), [""; 0]);
    assert_eq!(Ingresses.row(&good, Timestamp::UNIX_EPOCH), ["i", "<none>", "a.org", "", "80", "<unknown>"]);
    assert_eq!(
        errors(&Ingresses, path(json!({ "service": { "name": "s" } }))),
        ["spec.rules[0].http.paths[0].backend: Required value: port name or number is required"]
    );
    assert_eq!(
        errors(&Ingresses, json!({})),
        ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]
    );
}

#[test]
fn network_policies() {
    let mut object = json!({ "spec": { "egress": [{ "ports": [{ "port": 1 }] }] } });
    NetworkPolicies.defaults(&mut object);
    assert_eq!(object["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(object["spec"]["egress"][0]["ports"][0]["protocol"], "TCP");
    let block = json!({ "spec": { "ingress": [{ "from": [{ "ipBlock": { "cidr": "10.0.0.0/8", "except": ["11.0.0.0/8"] } }, {}] }] } });
    assert_eq!(
        errors(&NetworkPolicies, block),
        [
            "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/8\": must be a strict subset of `cidr`",
            "spec.ingress[0].from[1]: Required value: must specify a peer",
        ]
    );
}

#[test]
fn addresses() {
    let object = json!({ "metadata": { "name": "10.43.0.1" }, "spec": { "parentRef": { "resource": "services", "namespace": "default", "name": "kubernetes" } } });
    assert_eq!(errors(&IpAddresses, object.clone()), [""; 0]);
    assert_eq!(IpAddresses.row(&object, Timestamp::UNIX_EPOCH)[1], "services/default/kubernetes");
    assert_eq!(errors(&ServiceCidrs, json!({})), ["spec.cidrs: Required value: at least one CIDR required"]);
}

#[test]
fn paths_hosts_and_secrets_of_ingresses() {
    let of = |path: &str, kind: &str| {
        let backend = json!({ "service": { "name": "s", "port": { "number": 80 } } });
        json!({ "spec": { "rules": [{ "http": { "paths": [{ "path": path, "pathType": kind, "backend": backend }] } }] } })
    };
    let at = "spec.rules[0].http.paths[0].path: Invalid value";
    for (path, kind, want) in [
        ("/a//b", "Prefix", Some("\"/a//b\": must not contain '//'")),
        ("/a/..", "Exact", Some("\"/a/..\": cannot end with '/..'")),
        ("/a%2fb", "Prefix", Some("\"/a%2fb\": must not contain '%2f'")),
        ("a", "Prefix", Some("\"a\": must be an absolute path")),
        ("a", "ImplementationSpecific", Some("\"a\": must be an absolute path")),
        ("", "ImplementationSpecific", None),
        ("/a//b", "ImplementationSpecific", None),
    ] {
        let want: Vec<String> = want.iter().map(|want| format!("{at}: {want}")).collect();
        assert_eq!(errors(&Ingresses, of(path, kind)), want, "{path} {kind}");
    }
    let backend = json!({ "service": { "name": "s", "port": { "name": "http" } } });
    let spec = |more: Value| {
        let mut spec = json!({ "spec": { "defaultBackend": backend } });
        crate::testing::merge(&mut spec, &json!({ "spec": more }));
        errors(&Ingresses, spec)
    };
    assert!(spec(json!({ "tls": [{ "hosts": ["*.a.org"], "secretName": "s" }] })).is_empty());
    assert!(
        spec(json!({ "tls": [{ "hosts": ["a.*.org"] }] }))[0]
            .starts_with("spec.tls[0].hosts[0]: Invalid value")
    );
    assert!(
        spec(json!({ "tls": [{ "secretName": "S" }] }))[0]
            .starts_with("spec.tls[0].secretName: Invalid value")
    );
    let resource =
        json!({ "spec": { "defaultBackend": { "resource": { "apiGroup": "a.b", "kind": "K" } } } });
    assert_eq!(errors(&Ingresses, resource), ["spec.defaultBackend.resource.name: Required value"]);
}

#[test]
fn an_ingress_names_one_class() {
    let found = |class: &str| {
        let object = json!({ "metadata": { "annotations": { "kubernetes.io/ingress.class": "a" } },
            "spec": { "ingressClassName": class } });
        let mut errors = Vec::new();
        Ingresses.validate_create(&object, &World::default().env(), &mut errors);
        texts(&errors)
    };
    assert_eq!(found("a"), [""; 0]);
    assert_eq!(
        found("b"),
        [
            "annotations.kubernetes.io/ingress.class: Invalid value: \"a\": must match `ingressClassName` when both are specified"
        ]
    );
}

#[test]
fn ports_and_blocks_of_policies() {
    let port =
        |port: Value| errors(&NetworkPolicies, json!({ "spec": { "ingress": [{ "ports": [port] }] } }));
    let at = |field: &str, rest: &str| vec![format!("spec.ingress[0].ports[0].{field}: {rest}")];
    for (value, want) in [
        (json!({ "port": 1, "endPort": 2 }), vec![]),
        (json!({ "port": "http" }), vec![]),
        (
            json!({ "endPort": 2 }),
            at("endPort", "Invalid value: 2: may not be specified when `port` is not specified"),
        ),
        (
            json!({ "port": "a", "endPort": 2 }),
            at("endPort", "Invalid value: 2: may not be specified when `port` is non-numeric"),
        ),
        (
            json!({ "port": 3, "endPort": 2 }),
            at("endPort", "Invalid value: 3: must be greater than or equal to `port`"),
        ),
        (
            json!({ "protocol": "X" }),
            at("protocol", "Unsupported value: \"X\": supported values: \"TCP\", \"UDP\", \"SCTP\""),
        ),
    ] {
        assert_eq!(port(value.clone()), want, "{value}");
    }
    let types = json!({ "spec": { "policyTypes": ["Ingress", "Egress", "X"] } });
    assert_eq!(
        errors(&NetworkPolicies, types),
        [
            "spec.policyTypes: Invalid value: [\"Ingress\",\"Egress\",\"X\"]: may not specify more than two policyTypes"
        ]
    );
    let wider = json!({ "spec": { "egress": [{ "to": [{ "ipBlock": { "cidr": "10.1.0.0/16", "except": ["10.0.0.0/8"] } }] }] } });
    assert_eq!(
        errors(&NetworkPolicies, wider),
        [
            "spec.egress[0].to[0].ipBlock.except[0]: Invalid value: \"10.0.0.0/8\": must be a strict subset of `cidr`"
        ]
    );
}

#[test]
fn addresses_and_ranges_are_judged() {
    let address = |name: &str, parent: Value| {
        errors(&IpAddresses, json!({ "metadata": { "name": name }, "spec": { "parentRef": parent } }))
    };
    let service = json!({ "resource": "services", "name": "s", "namespace": "d" });
    assert_eq!(address("10.0.0.1", service.clone()), [""; 0]);
    assert_eq!(
        address("2001:DB8::1", service),
        ["metadata.name: Invalid value: \"2001:DB8::1\": must be in canonical form (\"2001:db8::1\")"]
    );
    assert_eq!(
        address("10.0.0.1", json!({ "resource": "a/b" })),
        [
            "spec.parentRef.resource: Invalid value: \"a/b\": may not contain '/'",
            "spec.parentRef.name: Required value",
        ]
    );
    let cidrs = |cidrs: Value| json!({ "spec": { "cidrs": cidrs } });
    assert_eq!(
        errors(&ServiceCidrs, cidrs(json!(["10.0.0.0/24", "10.1.0.0/24"]))),
        [
            "spec.cidrs: Invalid value: [\"10.0.0.0/24\",\"10.1.0.0/24\"]: may specify no more than one IP for each IP family, \
          i.e 192.168.0.0/24 and 2001:db8::/64"
        ]
    );
    let changed = |new: Value| update_errors(&ServiceCidrs, &cidrs(new), &cidrs(json!(["10.0.0.0/24"])));
    assert_eq!(changed(json!(["10.0.0.0/24", "2001:db8::/64"])), [""; 0]);
    assert_eq!(
        changed(json!(["10.1.0.0/24"])),
        ["spec.cidrs[0]: Invalid value: \"10.1.0.0/24\": field is immutable"]
    );
    assert_eq!(changed(json!([])), ["spec.cidrs: Invalid value: []: field is immutable"]);
}

#[test]
fn classes_of_ingresses() {
    let class = |parameters: Value| json!({ "spec": { "controller": "a.b/c", "parameters": parameters } });
    let mut object = class(json!({ "kind": "K", "name": "n" }));
    IngressClasses.defaults(&mut object);
    assert_eq!(object["spec"]["parameters"]["scope"], "Cluster");
    assert!(errors(&IngressClasses, object).is_empty());
    for (parameters, want) in [
        (
            json!({ "kind": "K", "name": "n", "scope": "Namespace" }),
            "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'",
        ),
        (
            json!({ "kind": "K", "name": "n", "namespace": "d" }),
            "spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'",
        ),
        (json!({ "name": "n" }), "spec.parameters.kind: Required value"),
    ] {
        assert_eq!(errors(&IngressClasses, class(parameters)), [want]);
    }
    assert_eq!(errors(&IngressClasses, json!({})), ["spec.controller: Required value"]);
}

#[test]
fn the_default_class_of_ingresses_is_marked() {
    let cells = |mark: &str| {
        let annotations = json!({ "ingressclass.kubernetes.io/is-default-class": mark });
        let class = json!({ "metadata": { "name": "c", "annotations": annotations }, "spec": { "controller": "a.b/c" } });
        IngressClasses.row(&class, Timestamp::UNIX_EPOCH)
    };
    assert_eq!(cells("true")[..3], ["c (default)", "a.b/c", "<none>"]);
    assert_eq!(cells("false")[0], "c");
}

#[test]
fn where_load_balancers_are() {
    let status = |ingress: Value| {
        let object = json!({ "status": { "loadBalancer": { "ingress": [ingress] } } });
        let mut errors = Vec::new();
        Ingresses.validate_status_update(&object, &object, &World::default().env(), &mut errors);
        errors.iter().map(|e| e.field.clone()).collect::<Vec<_>>()
    };
    assert!(status(json!({ "ip": "10.0.0.1", "hostname": "a.org" })).is_empty());
    assert_eq!(status(json!({ "ip": "10.0.0.300" })), ["status.loadBalancer.ingress[0].ip"]);
    assert_eq!(status(json!({ "hostname": "10.0.0.1" })), ["status.loadBalancer.ingress[0].hostname"]);
}
