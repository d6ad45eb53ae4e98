//! Other API servers behind this one: found, proxied, told who asks, and missed when they are gone.

use crate::{Suite, eventually};
use coracle_tests::custom::condition;
use coracle_tests::hook::{Call, Hook, Told};
use coracle_tests::rest::Rest;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1alpha1.wardle.example.com";
const BASE: &str = "/apis/wardle.example.com/v1alpha1";
const FLUNDERS: &str = "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders";

/// A server of flunders: what the sample API server of upstream's tests does, without storage of its own.
#[derive(Clone, Default)]
struct Wardle(Arc<Mutex<Vec<Value>>>);

impl Wardle {
    fn answer(&self, call: &Call) -> Told {
        let verbs = ["create", "delete", "get", "list"];
        let resource = json!({"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder", "verbs": verbs});
        let resources = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "wardle.example.com/v1alpha1", "resources": [resource]});
        let mut stored = self.0.lock().expect("no panic");
        match (call.method.as_str(), call.route()) {
            ("GET", BASE) => Told::json(200, &resources),
            ("GET", "/apis") => Told::json(404, &json!({"kind": "Status", "code": 404})),
            ("GET", "/openapi/v2") => Told::json(200, &openapi()),
            ("GET", FLUNDERS) => {
                let list = json!({"kind": "FlunderList", "apiVersion": "wardle.example.com/v1alpha1", "metadata": {"resourceVersion": "1"}, "items": *stored});
                Told::json(200, &list)
            }
            ("POST", FLUNDERS) => {
                let mut object = call.body.clone();
                object["metadata"]["uid"] = json!("0");
                stored.push(object.clone());
                Told::json(201, &object)
            }
            ("DELETE", path) if path.starts_with(FLUNDERS) => {
                stored.retain(|object| object["metadata"]["name"] != path[FLUNDERS.len() + 1..]);
                Told::json(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
            ("GET", path) if path.ends_with("/teapot") => Told::text(418, "short and stout"),
            _ => Told::json(
                404,
                &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}),
            ),
        }
    }
}

fn openapi() -> Value {
    let kind = json!([{"group": "wardle.example.com", "version": "v1alpha1", "kind": "Flunder"}]);
    let flunder =
        json!({"type": "object", "description": "A flunder.", "x-kubernetes-group-version-kind": kind});
    json!({
        "swagger": "2.0", "info": {"title": "wardle", "version": "v1"},
        "paths": {FLUNDERS.replace("/default/", "/{namespace}/"): {"get": {"responses": {"200": {"description": "OK"}}}}},
        "definitions": {"com.example.wardle.v1alpha1.Flunder": flunder},
    })
}

#[test]
fn other_servers_are_aggregated() {
    let mut suite = Suite::start();
    let trusted =
        suite.rest.get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication");
    let trusted = trusted["data"]["requestheader-client-ca-file"].as_str().expect("an authority").to_owned();
    let wardle = Wardle::default();
    let hook = Hook::trusting(Some(&trusted), move |call| wardle.answer(call));
    let shell = suite.cluster().in_namespace("hooks");
    suite.check("available", |rest| available(rest, &hook));
    suite.check("objects", |rest| objects(rest, &hook));
    suite.check("discovery and OpenAPI", documents);
    suite.check("who asks", |rest| identity(rest, &hook));
    suite.check("kubectl", |_| {
        shell.shows("kubectl api-resources --api-group=wardle.example.com", &["flunders", "wardle.example.com/v1alpha1", "true", "Flunder"]);
        let flunder = r#"{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"from-kubectl","namespace":"default"}}"#;
        let made = shell.run_with("kubectl create --validate=false -f -", flunder);
        assert_eq!(made.stdout, "flunder.wardle.example.com/from-kubectl created\n", "{made}");
        shell.says("kubectl get flunders -n default -o name", "flunder.wardle.example.com/from-kubectl");
        shell.shows(
            "kubectl delete flunder -n default from-kubectl",
            &["flunder.wardle.example.com \"from-kubectl\" deleted"],
        );
    });
    suite.check("permissions", |rest| {
        let as_nobody = ["Impersonate-User: nobody"];
        let reply = rest.call("GET", FLUNDERS, &as_nobody, "");
        assert!(reply.refused(403, "Forbidden").contains(
            "User \"nobody\" cannot list resource \"flunders\" in API group \"wardle.example.com\""
        ));
    });
    suite.check("status and patches", status);
    suite.check("gone", |rest| gone(rest, hook));
    suite.end();
}

fn registered(hook: &Hook) -> Value {
    let service = json!({"namespace": "hooks", "name": "hook", "port": hook.port()});
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": NAME},
        "spec": {
            "group": "wardle.example.com", "version": "v1alpha1", "service": service, "caBundle": hook.bundle(),
            "groupPriorityMinimum": 2000, "versionPriority": 200,
        },
    })
}

/// A condition of the service with its reason.
fn verdict(rest: &Rest) -> (String, String) {
    let found = rest.get(&format!("{SERVICES}/{NAME}"));
    let all = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let reason =
        all.iter().find(|c| c["type"] == "Available").and_then(|c| c["reason"].as_str()).unwrap_or_default();
    (condition(&found, "Available").to_owned(), reason.to_owned())
}

