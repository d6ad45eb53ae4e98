use super::*;
use coracle_api::catalogue::catalogue;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const KUBECTL: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;\
                       g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

fn built_in() -> ServedApis {
    ServedApis::built_in(catalogue())
}

fn get(path: &str, accept: &str) -> Value {
    let document =
        respond(path, accept, "192.0.2.1:6443", &built_in()).unwrap_or_else(|| panic!("nothing at {path}"));
    serde_json::from_slice(&document.body).unwrap()
}

fn texts(value: &Value) -> String {
    let list: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if list.is_empty() { "-".to_owned() } else { list.join(",") }
}

fn kind(response: &Value) -> String {
    let (group, version) = (response["group"].as_str().unwrap(), response["version"].as_str().unwrap());
    let head = if version.is_empty() { String::new() } else { format!("{group}/{version}/") };
    format!("{head}{}", response["kind"].as_str().unwrap())
}

/// Our aggregated discovery as lines of upstream.txt, without the hash.
fn our_lines() -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for document in [get("/api", V2), get("/apis", V2)] {
        for group in document["items"].as_array().unwrap() {
            for version in group["versions"].as_array().unwrap() {
                let name = group["metadata"]["name"].as_str().unwrap_or_default();
                let gv = coracle_api::catalogue::api_version(name, version["version"].as_str().unwrap());
                for r in version["resources"].as_array().unwrap() {
                    lines.extend(lines_of(&gv, r));
                }
            }
        }
    }
    lines
}

fn lines_of(gv: &str, r: &Value) -> Vec<String> {
    let (plural, scope) = (r["resource"].as_str().unwrap(), r["scope"].as_str().unwrap());
    let mut lines = vec![format!(
        "{gv} {plural} {} {scope} {} {} {}",
        kind(&r["responseKind"]),
        texts(&r["verbs"]),
        texts(&r["shortNames"]),
        texts(&r["categories"])
    )];
    for s in r["subresources"].as_array().into_iter().flatten() {
        let (name, verbs) = (s["subresource"].as_str().unwrap(), texts(&s["verbs"]));
        lines.push(format!("{gv} {plural}/{name} {} {scope} {verbs} - -", kind(&s["responseKind"])));
    }
    lines
}

fn facts(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|l| !l.starts_with('#'))
}

#[test]
fn discovery_is_upstreams_but_for_the_listed_differences() {
    let different: BTreeMap<&str, &str> =
        facts(include_str!("differences.txt")).filter_map(|l| l.split_once(' ')).collect();
    let upstream: Vec<&str> = facts(include_str!("upstream.txt")).collect();
    let expected: BTreeSet<String> = upstream
        .iter()
        .filter(|l| !different.contains_key(l.split(' ').next().unwrap()))
        .map(|l| l.rsplit_once(' ').unwrap().0.to_owned())
        .collect();
    let ours = our_lines();
    let missing: Vec<_> = expected.difference(&ours).collect();
    let extra: Vec<_> = ours.difference(&expected).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing: {missing:#?}\nnot upstream's: {extra:#?}");
    for (gv, reason) in different {
        let needless = !upstream.iter().any(|l| l.split(' ').next() == Some(gv));
        assert!(!needless && !reason.is_empty(), "{gv} is no difference or has no reason");
    }
}

#[test]
fn storage_version_hashes_are_upstreams() {
    let list = get("/api/v1", "");
    let mut compared = 0;
    for line in facts(include_str!("upstream.txt")).filter(|l| l.starts_with("v1 ")) {
        let fields: Vec<&str> = line.split(' ').collect();
        let entry = list["resources"].as_array().unwrap().iter().find(|r| r["name"] == fields[1]).unwrap();
        assert_eq!(entry["storageVersionHash"].as_str().unwrap_or("-"), fields[7], "{line}");
        compared += 1;
    }
    assert!(compared > 30);
}

#[test]
fn plain_and_aggregated_agree() {
    let groups = get("/apis", "application/json");
    assert_eq!(groups["kind"], "APIGroupList");
    let aggregated = get("/apis", KUBECTL);
    assert_eq!(aggregated["apiVersion"], "apidiscovery.k8s.io/v2");
    let names = |list: &Value, path: &str| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|g| g.pointer(path).unwrap().clone()).collect()
    };
    assert_eq!(names(&groups["groups"], "/name"), names(&aggregated["items"], "/metadata/name"));
    for group in groups["groups"].as_array().unwrap() {
        let name = group["name"].as_str().unwrap();
        assert_eq!(get(&format!("/apis/{name}"), "")["preferredVersion"], group["preferredVersion"]);
        for version in group["versions"].as_array().unwrap() {
            let gv = version["groupVersion"].as_str().unwrap();
            let list = get(&format!("/apis/{gv}"), "");
            assert_eq!((&list["groupVersion"], &list["apiVersion"]), (&json!(gv), &json!("v1")));
            assert!(!list["resources"].as_array().unwrap().is_empty());
        }
    }
}

