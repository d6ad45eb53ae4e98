//! How far a namespace reaches: whoever may do everything in one does nothing outside of it, by no path.

use super::access::{cluster, grant, user};
use super::custom_support::{establish, of_versions, version};
use super::support::Fixture;
use axum::body::Body;
use coracle_api::{Resource, catalogue};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"];

/// A server with the namespace `n`, in which the tenant may do everything.
async fn tenancy() -> (Fixture, Fixture, tempfile::TempDir) {
    let (admin, _pki, dir) = cluster().await;
    admin.post("/api/v1/namespaces", &json!({ "metadata": { "name": "n" } })).await.expect(201);
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": { "name": "all" }, "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": "tenant" }],
    });
    admin.post(&format!("{RBAC}/namespaces/n/rolebindings"), &binding).await.expect(201);
    let tenant = user(&admin, "tenant", &[]);
    tenant.get("/api/v1/namespaces/n").await.expect(200);
    tenant.get("/api/v1/namespaces/n/pods").await.expect(200);
    (admin, tenant, dir)
}

fn root(resource: &Resource) -> String {
    match &*resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    }
}

/// The object, its collection, its subresources, and the ways past them that clients know.
fn paths(base: &str, plural: &str, subresources: &[String]) -> Vec<String> {
    let one = format!("{base}/{plural}/n");
    let mut paths =
        vec![format!("{base}/{plural}"), one.clone(), format!("{one}/"), format!("{one}/proxy/x")];
    paths.push(format!("{base}/{plural}?fieldSelector=metadata.name%3Dn"));
    paths.push(format!("{base}/{plural}?fieldSelector=metadata.name%3Dn&watch=1"));
    paths.extend(subresources.iter().map(|name| format!("{one}/{name}")));
    paths
}

fn subresources(resource: &Resource) -> Vec<String> {
    resource.subresources.iter().map(|sub| sub.name.to_string()).collect()
}

/// Asks by every method; nobody finds anything there, and nothing happens.
async fn nothing_at(asker: &Fixture, paths: &[String]) {
    let before = asker.api.registry().store.revision();
    for path in paths {
        for method in METHODS {
            let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            let body = if matches!(method, "POST" | "PUT" | "PATCH") { "{}" } else { "" };
            let answer = asker.ask(method, path, kind, Body::from(body)).await;
            assert!(
                matches!(answer.status.as_u16(), 403 | 404),
                "{method} {path}: {} {}",
                answer.status,
                String::from_utf8_lossy(&answer.body)
            );
        }
    }
    assert_eq!(asker.api.registry().store.revision(), before, "something was written");
}

#[tokio::test]
async fn through_a_namespace_nothing_outside_is_reached() {
    let (admin, tenant, _dir) = tenancy().await;
    let volume = json!({ "metadata": { "name": "n" }, "spec": { "capacity": { "storage": "1Gi" },
        "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/x" } } });
    admin.post("/api/v1/persistentvolumes", &volume).await.expect(201);
    admin.post("/api/v1/nodes", &json!({ "metadata": { "name": "n" } })).await.expect(201);
    let mut count = 0;
    for resource in catalogue::catalogue().iter().filter(|r| !r.namespaced) {
        let base = format!("{}/namespaces/n", root(resource));
        let paths = paths(&base, &resource.plural, &subresources(resource));
        // The administrator may, and finds nothing there either.
        nothing_at(&tenant, &paths).await;
        nothing_at(&admin, &paths).await;
        count += 1;
    }
    assert!(count > 30, "only {count} kinds are outside of namespaces");
    admin.get("/api/v1/persistentvolumes/n").await.expect(200);
}

#[tokio::test]
async fn outside_of_namespaces_nothing_inside_is_reached() {
    let (admin, _tenant, _dir) = tenancy().await;
    for resource in catalogue::catalogue().iter().filter(|r| r.namespaced) {
        let one = format!("{}/{}/n", root(resource), resource.plural);
        let mut paths: Vec<String> =
            subresources(resource).into_iter().map(|name| format!("{one}/{name}")).collect();
        paths.extend([one.clone(), format!("{one}/proxy/x")]);
        nothing_at(&admin, &paths).await;
    }
}

#[tokio::test]
async fn custom_resources_likewise() {
    let (admin, tenant, _dir) = tenancy().await;
    for (plural, kind) in [("widgets", "Widget"), ("namespaces", "Namespace")] {
        let mut definition = of_versions(&json!([version("v1", true, &json!({ "type": "object" }))]));
        definition["metadata"]["name"] = format!("{plural}.example.com").into();
        definition["spec"]["scope"] = "Cluster".into();
        definition["spec"]["names"] = json!({ "plural": plural, "kind": kind });
        establish(&admin, &definition).await;
        let object = json!({ "apiVersion": "example.com/v1", "kind": kind, "metadata": { "name": "n" } });
        admin.post(&format!("/apis/example.com/v1/{plural}"), &object).await.expect(201);
        let paths = paths("/apis/example.com/v1/namespaces/n", plural, &[]);
        nothing_at(&tenant, &paths).await;
        nothing_at(&admin, &paths).await;
        let own = format!("/apis/example.com/v1/{plural}/n");
        admin.get(&own).await.expect(200);
        // Another group's namespaces are no namespaces: a right in the namespace is none to them.
        tenant.get(&own).await.expect(403);
        tenant.delete(&own).await.expect(403);
    }
}

/// The namespace itself is in itself, as upstream has it.
#[tokio::test]
async fn a_namespace_is_reached_by_its_own_path_alone() {
    let (admin, tenant, _dir) = tenancy().await;
    grant(&admin, "reader", json!([{ "verbs": ["list"], "apiGroups": [""], "resources": ["pods"] }])).await;
    tenant.get("/api/v1/namespaces/n").await.expect(200);
    tenant.get("/api/v1/namespaces/default").await.expect(403);
    tenant.get("/api/v1/namespaces").await.expect(403);
    let labels: Value = json!({ "metadata": { "labels": { "a": "b" } } });
    tenant.patch("/api/v1/namespaces/n", "merge-patch", &labels).await.expect(200);
    nothing_at(&tenant, &paths("/api/v1/namespaces/n", "namespaces", &["status".into(), "finalize".into()]))
        .await;
}
