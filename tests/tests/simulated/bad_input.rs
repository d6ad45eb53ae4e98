//! What nobody should send. The answer is a clear Status, nothing changes, and the server goes on.

use coracle_tests::Cluster;
use serde_json::json;

const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn an_invalid_object_is_refused_with_path_and_reason() {
    let cluster = Cluster::start(&[]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "Bad_Name"}, "spec": {"containers": [
        {"name": "c", "image": "", "ports": [{"containerPort": 70000}]}, {"name": "c", "image": "x"}]}});
    let answer = cluster.raw("POST", PODS, &pod.to_string());
    let message = answer.status(422, "Invalid");
    assert!(message.starts_with("Pod \"Bad_Name\" is invalid: ["), "{message}");
    let causes = answer.json()["details"]["causes"].clone();
    let fields: Vec<(&str, &str)> = causes
        .as_array()
        .expect("causes")
        .iter()
        .map(|c| (c["reason"].as_str().unwrap_or_default(), c["field"].as_str().unwrap_or_default()))
        .collect();
    for wanted in [
        ("FieldValueInvalid", "metadata.name"),
        ("FieldValueRequired", "spec.containers[0].image"),
        ("FieldValueInvalid", "spec.containers[0].ports[0].containerPort"),
        ("FieldValueDuplicate", "spec.containers[1].name"),
    ] {
        assert!(fields.contains(&wanted), "{wanted:?} is missing from {fields:?}");
    }
    cluster.says("kubectl get pods -o name", "");
    cluster.assert_alive();
}

#[test]
fn upstreams_words_for_common_mistakes() {
    let cluster = Cluster::start(&[]);
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: c}}\n    spec: {containers: [{name: c, image: x}]}\n";
    let output = cluster.run_with("kubectl apply -f -", deployment);
    assert_eq!(
        output.stderr.trim(),
        r#"The Deployment "d" is invalid: spec.template.metadata.labels: Invalid value: {"a":"c"}: `selector` does not match template `labels`"#
    );
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {selector: {a: b}}\n";
    let output = cluster.run_with("kubectl apply -f -", service);
    assert_eq!(output.stderr.trim(), r#"The Service "s" is invalid: spec.ports: Required value"#);
    let taken = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {clusterIP: 10.9.9.9, ports: [{port: 80}]}\n";
    let output = cluster.run_with("kubectl apply -f -", taken);
    assert!(
        output.stderr.contains(
            "failed to allocate IP 10.9.9.9: the provided IP (10.9.9.9) is not in the valid range. The range of valid IPs is 10.43.0.0/16"
        ),
        "{output}"
    );
    cluster.ok("kubectl create configmap fixed && kubectl patch configmap fixed -p '{\"immutable\":true}'");
    cluster.refuses(
        "kubectl patch configmap fixed -p '{\"data\":{\"a\":\"b\"}}'",
        r#"The ConfigMap "fixed" is invalid: data: Forbidden: field is immutable when `immutable` is set"#,
    );
    cluster.says("kubectl get deployments,services -o name", "service/kubernetes");
}

#[test]
fn unknown_resources_and_wrong_verbs() {
    let cluster = Cluster::start(&[]);
    for path in [
        "/api/v1/widgets",
        "/apis/nothing.example/v1/things",
        "/api/v9/pods",
        "/nothing",
        "/api/v1/namespaces/default/pods/x/nothing",
    ] {
        assert_eq!(cluster.raw("GET", path, "").code, 404, "{path}");
    }
    assert_eq!(
        cluster.raw("GET", "/api/v1/widgets", "").status(404, "NotFound"),
        "the server could not find the requested resource"
    );
    assert_eq!(cluster.raw("GET", &format!("{PODS}/x"), "").status(404, "NotFound"), "pods \"x\" not found");
    let update_of_a_list = cluster.raw("PUT", PODS, "{}");
    assert_eq!(
        update_of_a_list.status(405, "MethodNotAllowed"),
        "the server does not allow this method on the requested resource"
    );
    let binding = cluster.raw("GET", "/api/v1/namespaces/default/bindings", "");
    assert_eq!(binding.code, 405, "{binding:?}");
    cluster.raw("POST", &format!("{CONFIGMAPS}/x"), "{}").status(405, "MethodNotAllowed");
    cluster.assert_alive();
}

