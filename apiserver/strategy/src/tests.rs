//! What holds for every resource of the catalogue. A resource without a sample here fails.

use super::testing::{World, merge};
use super::*;
use coracle_api::catalogue::catalogue;
use coracle_api::{Resource, decode, schema};
use serde_json::{Value, json};

/// The least that a client must send, beside kind, version and metadata.
fn sample(key: &str) -> Object {
    let selector = json!({ "matchLabels": { "a": "b" } });
    let containers = json!([{ "name": "c", "image": "i" }]);
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": containers } });
    let once = json!({ "spec": { "containers": containers, "restartPolicy": "Never" } });
    let workload = || json!({ "spec": { "selector": selector, "template": template } });
    match key {
        "configmaps."
        | "endpoints."
        | "events."
        | "limitranges."
        | "namespaces."
        | "nodes."
        | "resourcequotas."
        | "secrets."
        | "serviceaccounts."
        | "csidrivers.storage.k8s.io"
        | "leases.coordination.k8s.io"
        | "roles.rbac.authorization.k8s.io"
        | "clusterroles.rbac.authorization.k8s.io" => json!({}),
        "persistentvolumeclaims." => json!({ "spec": { "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } } } }),
        "persistentvolumes." => json!({ "spec": { "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": "1Gi" }, "hostPath": { "path": "/x" } } }),
        "pods." => json!({ "spec": { "containers": containers } }),
        "podtemplates." => json!({ "template": template }),
        "replicationcontrollers." => json!({ "spec": { "template": template } }),
        "services." => json!({ "spec": { "ports": [{ "port": 80 }] } }),
        "controllerrevisions.apps" => json!({ "data": {}, "revision": 1 }),
        "daemonsets.apps" | "deployments.apps" | "replicasets.apps" | "statefulsets.apps" => workload(),
        "cronjobs.batch" => {
            json!({ "spec": { "schedule": "@daily", "jobTemplate": { "spec": { "template": once } } } })
        }
        "jobs.batch" => json!({ "spec": { "template": once } }),
        other => sample_without_pods(other),
    }
}

/// Of what holds no template of pods.
fn sample_without_pods(key: &str) -> Object {
    match key {
        "horizontalpodautoscalers.autoscaling" => json!({ "spec": { "maxReplicas": 2,
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "d" } } }),
        "endpointslices.discovery.k8s.io" => {
            json!({ "addressType": "IPv4", "endpoints": [{ "addresses": ["10.0.0.1"] }], "ports": [{ "port": 1 }] })
        }
        "ingressclasses.networking.k8s.io" => json!({ "spec": { "controller": "a.b/c" } }),
        "ingresses.networking.k8s.io" => {
            json!({ "spec": { "defaultBackend": { "service": { "name": "s", "port": { "number": 80 } } } } })
        }
        "ipaddresses.networking.k8s.io" => json!({ "metadata": { "name": "10.0.0.1" },
            "spec": { "parentRef": { "resource": "services", "name": "s" } } }),
        "networkpolicies.networking.k8s.io" => json!({ "spec": { "podSelector": {} } }),
        "servicecidrs.networking.k8s.io" => json!({ "spec": { "cidrs": ["10.0.0.0/16"] } }),
        "runtimeclasses.node.k8s.io" => json!({ "handler": "runc" }),
        "poddisruptionbudgets.policy" => json!({ "spec": { "minAvailable": 1 } }),
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => {
            json!({ "roleRef": { "kind": "ClusterRole", "name": "r" } })
        }
        "priorityclasses.scheduling.k8s.io" => json!({ "value": 1 }),
        "csinodes.storage.k8s.io" => json!({ "spec": { "drivers": [] } }),
        "csistoragecapacities.storage.k8s.io" => json!({ "storageClassName": "s" }),
        "storageclasses.storage.k8s.io" => json!({ "provisioner": "p" }),
        "volumeattachments.storage.k8s.io" => json!({ "spec": { "attacher": "a", "nodeName": "n",
            "source": { "persistentVolumeName": "v" } } }),
        "volumeattributesclasses.storage.k8s.io" => json!({ "driverName": "d", "parameters": { "a": "b" } }),
        other => extension_sample(other),
    }
}

/// A certificate request in PEM, in base64; the same one each time.
fn request() -> &'static str {
    use base64::Engine as _;
    static PEM: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
        let key = rcgen::KeyPair::generate().expect("a key");
        let request = rcgen::CertificateParams::default().serialize_request(&key).expect("a request");
        base64::engine::general_purpose::STANDARD.encode(request.pem().expect("its PEM"))
    });
    &PEM
}

