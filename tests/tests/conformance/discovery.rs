//! Discovery in its forms, preferred versions, the server's version, nodes.

use crate::Suite;
use coracle_tests::rest::Rest;
use serde_json::{Value, json};

#[test]
fn the_server_describes_itself() {
    let mut suite = Suite::start();
    suite.check("server version", |rest| {
        let version = rest.get("/version");
        for field in ["major", "minor", "gitVersion", "buildDate", "goVersion", "platform", "compiler"] {
            assert!(version[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {version}");
        }
        assert!(version["major"].as_str().is_some_and(|n| n.parse::<u32>().is_ok()));
        assert!(version["minor"].as_str().is_some_and(|n| n.parse::<u32>().is_ok()));
    });
    suite.check("preferred version of every group", preferred_versions);
    suite.check("aggregated discovery", aggregated);
    suite.check("two untainted nodes", |rest| {
        let nodes = rest.get("/api/v1/nodes");
        let untainted =
            nodes["items"].as_array().expect("nodes").iter().filter(|n| n["spec"]["taints"].is_null());
        assert!(untainted.count() >= 2);
    });
    suite.check("406 of a backend without metadata", |rest| {
        let body = r#"{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"nonResourceAttributes":{"path":"/x","verb":"get"}}}"#;
        let accept = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io";
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let reply = rest.call("POST", path, &[accept], body);
        assert_eq!(reply.code, 406, "{}", reply.body);
    });
    suite.check("OpenAPI of every group", |rest| {
        let index = rest.get("/openapi/v3");
        let paths = index["paths"].as_object().expect("paths");
        assert!(
            paths.len() > 20 && paths.contains_key("api/v1") && paths.contains_key("apis/resource.k8s.io/v1")
        );
        for (path, entry) in paths {
            let url = entry["serverRelativeURL"].as_str().expect("an address");
            let document = rest.get(url);
            assert!(document["paths"].is_object() && document["openapi"].is_string(), "{path}");
        }
        let v2 = rest.get("/openapi/v2");
        assert_eq!(v2["swagger"], "2.0");
        assert!(v2["definitions"]["io.k8s.api.core.v1.Pod"].is_object());
        // What scripts look for in it.
        let text = v2.to_string();
        for words in ["list of returned", "List of services", "Watch for changes to the described resources"]
        {
            assert!(text.contains(words), "{words}");
        }
    });
    suite.end();
}

fn preferred_versions(rest: &Rest) {
    let groups = rest.get("/apis");
    let groups = groups["groups"].as_array().expect("groups");
    assert!(groups.len() > 15);
    for group in groups {
        let name = group["name"].as_str().expect("a name");
        let preferred = &group["preferredVersion"];
        assert!(group["versions"].as_array().is_some_and(|v| v.contains(preferred)), "{group}");
        let alone = rest.get(&format!("/apis/{name}"));
        assert_eq!(&alone["preferredVersion"], preferred, "{name}");
        for version in group["versions"].as_array().expect("versions") {
            let gv = version["groupVersion"].as_str().expect("a version");
            let list = rest.get(&format!("/apis/{gv}"));
            assert_eq!((&list["kind"], &list["groupVersion"]), (&json!("APIResourceList"), &json!(gv)));
            assert!(list["resources"].as_array().is_some_and(|r| !r.is_empty()), "{gv}");
        }
    }
}

fn aggregated(rest: &Rest) {
    let accept = "Accept: application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList";
    let mut found = Vec::new();
    for path in ["/api", "/apis"] {
        let reply = rest.call("GET", path, &[accept], "");
        assert!(reply.header("content-type").contains("as=APIGroupDiscoveryList"), "{:?}", reply.headers);
        let etag = reply.header("etag").to_owned();
        assert!(!etag.is_empty());
        let same = rest.call("GET", path, &[accept, &format!("If-None-Match: {etag}")], "");
        assert_eq!(same.code, 304);
        let document = reply.ok();
        assert_eq!(document["kind"], "APIGroupDiscoveryList");
        for group in document["items"].as_array().expect("groups") {
            for version in group["versions"].as_array().expect("versions") {
                assert_eq!(version["freshness"], "Current", "{version}");
                found.extend(version["resources"].as_array().expect("resources").iter().map(|r| {
                    format!(
                        "{}/{}",
                        group["metadata"]["name"].as_str().unwrap_or_default(),
                        r["resource"].as_str().expect("a name")
                    )
                }));
            }
        }
    }
    for resource in ["/pods", "apps/deployments", "resource.k8s.io/resourceclaims", "batch/jobs"] {
        assert!(found.contains(&resource.to_owned()), "{resource} in {found:?}");
    }
    let unknown =
        "Accept: application/json;v=v9;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList,application/json";
    let plain: Value = rest.call("GET", "/apis", &[unknown], "").ok();
    assert_eq!(plain["kind"], "APIGroupList");
}
