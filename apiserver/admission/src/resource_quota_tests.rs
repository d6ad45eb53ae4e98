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

fn charge(
    attempt: &Try<'_>,
    store: Option<&Arc<dyn Store>>,
    new: &Object,
    old: Option<&Object>,
) -> Result<(), ApiError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    attempt.with(new, |request| runtime.block_on(ResourceQuota::default().charge(request, store, new, old)))
}

fn create(world: &World, resource: &'static str, object: &Object) -> Result<(), String> {
    charge(&Try::create(world, resource), None, object, None).map_err(|e| e.message)
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
fn a_limit_without_a_count_lets_nothing_in() {
    let world = World::new();
    let hard = json!({ "pods": "2", "requests.cpu": "1", "secrets": "1" });
    world.put(
        "resourcequotas.",
        json!({ "metadata": { "name": "q", "namespace": "a" }, "spec": { "hard": hard },
            "status": { "hard": hard, "used": { "pods": "0", "secrets": "0" } } }),
    );
    assert_eq!(
        create(&world, "pods.", &asking("a", "100m")).unwrap_err(),
        "pods \"a\" is forbidden: status unknown for quota: q, resources: pods,requests.cpu"
    );
    let secret = json!({ "metadata": { "name": "s", "namespace": "a" } });
    create(&world, "secrets.", &secret).expect("of secrets all is known");
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
        charge(&request, None, &claim(new), Some(&claim("2Gi")))
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

#[test]
fn pods_speak_for_their_containers() {
    let world = world(json!({ "hard": { "limits.cpu": "4" } }));
    let mut pod = pod();
    assert!(create(&world, "pods.", &pod).unwrap_err().ends_with("must specify limits.cpu for: c"));
    pod["spec"]["resources"] = json!({ "limits": { "cpu": "3" } });
    create(&world, "pods.", &pod).unwrap();
}

/// Sixty-four writers want the last places: exactly as many get them as there are.
#[tokio::test(flavor = "multi_thread")]
async fn no_place_is_given_twice() {
    let world = world(json!({ "hard": { "configmaps": "10" } }));
    let store: Arc<dyn Store> = coracle_store::MemoryStore::new();
    let quota = json!({ "metadata": { "name": "q", "namespace": "a" }, "spec": { "hard": { "configmaps": "10" } },
        "status": { "hard": { "configmaps": "10" }, "used": { "configmaps": "3" } } });
    let key: Arc<str> = "resourcequotas./a/q".into();
    let value = Bytes::from(to_storage_bytes(&quota, "v1", "ResourceQuota"));
    let put = Txn { ops: vec![Op::Put { key: key.clone(), value }], ..Txn::default() };
    store.commit(put).await.unwrap();
    let plugin = Arc::new(ResourceQuota::default());
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..64 {
        let (world, store, plugin) = (world.clone(), store.clone(), plugin.clone());
        tasks.spawn(async move {
            let user = coracle_api::UserInfo::default();
            let warnings = parking_lot::Mutex::default();
            let name = format!("c{i}");
            let request = Request {
                operation: Operation::Create,
                group: "",
                resource: "configmaps",
                subresource: "",
                namespace: "a",
                name: &name,
                user: &user,
                dry_run: i % 2 == 1,
                read: &*world,
                authorizer: None,
                metrics: &coracle_component_base::metrics::Metrics::default(),
                warnings: &warnings,
            };
            let object = json!({ "metadata": { "name": name, "namespace": "a" } });
            (i % 2 == 0, plugin.charge(&request, Some(&store), &object, None).await)
        });
    }
    let results = tasks.join_all().await;
    let taken = results.iter().filter(|(real, result)| *real && result.is_ok()).count();
    assert_eq!(taken, 7);
    let refused = results.iter().find_map(|(_, result)| result.clone().err()).unwrap();
    assert!(
        refused.message.ends_with(
            "exceeded quota: q, requested: configmaps=1, used: configmaps=10, limited: configmaps=10"
        ),
        "{refused}"
    );
    let stored: Object =
        serde_json::from_slice(&store.get(&key).await.unwrap().unwrap().value.bytes()).unwrap();
    assert_eq!(stored["status"]["used"]["configmaps"], "10", "dry runs are not charged");
}