#[test]
fn bodies_that_are_too_long_or_no_json() {
    let cluster = Cluster::start(&[]);
    let long = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "long"}, "data": {"a": "x".repeat(4 << 20)}});
    let answer = cluster.raw("POST", CONFIGMAPS, &long.to_string());
    let message = answer.status(413, "RequestEntityTooLarge");
    assert_eq!(message, "Request entity too large: limit is 3145728");
    let big = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": {"a": "x".repeat(1_100_000)}});
    let message = cluster.raw("POST", CONFIGMAPS, &big.to_string()).status(422, "Invalid");
    assert!(message.contains("Too long: may not be more than 1048576 bytes"), "{message}");
    for body in [
        "{",
        "[]",
        "null",
        "\"text\"",
        "{\"a\":",
        "\u{0}\u{1}",
        "{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":7}",
    ] {
        let answer = cluster.raw("POST", CONFIGMAPS, body);
        answer.status(400, "BadRequest");
    }
    let other_kind = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}"#;
    let message = cluster.raw("POST", CONFIGMAPS, other_kind).status(400, "BadRequest");
    assert!(message.contains("Secret in version \"v1\" cannot be handled as a ConfigMap"), "{message}");
    let text = cluster.raw("POST", &format!("{CONFIGMAPS} text/plain"), "hello");
    text.status(415, "UnsupportedMediaType");
    cluster.says("kubectl get configmaps -o name", "configmap/kube-root-ca.crt");
    cluster.assert_alive();
}

#[test]
fn wrong_types_and_wrong_places() {
    let cluster = Cluster::start(&[]);
    let typed = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":"none"}}"#;
    cluster.raw("POST", PODS, typed).status(400, "BadRequest");
    let elsewhere =
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"kube-system"}}"#;
    let message = cluster.raw("POST", CONFIGMAPS, elsewhere).status(400, "BadRequest");
    assert_eq!(
        message,
        "the namespace of the provided object does not match the namespace sent on the request"
    );
    let versioned = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","resourceVersion":"5"}}"#;
    assert_eq!(cluster.raw("POST", CONFIGMAPS, versioned).code, 500);
    for query in
        ["limit=many", "labelSelector=a%20b%20c", "fieldSelector=spec.nothing%3Dx", "continue=rubbish"]
    {
        let answer = cluster.raw("GET", &format!("{PODS}?{query}"), "");
        assert_eq!(answer.code, 400, "{query}: {answer:?}");
    }
    cluster.says("kubectl get pods,configmaps -o name", "configmap/kube-root-ca.crt");
    cluster.assert_alive();
}

#[test]
fn unknown_fields_are_refused_warned_about_or_dropped() {
    let cluster = Cluster::start(&[]);
    let body =
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"odd"},"dada":{},"data":{"a":"b"}}"#;
    let message =
        cluster.raw("POST", &format!("{CONFIGMAPS}?fieldValidation=Strict"), body).status(400, "BadRequest");
    assert_eq!(
        message,
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"dada\""
    );
    assert_eq!(cluster.raw("POST", &format!("{CONFIGMAPS}?fieldValidation=Ignore"), body).code, 201);
    cluster.says("kubectl get configmap odd -o jsonpath='{.dada}{.data}'", r#"{"a":"b"}"#);
    let manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: x, imagee: y}]}\n";
    let output = cluster.run_with("kubectl create -f -", manifest);
    assert_eq!(
        output.stderr.trim(),
        r#"Error from server (BadRequest): error when creating "STDIN": Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.containers[0].imagee""#
    );
    let output = cluster.run_with("kubectl create --validate=warn -f -", manifest);
    assert_eq!(
        (output.stdout.as_str(), output.stderr.trim()),
        ("pod/p created\n", r#"Warning: unknown field "spec.containers[0].imagee""#)
    );
}

#[test]
fn bad_yaml_through_kubectl() {
    let cluster = Cluster::start(&[]);
    let broken = cluster.run_with("kubectl apply -f -", "a: [\n");
    assert_eq!(broken.code, 1, "{broken}");
    let kindless = cluster.run_with("kubectl apply -f -", "a: 1\n");
    assert!(kindless.stderr.contains("apiVersion not set"), "{kindless}");
    let unknown = cluster
        .run_with("kubectl apply -f -", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n");
    assert!(
        unknown.stderr.contains("no matches for kind \"Widget\" in version \"example.com/v1\""),
        "{unknown}"
    );
    cluster.assert_alive();
}

#[test]
fn raw_bytes_instead_of_http() {
    let cluster = Cluster::start(&[]);
    let port = cluster.port();
    cluster.run(&format!("head -c 100000 /dev/urandom | timeout 5 nc -w 1 127.0.0.1 {port}"));
    cluster.run(&format!(
        "printf 'GET / HTTP/1.1\\r\\n\\r\\n' | timeout 5 curl -s --max-time 3 telnet://127.0.0.1:{port}"
    ));
    cluster.run(&format!("curl -s --max-time 3 http://127.0.0.1:{port}/"));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let nested =
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"deep"}},"data":{deep}}}"#);
    assert_eq!(cluster.raw("POST", CONFIGMAPS, &nested).code, 400);
    let long_path = format!("/api/v1/namespaces/{}/pods", "n".repeat(20_000));
    let code = cluster.raw("GET", &long_path, "").code;
    assert!((200..=499).contains(&code), "{code}");
    cluster.assert_alive();
}
