//! Definitions as others publish them (tests/clients/definitions.txt): all are served, take objects that fit and
//! refuse objects that do not.

use coracle_tests::rest::Rest;
use coracle_tests::{Cluster, Shell, clients, custom};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Every file of a folder and those in it, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Every object with a kind in the YAML files but charts' templates, and its file.
fn published() -> Vec<(PathBuf, Value)> {
    let mut all = Vec::new();
    for file in files(&clients::definitions()) {
        let yaml = file.extension().is_some_and(|kind| kind == "yaml");
        // Charts' templates, and what another test installs.
        let elsewhere = ["templates", "magnum-cluster-api"];
        if !yaml || file.components().any(|part| elsewhere.iter().any(|name| part.as_os_str() == *name)) {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("a file");
        for document in text.split("\n---").map(|document| document.trim_start_matches("---")) {
            let object: Value = serde_saphyr::from_str(document).unwrap_or_default();
            if object["kind"].is_string() {
                all.push((file.clone(), object));
            }
        }
    }
    all
}

/// Objects for those definitions that come without one: the spec.
fn specs() -> BTreeMap<&'static str, Value> {
    let container = json!({"name": "c", "image": "dask"});
    let worker = json!({"replicas": 2, "spec": {"containers": [container]}});
    let service = json!({"selector": {"a": "b"}, "ports": [{"port": 8786, "name": "tcp-comm", "targetPort": "tcp-comm"}]});
    let scheduler = json!({"spec": {"containers": [container]}, "service": service});
    BTreeMap::from([
        ("API", json!({"name": "orders", "protocolType": "HTTP"})),
        ("ArgoCDExport", json!({"argocd": "main", "schedule": "0 0 * * *"})),
        (
            "Authorizer",
            json!({"name": "a", "authorizerType": "JWT", "identitySource": ["$request.header.Authorization"]}),
        ),
        ("Cluster", json!({"paused": true, "controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}})),
        ("DaskAutoscaler", json!({"cluster": "c", "minimum": 1, "maximum": 4})),
        ("DaskCluster", json!({"worker": worker, "scheduler": scheduler})),
        (
            "DaskJob",
            json!({"cluster": {"spec": {"worker": worker, "scheduler": scheduler}}, "job": {"spec": {"containers": [container]}}}),
        ),
        ("DaskWorkerGroup", json!({"cluster": "c", "worker": worker})),
        (
            "ExternalSecret",
            json!({"refreshInterval": "1h", "secretStoreRef": {"name": "s", "kind": "SecretStore"}, "data": [{"secretKey": "k", "remoteRef": {"key": "v"}}]}),
        ),
        (
            "postgresql",
            json!({"teamId": "acid", "numberOfInstances": 2, "postgresql": {"version": "16"}, "volume": {"size": "1Gi"}}),
        ),
    ])
}

/// What is wrong with one object of each kind: a merge patch, and what the refusal says.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "API",
        r#"{"spec":{"name":5}}"#,
        "spec.name: Invalid value: \"integer\": spec.name in body must be of type string: \"integer\"",
    ),
    ("Agent", r#"{"spec":{"approved":null}}"#, "spec.approved: Required value"),
    ("Application", r#"{"spec":{"destination":null}}"#, "spec.destination: Required value"),
    ("ArgoCDExport", r#"{"spec":{"argocd":null}}"#, "spec.argocd: Required value"),
    (
        "Authorizer",
        r#"{"spec":{"identitySource":"no list"}}"#,
        "spec.identitySource: Invalid value: \"string\": spec.identitySource in body must be of type array: \"string\"",
    ),
    (
        "Certificate",
        r#"{"spec":{"privateKey":{"algorithm":"ROT13"}}}"#,
        "spec.privateKey.algorithm: Unsupported value: \"ROT13\": supported values: \"RSA\", \"ECDSA\", \"Ed25519\"",
    ),
    (
        "Cluster",
        r#"{"spec":{"controlPlaneEndpoint":{"port":null}}}"#,
        "spec.controlPlaneEndpoint.port: Required value",
    ),
    (
        "DaskAutoscaler",
        r#"{"spec":{"minimum":"one"}}"#,
        "spec.minimum: Invalid value: \"string\": spec.minimum in body must be of type integer: \"string\"",
    ),
    (
        "DaskCluster",
        r#"{"spec":{"worker":{"spec":{"containers":[{"image":"nameless"}]}}}}"#,
        "spec.worker.spec.containers[0].name: Required value",
    ),
    (
        "DaskJob",
        r#"{"spec":{"job":{"spec":{"containers":null}}}}"#,
        "spec.job.spec.containers: Required value",
    ),
    ("DaskWorkerGroup", r#"{"spec":{"cluster":null}}"#, "spec.cluster: Required value"),
    (
        "DestinationRule",
        r#"{"spec":{"trafficPolicy":{"loadBalancer":{"simple":"UNFAIR"}}}}"#,
        "spec.trafficPolicy.loadBalancer.simple: Unsupported value: \"UNFAIR\"",
    ),
    (
        "ExternalSecret",
        r#"{"spec":{"secretStoreRef":{"kind":"Drawer"}}}"#,
        "spec.secretStoreRef.kind: Unsupported value: \"Drawer\": supported values: \"SecretStore\", \"ClusterSecretStore\"",
    ),
    (
        "HTTPRoute",
        r#"{"spec":{"rules":[{"backendRefs":[{"name":"httpbin","port":65536}]}]}}"#,
        "spec.rules[0].backendRefs[0].port: Invalid value: 65536: spec.rules[0].backendRefs[0].port in body should be less than or equal to 65535",
    ),
    ("MultiVersion", r#"{"spec":{"name":null}}"#, "spec.name: Required value"),
    (
        "PodMonitor",
        r#"{"spec":{"podMetricsEndpoints":[{"interval":"often"}]}}"#,
        "spec.podMetricsEndpoints[0].interval: Invalid value: \"often\": spec.podMetricsEndpoints[0].interval in body should match '^(0|",
    ),
    (
        "PrometheusRule",
        r#"{"spec":{"groups":[{"name":"a"},{"name":"a"}]}}"#,
        "spec.groups[1]: Duplicate value: {\"name\":\"a\"}",
    ),
    ("Server", r#"{"spec":{"proxyProtocol":"gopher"}}"#, "spec.proxyProtocol: Unsupported value: \"gopher\""),
    (
        "ServerAuthorization",
        r#"{"spec":{"client":{"meshTLS":{"identities":["not a name!"]}}}}"#,
        "spec.client.meshTLS.identities[0]: Invalid value",
    ),
    ("ServiceMonitor", r#"{"spec":{"endpoints":null}}"#, "spec.endpoints: Required value"),
    (
        "postgresql",
        r#"{"spec":{"volume":{"size":"huge"}}}"#,
        "spec.volume.size: Invalid value: \"huge\": spec.volume.size in body should match",
    ),
];

#[test]
fn definitions_of_others_are_served() {
    let cluster = Cluster::simulated();
    let rest = Rest::new(cluster.kubeconfig());
    let shell = cluster.in_namespace("found");
    let all = published();
    let is_definition = |object: &Value| object["kind"] == "CustomResourceDefinition";
    let definitions: Vec<_> = all.iter().filter(|(_, object)| is_definition(object)).collect();
    assert!(definitions.len() >= 20, "only {} definitions found", definitions.len());
    let mut failures = Vec::new();
    for (file, definition) in definitions {
        let kind = definition["spec"]["names"]["kind"].as_str().expect("a kind");
        if kind == NOT_STRUCTURAL {
            refused(&shell, file);
            continue;
        }
        let installed = shell.run(&format!("kubectl apply --server-side -f '{}'", file.display()));
        assert_eq!(installed.code, 0, "{}: {installed}", file.display());
        custom::served(&rest, definition);
        let example = all.iter().find(|(_, object)| object["kind"] == kind).map(|(_, object)| object.clone());
        let object =
            example.or_else(|| made(definition, kind)).unwrap_or_else(|| panic!("no object of {kind}"));
        if let Err(why) = used(&shell, &rest, definition, &object) {
            failures.push(format!("{kind}: {why}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // All of them together are described to clients.
    shell.ok("kubectl api-resources --cached=false >/dev/null");
    shell.shows("kubectl explain certificates.spec.privateKey.algorithm", &["FIELD: algorithm <string>"]);
    cluster.assert_alive();
}

/// Argo's full definition was cut where it would be recursive, and has fields and items without a type since.
const NOT_STRUCTURAL: &str = "ClusterWorkflowTemplate";

#[track_caller]
fn refused(shell: &Shell, file: &Path) {
    let refused = shell.run(&format!("kubectl apply --server-side -f '{}'", file.display()));
    for why in [
        "properties[inline].type: Required value: must not be empty for specified object fields",
        "properties[steps].items.items: Required value: must be specified",
    ] {
        assert!(refused.code != 0 && refused.stderr.contains(why), "{why}: {refused}");
    }
    let name = "clusterworkflowtemplates.argoproj.io";
    assert_eq!(shell.ok(&format!("kubectl get crd {name} --ignore-not-found")), "", "nothing half-stored");
}

fn made(definition: &Value, kind: &str) -> Option<Value> {
    let versions = definition["spec"]["versions"].as_array().expect("versions");
    let stored = versions.iter().find(|version| version["storage"] == true).expect("a stored version");
    let group = definition["spec"]["group"].as_str().expect("a group");
    let api_version = format!("{group}/{}", stored["name"].as_str().expect("a name"));
    let spec = specs().remove(kind)?;
    Some(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "gen"}, "spec": spec}))
}

/// The object is taken, shown, and refused once it is wrong. `Err` says what was not so.
fn used(shell: &Shell, rest: &Rest, definition: &Value, object: &Value) -> Result<(), String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let created = shell.run_with("kubectl apply -f -", &object.to_string());
    if created.code != 0 {
        return Err(created.to_string());
    }
    let shown = shell.run(&format!("kubectl get {name} gen"));
    if shown.code != 0 || !shown.stdout.contains("gen") {
        return Err(shown.to_string());
    }
    let version = object["apiVersion"].as_str().and_then(|v| v.split_once('/')).map_or("", |(_, v)| v);
    let namespace = if definition["spec"]["scope"] == "Cluster" { "" } else { "found" };
    let one = format!("{}/gen", custom::path(definition, version, namespace));
    let wrong = WRONG.iter().find(|(of, ..)| *of == kind).ok_or("nothing wrong is known of it")?;
    let merge = ["Content-Type: application/merge-patch+json"];
    let reply = rest.call("PATCH", &one, &merge, wrong.1);
    let message = reply.body["message"].as_str().unwrap_or_default();
    if reply.code != 422 || !message.contains(wrong.2) {
        return Err(format!("{} with {}: {} {message}", kind, wrong.1, reply.code));
    }
    let strict =
        rest.call("PATCH", &format!("{one}?fieldValidation=Strict"), &merge, r#"{"notInTheSchema":1}"#);
    let message = strict.body["message"].as_str().unwrap_or_default();
    if strict.code != 422 || !message.contains("unknown field \"notInTheSchema\"") {
        return Err(format!("an unknown field: {} {message}", strict.code));
    }
    Ok(())
}
