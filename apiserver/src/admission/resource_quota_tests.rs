use super::super::testing::*;
use super::*;
use serde_json::json;

fn world(spec: Value) -> std::sync::Arc<World> {
    let world = World::new();
    world.put("resourcequotas.", json!({ "metadata": { "name": "q", "namespace": "a" }, "spec": spec }));
    world
}

fn asking(name: &str, cpu: &str) -> Object {
    let mut pod = pod();
    pod["metadata"]["name"] = name.into();
    pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": cpu } });
    pod
}

fn create(world: &World, resource: &'static str, object: &Object) -> Result<(), String> {
    Try::create(world, resource).validate(&ResourceQuota, object, None).map_err(|e| e.message)
}

#[test]
fn counts_and_sums() {
    let world = world(json!({ "hard": { "pods": "2", "requests.cpu": "1" } }));
    create(&world, "pods.", &asking("a", "600m")).unwrap();
    world.put("pods.", asking("a", "600m"));
    assert_eq!(
        create(&world, "pods.", &asking("b", "600m")).unwrap_err(),
        "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, \
         limited: requests.cpu=1"
    );
    create(&world, "pods.", &asking("b", "400m")).unwrap();
    world.put("pods.", asking("b", "100m"));
    let error = create(&world, "pods.", &asking("c", "100m")).unwrap_err();
    assert!(
        error.ends_with("exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"),
        "{error}"
    );
    let mut done = asking("a", "600m");
    done["status"]["phase"] = "Succeeded".into();
    world.put("pods.", done);
    create(&world, "pods.", &asking("c", "100m")).expect("a pod that ended no longer counts");
    assert_eq!(
        create(&world, "pods.", &pod()).unwrap_err(),
        "pods \"web\" is forbidden: failed quota: q: must specify requests.cpu for: c"
    );
}

#[test]
fn other_resources() {
    let world = world(json!({ "hard": {
        "count/deployments.apps": "1", "configmaps": "1", "requests.storage": "1Gi",
        "fast.storageclass.storage.k8s.io/requests.storage": "512Mi", "services.nodeports": "1",
    } }));
    let named =
        |name: &str, spec: Value| json!({ "metadata": { "name": name, "namespace": "a" }, "spec": spec });
    for resource in ["deployments.apps", "configmaps."] {
        create(&world, resource, &named("one", json!({}))).unwrap();
        world.put(resource, named("one", json!({})));
        assert!(create(&world, resource, &named("two", json!({}))).is_err(), "{resource}");
    }
    let claim = |size: &str, class: &str| {
        let resources = json!({ "requests": { "storage": size } });
        named("c", json!({ "storageClassName": class, "resources": resources }))
    };
    let claims = "persistentvolumeclaims.";
    create(&world, claims, &claim("1Gi", "slow")).unwrap();
    assert!(
        create(&world, claims, &claim("2Gi", "slow")).unwrap_err().contains("limited: requests.storage=1Gi")
    );
    assert!(create(&world, claims, &claim("1Gi", "fast")).is_err());
    let service = |kind: &str| named("s", json!({ "type": kind, "ports": [{ "port": 1 }, { "port": 2 }] }));
    create(&world, "services.", &service("ClusterIP")).unwrap();
    assert!(create(&world, "services.", &service("NodePort")).is_err());
}

#[test]
fn updates_count_growth_alone() {
    let world = world(json!({ "hard": { "requests.storage": "1Gi" } }));
    let claim = |size: &str| {
        json!({
            "metadata": { "name": "c", "namespace": "a" }, "spec": { "resources": { "requests": { "storage": size } } },
        })
    };
    world.put("persistentvolumeclaims.", claim("2Gi"));
    let update = |new: &str| {
        let request = Try { operation: Operation::Update, ..Try::create(&world, "persistentvolumeclaims.") };
        request.validate(&ResourceQuota, &claim(new), Some(&claim("2Gi")))
    };
    update("2Gi").unwrap();
    assert!(update("3Gi").is_err());
}

#[test]
fn scopes() {
    let mut terminating = pod();
    terminating["spec"]["activeDeadlineSeconds"] = 5.into();
    let mut important = pod();
    important["spec"]["priorityClassName"] = "high".into();
    let by_class = |operator: &str| {
        json!({ "matchExpressions": [
        { "scopeName": "PriorityClass", "operator": operator, "values": ["high"] }] })
    };
    for (spec, object, counted) in [
        (json!({ "scopes": ["Terminating"] }), &terminating, true),
        (json!({ "scopes": ["NotTerminating"] }), &terminating, false),
        (json!({ "scopes": ["BestEffort"] }), &pod(), true),
        (json!({ "scopes": ["NotBestEffort"] }), &asking("x", "1"), true),
        (json!({ "scopes": ["NotBestEffort"] }), &pod(), false),
        (json!({ "scopeSelector": by_class("In") }), &important, true),
        (json!({ "scopeSelector": by_class("In") }), &pod(), false),
        (json!({ "scopeSelector": by_class("NotIn") }), &pod(), true),
    ] {
        let mut quota = spec.clone();
        quota["hard"] = json!({ "pods": "0" });
        assert_eq!(create(&world(quota), "pods.", object).is_err(), counted, "{spec}");
    }
}
