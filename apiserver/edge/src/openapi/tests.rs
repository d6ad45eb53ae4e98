use super::*;
use crate::discovery::ServedApis;
use coracle_api::catalogue::catalogue;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The answer, made.
pub fn respond(
    path: &str,
    accept: &str,
    resources: &[std::sync::Arc<coracle_api::Resource>],
) -> Option<Result<Document, ApiError>> {
    let offer = Arc::new(Documents::new(ServedApis::built_in(resources), Arc::default()));
    find(path, accept, &offer).map(|found| found.map(|page| page.make().whole()))
}

fn get(path: &str) -> Value {
    let document =
        respond(path, "application/json", catalogue()).unwrap_or_else(|| panic!("nothing at {path}"));
    serde_json::from_slice(&document.unwrap().body).unwrap()
}

/// Every `$ref` in a document.
pub fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value.as_str().filter(|_| key == "$ref") {
                    Some(target) => {
                        found.insert(target.to_owned());
                    }
                    None => references(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|v| references(v, found)),
        _ => {}
    }
}

fn assert_closed(document: &Value, refers: bool) {
    let mut found = BTreeSet::new();
    references(document, &mut found);
    assert!(!refers || !found.is_empty());
    for target in found {
        let pointer = target.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{target} points nowhere");
    }
}

#[test]
fn every_indexed_document_is_whole() {
    let index = get("/openapi/v3");
    let paths = index["paths"].as_object().unwrap();
    assert!(
        ["api", "api/v1", "apis", "apis/apps", "apis/apps/v1", "version"]
            .iter()
            .all(|d| paths.contains_key(*d))
    );
    for (name, entry) in paths {
        let url = entry["serverRelativeURL"].as_str().unwrap();
        let (path, hash) = url.split_once("?hash=").unwrap();
        assert_closed(&get(path), name.starts_with("api"));
        let document = respond(path, "", catalogue()).unwrap().unwrap();
        assert_eq!(keep(path, Some(hash), &document.etag), Keep::ForEver);
        assert_eq!(keep(path, None, &document.etag), Keep::Ask);
        assert_eq!(keep(path, Some("0"), &document.etag), Keep::Elsewhere(url.to_owned()));
    }
}

/// What kubectl looks for before it trusts the server with field validation.
#[test]
fn every_patchable_kind_has_field_validation() {
    for resource in catalogue().iter().filter(|r| r.supports("patch")) {
        let gv = match &*resource.group {
            "" => "api/v1".to_owned(),
            group => format!("apis/{group}/{}", resource.version),
        };
        let document = get(&format!("/openapi/v3/{gv}"));
        let identity = json!({ "group": resource.group, "version": resource.version, "kind": resource.kind });
        let found = document["paths"].as_object().unwrap().values().any(|path| {
            let patch = &path["patch"];
            let parameters = patch["parameters"].as_array().into_iter().flatten();
            patch["x-kubernetes-group-version-kind"] == identity
                && parameters.into_iter().any(|p| p["name"] == "fieldValidation")
        });
        assert!(found, "{}", resource.qualified());
    }
}

#[test]
fn schemas_carry_facts_and_prose() {
    let document = get("/openapi/v3/api/v1");
    let schemas = &document["components"]["schemas"];
    let spec = &schemas["io.k8s.api.core.v1.PodSpec"];
    let containers = &spec["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    let container = json!([{ "$ref": "#/components/schemas/io.k8s.api.core.v1.Container" }]);
    assert_eq!(containers["items"], json!({ "allOf": container, "default": {} }));
    let policy = &spec["properties"]["restartPolicy"];
    assert_eq!(policy["enum"], json!(["Always", "Never", "OnFailure"]));
    assert!(containers["description"].as_str().unwrap().len() > 20);
    assert!(spec["description"].is_string());
    assert_eq!(spec["properties"]["volumes"]["x-kubernetes-patch-strategy"], "merge,retainKeys");
    assert_eq!(spec["properties"]["nodeSelector"]["x-kubernetes-map-type"], "atomic");
    assert_eq!(spec["required"], json!(["containers"]));
    let pod = &schemas["io.k8s.api.core.v1.Pod"];
    let identity = json!([{ "group": "", "kind": "Pod", "version": "v1" }]);
    assert_eq!(pod["x-kubernetes-group-version-kind"], identity);
    let limits = &schemas["io.k8s.api.core.v1.ResourceRequirements"]["properties"]["limits"];
    assert!(limits["additionalProperties"]["$ref"].as_str().unwrap().ends_with(".Quantity"));
}

/// `kubectl explain` shows a description for every kind and each of its own fields.
#[test]
fn every_kind_is_explained() {
    let prose = prose::Prose::load();
    for resource in catalogue() {
        let ty = coracle_api::schema::root(&resource.group, &resource.version, &resource.kind).unwrap();
        assert!(prose.of_type(ty.name()).is_some(), "{}", ty.name());
        // The one field that upstream does not describe.
        let bare = |field: &str| resource.kind == "CertificateSigningRequest" && field == "metadata";
        for field in ty.fields().filter(|field| !bare(field.name())) {
            assert!(prose.of_field(ty.name(), field.name()).is_some(), "{}.{}", ty.name(), field.name());
        }
    }
}

#[test]
fn v2_is_whole_and_has_unique_operations() {
    let document = get("/openapi/v2");
    assert_closed(&document, true);
    assert_eq!(document["swagger"], "2.0");
    let mut ids = BTreeSet::new();
    for path in document["paths"].as_object().unwrap().values() {
        for (_, operation) in path.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters") {
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{id} twice");
        }
    }
    for id in [
        "readAppsV1NamespacedDeploymentStatus",
        "listCoreV1PodForAllNamespaces",
        "deleteCoreV1CollectionNamespacedPod",
        "patchRbacAuthorizationV1ClusterRole",
        "connectCoreV1GetNamespacedPodExec",
        "connectCoreV1GetNodeProxyWithPath",
        "createCoreV1NamespacedPodEviction",
    ] {
        assert!(ids.contains(id), "{id} is missing");
    }
    let ports = &document["definitions"]["io.k8s.api.core.v1.ServiceSpec"]["properties"]["ports"];
    assert_eq!(ports["x-kubernetes-patch-merge-key"], "port");
}

