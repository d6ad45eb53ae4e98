//! Who may see what a selector selects sees that and nothing else, however the query is written.

use super::access::{cluster, grant, user};
use super::support::{Answer, Fixture, pod};
use serde_json::{Value, json};

/// Ways to write a query whose selector an authorizer could read otherwise than the list. `SELECTOR` is what would be
/// allowed.
const TRICKS: &[&str] = &[
    "fieldSelector=&fieldSelector=SELECTOR",
    "fieldSelector&fieldSelector=SELECTOR",
    "fieldSelector=metadata.namespace%21%3Dx&fieldSelector=SELECTOR",
    "fieldSelector=SELECTOR%20&fieldSelector=SELECTOR",
    "fieldselector=SELECTOR",
    "fieldSelector%00=SELECTOR",
    "fieldSelector=metadata.namespace%21%3D%5C%2CSELECTOR",
    "fieldSelector=metadata.namespace%21%3D%5C%5C%5C%2CSELECTOR",
    "labelSelector=SELECTOR",
    "a=b;fieldSelector=SELECTOR",
    "fieldSelector=SELECTOR;a=b",
    "fieldSelector=SELECTOR%zz",
    "fieldSelector=%ff&fieldSelector=SELECTOR",
    "%66ieldSelector=&fieldSelector=SELECTOR",
    "fieldSelector=&%66ieldSelector=SELECTOR",
    "fieldSelector=+&fieldSelector=SELECTOR",
];

/// The tricks, as a list, a watch that ends at once, and a watch of the old form.
fn tries(collection: &str, selector: &str) -> Vec<String> {
    let old = collection.replacen("/api/v1/", "/api/v1/watch/", 1);
    let each = |trick: &&str| {
        let query = trick.replace("SELECTOR", &selector.replace('=', "%3D"));
        let watch =
            format!("{query}&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
        [format!("{collection}?{query}"), format!("{collection}?watch=1&{watch}"), format!("{old}?{watch}")]
    };
    TRICKS.iter().flat_map(each).collect()
}

fn shows(answer: &Answer, name: &str) -> bool {
    String::from_utf8_lossy(&answer.body).contains(&format!("\"{name}\""))
}

async fn sees_its_own_alone(asker: &Fixture, collection: &str, selector: &str) {
    let plain = asker.get(&format!("{collection}?fieldSelector={}", selector.replace('=', "%3D"))).await;
    assert!(shows(&plain, "own") && !shows(&plain, "foreign"), "{}", plain.expect(200));
    for uri in tries(collection, selector) {
        let answer = asker.get(&uri).await;
        assert!(!shows(&answer, "foreign"), "{uri}: {}", String::from_utf8_lossy(&answer.body));
        assert!(matches!(answer.status.as_u16(), 200 | 400 | 403), "{uri}: {}", answer.status);
    }
}

fn bound(name: &str, node: &str, secret: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["nodeName"] = node.into();
    pod["spec"]["serviceAccountName"] = "default".into();
    pod["spec"]["volumes"] = json!([{ "name": "s", "secret": { "secretName": secret } }]);
    pod
}

#[tokio::test]
async fn a_node_sees_its_own_pods_and_their_secrets() {
    let (admin, _pki, _dir) = cluster().await;
    admin
        .post("/api/v1/namespaces/default/serviceaccounts", &json!({ "metadata": { "name": "default" } }))
        .await;
    for (name, node) in [("own", "one"), ("foreign", "two")] {
        admin.post("/api/v1/nodes", &json!({ "metadata": { "name": node } })).await.expect(201);
        let secret = json!({ "metadata": { "name": name }, "stringData": { "k": "v" } });
        admin.post("/api/v1/namespaces/default/secrets", &secret).await.expect(201);
        admin.post("/api/v1/namespaces/default/pods", &bound(name, node, name)).await.expect(201);
    }
    let node = user(&admin, "system:node:one", &["system:nodes"]);
    node.get("/api/v1/pods").await.expect(403);
    sees_its_own_alone(&node, "/api/v1/pods", "spec.nodeName=one").await;
    sees_its_own_alone(&node, "/api/v1/namespaces/default/pods", "spec.nodeName=one").await;
    sees_its_own_alone(&node, "/api/v1/namespaces/default/secrets", "metadata.name=own").await;
    // A selector that selects by nothing, in the words of the one for the name.
    for collection in ["pods", "secrets"] {
        let all = if collection == "pods" { "spec.nodeName" } else { "type" };
        let uri = format!(
            "/api/v1/namespaces/default/{collection}?fieldSelector={all}!%3D%5C%2Cmetadata.name%3Down"
        );
        let answer = node.get(&uri).await;
        assert!(!shows(&answer, "foreign"), "{}", String::from_utf8_lossy(&answer.body));
        assert_eq!(answer.status, 403, "{}", String::from_utf8_lossy(&answer.body));
    }
}

/// RBAC's `resourceNames` go by the name that a selector demands.
#[tokio::test]
async fn a_right_to_one_name_is_to_that_name() {
    let (admin, _pki, _dir) = cluster().await;
    for name in ["own", "foreign"] {
        let secret = json!({ "metadata": { "name": name }, "stringData": { "k": "v" } });
        admin.post("/api/v1/namespaces/default/secrets", &secret).await.expect(201);
    }
    let rules = json!([{ "verbs": ["list", "watch", "deletecollection"], "apiGroups": [""], "resources": ["secrets"],
        "resourceNames": ["own"] }]);
    grant(&admin, "jane", rules).await;
    let jane = user(&admin, "jane", &[]);
    sees_its_own_alone(&jane, "/api/v1/namespaces/default/secrets", "metadata.name=own").await;
    let uri = "/api/v1/namespaces/default/secrets?fieldSelector=type!%3D%5C%2Cmetadata.name%3Down";
    assert_eq!(jane.get(uri).await.status, 403);
    for uri in tries("/api/v1/namespaces/default/secrets", "metadata.name=own") {
        jane.delete(&uri).await;
    }
    admin.get("/api/v1/namespaces/default/secrets/foreign").await.expect(200);
}
