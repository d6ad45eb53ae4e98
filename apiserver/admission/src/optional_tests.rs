use super::super::testing::*;
use super::*;

#[test]
fn images_are_pulled_always() {
    let world = World::new();
    let pod = Try::create(&world, "pods.").mutate(&AlwaysPullImages, pod()).unwrap();
    assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], "Always");
    assert!(Try::create(&world, "pods.").validate(&AlwaysDeny, &pod, None).is_err());
    Try::create(&world, "pods.").validate(&AlwaysAdmit, &pod, None).unwrap();
    assert_eq!(Try::create(&world, "pods.").validate(&NamespaceExists, &pod, None).unwrap_err().code, 404);
}

#[test]
fn hard_anti_affinity_stays_within_nodes() {
    let world = World::new();
    let check = |key: &str| {
        let mut pod = pod();
        pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!([{ "topologyKey": key }]);
        Try::create(&world, "pods.").validate(&LimitPodHardAntiAffinityTopology, &pod, None)
    };
    check("kubernetes.io/hostname").unwrap();
    assert!(check("zone").unwrap_err().message.contains("has TopologyKey zone but only key"));
}

#[test]
fn external_addresses_are_not_added() {
    let world = World::new();
    let service =
        |ips: Value| json!({ "metadata": { "name": "s", "namespace": "a" }, "spec": { "externalIPs": ips } });
    let two = service(json!(["1.2.3.4", "1.2.3.5"]));
    let create = Try::create(&world, "services.");
    create.validate(&DenyServiceExternalIPs, &service(json!([])), None).unwrap();
    assert!(create.validate(&DenyServiceExternalIPs, &two, None).is_err());
    let update = Try { operation: Operation::Update, ..Try::create(&world, "services.") };
    update.validate(&DenyServiceExternalIPs, &service(json!(["1.2.3.5"])), Some(&two)).unwrap();
}

#[test]
fn selectors_and_tolerations_are_added() {
    let world = World::new();
    let annotations = json!({ NODE_SELECTOR: "env=test, zone=z" });
    world.put("namespaces.", json!({ "metadata": { "name": "a", "annotations": annotations } }));
    let admitted = Try::create(&world, "pods.").mutate(&PodNodeSelector, pod()).unwrap();
    assert_eq!(admitted["spec"]["nodeSelector"], json!({ "env": "test", "zone": "z" }));
    let mut other = pod();
    other["spec"]["nodeSelector"] = json!({ "env": "prod" });
    assert!(Try::create(&world, "pods.").mutate(&PodNodeSelector, other).is_err());
    let mut gpu = pod();
    gpu["spec"]["containers"][0]["resources"] = json!({ "requests": { "example.com/gpu": "1", "cpu": "1" } });
    let gpu = Try::create(&world, "pods.").mutate(&ExtendedResourceToleration, gpu).unwrap();
    let wanted = json!([{ "key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule" }]);
    assert_eq!(gpu["spec"]["tolerations"], wanted);
}

#[test]
fn owners_need_permission() {
    use coracle_access::authz::Chain;
    let world = World::new();
    let chain = Chain::new(world.clone(), world.generation());
    let mut owned = pod();
    owned["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "1", "blockOwnerDeletion": true }]);
    let check = |groups: &[&str]| {
        let mut create = Try::create(&world, "pods.");
        create.user = coracle_api::UserInfo::authenticated("jane", groups);
        create.with(&owned, |request| {
            let request = Request { authorizer: Some(&chain), ..*request };
            OwnerReferencesPermissionEnforcement.validate(&request, Some(&owned), None)
        })
    };
    check(&["system:masters"]).unwrap();
    assert!(check(&[]).unwrap_err().message.contains("you can't set finalizers on"));
}