#[test]
fn negotiation_and_absence() {
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let document = respond("/openapi/v2", protobuf, catalogue()).unwrap().unwrap();
    assert!(document.content_type.ends_with("+protobuf") && document.body.starts_with(b"\x0a\x032.0"));
    assert_eq!(respond("/openapi/v2", "text/html", catalogue()).unwrap().unwrap_err().code, 406);
    for accept in ["", "*/*", "application/json;q=0.5, text/html"] {
        assert!(respond("/openapi/v3", accept, catalogue()).unwrap().is_ok());
    }
    for path in
        ["/openapi", "/openapi/v1", "/openapi/v3/api/v2", "/openapi/v3/apis/apps/v2", "/openapi/v3/apis/x"]
    {
        assert!(respond(path, "", catalogue()).is_none(), "{path}");
    }
}

/// A server's documents before and after a definition: the share of built-in resources is made once, and both are whole.
#[tokio::test]
async fn only_what_a_definition_brings_is_made_anew() {
    use crate::discovery::NoForeign;
    use coracle_resources::catalogue::testing::{definition, snapshot};
    let shares = Arc::new(Shares::default());
    let has = |body: &[u8], text: &str| body.windows(text.len()).any(|w| w == text.as_bytes());
    for (form, accept) in [
        (Form::Json, "application/json"),
        (Form::Protobuf, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"),
    ] {
        let made = |definitions: &[Value]| {
            let offer = ServedApis::new(catalogue(), snapshot(definitions), Arc::new(NoForeign));
            let offer = Documents::new(offer, shares.clone());
            let page = find("/openapi/v2", accept, &Arc::new(offer)).unwrap().unwrap();
            let share = |_: &Document| shares.get(form, || panic!("made again"));
            let document = page.make().whole();
            (share(&document), document)
        };
        let (first, before) = made(&[]);
        let (second, after) = made(&[definition("notes", "Note"), definition("books", "Book")]);
        assert!(Arc::ptr_eq(&first, &second));
        assert_ne!(before.etag, after.etag);
        for text in ["com.example.v1.Note", "com.example.v1.BookList", "/apis/example.com/v1/notes"] {
            assert!(!has(&before.body, text) && has(&after.body, text), "{text} {form:?}");
        }
        assert!(after.body.len() < before.body.len() + 60_000, "{}", after.body.len() - before.body.len());
        if form == Form::Json {
            let document = serde_json::from_slice(&after.body).unwrap();
            assert_closed(&document, true);
            let text = &document["definitions"]["com.example.v1.Note"]["properties"]["text"];
            assert_eq!(text, &json!({ "type": "string" }));
            let paths = document["paths"].as_object().unwrap();
            assert!(paths.contains_key("/apis/apps/") && !paths.contains_key("/apis/example.com/v1/"));
        }
    }
}

/// ETags follow what is published, not what else changes in a definition.
#[test]
fn tags_follow_the_specification() {
    use crate::discovery::NoForeign;
    use coracle_resources::catalogue::testing::{definition, snapshot};
    let tags = |definition: &Value| {
        let offer =
            ServedApis::new(catalogue(), snapshot(std::slice::from_ref(definition)), Arc::new(NoForeign));
        let offer = Documents::new(offer, Arc::default());
        let tags = ETags::of(&offer);
        (tags.v2.clone(), tags.document("apis/example.com/v1").map(str::to_owned))
    };
    let mut changed = definition("notes", "Note");
    let before = tags(&changed);
    changed["metadata"]["labels"] = json!({ "a": "b" });
    assert_eq!(tags(&changed), before);
    changed["metadata"]["generation"] = 2.into();
    let after = tags(&changed);
    assert!(after.0 != before.0 && after.1 != before.1 && after.1.is_some());
}
