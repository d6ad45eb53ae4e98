use super::*;
use crate::testing::{self, World};
use coracle_store::Op;

mod address_families;

fn service(patch: &Value) -> Object {
    let mut object = json!({ "metadata": { "name": "s", "namespace": "d" },
        "spec": { "selector": { "a": "b" }, "ports": [{ "port": 80 }] } });
    testing::merge(&mut object, patch);
    Services.defaults(&mut object);
    object
}

/// What the registry does on a create, up to the operations of the transaction.
fn create(world: &World, patch: &Value) -> Result<(Object, TransactionOps), String> {
    let mut object = service(patch);
    Services.prepare_create(&mut object, &world.env());
    let mut errors = Vec::new();
    Services.validate(&object, &world.env(), &mut errors);
    Services.validate_create(&object, &world.env(), &mut errors);
    if let Some(error) = errors.first() {
        return Err(error.to_string());
    }
    let found = Services.transaction_ops(WriteKind::Create, &mut object, None, &world.env());
    found.map(|c| (object, c)).map_err(|e| e.message)
}

fn update(world: &World, old: &Object, patch: &Value) -> Result<(Object, TransactionOps), String> {
    let mut new = old.clone();
    testing::merge(&mut new, patch);
    Services.defaults(&mut new);
    Services.prepare_update(&mut new, old, &world.env());
    let mut errors = Vec::new();
    Services.validate(&new, &world.env(), &mut errors);
    Services.validate_update(&new, old, &world.env(), &mut errors);
    if let Some(error) = errors.first() {
        return Err(error.to_string());
    }
    let found = Services.transaction_ops(WriteKind::Update, &mut new, Some(old), &world.env());
    found.map(|c| (new, c)).map_err(|e| e.message)
}

/// Puts the service and what is written with it into the world.
fn commit(mut world: World, object: &Object, transaction_ops: &TransactionOps) -> World {
    for op in &transaction_ops.ops {
        match op {
            Op::Put { key, value } => {
                world = world.with(key, serde_json::from_slice(value).unwrap());
            }
            Op::Delete { key } => drop(world.objects.remove(&**key)),
        }
    }
    world.with(&format!("services./d/{}", name(object)), object.clone())
}

fn keys(transaction_ops: &TransactionOps) -> Vec<String> {
    let text = |op: &Op| match op {
        Op::Put { key, .. } => format!("+{key}"),
        Op::Delete { key } => format!("-{key}"),
    };
    transaction_ops.ops.iter().map(text).collect()
}

