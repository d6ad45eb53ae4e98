//! Resource quotas: what is counted, what is refused, scopes.

use crate::{Suite, eventually};
use coracle_tests::rest::Rest;
use serde_json::{Value, json};

fn quota(rest: &Rest, ns: &str, name: &str, spec: Value) {
    rest.create(
        &format!("/api/v1/namespaces/{ns}/resourcequotas"),
        &json!({"metadata": {"name": name}, "spec": spec}),
    );
}

#[track_caller]
fn used(rest: &Rest, ns: &str, name: &str, expected: &Value) {
    let path = format!("/api/v1/namespaces/{ns}/resourcequotas/{name}");
    let mut last = Value::Null;
    eventually(&format!("{name}: used {expected}"), || {
        last = rest.get(&path)["status"]["used"].clone();
        (last == *expected).then_some(())
    });
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"schedulerName": "nobody", "terminationGracePeriodSeconds": 0}});
    let resources = spec["resources"].clone();
    pod["spec"]["containers"] = json!([{"name": "c", "image": "nginx", "resources": resources}]);
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64() {
        pod["spec"]["activeDeadlineSeconds"] = json!(seconds);
    }
    pod
}

#[test]
fn quotas_count_and_refuse() {
    let mut suite = Suite::start();
    suite.check_in("objects", objects);
    suite.check_in("pods", pods);
    suite.check_in("best-effort", best_effort);
    suite.check_in("terminating", terminating);
    suite.check_in("life", life);
    suite.end();
}

