use super::*;
use crate::testing::World;

pub(super) fn definition() -> Object {
    json!({ "metadata": { "name": "widgets.example.com" }, "spec": { "group": "example.com", "scope": "Namespaced",
        "names": { "plural": "widgets", "kind": "Widget" },
        "versions": [{ "name": "v1", "served": true, "storage": true,
            "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                "spec": { "type": "object", "properties": { "size": { "type": "integer" } } } } } } }] } })
}

pub(super) fn create(object: &Object) -> (Object, Vec<String>) {
    let mut object = object.clone();
    let (world, mut errors) = (World::default(), Vec::new());
    CustomResourceDefinitions.defaults(&mut object);
    CustomResourceDefinitions.prepare_create(&mut object, &world.env());
    CustomResourceDefinitions.validate(&object, &world.env(), &mut errors);
    CustomResourceDefinitions.validate_create(&object, &world.env(), &mut errors);
    (object, errors.iter().map(ToString::to_string).collect())
}

#[test]
fn defaults_and_status() {
    let (object, errors) = create(&definition());
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(object["spec"]["names"]["singular"], "widget");
    assert_eq!(object["spec"]["names"]["listKind"], "WidgetList");
    assert_eq!(object["spec"]["conversion"], json!({ "strategy": "None" }));
    assert_eq!(object["status"]["storedVersions"], json!(["v1"]));
    assert!(object["status"].get("conditions").is_none());
}

#[test]
fn mistakes() {
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    let at_schema = "spec.validation.openAPIV3Schema";
    for (pointer, value, want) in [
        ("/spec/scope".to_owned(), json!(""), "spec.scope: Required value".to_owned()),
        (
            format!("{schema}/type"),
            json!("string"),
            format!("{at_schema}.type: Invalid value: \"string\": must be object at the root"),
        ),
        (
            format!("{schema}/properties/spec/type"),
            json!(""),
            format!(
                "{at_schema}.properties[spec].type: Required value: must not be empty for specified object fields"
            ),
        ),
        (
            format!("{schema}/properties/spec/properties/size"),
            json!({ "type": "array" }),
            format!("{at_schema}.properties[spec].properties[size].items: Required value: must be specified"),
        ),
        (
            format!("{schema}/properties/spec/properties/size"),
            json!({ "type": "string", "uniqueItems": true }),
            format!(
                "{at_schema}.properties[spec].properties[size].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            ),
        ),
        (
            format!("{schema}/properties/spec/properties/size"),
            json!({ "type": "string", "default": 1 }),
            format!(
                "{at_schema}.properties[spec].properties[size].default: Invalid value: \"integer\": \
                 \u{20}in body must be of type string: \"integer\""
            ),
        ),
    ] {
        let mut object = definition();
        *object.pointer_mut(&pointer).unwrap() = value;
        let (_, errors) = create(&object);
        assert_eq!(errors.len(), 1, "{pointer}: {errors:?}");
        assert!(want.is_empty() || errors[0] == want, "{errors:?}");
    }
}

#[test]
fn versions_that_differ_are_named() {
    let mut object = definition();
    let mut second = object["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    second["storage"] = false.into();
    second["schema"] = json!({ "openAPIV3Schema": { "type": "object", "properties": { "a": {} } } });
    object["spec"]["versions"].as_array_mut().unwrap().push(second);
    let (_, errors) = create(&object);
    assert_eq!(
        errors,
        [
            "spec.versions[1].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields"
        ]
    );
}

#[test]
fn list_maps_and_int_or_string() {
    let mut object = definition();
    let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let items = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    *object.pointer_mut(properties).unwrap() = json!({
        "list": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": items },
        "port": { "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] },
    });
    let (_, errors) = create(&object);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains("properties[name].default: Required value"), "{errors:?}");
}

#[test]
fn unknown_formats_are_warned_of() {
    let mut object = definition();
    let size = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size";
    *object.pointer_mut(size).unwrap() = json!({ "type": "string", "format": "date-time" });
    assert!(CustomResourceDefinitions.warnings(&object, None).is_empty());
    *object.pointer_mut(size).unwrap() = json!({ "type": "string", "format": "odd" });
    assert_eq!(CustomResourceDefinitions.warnings(&object, None), ["unrecognized format \"odd\""]);
}

#[test]
fn conversion_and_approval() {
    let mut object = definition();
    object["spec"]["conversion"] = json!({ "strategy": "Webhook" });
    let (_, errors) = create(&object);
    assert_eq!(
        errors[0],
        "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook"
    );
    let mut object = definition();
    object["metadata"]["name"] = "widgets.a.k8s.io".into();
    object["spec"]["group"] = "a.k8s.io".into();
    let (_, errors) = create(&object);
    assert!(errors.len() == 1 && errors[0].contains("api-approved.kubernetes.io"), "{errors:?}");
}

#[test]
fn stored_versions_stay() {
    let (old, _) = create(&definition());
    let mut new = old.clone();
    new["spec"]["versions"][0]["name"] = "v2".into();
    let (world, mut errors) = (World::default(), Vec::new());
    CustomResourceDefinitions.prepare_update(&mut new, &old, &world.env());
    assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
    CustomResourceDefinitions.validate_update(&new, &old, &world.env(), &mut errors);
    assert_eq!(
        errors[0].to_string(),
        "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version, \
         and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 \
         from status.storedVersions"
    );
}

#[test]
fn versions_columns_scale_and_selectable_fields() {
    let version = |more: Value| {
        let mut object = definition();
        object["spec"]["versions"][0].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        create(&object).1
    };
    let columns = |column: Value| json!({ "additionalPrinterColumns": [column] });
    let scale = |scale: Value| json!({ "subresources": { "scale": scale } });
    let nine: Vec<Value> = (0..9).map(|i| json!({ "jsonPath": format!(".spec.f{i}") })).collect();
    for (more, want) in [
        (json!({ "name": "V1" }), "spec.versions[0].name: Invalid value: \"V1\": a DNS-1035 label must"),
        (json!({ "schema": null }), "spec.versions[0].schema.openAPIV3Schema: Required value"),
        (
            json!({ "deprecationWarning": "x" }),
            "spec.versions[0].deprecationWarning: Invalid value: \"x\": can only be set for deprecated versions",
        ),
        (
            columns(json!({ "name": "a", "type": "odd", "jsonPath": ".a" })),
            "spec.additionalPrinterColumns[0].type: Invalid value: \"odd\": must be one of boolean,date,integer,number,string",
        ),
        (
            columns(json!({ "name": "a", "type": "string", "jsonPath": "a" })),
            "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"a\": must be a simple json path starting with .",
        ),
        (
            scale(json!({ "specReplicasPath": ".status.x", "statusReplicasPath": ".status.x" })),
            "spec.subresources.scale.specReplicasPath: Invalid value: \".status.x\": should be a json path under .spec",
        ),
        (
            json!({ "selectableFields": [{ "jsonPath": ".spec" }] }),
            "spec.selectableFields[0].jsonPath: Invalid value: \".spec\": must point to a field of type string, boolean",
        ),
        (
            json!({ "selectableFields": [{ "jsonPath": ".spec.nope" }] }),
            "spec.selectableFields[0].jsonPath: Invalid value: \".spec.nope\": is an invalid path: does not refer to a valid",
        ),
        (
            json!({ "selectableFields": [{ "jsonPath": ".spec.size" }, { "jsonPath": ".spec.size" }] }),
            "spec.selectableFields[1].jsonPath: Duplicate value: \".spec.size\"",
        ),
        (
            json!({ "selectableFields": nine, "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": {
                "type": "object", "properties": (0..9).map(|i| (format!("f{i}"), json!({ "type": "string" })))
                    .collect::<serde_json::Map<_, _>>() } } } } }),
            "spec.selectableFields: Too many: 9: must have at most 8 items",
        ),
    ] {
        let found = version(more.clone());
        assert!(found.iter().any(|e| e.starts_with(want)), "{more}: {found:?}");
    }
    assert!(version(json!({ "selectableFields": [{ "jsonPath": ".spec.size" }] })).is_empty());
}
