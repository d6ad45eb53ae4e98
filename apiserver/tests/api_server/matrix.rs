//! What is wrong for every kind alike, tried on every resource of the catalogue: a new resource is covered by being there.

use crate::support::*;
use coracle_api::{Resource, catalogue};
use serde_json::{Value, json};

fn collection(resource: &Resource) -> String {
    let root = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    match resource.namespaced {
        true => format!("{root}/namespaces/default/{}", resource.plural),
        false => format!("{root}/{}", resource.plural),
    }
}

fn kept() -> Vec<&'static Resource> {
    let all = catalogue::catalogue().iter().map(|r| &**r);
    all.filter(|r| r.is_stored() && r.supports("create") && r.supports("update")).collect()
}

fn bare(resource: &Resource, metadata: Value) -> Value {
    json!({ "apiVersion": resource.api_version(), "kind": resource.kind, "metadata": metadata })
}

/// `reason message` of the causes at a field.
fn causes(status: &Value, field: &str) -> Vec<String> {
    let all = status["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
    let of = all.iter().filter(|c| c["field"] == field);
    of.map(|c| format!("{} {}", text(c, "reason"), text(c, "message"))).collect()
}

#[tokio::test]
async fn bad_metadata_is_named_by_field() {
    let api = Fixture::new().await;
    let long = "a".repeat(254);
    let big = "x".repeat(257 * 1024);
    let owner = json!([{ "apiVersion": "v1", "kind": "Pod", "name": "p" }]);
    let cases = [
        (json!({}), "metadata.name", "FieldValueRequired Required value: name or generateName is required"),
        (json!({ "name": "A/b" }), "metadata.name", "FieldValueInvalid Invalid value: \"A/b\": "),
        (json!({ "name": long }), "metadata.name", "FieldValueInvalid Invalid value: \"aaa"),
        (
            json!({ "name": "a", "labels": { "-x": "y" } }),
            "metadata.labels",
            "FieldValueInvalid Invalid value: \"-x\": ",
        ),
        (
            json!({ "name": "a", "labels": { "x": "y z" } }),
            "metadata.labels",
            "FieldValueInvalid Invalid value: \"y z\": ",
        ),
        (
            json!({ "name": "a", "annotations": { "a b": "" } }),
            "metadata.annotations",
            "FieldValueInvalid Invalid value: \"a b\": ",
        ),
        (
            json!({ "name": "a", "annotations": { "a": big } }),
            "metadata.annotations",
            "FieldValueTooLong Too long: may not be more than 262144 bytes",
        ),
        (
            json!({ "name": "a", "ownerReferences": owner }),
            "metadata.ownerReferences.uid",
            "FieldValueInvalid Invalid value: \"\": must not be empty",
        ),
        (
            json!({ "name": "a", "finalizers": ["a b"] }),
            "metadata.finalizers",
            "FieldValueInvalid Invalid value: \"a b\": ",
        ),
    ];
    for resource in kept() {
        let segments =
            matches!(&*resource.group, "policy" | "rbac.authorization.k8s.io" | "certificates.k8s.io");
        for (metadata, field, wanted) in &cases {
            // Names of RBAC, budgets and certificate requests are segments of a path, of any length.
            if segments && metadata["name"] == *long {
                continue;
            }
            // A limit range gets a name, and that of a certificate request is looked at behind all the rest.
            let late = match &*resource.plural {
                "limitranges" => metadata.get("name").is_none(),
                "certificatesigningrequests" => metadata["name"] == "A/b",
                _ => false,
            };
            if late {
                continue;
            }
            let status = api.post(&collection(resource), &bare(resource, metadata.clone())).await.expect(422);
            assert_eq!(status["reason"], "Invalid", "{status}");
            let found = causes(&status, field);
            let shown: String = status.to_string().chars().take(2000).collect();
            assert!(
                found.iter().any(|cause| cause.starts_with(wanted)),
                "{} {field}: {wanted:?} is not in {shown}",
                resource.plural
            );
            let head = status["message"].as_str().unwrap();
            assert!(head.contains(&format!("{field}: ")), "the message names the field: {shown}");
        }
    }
}

#[tokio::test]
async fn bodies_that_are_no_object_of_the_kind() {
    let api = Fixture::new().await;
    let deep = format!("{}1{}", "[".repeat(20_000), "]".repeat(20_000));
    for resource in kept() {
        let path = collection(resource);
        let refused = |body: String, query: &'static str| {
            let (api, path) = (api.clone(), format!("{path}{query}"));
            async move { api.ask("POST", &path, "application/json", body).await.expect(400) }
        };
        for metadata in
            [json!("x"), json!({ "name": 1 }), json!({ "labels": ["x"] }), json!({ "labels": { "a": 1 } })]
        {
            let status = refused(bare(resource, metadata.clone()).to_string(), "").await;
            assert_eq!(status["reason"], "BadRequest", "{} {metadata}", resource.plural);
        }
        let mut unknown = bare(resource, json!({ "name": "a", "bogus": 1 }));
        unknown["bogus"] = 1.into();
        let status = refused(unknown.to_string(), "?fieldValidation=Strict").await;
        let message = status["message"].as_str().unwrap();
        for field in ["\"bogus\"", "\"metadata.bogus\""] {
            assert!(message.contains(&format!("unknown field {field}")), "{message}");
        }
        let nested = bare(resource, json!({ "name": "a", "annotations": "DEEP" })).to_string();
        refused(nested.replace("\"DEEP\"", &deep), "").await;
        refused(deep.clone(), "").await;
        refused("{".to_owned(), "").await;
        let mut other = bare(resource, json!({ "name": "a" }));
        other["kind"] = "Other".into();
        refused(other.to_string(), "").await;
        if resource.namespaced {
            let elsewhere = bare(resource, json!({ "name": "a", "namespace": "elsewhere" }));
            refused(elsewhere.to_string(), "").await;
        }
    }
}