/// Of the groups that extend the API, and of those that guard it.
fn extension_sample(key: &str) -> Object {
    let rule =
        json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] });
    let constraints = json!({ "resourceRules": [rule] });
    match key {
        "mutatingwebhookconfigurations.admissionregistration.k8s.io"
        | "validatingwebhookconfigurations.admissionregistration.k8s.io" => json!({}),
        "validatingadmissionpolicies.admissionregistration.k8s.io" => {
            json!({ "spec": { "matchConstraints": constraints, "validations": [{ "expression": "true" }] } })
        }
        "mutatingadmissionpolicies.admissionregistration.k8s.io" => {
            json!({ "spec": { "matchConstraints": constraints, "reinvocationPolicy": "Never",
                "mutations": [{ "patchType": "JSONPatch", "jsonPatch": { "expression": "[JSONPatch{op: 'remove', path: '/a'}]" } }] } })
        }
        "validatingadmissionpolicybindings.admissionregistration.k8s.io" => {
            json!({ "spec": { "policyName": "p", "validationActions": ["Deny"] } })
        }
        "mutatingadmissionpolicybindings.admissionregistration.k8s.io" => {
            json!({ "spec": { "policyName": "p" } })
        }
        "customresourcedefinitions.apiextensions.k8s.io" => {
            json!({ "metadata": { "name": "widgets.example.com" },
            "spec": { "group": "example.com", "scope": "Namespaced",
                "names": { "plural": "widgets", "kind": "Widget" },
                "versions": [{ "name": "v1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": { "type": "object" } } }] } })
        }
        "apiservices.apiregistration.k8s.io" => json!({ "metadata": { "name": "v1.example.com" },
            "spec": { "group": "example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1 } }),
        "certificatesigningrequests.certificates.k8s.io" => {
            json!({ "spec": { "request": request(), "signerName": "example.com/s", "usages": ["client auth"] } })
        }
        "flowschemas.flowcontrol.apiserver.k8s.io" => {
            json!({ "spec": { "priorityLevelConfiguration": { "name": "p" } } })
        }
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io" => {
            json!({ "spec": { "type": "Limited", "limited": { "limitResponse": { "type": "Reject" } } } })
        }
        "deviceclasses.resource.k8s.io" | "resourceclaims.resource.k8s.io" => json!({ "spec": {} }),
        "resourceclaimtemplates.resource.k8s.io" => json!({ "spec": { "spec": {} } }),
        "resourceslices.resource.k8s.io" => json!({ "spec": { "driver": "example.com", "nodeName": "n",
            "pool": { "name": "p", "generation": 1, "resourceSliceCount": 1 } } }),
        other => panic!("no sample for {other}"),
    }
}

fn stored() -> impl Iterator<Item = &'static Resource> {
    catalogue().iter().map(AsRef::as_ref).filter(|r| r.is_stored() && !r.needs_conversion())
}

fn strategy(resource: &Resource) -> &'static dyn Strategy {
    for_resource(&resource.group, &resource.plural)
}

/// The sample as a create leaves it.
fn created(resource: &Resource) -> Object {
    let mut object = json!({ "kind": resource.kind, "apiVersion": resource.api_version(),
        "metadata": { "name": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1 } });
    if resource.namespaced {
        object["metadata"]["namespace"] = "default".into();
    }
    merge(&mut object, &sample(&resource.storage.key));
    let (world, strategy) = (World::default(), strategy(resource));
    strategy.defaults(&mut object);
    strategy.prepare_create(&mut object, &world.env());
    strategy.complete_judged(&mut object);
    object
}