#[test]
fn negotiation() {
    for (accept, expected) in [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/vnd.kubernetes.protobuf,application/json", "application/json"),
        (KUBECTL, V2),
        ("application/json; g=apidiscovery.k8s.io; v=v2; as=APIGroupDiscoveryList", V2),
        (
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        ),
        ("application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList", "application/json"),
    ] {
        for path in ["/api", "/apis"] {
            assert_eq!(
                respond(path, accept, "192.0.2.1:6443", &built_in()).unwrap().content_type,
                expected,
                "{accept}"
            );
        }
    }
}

#[test]
fn what_is_not_served_is_none() {
    for path in
        ["/", "/api/v2", "/apis/nothing", "/apis/apps/v2", "/apis/apps/v1/deployments", "/apis//v1", "/apix"]
    {
        assert!(respond(path, "", "", &built_in()).is_none(), "{path}");
    }
    assert!(respond("/apis/apps/v1/", "", "", &built_in()).is_some());
}

#[test]
fn documents_have_etags() {
    let first = respond("/apis", V2, "", &built_in()).unwrap();
    let again = respond("/apis", V2, "", &built_in()).unwrap();
    assert_eq!(first.etag, again.etag);
    assert!(
        first.matches(&format!("\"x\", {}", again.etag)) && first.matches("*") && !first.matches("\"x\"")
    );
    assert_ne!(first.etag, respond("/apis", V2, "", &ServedApis::built_in(&catalogue()[20..])).unwrap().etag);
    assert_eq!(get("/version", "")["gitVersion"], "v1.36.0");
}

#[test]
fn members_stand_in_the_order_of_upstreams_structs() {
    let text = |path: &str, accept: &str| {
        let document = respond(path, accept, "192.0.2.1:6443", &built_in()).unwrap();
        String::from_utf8(document.body.to_vec()).unwrap()
    };
    let begins = |path: &str, accept: &str, start: &str| {
        let text = text(path, accept);
        assert!(text.starts_with(start), "{path} begins {}", &text[..text.len().min(start.len() + 80)]);
    };
    begins(
        "/api/v1",
        "",
        r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"bindings","singularName":"binding","namespaced":true,"kind":"Binding","verbs":["create"]},"#,
    );
    assert!(text("/api/v1", "").contains(r#""shortNames":["cm"],"storageVersionHash":"qFsyl6wFWjQ="},"#));
    begins(
        "/api",
        "",
        r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"192.0.2.1:6443"}]}"#,
    );
    begins("/apis", "", r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":""#);
    begins(
        "/apis/apps",
        "",
        r#"{"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}"#,
    );
    begins("/version", "", "{\n  \"major\": \"1\",\n  \"minor\": \"36\",\n  \"emulationMajor\"");
    begins(
        "/api",
        V2,
        r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{},"versions":[{"version":"v1","resources":[{"resource":"#,
    );
}

#[test]
fn what_upstream_keeps_as_beta_says_so() {
    for (path, plural, hash) in [
        ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", "jfWCUB31mvA="),
        ("/apis/admissionregistration.k8s.io/v1", "mutatingadmissionpolicies", "LYmCf+UMVdg="),
        ("/apis/admissionregistration.k8s.io/v1", "mutatingadmissionpolicybindings", "90V5FRZZ3Zg="),
    ] {
        let list = get(path, "");
        let entry = list["resources"].as_array().unwrap().iter().find(|r| r["name"] == plural).unwrap();
        assert_eq!(entry["storageVersionHash"], hash, "{plural}");
    }
}