fn objects(rest: &Rest, ns: &str) {
    let base = format!("/api/v1/namespaces/{ns}");
    // The certificate bundle is there already, or comes.
    let bundle = format!("{base}/configmaps/kube-root-ca.crt");
    eventually("the bundle", || (rest.call("GET", &bundle, &[], "").code == 200).then_some(()));
    let hard = json!({
        "configmaps": "2", "secrets": "1", "services": "2", "services.nodeports": "1", "services.loadbalancers": "1",
        "replicationcontrollers": "1", "count/replicasets.apps": "1",
    });
    quota(rest, ns, "q", json!({"hard": hard}));
    let mut expected = json!({
        "configmaps": "1", "secrets": "0", "services": "0", "services.nodeports": "0", "services.loadbalancers": "0",
        "replicationcontrollers": "0", "count/replicasets.apps": "0",
    });
    used(rest, ns, "q", &expected);
    rest.create(&format!("{base}/configmaps"), &json!({"metadata": {"name": "c"}}));
    rest.create(&format!("{base}/secrets"), &json!({"metadata": {"name": "s"}}));
    rest.create(
        &format!("{base}/services"),
        &json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}),
    );
    let open = json!({"metadata": {"name": "n"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    rest.create(&format!("{base}/services"), &open);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    let rc = json!({"metadata": {"name": "rc"}, "spec": {"replicas": 0, "selector": {"a": "b"}, "template": template}});
    rest.create(&format!("{base}/replicationcontrollers"), &rc);
    let rs = json!({"metadata": {"name": "rs"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    rest.create(&format!("/apis/apps/v1/namespaces/{ns}/replicasets"), &rs);
    for (name, count) in [
        ("configmaps", "2"),
        ("secrets", "1"),
        ("services", "2"),
        ("services.nodeports", "1"),
        ("replicationcontrollers", "1"),
        ("count/replicasets.apps", "1"),
    ] {
        expected[name] = json!(count);
    }
    used(rest, ns, "q", &expected);
    let over = rest.call("POST", &format!("{base}/secrets"), &[], r#"{"metadata":{"name":"more"}}"#);
    assert_eq!(
        over.refused(403, "Forbidden"),
        "secrets \"more\" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=1, limited: secrets=1"
    );
    for path in ["configmaps/c", "secrets/s", "services/s", "services/n", "replicationcontrollers/rc"] {
        rest.delete(&format!("{base}/{path}"));
    }
    rest.delete(&format!("/apis/apps/v1/namespaces/{ns}/replicasets/rs"));
    for name in
        ["secrets", "services", "services.nodeports", "replicationcontrollers", "count/replicasets.apps"]
    {
        expected[name] = json!("0");
    }
    expected["configmaps"] = json!("1");
    used(rest, ns, "q", &expected);
}

fn pods(rest: &Rest, ns: &str) {
    let path = format!("/api/v1/namespaces/{ns}/pods");
    let hard = json!({"pods": "5", "requests.cpu": "1", "requests.memory": "500Mi", "requests.ephemeral-storage": "50Gi", "requests.example.com/dongle": "3"});
    quota(rest, ns, "q", json!({"hard": hard}));
    let nothing = json!({"pods": "0", "requests.cpu": "0", "requests.memory": "0", "requests.ephemeral-storage": "0", "requests.example.com/dongle": "0"});
    used(rest, ns, "q", &nothing);
    let resources = json!({
        "requests": {"cpu": "500m", "memory": "252Mi", "ephemeral-storage": "30Gi", "example.com/dongle": "2"},
        "limits": {"example.com/dongle": "2"},
    });
    rest.create(&path, &pod("fits", json!({"resources": resources})));
    let some = json!({"pods": "1", "requests.cpu": "500m", "requests.memory": "252Mi", "requests.ephemeral-storage": "30Gi", "requests.example.com/dongle": "2"});
    used(rest, ns, "q", &some);
    let big = pod(
        "big",
        json!({"resources": {"requests": {"cpu": "600m", "memory": "1Mi", "ephemeral-storage": "1Gi"}}}),
    );
    let message = rest.call("POST", &path, &[], &big.to_string()).refused(403, "Forbidden");
    assert!(message.contains("exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=500m, limited: requests.cpu=1"), "{message}");
    let vague = pod("vague", json!({"resources": {}}));
    let message = rest.call("POST", &path, &[], &vague.to_string()).refused(403, "Forbidden");
    assert!(message.contains("failed quota: q: must specify"), "{message}");
    rest.merge(&format!("{path}/fits"), &json!({"metadata": {"labels": {"a": "b"}}}));
    used(rest, ns, "q", &some);
    rest.delete(&format!("{path}/fits"));
    used(rest, ns, "q", &nothing);
}

fn best_effort(rest: &Rest, ns: &str) {
    let path = format!("/api/v1/namespaces/{ns}/pods");
    quota(rest, ns, "be", json!({"hard": {"pods": "5"}, "scopes": ["BestEffort"]}));
    quota(rest, ns, "not-be", json!({"hard": {"pods": "5"}, "scopes": ["NotBestEffort"]}));
    rest.create(&path, &pod("plain", json!({"resources": {}})));
    used(rest, ns, "be", &json!({"pods": "1"}));
    used(rest, ns, "not-be", &json!({"pods": "0"}));
    rest.delete(&format!("{path}/plain"));
    used(rest, ns, "be", &json!({"pods": "0"}));
    let burstable = json!({"resources": {"requests": {"cpu": "5m"}, "limits": {"cpu": "10m"}}});
    rest.create(&path, &pod("burstable", burstable));
    used(rest, ns, "not-be", &json!({"pods": "1"}));
    used(rest, ns, "be", &json!({"pods": "0"}));
}

fn terminating(rest: &Rest, ns: &str) {
    let path = format!("/api/v1/namespaces/{ns}/pods");
    quota(rest, ns, "t", json!({"hard": {"pods": "5"}, "scopes": ["Terminating"]}));
    quota(rest, ns, "not-t", json!({"hard": {"pods": "5"}, "scopes": ["NotTerminating"]}));
    rest.create(&path, &pod("long", json!({"resources": {}})));
    used(rest, ns, "not-t", &json!({"pods": "1"}));
    used(rest, ns, "t", &json!({"pods": "0"}));
    rest.create(&path, &pod("short", json!({"resources": {}, "activeDeadlineSeconds": 3600})));
    used(rest, ns, "t", &json!({"pods": "1"}));
    used(rest, ns, "not-t", &json!({"pods": "1"}));
    rest.delete(&format!("{path}/short"));
    used(rest, ns, "t", &json!({"pods": "0"}));
}

fn life(rest: &Rest, ns: &str) {
    let path = format!("/api/v1/namespaces/{ns}/resourcequotas");
    let watch = rest.watch(&format!("{path}?watch=true&labelSelector=q=yes"));
    rest.create(&path, &json!({"metadata": {"name": "q", "labels": {"q": "yes"}}, "spec": {"hard": {"cpu": "500m", "memory": "1Gi"}}}));
    watch.sees("ADDED q");
    let one = format!("{path}/q");
    eventually("an update", || {
        let mut found = rest.get(&one);
        found["spec"]["hard"]["cpu"] = json!("1");
        (rest.call("PUT", &one, &[], &found.to_string()).code == 200).then_some(())
    });
    rest.merge(&one, &json!({"spec": {"hard": {"memory": "2Gi"}}}));
    watch.until("MODIFIED q", |o| o["spec"]["hard"] == json!({"cpu": "1", "memory": "2Gi"}));
    eventually("a status for it", || {
        (rest.get(&one)["status"]["hard"] == json!({"cpu": "1", "memory": "2Gi"})).then_some(())
    });
    let status = json!({"status": {"hard": {"cpu": "9"}, "used": {"cpu": "3"}}});
    assert_eq!(rest.merge(&format!("{one}/status"), &status)["status"]["hard"]["cpu"], "9");
    // The controller puts it right.
    watch.until("MODIFIED q", |o| o["status"]["hard"]["cpu"] == "1");
    rest.call("DELETE", &format!("{path}?labelSelector=q=yes"), &[], "").ok();
    watch.until("DELETED q", |_| true);
}