#[test]
fn minimal_objects_are_valid() {
    let world = World::default();
    for resource in stored() {
        let object = created(resource);
        let mut errors = Vec::new();
        strategy(resource).validate(&object, &world.env(), &mut errors);
        strategy(resource).validate_create(&object, &world.env(), &mut errors);
        assert!(errors.is_empty(), "{}: {errors:?}", resource.qualified());
    }
}

#[test]
fn nothing_changes_by_defaulting_again_or_by_an_update_with_the_same() {
    let world = World::default();
    for resource in stored() {
        let (object, strategy) = (created(resource), strategy(resource));
        let mut again = object.clone();
        strategy.defaults(&mut again);
        assert_eq!(again, object, "{}", resource.qualified());
        strategy.prepare_update(&mut again, &object, &world.env());
        assert_eq!(again, object, "{}", resource.qualified());
        assert!(!strategy.changes_generation(&again, &object), "{}", resource.qualified());
        let mut errors = Vec::new();
        strategy.validate_update(&again, &object, &world.env(), &mut errors);
        assert!(errors.is_empty(), "{}: {errors:?}", resource.qualified());
        strategy.prepare_status_update(&mut again, &object, &world.env());
        assert_eq!(again["spec"], object["spec"], "{}", resource.qualified());
    }
}

/// Defaults have the names and types of upstream's fields, and leave nothing that would not be stored.
#[test]
fn defaulted_objects_fit_the_schema() {
    for resource in stored() {
        let mut object = created(resource);
        let ty = schema::root(&resource.group, &resource.version, &resource.kind).expect("a schema");
        // Null where nothing is, which is no value that could be sent.
        decode::settle(&mut object, ty);
        let mut conformed = object.clone();
        let problems =
            decode::conform(&mut conformed, ty).unwrap_or_else(|e| panic!("{}: {e}", resource.qualified()));
        assert!(problems.is_empty(), "{}: {problems:?}", resource.qualified());
        decode::settle(&mut conformed, ty);
        assert_eq!(conformed, object, "{}", resource.qualified());
    }
}

#[test]
fn statuses_are_where_the_catalogue_says() {
    for resource in stored() {
        let subresource = resource.subresource("status").is_some();
        assert_eq!(strategy(resource).has_status(), subresource, "{}", resource.qualified());
    }
}

#[test]
fn rows_have_a_cell_for_each_column() {
    let now = "2026-01-01T00:05:00Z".parse().unwrap();
    for resource in stored() {
        let (object, strategy) = (created(resource), strategy(resource));
        let row = strategy.row(&object, now);
        assert_eq!(row.len(), strategy.columns().len(), "{}", resource.qualified());
        for (cell, column) in row.iter().zip(strategy.columns()) {
            assert!(
                !cell.is_null() && !cell.is_object() && !cell.is_array(),
                "{}: {}",
                resource.qualified(),
                column.name
            );
            if column.name == "Age" {
                assert_eq!(cell, "5m", "{}", resource.qualified());
            }
        }
        // An object of which nothing is known must not stop a list.
        assert_eq!(strategy.row(&json!({}), now).len(), strategy.columns().len(), "{}", resource.qualified());
    }
}

#[test]
fn field_names_are_the_same_for_every_object() {
    for resource in stored() {
        let names = |object: &Object| {
            strategy(resource).fields(object).into_iter().map(|(n, _)| n).collect::<Vec<_>>()
        };
        assert_eq!(names(&json!({})), names(&created(resource)), "{}", resource.qualified());
    }
}

/// JSON pointers to everything below `value`.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let mut go = |key: &str, inner: &Value| {
        let here = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
        pointers(inner, &here, found);
        found.push(here);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, inner)| go(key, inner)),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, inner)| go(&i.to_string(), inner)),
        _ => {}
    }
}

