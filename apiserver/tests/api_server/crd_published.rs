//! Definitions in discovery and in both versions of OpenAPI.

use super::*;

/// Everything that is published, as of now, with what was known as of the last time.
async fn published(fixture: &Fixture, etag: &str) -> (u16, String, Value) {
    let request =
        Request::get("/openapi/v2").header("if-none-match", etag).body(axum::body::Body::empty()).unwrap();
    let answer = fixture.call(request).await;
    let body = if answer.body.is_empty() { Value::Null } else { answer.json() };
    (answer.status.as_u16(), answer.header("etag").to_owned(), body)
}

#[tokio::test]
async fn discovery_and_openapi_follow_at_once() {
    let fixture = fixture().await;
    let (_, before, _) = published(&fixture, "").await;
    assert_eq!(published(&fixture, &before).await.0, 304);
    let stored = established(&fixture, &in_two_versions()).await;
    let (status, after, document) = published(&fixture, &before).await;
    assert!(status == 200 && after != before);
    in_openapi(&fixture, &document).await;
    in_discovery(&fixture).await;

    let mut fewer = stored;
    fewer["spec"]["versions"][0]["served"] = false.into();
    fixture.replace(&format!("{CRDS}/widgets.stable.example.io"), &fewer).await.expect(200);
    let (_, third, document) = published(&fixture, &after).await;
    assert_ne!(third, after);
    assert!(document["definitions"].get("io.example.stable.v1beta1.Widget").is_none());
    assert!(document["definitions"]["io.example.stable.v1.Widget"].is_object());
    assert_eq!(fixture.get("/apis/stable.example.io/v1beta1").await.status, 404);
    fixture.delete(&format!("{CRDS}/widgets.stable.example.io")).await.expect(200);
    until(&fixture, "widgets.stable.example.io", Value::is_null).await;
    assert_eq!(published(&fixture, "").await.1, before, "the same as before there was a definition");
}

/// A definition served as v1 and v1beta1, with both subresources.
fn in_two_versions() -> Value {
    let schema = json!({ "type": "object", "description": "Widgets for a test", "properties": {
        "spec": { "type": "object", "required": ["size"], "description": "What is wanted", "properties": {
            "size": { "type": "integer", "minimum": 1, "description": "How large" },
            "port": { "x-kubernetes-int-or-string": true },
            "maybe": { "type": "string", "nullable": true },
            "any": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } } } });
    let mut widgets = definition("widgets", "Widget", "stable.example.io", schema);
    widgets["spec"]["names"]["shortNames"] = json!(["wd"]);
    widgets["spec"]["versions"][0]["subresources"] = json!({ "status": {}, "scale": { "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size" } });
    let mut beta = widgets["spec"]["versions"][0].clone();
    (beta["name"], beta["storage"]) = ("v1beta1".into(), false.into());
    widgets["spec"]["versions"].as_array_mut().unwrap().insert(0, beta);
    widgets
}