#[test]
fn defaults_are_upstreams() {
    assert_eq!(
        service(&json!({}))["spec"],
        json!({ "selector": { "a": "b" }, "type": "ClusterIP", "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
            "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 80 }] })
    );
    let sticky = service(&json!({ "spec": { "sessionAffinity": "ClientIP", "type": "LoadBalancer" } }));
    assert_eq!(sticky["spec"]["sessionAffinityConfig"], json!({ "clientIP": { "timeoutSeconds": 10800 } }));
    assert_eq!(sticky["spec"]["allocateLoadBalancerNodePorts"], true);
    assert_eq!(sticky["spec"]["externalTrafficPolicy"], "Cluster");
}

#[test]
fn a_cluster_ip_is_an_address_object_that_must_not_exist() {
    let (object, transaction_ops) = create(&World::default(), &json!({})).unwrap();
    let ip = str_at(&object, "spec.clusterIP");
    assert!(ip.starts_with("10.43."), "{ip}");
    assert_eq!(object["spec"]["clusterIPs"], json!([ip]));
    assert_eq!(object["spec"]["ipFamilies"], json!(["IPv4"]));
    assert_eq!(object["spec"]["ipFamilyPolicy"], "SingleStack");
    assert_eq!(keys(&transaction_ops), [format!("+ipaddresses.networking.k8s.io//{ip}")]);
    assert_eq!(transaction_ops.guards.len(), 1);
    assert!(transaction_ops.guards[0].expect.is_none());
    let Op::Put { value, .. } = &transaction_ops.ops[0] else { panic!("a put") };
    assert!(value.starts_with(br#"{"kind":"IPAddress","apiVersion":"networking.k8s.io/v1","metadata":{"#));
}

#[test]
fn chosen_addresses_are_checked() {
    let world = World::default();
    let (object, transaction_ops) =
        create(&world, &json!({ "spec": { "clusterIP": "10.43.0.10" } })).unwrap();
    let world = commit(world, &object, &transaction_ops);
    let taken =
        create(&world, &json!({ "metadata": { "name": "t" }, "spec": { "clusterIP": "10.43.0.10" } }));
    assert_eq!(
        taken.err().unwrap(),
        "Service \"t\" is invalid: spec.clusterIPs: Invalid value: [\"10.43.0.10\"]: failed to allocate IP 10.43.0.10: provided IP is already allocated"
    );
    let outside = create(&world, &json!({ "spec": { "clusterIP": "1.2.3.4" } })).err().unwrap();
    assert!(
        outside.ends_with(
            "failed to allocate IP 1.2.3.4: the provided IP (1.2.3.4) is not in the valid range. The range of valid IPs is 10.43.0.0/16"
        )
    );
}

/// Until its IPAddress, which somebody has deleted, is made again.
#[test]
fn an_address_without_its_object_is_still_its_services() {
    let held = json!({ "metadata": { "name": "a", "namespace": "default" },
        "spec": { "clusterIP": "10.43.0.10", "clusterIPs": ["10.43.0.10"] } });
    let world = World::default().with("services./default/a", held);
    let other =
        create(&world, &json!({ "metadata": { "name": "b" }, "spec": { "clusterIP": "10.43.0.10" } }));
    assert!(
        other.err().unwrap().ends_with("failed to allocate IP 10.43.0.10: provided IP is already allocated")
    );
}

#[test]
fn a_small_range_is_used_up_and_then_refused() {
    let cidr = json!({ "spec": { "cidrs": ["10.0.0.0/29"] } });
    let mut world = World::default().with("servicecidrs.networking.k8s.io//kubernetes", cidr);
    let mut seen = std::collections::BTreeSet::new();
    for i in 0..6 {
        let (object, transaction_ops) =
            create(&world, &json!({ "metadata": { "name": format!("s{i}") } })).unwrap();
        assert!(seen.insert(str_at(&object, "spec.clusterIP").to_owned()));
        world = commit(world, &object, &transaction_ops);
    }
    assert!(create(&world, &json!({})).err().unwrap().ends_with("range is full"));
}

#[test]
fn headless_and_external_names_have_no_address() {
    let (headless, transaction_ops) =
        create(&World::default(), &json!({ "spec": { "clusterIP": "None" } })).unwrap();
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    assert!(transaction_ops.ops.is_empty());
    let patch = json!({ "spec": { "type": "ExternalName", "externalName": "x.org", "ports": null, "selector": null } });
    let (external, transaction_ops) = create(&World::default(), &patch).unwrap();
    assert!(transaction_ops.ops.is_empty());
    assert!(!has(&external, "spec.ipFamilies"));
    let error = create(&World::default(), &json!({ "spec": { "type": "ExternalName" } })).err().unwrap();
    assert_eq!(error, "spec.externalName: Required value");
}

#[test]
fn node_ports_come_and_go_with_the_type() {
    let world = World::default();
    let (object, transaction_ops) = create(&world, &json!({ "spec": { "type": "NodePort" } })).unwrap();
    let port = i64_at(&object["spec"]["ports"][0], "nodePort").unwrap();
    assert!((30_000..=32_767).contains(&port));
    assert!(keys(&transaction_ops).contains(&format!("+nodeports.coracle.internal//{port}")));
    let world = commit(world, &object, &transaction_ops);
    let asked = json!({ "metadata": { "name": "t" }, "spec": { "type": "NodePort",
        "ports": [{ "port": 1, "nodePort": port }] } });
    assert!(create(&world, &asked).err().unwrap().ends_with("provided port is already allocated"));
    let asked = json!({ "spec": { "type": "NodePort", "ports": [{ "port": 1, "nodePort": 80 }] } });
    assert!(create(&world, &asked).err().unwrap().contains("The range of valid ports is 30000-32767"));

    let (kept, transaction_ops) =
        update(&world, &object, &json!({ "spec": { "ports": [{ "port": 81 }] } })).unwrap();
    assert_eq!(kept["spec"]["ports"][0]["nodePort"], port);
    assert!(transaction_ops.ops.is_empty());
    let (plain, transaction_ops) =
        update(&world, &object, &json!({ "spec": { "type": "ClusterIP" } })).unwrap();
    assert!(!has(&plain["spec"]["ports"][0], "nodePort"));
    assert!(!has(&plain, "spec.externalTrafficPolicy"));
    assert_eq!(keys(&transaction_ops), [format!("-nodeports.coracle.internal//{port}")]);
}

#[test]
fn the_port_of_health_checks_stays_as_it_is_and_goes_with_the_policy() {
    let world = World::default();
    let local = json!({ "spec": { "type": "LoadBalancer", "externalTrafficPolicy": "Local" } });
    let (object, transaction_ops) = create(&world, &local).unwrap();
    let port = i64_at(&object["spec"], "healthCheckNodePort").unwrap();
    let world = commit(world, &object, &transaction_ops);
    let other = json!({ "spec": { "healthCheckNodePort": 31_111 } });
    let why =
        "cannot change healthCheckNodePort on loadBalancer service with externalTraffic=Local during update";
    assert!(update(&world, &object, &other).err().unwrap().contains(why));
    let global = json!({ "spec": { "externalTrafficPolicy": "Cluster" } });
    let (plain, transaction_ops) = update(&world, &object, &global).unwrap();
    assert!(!has(&plain["spec"], "healthCheckNodePort"));
    assert_eq!(keys(&transaction_ops), [format!("-nodeports.coracle.internal//{port}")]);
    let set = json!({ "spec": { "externalTrafficPolicy": "Cluster", "healthCheckNodePort": 31_111 } });
    assert!(update(&world, &object, &set).err().unwrap().contains("may only be set when `type` is"));
}

#[test]
fn addresses_stay_and_are_released() {
    let (object, transaction_ops) = create(&World::default(), &json!({})).unwrap();
    let world = commit(World::default(), &object, &transaction_ops);
    let ip = str_at(&object, "spec.clusterIP").to_owned();
    let left_out = json!({ "spec": { "clusterIP": null, "clusterIPs": null } });
    let (kept, transaction_ops) = update(&world, &object, &left_out).unwrap();
    assert_eq!(kept["spec"]["clusterIP"], object["spec"]["clusterIP"]);
    assert!(transaction_ops.ops.is_empty());

    let moved = json!({ "spec": { "clusterIP": "10.43.0.9", "clusterIPs": ["10.43.0.9"] } });
    let error = update(&world, &object, &moved).err().unwrap();
    assert_eq!(error, "spec.clusterIPs[0]: Invalid value: [\"10.43.0.9\"]: may not change once set");

    let renamed = json!({ "spec": { "type": "ExternalName", "externalName": "x.org" } });
    let (external, transaction_ops) = update(&world, &object, &renamed).unwrap();
    assert!(!has(&external, "spec.clusterIP"));
    assert_eq!(keys(&transaction_ops), [format!("-ipaddresses.networking.k8s.io//{ip}")]);
    let mut gone = object.clone();
    let transaction_ops =
        Services.transaction_ops(WriteKind::Delete, &mut gone, Some(&object), &world.env()).unwrap();
    assert_eq!(keys(&transaction_ops), [format!("-ipaddresses.networking.k8s.io//{ip}")]);
}

#[test]
fn one_of_the_linked_address_fields_is_enough() {
    let world = World::default();
    let (web, transaction_ops) = create(&world, &json!({ "spec": { "type": "NodePort" } })).unwrap();
    let world = commit(world, &web, &transaction_ops);
    let away = json!({ "type": "ExternalName", "externalName": "x.y" });
    for cleared in
        [json!({}), json!({ "clusterIP": "" }), json!({ "clusterIP": null }), json!({ "clusterIPs": [] })]
    {
        let mut patch = json!({ "spec": away });
        testing::merge(&mut patch, &json!({ "spec": cleared }));
        let (external, transaction_ops) = update(&world, &web, &patch).expect("a change of type");
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            assert!(!has(&external, &format!("spec.{field}")), "{cleared}: {external}");
        }
        assert!(!keys(&transaction_ops).is_empty(), "address and port are given back");
    }
    let other = update(&world, &web, &json!({ "spec": { "clusterIP": "10.43.9.9" } })).err().unwrap();
    assert!(
        other.contains("spec.clusterIPs[0]: Invalid value: [\"10.43.9.9\"]: may not change once set"),
        "{other}"
    );
    let other = update(
        &world,
        &web,
        &json!({ "spec": { "type": "ExternalName", "externalName": "x.y", "clusterIP": "10.43.9.9" } }),
    );
    assert!(other.err().unwrap().contains("spec.clusterIP"), "what the client changed is not taken away");
}

#[test]
fn mistakes_are_named() {
    for (patch, expected) in [
        (json!({ "spec": { "ports": [] } }), "spec.ports: Required value"),
        (
            json!({ "spec": { "ports": [{ "port": 0 }] } }),
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
        (
            json!({ "spec": { "ports": [{ "port": 1 }, { "port": 2, "name": "b" }] } }),
            "spec.ports[0].name: Required value",
        ),
        (
            json!({ "spec": { "ports": [{ "port": 1, "nodePort": 30000 }] } }),
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ),
        (
            json!({ "spec": { "ports": [{ "port": 1, "nodePort": 80 }] } }),
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ),
        (
            json!({ "spec": { "healthCheckNodePort": 80 } }),
            "spec.healthCheckNodePort: Invalid value: 80: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        ),
        (
            json!({ "spec": { "type": "X" } }),
            "spec.type: Unsupported value: \"X\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
        ),
        (
            json!({ "spec": { "externalTrafficPolicy": "Local" } }),
            "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
        ),
    ] {
        assert_eq!(create(&World::default(), &patch).err().as_deref(), Some(expected));
    }
}

#[test]
fn rows_are_upstreams() {
    let now = "2026-01-01T00:05:00Z".parse().unwrap();
    let cells = |patch: Value| {
        let mut object = service(&json!({ "metadata": { "creationTimestamp": "2026-01-01T00:00:00Z" } }));
        testing::merge(&mut object, &patch);
        let row = Services.row(&object, now);
        row.iter().map(|c| c.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        cells(json!({ "spec": { "clusterIPs": ["10.43.0.1"] } })),
        ["s", "ClusterIP", "10.43.0.1", "<none>", "80/TCP", "5m", "a=b"]
    );
    assert_eq!(
        cells(json!({ "spec": { "type": "LoadBalancer", "clusterIPs": ["10.43.0.1"], "selector": null,
            "ports": [{ "port": 80, "nodePort": 30080, "protocol": "TCP" }, { "port": 53, "protocol": "UDP" }] } })),
        ["s", "LoadBalancer", "10.43.0.1", "<pending>", "80:30080/TCP,53/UDP", "5m", "<none>"]
    );
}