/// Whatever stands in a field, no strategy panics: not even where the schema would have refused it before.
#[test]
fn odd_values_are_survived() {
    let world = World::default();
    let odd = [
        json!(null),
        json!("x"),
        json!(""),
        json!(-1),
        json!([]),
        json!([1, "x", {}]),
        json!({}),
        json!({ "a": 1 }),
    ];
    for resource in stored() {
        let (object, strategy) = (created(resource), strategy(resource));
        let mut paths = Vec::new();
        pointers(&object, "", &mut paths);
        for (path, value) in paths.iter().flat_map(|p| odd.iter().map(move |v| (p, v))) {
            let mut changed = object.clone();
            if let Some(slot) = changed.pointer_mut(path) {
                *slot = value.clone();
            }
            let mut errors = Vec::new();
            strategy.defaults(&mut changed);
            strategy.validate(&changed, &world.env(), &mut errors);
            strategy.validate_update(&changed, &object, &world.env(), &mut errors);
            strategy.validate_update(&object, &changed, &world.env(), &mut errors);
            strategy.validate_status_update(&changed, &object, &world.env(), &mut errors);
            strategy.row(&changed, Timestamp::UNIX_EPOCH);
            strategy.fields(&changed);
            strategy.durability(Some(&changed), Some(&object));
            strategy.graceful_deletion(&changed, None);
            let _ = strategy.transaction_ops(
                WriteKind::Update,
                &mut changed.clone(),
                Some(&object),
                &world.env(),
            );
            strategy.prepare_status_update(&mut changed.clone(), &object, &world.env());
            strategy.prepare_update(&mut changed.clone(), &object, &world.env());
            strategy.prepare_create(&mut changed, &world.env());
        }
    }
}

/// Every field that may be selected by is indexed, so no selector is accepted and then never matches.
#[test]
fn all_selectable_fields_are_indexed() {
    for resource in catalogue().iter().filter(|r| r.is_stored()) {
        let storage = &resource.storage;
        let plural = storage.key.split('.').next().unwrap();
        let strategy = for_resource(&storage.group, plural);
        let indexed: Vec<&str> = strategy.fields(&Value::Null).into_iter().map(|(name, _)| name).collect();
        let labels = strategy.field_labels(&resource.group);
        // Upstream accepts the list of addresses too, and indexes only the first.
        for name in labels.names.iter().filter(|n| **n != "status.podIPs") {
            assert!(indexed.contains(name), "{} {name}", resource.kind);
        }
        assert!(labels.renamed.iter().all(|(_, now)| labels.names.contains(now)), "{}", resource.kind);
    }
}

/// Upstream's, where names are not DNS subdomains.
#[test]
fn few_resources_have_names_of_their_own_kind() {
    use coracle_api::meta::NameRule::{
        Any, Dns1123Label, Dns1123Subdomain, Last, PathSegment, PluralAndGroup, VersionAndGroup,
    };
    let rules = stored().map(|resource| (&*resource.storage.key, strategy(resource).name_rule()));
    let mut own: Vec<_> = rules.filter(|(_, rule)| *rule != Dns1123Subdomain).collect();
    own.sort_by_key(|(key, _)| *key);
    let expected = [
        ("apiservices.apiregistration.k8s.io", VersionAndGroup),
        ("certificatesigningrequests.certificates.k8s.io", Any),
        ("clusterrolebindings.rbac.authorization.k8s.io", PathSegment),
        ("clusterroles.rbac.authorization.k8s.io", PathSegment),
        ("customresourcedefinitions.apiextensions.k8s.io", PluralAndGroup),
        ("ipaddresses.networking.k8s.io", PathSegment),
        ("namespaces.", Dns1123Label),
        ("poddisruptionbudgets.policy", Last),
        ("rolebindings.rbac.authorization.k8s.io", PathSegment),
        ("roles.rbac.authorization.k8s.io", PathSegment),
        ("services.", Dns1123Label),
        ("statefulsets.apps", Dns1123Label),
    ];
    assert_eq!(own, expected);
}