/// What both versions of OpenAPI say of it; `document` is the second.
async fn in_openapi(fixture: &Fixture, document: &Value) {
    let kind = &document["definitions"]["io.example.stable.v1.Widget"];
    assert_eq!(
        kind["x-kubernetes-group-version-kind"],
        json!([{ "group": "stable.example.io", "kind": "Widget", "version": "v1" }])
    );
    let spec = &kind["properties"]["spec"];
    assert_eq!((&spec["type"], &spec["required"]), (&json!("object"), &json!(["size"])));
    assert_eq!(spec["properties"]["size"]["minimum"], 1);
    assert_eq!(spec["properties"]["maybe"], json!({}));
    assert_eq!(spec["properties"]["any"], json!({ "x-kubernetes-preserve-unknown-fields": true }));
    assert_eq!(
        kind["properties"]["metadata"]["$ref"],
        "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    let path = "/apis/stable.example.io/v1/namespaces/{namespace}/widgets/{name}/scale";
    let scale = &document["paths"][path]["patch"];
    assert_eq!(scale["x-kubernetes-group-version-kind"]["kind"], "Widget", "{scale}");
    assert_eq!(
        scale["responses"]["200"]["schema"]["$ref"], "#/definitions/io.k8s.api.autoscaling.v1.Scale",
        "{scale}"
    );
    let pages: Vec<&String> =
        document["paths"].as_object().unwrap().keys().filter(|p| p.ends_with('/')).collect();
    assert!(pages.iter().all(|page| !page.contains("stable.example.io")), "no page is described: {pages:?}");
    let get = &document["paths"]["/apis/stable.example.io/v1/namespaces/{namespace}/widgets/{name}"]["get"];
    assert_eq!(get["consumes"], json!(["application/json", "application/yaml"]));

    let index = fixture.get("/openapi/v3").await.expect(200);
    let url = index["paths"]["apis/stable.example.io/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let answer = fixture.get(&url).await;
    assert!(answer.header("cache-control").contains("immutable"));
    let schemas = &answer.expect(200)["components"]["schemas"];
    let maybe = &schemas["io.example.stable.v1.Widget"]["properties"]["spec"]["properties"]["maybe"];
    assert_eq!(*maybe, json!({ "type": "string", "nullable": true }));
    assert!(index["paths"].get("apis/stable.example.io").is_none(), "groups of definitions have no page");
}

const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// What the document of a group's version says beside the schema, as upstream's server of custom resources says it.
#[tokio::test]
async fn version_3_says_what_upstream_says() {
    let fixture = fixture().await;
    let mut widgets = in_two_versions();
    let selectable = json!([{ "jsonPath": ".spec.size" }, { "jsonPath": ".spec.maybe" }]);
    widgets["spec"]["versions"][1]["selectableFields"] = selectable;
    let inner = json!({ "type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true });
    let spec = "/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties";
    widgets.pointer_mut(spec).unwrap()["inner"] = inner;
    established(&fixture, &widgets).await;
    let document = fixture.get("/openapi/v3/apis/stable.example.io/v1").await.expect(200);
    assert_eq!(document["info"], json!({ "title": "Kubernetes CRD Swagger", "version": "v0.1.0" }));
    assert!(document["components"].get("securitySchemes").is_none());
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1";
    let mut names: Vec<String> =
        ["Widget", "WidgetList"].map(|kind| format!("io.example.stable.v1.{kind}")).into();
    names.extend(
        ["Scale", "ScaleSpec", "ScaleStatus"].map(|kind| format!("io.k8s.api.autoscaling.v1.{kind}")),
    );
    let common = [
        "DeleteOptions",
        "FieldsV1",
        "ListMeta",
        "ManagedFieldsEntry",
        "ObjectMeta",
        "OwnerReference",
        "Patch",
        "Preconditions",
        "ShardInfo",
        "Status",
        "StatusCause",
        "StatusDetails",
        "Time",
    ];
    names.extend(common.map(|kind| format!("{meta}.{kind}")));
    assert_eq!(
        schemas.keys().collect::<Vec<_>>(),
        names.iter().collect::<Vec<_>>(),
        "what is referred to, no more"
    );
    let widget = &schemas["io.example.stable.v1.Widget"];
    for kind in ["Widget", "WidgetList"] {
        assert_eq!(
            schemas[&format!("io.example.stable.v1.{kind}")]["x-kubernetes-selectable-fields"],
            json!([{ "fieldPath": "spec.size" }, { "fieldPath": "spec.maybe" }])
        );
    }
    let inner = &widget["properties"]["spec"]["properties"]["inner"];
    assert_eq!(inner["required"], json!(["kind", "apiVersion"]));
    assert_eq!(
        inner["properties"]["kind"]["description"],
        format!(
            "kind is a string value representing the type of this object. In CamelCase. More info: {CONVENTIONS}#types-kinds"
        )
    );
    let list = &schemas["io.example.stable.v1.WidgetList"]["properties"];
    assert_eq!(list["items"]["description"], format!("List of widgets. More info: {CONVENTIONS}"));
    assert_eq!(
        list["metadata"]["description"],
        format!("Standard list metadata. More info: {CONVENTIONS}#types-kinds")
    );
    let of = schemas[&format!("{meta}.DeleteOptions")]["x-kubernetes-group-version-kind"].as_array().unwrap();
    let has = |group: &str| of.iter().any(|identity| identity["group"] == group);
    assert!(has("apps") && has("") && !has("apiextensions.k8s.io") && !has("admission.k8s.io"), "{of:?}");
    requests(&document["paths"]);
}

/// Parameters, answers and bodies of the requests.
fn requests(paths: &Value) {
    let all = "/apis/stable.example.io/v1/namespaces/{namespace}/widgets";
    let (all, one) = (&paths[all], &paths[format!("{all}/{{name}}")]);
    let scale = &paths["/apis/stable.example.io/v1/namespaces/{namespace}/widgets/{name}/scale"];
    let query = |item: &Value, verb: &str| -> String {
        let lists = [&item["parameters"], &item[verb]["parameters"]];
        let mut names: Vec<&str> = lists
            .into_iter()
            .filter_map(Value::as_array)
            .flatten()
            .filter(|parameter| parameter["in"] == "query")
            .filter_map(|parameter| parameter["name"].as_str())
            .collect();
        names.sort_unstable();
        names.join(" ")
    };
    let listing = "allowWatchBookmarks continue fieldSelector labelSelector limit pretty resourceVersion \
                   resourceVersionMatch sendInitialEvents shardSelector timeoutSeconds watch";
    for (item, verb, id, parameters, codes) in [
        (all, "get", "listStableExampleIoV1NamespacedWidget", listing, "200 401"),
        (all, "delete", "deleteStableExampleIoV1CollectionNamespacedWidget", listing, "200 401"),
        (
            all,
            "post",
            "createStableExampleIoV1NamespacedWidget",
            "dryRun fieldManager fieldValidation pretty",
            "200 201 202 401",
        ),
        (one, "get", "readStableExampleIoV1NamespacedWidget", "pretty resourceVersion", "200 401"),
        (
            one,
            "put",
            "replaceStableExampleIoV1NamespacedWidget",
            "dryRun fieldManager fieldValidation pretty",
            "200 201 401",
        ),
        (
            one,
            "patch",
            "patchStableExampleIoV1NamespacedWidget",
            "dryRun fieldManager fieldValidation force pretty",
            "200 401",
        ),
        (scale, "get", "readStableExampleIoV1NamespacedWidgetScale", "pretty resourceVersion", "200 401"),
    ] {
        let operation = &item[verb];
        assert_eq!(operation["operationId"], id);
        assert_eq!(query(item, verb), parameters, "{id}");
        let answered: Vec<&str> =
            operation["responses"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(answered.join(" "), codes, "{id}");
        assert_eq!(
            operation["x-kubernetes-group-version-kind"],
            json!({ "group": "stable.example.io", "version": "v1", "kind": "Widget" })
        );
    }
    assert!(all["delete"].get("requestBody").is_none() && one["delete"]["requestBody"].is_object());
    assert_eq!(all["delete"]["x-kubernetes-action"], "deletecollection");
}

async fn in_discovery(fixture: &Fixture) {
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let groups = fixture.get("/apis").await.expect(200);
    let group =
        groups["groups"].as_array().unwrap().iter().find(|g| g["name"] == "stable.example.io").unwrap();
    assert_eq!(group["preferredVersion"]["version"], "v1");
    assert_eq!(group["versions"][1]["version"], "v1beta1");
    let list = fixture.get("/apis/stable.example.io/v1").await.expect(200);
    assert_eq!(list["resources"][0]["shortNames"], json!(["wd"]));
    assert_eq!(list["resources"][2]["name"], "widgets/scale");
    let all = fixture.get_as("/apis", AGGREGATED).await.expect(200);
    let items = all["items"].as_array().unwrap();
    let group = items.iter().find(|g| g["metadata"]["name"] == "stable.example.io").unwrap();
    assert_eq!(group["versions"][0]["version"], "v1");
    assert_eq!(
        group["versions"][0]["resources"][0]["responseKind"],
        json!({ "group": "stable.example.io", "version": "v1", "kind": "Widget" })
    );
}
