use super::*;
use crate::testing::World;

fn claim() -> Object {
    json!({ "metadata": { "name": "c" }, "spec": { "devices": {
        "requests": [
            { "name": "gpu", "exactly": { "deviceClassName": "gpu.example.com" } },
            { "name": "nic", "firstAvailable": [{ "name": "fast", "deviceClassName": "nic.example.com" }] },
        ],
        "constraints": [{ "requests": ["gpu", "nic/fast"], "matchAttribute": "example.com/numa" }],
        "config": [{ "requests": ["gpu"], "opaque": { "driver": "example.com", "parameters": { "a": 1 } } }],
    } } })
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn create(object: &Object) -> (Object, Vec<String>) {
    let mut object = object.clone();
    let (world, mut errors) = (World::default(), Vec::new());
    ResourceClaims.defaults(&mut object);
    ResourceClaims.prepare_create(&mut object, &world.env());
    ResourceClaims.validate_create(&object, &world.env(), &mut errors);
    (object, texts(&errors))
}

#[test]
fn claims_are_defaulted() {
    let (object, errors) = create(&claim());
    assert!(errors.is_empty(), "{errors:?}");
    let requests = &object["spec"]["devices"]["requests"];
    assert_eq!(
        (&requests[0]["exactly"]["allocationMode"], &requests[0]["exactly"]["count"]),
        (&json!("ExactCount"), &json!(1))
    );
    assert_eq!(requests[1]["firstAvailable"][0]["count"], 1);
    let row = Value::Array(ResourceClaims.row(&object, Timestamp::UNIX_EPOCH));
    assert_eq!(row, json!(["c", "pending", "<unknown>"]));
}

#[test]
fn mistakes_in_claims() {
    let devices = "/spec/devices";
    for (pointer, value, want) in [
        (
            "/requests/0",
            json!({ "name": "gpu" }),
            "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
        ),
        (
            "/requests/0/exactly/deviceClassName",
            json!(""),
            "spec.devices.requests[0].exactly.deviceClassName: Required value",
        ),
        ("/requests/1/name", json!("gpu"), "spec.devices.requests[1]: Duplicate value: \"gpu\""),
        (
            "/constraints/0/matchAttribute",
            json!("numa"),
            "spec.devices.constraints[0].matchAttribute: Invalid value: \"numa\": a fully qualified name must be a domain and a name separated by a slash",
        ),
        (
            "/config/0/requests/0",
            json!("x"),
            "spec.devices.config[0].requests[0]: Invalid value: \"x\": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'",
        ),
        (
            "/config/0/opaque/parameters",
            json!(null),
            "spec.devices.config[0].opaque.parameters: Required value",
        ),
    ] {
        let mut object = claim();
        *object.pointer_mut(&format!("{devices}{pointer}")).unwrap() = value;
        let (_, errors) = create(&object);
        assert!(errors.iter().any(|e| e == want), "{pointer}: {errors:?}");
    }
}

#[test]
fn claims_keep_what_is_allocated() {
    let (world, mut errors) = (World::default(), Vec::new());
    let (old, _) = create(&claim());
    let mut new = old.clone();
    let result = json!({ "request": "gpu", "driver": "example.com", "pool": "p", "device": "d" });
    let consumer = json!({ "resource": "pods", "name": "a", "uid": "1" });
    new["status"] = json!({ "reservedFor": [consumer] });
    ResourceClaims.validate_status_update(&new, &old, &world.env(), &mut errors);
    assert_eq!(
        texts(&errors),
        ["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"]
    );
    errors.clear();
    new["status"]["allocation"] = json!({ "devices": { "results": [result] } });
    new["status"]["devices"] = json!([{ "driver": "example.com", "pool": "p", "device": "d" }]);
    ResourceClaims.validate_status_update(&new, &old, &world.env(), &mut errors);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(ResourceClaims.row(&new, Timestamp::UNIX_EPOCH)[1], "allocated,reserved");
    let mut moved = new.clone();
    moved["status"]["allocation"]["devices"]["results"][0]["device"] = "other".into();
    ResourceClaims.prepare_status_update(&mut moved, &new, &world.env());
    assert!(moved["status"].get("devices").is_none());
    ResourceClaims.validate_status_update(&moved, &new, &world.env(), &mut errors);
    assert_eq!(errors.len(), 1);
    errors.clear();
    let mut changed = new.clone();
    changed["spec"]["devices"]["requests"][0]["name"] = "x".into();
    ResourceClaims.validate_update(&changed, &new, &world.env(), &mut errors);
    assert!(texts(&errors)[0].ends_with("field is immutable"));
}

#[test]
fn shares_are_uuids_in_their_normal_form() {
    let (world, (old, _)) = (World::default(), create(&claim()));
    let found = |share: &str| {
        let mut new = old.clone();
        let device = json!({ "request": "gpu", "driver": "example.com", "pool": "p", "device": "d", "shareID": share });
        new["status"] = json!({ "allocation": { "devices": { "results": [device] } } });
        let mut errors = Vec::new();
        ResourceClaims.validate_status_update(&new, &old, &world.env(), &mut errors);
        errors.len()
    };
    assert_eq!(found("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), 0);
    for other in [
        "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
        "a0eebc999c0b4ef8bb6d6bb9bd380a11",
        "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
        "urn:uuid:a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "x",
    ] {
        assert_eq!(found(other), 1, "{other}");
    }
}

#[test]
fn devices_say_where_they_are_if_their_slice_leaves_it_to_them() {
    let found = |device: Value| {
        let spec = json!({ "driver": "d.x", "pool": { "name": "p", "resourceSliceCount": 1 },
            "perDeviceNodeSelection": true, "devices": [device] });
        crate::testing::errors(&ResourceSlices, json!({ "spec": spec }))
    };
    let one = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to \
               true in the ResourceSlice spec";
    assert_eq!(found(json!({ "name": "d", "nodeName": "n" })), [""; 0]);
    assert_eq!(
        found(json!({ "name": "d", "nodeName": "" })),
        [
            "spec.devices[0].nodeName: Invalid value: \"\": must not be empty".to_owned(),
            format!("spec.devices[0]: Required value: {one}")
        ]
    );
    assert_eq!(
        found(json!({ "name": "d", "nodeName": "n", "allNodes": true })),
        [format!("spec.devices[0]: Invalid value: \"{{`nodeName`, `allNodes`}}\": {one}")]
    );
}

#[test]
fn slices() {
    let (world, mut errors) = (World::default(), Vec::new());
    let mut slice = json!({ "metadata": { "name": "s" }, "spec": { "driver": "example.com", "nodeName": "n",
        "pool": { "name": "p", "generation": 1, "resourceSliceCount": 1 },
        "devices": [{ "name": "d", "attributes": { "model": { "string": "x" }, "v": { "version": "1.0.0" } },
            "capacity": { "memory": { "value": "1Gi" } }, "taints": [{ "key": "k", "effect": "NoSchedule" }] }] } });
    ResourceSlices.prepare_create(&mut slice, &world.env());
    assert_eq!(slice["spec"]["devices"][0]["taints"][0]["timeAdded"], "1970-01-01T00:00:00Z");
    ResourceSlices.validate(&slice, &world.env(), &mut errors);
    assert!(errors.is_empty(), "{errors:?}");
    let mut wrong = slice.clone();
    wrong["spec"]["allNodes"] = true.into();
    wrong["spec"]["devices"][0]["attributes"]["v"] = json!({ "version": "1", "int": 1 });
    ResourceSlices.validate(&wrong, &world.env(), &mut errors);
    assert_eq!(errors.len(), 3, "{:?}", texts(&errors));
    assert_eq!(ResourceSlices.fields(&slice)[0], ("spec.nodeName", "n".to_owned()));
}

#[test]
fn selectors_of_devices_are_compiled() {
    let found = |expression: &str| {
        let selectors = json!([{ "cel": { "expression": expression } }]);
        crate::testing::errors(&DeviceClasses, json!({ "spec": { "selectors": selectors } }))
    };
    assert_eq!(found("device.driver == 'd'"), [""; 0]);
    assert_eq!(
        found("device.driver"),
        [
            "spec.selectors[0].cel.expression: Invalid value: \"device.driver\": must evaluate to bool or the unknown type, \
          not string"
        ]
    );
    let path = "spec.selectors[0].cel.expression: Invalid value: \"driver\": compilation failed: ERROR: ";
    assert!(found("driver")[0].starts_with(path), "{:?}", found("driver"));
    let long = format!("'{}' == device.driver", "a".repeat(10 * 1024));
    assert_eq!(
        found(&long),
        ["spec.selectors[0].cel.expression: Too long: may not be more than 10240 bytes"]
    );
    let dear = "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a < d))))";
    assert_eq!(found(dear), ["spec.selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit"]);
}

#[test]
fn templates_classes_and_places_as_upstream_has_them() {
    let found = |spec: Value| crate::testing::errors(&DeviceClasses, json!({ "spec": spec }));
    assert_eq!(found(json!({ "extendedResourceName": "example.com/gpu" })), [""; 0]);
    for bad in ["gpu", "x.kubernetes.io/gpu", "requests.example.com/gpu", "example.com/a b"] {
        assert_eq!(
            found(json!({ "extendedResourceName": bad })),
            [format!(
                "spec.extendedResourceName: Invalid value: \"{bad}\": must be a valid extended resource name"
            )]
        );
    }
    let template = json!({ "spec": { "metadata": { "name": "n", "labels": { "a": "b" } }, "spec": {} } });
    let mut errors = Vec::new();
    ResourceClaimTemplates.validate_create(&template, &World::default().env(), &mut errors);
    assert_eq!(texts(&errors), ["spec.metadata.name: Forbidden: cannot be set"]);
    let slice = json!({ "spec": { "driver": "d.x", "pool": { "name": "p", "resourceSliceCount": 1 }, "allNodes": false } });
    assert_eq!(
        crate::testing::errors(&ResourceSlices, slice),
        [
            "spec.allNodes: Invalid value: false: must be either unset or set to true",
            "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
        ]
    );
}

/// What a slice with this device is refused for, each error without the device's path.
fn device(device: Value) -> Vec<String> {
    let mut spec =
        json!({ "driver": "d.x", "nodeName": "n", "pool": { "name": "p", "resourceSliceCount": 1 } });
    spec["devices"] = json!([device]);
    let errors = crate::testing::errors(&ResourceSlices, json!({ "spec": spec }));
    errors.iter().map(|e| e.trim_start_matches("spec.devices[0]").to_owned()).collect()
}

#[test]
fn devices_that_several_share() {
    let with = |shared: bool, policy: Value| {
        let capacity = json!({ "memory": { "value": "10Gi", "requestPolicy": policy } });
        device(json!({ "name": "d", "allowMultipleAllocations": shared, "capacity": capacity }))
    };
    let range = json!({ "default": "1Gi", "validRange": { "min": "1Gi", "max": "3Gi", "step": "1Gi" } });
    assert_eq!(with(true, range.clone()), [""; 0]);
    let policy = ".capacity[memory].requestPolicy";
    assert_eq!(with(false, range), [format!("{policy}: Forbidden: allowMultipleAllocations must be true")]);
    assert_eq!(
        with(true, json!({ "validValues": ["1Gi"] })),
        [format!("{policy}.default: Required value: required when validValues is defined")]
    );
    assert_eq!(
        with(true, json!({ "default": "3Gi", "validValues": ["2Gi", "1Gi", "20Gi"] })),
        [
            format!(
                "{policy}.validValues[1]: Invalid value: \"1Gi\": values must be sorted in ascending order"
            ),
            format!(
                "{policy}.validValues[2]: Invalid value: \"20Gi\": option is larger than capacity value: 10Gi"
            ),
            format!(
                "{policy}.validValues: Invalid value: \"3Gi\": default value is not valid according to the requestPolicy"
            ),
        ]
    );
    assert_eq!(
        with(true, json!({ "default": "2", "validRange": { "min": "1", "step": "2" } })),
        [format!(
            "{policy}.validRange.step: Invalid value: \"2\": value is not a multiple of a given step (2) from (1)"
        )]
    );
    assert_eq!(
        with(true, json!({ "default": "2", "validRange": { "min": "1", "step": "0" } })),
        [format!("{policy}.validRange.step: Invalid value: \"0\": must be greater than zero")]
    );
}

#[test]
fn parts_of_devices() {
    for (field, value, want) in [
        ("name", json!("A"), ".name: Invalid value: \"A\": a lowercase RFC 1123 label"),
        (
            "nodeName",
            json!("n"),
            ": Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if",
        ),
        (
            "attributes",
            json!({ "a/b/c": { "bool": true } }),
            ".attributes[a/b/c]: Invalid value: \"a/b/c\": must not contain more than one slash",
        ),
        (
            "attributes",
            json!({ "many": { "ints": [1] } }),
            ".attributes[many]: Invalid value: \"\": exactly one value must be specified",
        ),
        (
            "attributes",
            json!({ "v": { "version": "1.0.0-01" } }),
            ".attributes[v].version: Invalid value: \"1.0.0-01\": must be a string compatible with semver.org spec 2.0.0",
        ),
        (
            "consumesCounters",
            json!([{ "counterSet": "s", "counters": {} }]),
            ".consumesCounters[0].counters: Required value",
        ),
        (
            "bindingConditions",
            json!(["a"]),
            ".bindingFailureConditions: Invalid value: []: bindingFailureConditions are required to use bindingConditions",
        ),
    ] {
        let mut sent = json!({ "name": "d" });
        sent[field] = value;
        let (world, mut slice) = (World::default(), json!({ "spec": { "devices": [sent] } }));
        ResourceSlices.prepare_create(&mut slice, &world.env());
        let errors = device(slice["spec"]["devices"][0].clone());
        assert!(errors.len() == 1 && errors[0].starts_with(want), "{field}: {errors:?}");
    }
    assert_eq!(
        device(json!({ "name": "d", "attributes": { "v": { "version": "1.0.0-rc.1+a.01" } } })),
        [""; 0]
    );
    let slice = json!({ "spec": { "driver": "d.x", "pool": { "name": "p", "resourceSliceCount": 1 }, "allNodes": true,
        "sharedCounters": [{ "name": "s", "counters": { "c": { "value": "1" } } }], "devices": [{ "name": "d" }] } });
    assert_eq!(
        crate::testing::errors(&ResourceSlices, slice),
        ["spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed"]
    );
}

#[test]
fn administrators_access_is_for_labelled_namespaces() {
    let mut asking = claim();
    asking["metadata"]["namespace"] = "n".into();
    asking["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = true.into();
    ResourceClaims.defaults(&mut asking);
    let labels = json!({ "resource.kubernetes.io/admin-access": "true" });
    let open =
        World::default().with("namespaces.//n", json!({ "metadata": { "name": "n", "labels": labels } }));
    let closed = World::default().with("namespaces.//n", json!({ "metadata": { "name": "n" } }));
    let found = |world: &World| {
        let mut errors = Vec::new();
        ResourceClaims.validate_create(&asking, &world.env(), &mut errors);
        texts(&errors)
    };
    assert_eq!(found(&open), [""; 0]);
    let why = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";
    assert_eq!(found(&closed), [format!("spec.devices.requests[0].adminAccess: Forbidden: {why}")]);
    let mut given = asking.clone();
    let result =
        json!({ "request": "gpu", "driver": "example.com", "pool": "p", "device": "d", "adminAccess": true });
    given["status"] = json!({ "allocation": { "devices": { "results": [result] } } });
    let mut errors = Vec::new();
    ResourceClaims.validate_status_update(&given, &asking, &closed.env(), &mut errors);
    assert_eq!(
        texts(&errors),
        [format!("status.allocation.devices.results[0].adminAccess: Forbidden: {why}")]
    );
    errors.clear();
    ResourceClaims.validate_status_update(&given, &given, &closed.env(), &mut errors);
    assert_eq!(texts(&errors), [""; 0]);
}