fn available(rest: &Rest, hook: &Hook) {
    rest.create(SERVICES, &registered(hook));
    eventually("a missing service", || {
        (verdict(rest) == ("False".to_owned(), "ServiceNotFound".to_owned())).then_some(())
    });
    assert_eq!(rest.call("GET", FLUNDERS, &[], "").code, 503);
    rest.create("/api/v1/namespaces/hooks/services", &Hook::service());
    eventually("a good service", || {
        (verdict(rest) == ("True".to_owned(), "Passed".to_owned())).then_some(())
    });
    let local = rest.get(&format!("{SERVICES}/v1.apps"));
    assert_eq!((condition(&local, "Available"), &local["spec"]["service"]), ("True", &Value::Null));
}

fn objects(rest: &Rest, hook: &Hook) {
    let flunder = json!({"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "metadata": {"name": "f", "namespace": "default"}});
    let made = rest.create(FLUNDERS, &flunder);
    assert_eq!(made["metadata"]["uid"], "0");
    assert_eq!(rest.get(FLUNDERS)["items"].as_array().map(Vec::len), Some(1));
    rest.delete(&format!("{FLUNDERS}/f"));
    assert_eq!(rest.get(FLUNDERS)["items"], json!([]));
    let odd = rest.call("GET", &format!("{BASE}/teapot"), &[], "");
    assert_eq!((odd.code, odd.body), (418, json!("short and stout")));
    hook.take();
    rest.call("GET", &format!("{FLUNDERS}?labelSelector=a%3Db&limit=5"), &["Accept: application/json"], "")
        .ok();
    let call = hook.take().into_iter().find(|call| call.route() == FLUNDERS).expect("a call");
    assert!(call.path.ends_with("?labelSelector=a%3Db&limit=5"), "{}", call.path);
}

fn documents(rest: &Rest) {
    let groups = rest.get("/apis");
    let found =
        groups["groups"].as_array().expect("groups").iter().position(|g| g["name"] == "wardle.example.com");
    assert!(found.is_some(), "{groups}");
    assert_eq!(rest.get("/apis/wardle.example.com")["preferredVersion"]["version"], "v1alpha1");
    assert_eq!(rest.get(BASE)["resources"][0]["name"], "flunders");
    let accept = "Accept: application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList";
    eventually("aggregated discovery", || {
        let all = rest.call("GET", "/apis", &[accept], "").ok();
        let group =
            all["items"].as_array()?.iter().find(|g| g["metadata"]["name"] == "wardle.example.com")?.clone();
        (group["versions"][0]["resources"][0]["resource"] == "flunders").then_some(())
    });
    eventually("OpenAPI v2", || {
        let found = rest.get("/openapi/v2")["definitions"]["com.example.wardle.v1alpha1.Flunder"].clone();
        found.is_object().then_some(())
    });
}

/// The proxy shows its own certificate and names the caller; what the caller claims in those headers is dropped.
fn identity(rest: &Rest, hook: &Hook) {
    hook.take();
    let headers = [
        "Impersonate-User: alice",
        "Impersonate-Group: system:masters",
        "Impersonate-Extra-Scopes: view",
        "X-Remote-User: mallory",
        "X-Remote-Group: others",
    ];
    rest.call("GET", FLUNDERS, &headers, "").ok();
    let call = hook.take().into_iter().find(|call| call.route() == FLUNDERS).expect("a call");
    assert!(call.certified, "with the front proxy's certificate");
    assert_eq!(call.header("x-remote-user"), "alice");
    let groups: Vec<_> =
        call.headers.get_all("x-remote-group").iter().filter_map(|v| v.to_str().ok()).collect();
    assert!(
        groups.contains(&"system:masters")
            && groups.contains(&"system:authenticated")
            && !groups.contains(&"others"),
        "{groups:?}"
    );
    assert_eq!(call.header("x-remote-extra-scopes"), "view");
    assert!(
        call.header("authorization").is_empty() && call.header("impersonate-user").is_empty(),
        "{:?}",
        call.headers
    );
}

fn status(rest: &Rest) {
    let one = format!("{SERVICES}/{NAME}");
    let patched = rest.merge(&format!("{one}/status"), &json!({"metadata": {"annotations": {"a": "b"}}, "status": {"conditions": rest.get(&one)["status"]["conditions"]}}));
    assert_eq!(condition(&patched, "Available"), "True");
    let labelled = rest.merge(&one, &json!({"metadata": {"labels": {"apiservice": "patched"}}}));
    assert_eq!(labelled["metadata"]["labels"]["apiservice"], "patched");
    let list = rest.get(&format!("{SERVICES}?labelSelector=apiservice=patched"));
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
}

fn gone(rest: &Rest, hook: Hook) {
    drop(hook);
    let reply = rest.call("GET", FLUNDERS, &[], "");
    assert_eq!(reply.code, 503, "{}", reply.body);
    // Everything else is served, discovery included.
    assert_eq!(rest.call("GET", "/api/v1/namespaces", &[], "").code, 200);
    assert_eq!(rest.call("GET", "/apis", &[], "").code, 200);
    rest.call("DELETE", &format!("{SERVICES}?labelSelector=apiservice=patched"), &[], "").ok();
    eventually("its end", || (rest.call("GET", BASE, &[], "").code == 404).then_some(()));
    eventually("the group's end", || {
        (rest.call("GET", "/apis/wardle.example.com", &[], "").code == 404).then_some(())
    });
}
