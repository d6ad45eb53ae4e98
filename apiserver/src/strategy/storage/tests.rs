use super::*;
use crate::strategy::testing::World;

#[test]
fn storage_classes() {
    let mut class = json!({ "metadata": { "name": "local-path",
        "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } }, "provisioner": "coracle/local-path" });
    StorageClasses.defaults(&mut class);
    let row = Value::Array(StorageClasses.row(&class, Timestamp::UNIX_EPOCH));
    assert_eq!(
        row,
        json!(["local-path (default)", "coracle/local-path", "Delete", "Immediate", false, "<unknown>"])
    );
    let mut changed = class.clone();
    changed["reclaimPolicy"] = "Retain".into();
    let mut errors = Vec::new();
    StorageClasses.validate_update(&changed, &class, &World::default().env(), &mut errors);
    assert_eq!(errors[0].to_string(), "reclaimPolicy: Forbidden: updates to reclaimPolicy are forbidden.");
    errors.clear();
    changed["provisioner"] = "".into();
    StorageClasses.validate(&changed, &World::default().env(), &mut errors);
    assert_eq!(errors[0].to_string(), "provisioner: Required value");
}

#[test]
fn drivers() {
    let mut driver = json!({ "metadata": { "name": "d" } });
    CsiDrivers.defaults(&mut driver);
    let row = Value::Array(CsiDrivers.row(&driver, Timestamp::UNIX_EPOCH));
    assert_eq!(row, json!(["d", true, false, false, "<unset>", false, "Persistent", "<unknown>"]));
}

fn errors(strategy: &dyn Strategy, mut object: Object) -> Vec<String> {
    strategy.defaults(&mut object);
    let mut errors = Vec::new();
    strategy.validate(&object, &World::default().env(), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn places_of_a_class() {
    let class =
        |terms: Value| errors(&StorageClasses, json!({ "provisioner": "p", "allowedTopologies": terms }));
    let zone = |values: Value| json!({ "matchLabelExpressions": [{ "key": "zone", "values": values }] });
    assert!(class(json!([zone(json!(["a", "b"])), zone(json!(["c"]))])).is_empty());
    let at = "allowedTopologies[0].matchLabelExpressions[0].values";
    assert_eq!(class(json!([zone(json!([]))])), [format!("{at}: Required value")]);
    assert_eq!(class(json!([zone(json!(["a", "a"]))])), [format!("{at}[1]: Duplicate value: \"a\"")]);
    assert_eq!(class(json!([zone(json!(["a"])), zone(json!(["a"]))])).len(), 1);
}

#[test]
fn what_drivers_say() {
    let driver = |spec: Value| errors(&CsiDrivers, json!({ "metadata": { "name": "d.x" }, "spec": spec }));
    assert!(driver(json!({ "tokenRequests": [{ "audience": "a", "expirationSeconds": 600 }] })).is_empty());
    assert_eq!(
        driver(
            json!({ "tokenRequests": [{ "audience": "a" }, { "audience": "a", "expirationSeconds": 1 }] })
        ),
        [
            "spec.tokenRequests[1].audience: Duplicate value: \"a\"",
            "spec.tokenRequests[1].expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
        ]
    );
    let node = |drivers: Value| errors(&CsiNodes, json!({ "spec": { "drivers": drivers } }));
    assert!(node(json!([{ "name": "d", "nodeID": "n", "topologyKeys": ["a/b"] }])).is_empty());
    assert_eq!(
        node(
            json!([{ "name": "d", "nodeID": "n" }, { "name": "d", "nodeID": "", "topologyKeys": ["a", "a"] }])
        ),
        [
            "spec.drivers[1].nodeID: Required value",
            "spec.drivers[1].topologyKeys: Duplicate value: \"a\"",
            "spec.drivers[1].name: Duplicate value: \"d\"",
        ]
    );
    let attachment = |spec: Value| errors(&VolumeAttachments, json!({ "spec": spec }));
    assert_eq!(
        attachment(json!({ "attacher": "a", "nodeName": "n", "source": { "persistentVolumeName": "" } })),
        ["spec.source.persistentVolumeName: Required value: must specify non empty persistentVolumeName"]
    );
}
