use super::*;
use crate::testing::{World, errors, status_errors, update_errors};

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
    assert_eq!(errors[0].to_string(), "reclaimPolicy: Invalid value: \"Retain\": field is immutable");
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
            json!({ "tokenRequests": [{ "audience": "a" }, { "audience": "a" }, { "audience": "b", "expirationSeconds": 1 }] })
        ),
        [
            "spec.tokenRequests[1].audience: Duplicate value: \"a\"",
            "spec.tokenRequests[2].expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
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
            "spec.drivers[1]: Duplicate value: \"a\"",
            "spec.drivers[1].name: Duplicate value: \"d\"",
        ]
    );
    let attachment = |spec: Value| errors(&VolumeAttachments, json!({ "spec": spec }));
    assert_eq!(
        attachment(json!({ "attacher": "a", "nodeName": "n", "source": { "persistentVolumeName": "" } })),
        ["spec.source.persistentVolumeName: Required value: must specify non empty persistentVolumeName"]
    );
    assert_eq!(
        attachment(
            json!({ "attacher": "a", "nodeName": "n", "source": { "inlineVolumeSpec": { "claimRef": {} } } })
        ),
        [
            "spec.source.inlineVolumeSpec.claimRef: Forbidden: may not be specified in the context of inline volumes",
            "spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes",
        ]
    );
    let failed = json!({ "status": { "attachError": { "message": "m".repeat(1025), "errorCode": -1 } } });
    assert_eq!(
        status_errors(&VolumeAttachments, &failed, &failed),
        [
            "status.attachError.message: Too long: may not be more than 262144 bytes",
            "status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ]
    );
}

#[test]
fn what_of_a_driver_may_change() {
    let node = |driver: Value| json!({ "spec": { "drivers": [driver] } });
    let old = node(json!({ "name": "d", "nodeID": "n", "allocatable": { "count": 1 } }));
    let more = node(json!({ "name": "d", "nodeID": "n", "allocatable": { "count": 2 } }));
    assert_eq!(update_errors(&CsiNodes, &more, &old), [""; 0]);
    let moved = node(json!({ "name": "d", "nodeID": "m", "allocatable": { "count": 1 } }));
    assert!(update_errors(&CsiNodes, &moved, &old)[0].starts_with("spec.drivers: Invalid value: "));
    let driver = |attaches: bool| json!({ "spec": { "attachRequired": attaches } });
    assert_eq!(
        update_errors(&CsiDrivers, &driver(false), &driver(true)),
        ["spec.attachedRequired: Invalid value: false: field is immutable"]
    );
}

#[test]
fn parameters_of_classes_have_limits() {
    let class = |parameters: Value| {
        errors(&VolumeAttributesClasses, json!({ "driverName": "d", "parameters": parameters }))
    };
    assert_eq!(class(json!({ "a": "b" })), [""; 0]);
    assert_eq!(class(json!({})), ["parameters: Required value: must contain at least one key/value pair"]);
    assert_eq!(class(json!({ "": "b" })), ["parameters: Invalid value: \"\": field can not be empty."]);
    let many: serde_json::Map<_, _> = (0..513).map(|i| (i.to_string(), "v".into())).collect();
    assert_eq!(class(many.into()), ["parameters: Too long: may not be more than 512 bytes"]);
    assert_eq!(
        class(json!({ "a": "b".repeat(256 * 1024) })),
        ["parameters: Too long: may not be more than 262144 bytes"]
    );
}

#[test]
fn a_driver_counts_changes_alone() {
    let env = World::default();
    let mut driver = json!({ "metadata": { "name": "a.b", "generation": 1 }, "spec": {} });
    CsiDrivers.prepare_create(&mut driver, &env.env());
    assert!(!has(&driver, "metadata.generation"));
    let mut same = driver.clone();
    CsiDrivers.prepare_update(&mut same, &driver, &env.env());
    assert!(!has(&same, "metadata.generation"));
    let mut changed = driver.clone();
    changed["spec"]["requiresRepublish"] = true.into();
    CsiDrivers.prepare_update(&mut changed, &driver, &env.env());
    assert_eq!(changed["metadata"]["generation"], 1);
}
