use super::*;
use coracle_access::authz::testing::World;
use coracle_access::authz::{Attributes, Authorizer, Chain, Decision, Gate};
use coracle_api::UserInfo;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

fn config() -> BootstrapConfig {
    BootstrapConfig {
        api_addresses: vec![[127, 0, 0, 1].into(), [192, 0, 2, 1].into()],
        api_port: 6443,
        service_ip: [10, 43, 0, 1].into(),
        service_cidr: "10.43.0.0/16".to_owned(),
        cluster_cidr: "10.42.0.0/16".to_owned(),
        local_path: true,
        dns: Some(ClusterDns { ip: [10, 43, 0, 10].into(), corefile: ".:53 {\n}\n".to_owned() }),
        ca_pem: "CA".to_owned(),
        front_proxy_ca_pem: "FRONT".to_owned(),
        server_url: "https://192.0.2.1:6443".to_owned(),
    }
}

/// As the registry would leave it after the first start.
fn started() -> Arc<World> {
    let world = World::new();
    // What is made, and then what is known of it.
    for _ in 0..2 {
        for planned in plan(&config(), world.as_ref()) {
            world.put(planned.resource, planned.object);
        }
    }
    world
}

fn names(resource: &str, namespace: &str) -> BTreeSet<String> {
    let list = started();
    use coracle_requests::ObjectReader;
    list.list(resource, namespace)
        .iter()
        .map(|o| o["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_second_start_writes_nothing() {
    let again = plan(&config(), started().as_ref());
    assert!(again.is_empty(), "{again:#?}");
}

#[test]
fn objects_are_complete_and_unique() {
    let mut seen = BTreeSet::new();
    for wanted in wanted(&config()) {
        let metadata = &wanted.object["metadata"];
        assert!(wanted.object["kind"].is_string() && wanted.object["apiVersion"].is_string());
        assert!(seen.insert((
            wanted.resource,
            metadata["namespace"].to_string(),
            metadata["name"].to_string()
        )));
        let resource = coracle_api::catalogue::by_storage_key(wanted.resource).expect(wanted.resource);
        assert_eq!(resource.kind, wanted.object["kind"].as_str().unwrap());
        assert_eq!(resource.namespaced, metadata["namespace"].is_string(), "{}", wanted.resource);
    }
}

/// The names that <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#default-roles-and-role-bindings> lists.
#[test]
fn every_default_role_is_there() {
    let roles = names("clusterroles.rbac.authorization.k8s.io", "");
    for name in [
        "cluster-admin",
        "admin",
        "edit",
        "view",
        "system:basic-user",
        "system:discovery",
        "system:public-info-viewer",
        "system:kube-scheduler",
        "system:volume-scheduler",
        "system:kube-controller-manager",
        "system:node",
        "system:node-proxier",
        "system:auth-delegator",
        "system:heapster",
        "system:kube-aggregator",
        "system:kube-dns",
        "system:kubelet-api-admin",
        "system:node-bootstrapper",
        "system:node-problem-detector",
        "system:persistent-volume-provisioner",
        "system:monitoring",
        "system:service-account-issuer-discovery",
        "system:aggregate-to-admin",
        "system:aggregate-to-edit",
        "system:aggregate-to-view",
    ] {
        assert!(roles.contains(name), "{name} in {roles:?}");
    }
    assert_eq!(roles.len(), 69 + 7, "the table's and Coracle's own");
    assert_eq!(names("clusterrolebindings.rbac.authorization.k8s.io", "").len(), 50 + 11);
    assert_eq!(names("roles.rbac.authorization.k8s.io", "kube-system").len(), 6 + 3);
    assert_eq!(names("rolebindings.rbac.authorization.k8s.io", "kube-public").len(), 3);
}

#[test]
fn every_controller_has_its_role() {
    let roles = names("clusterroles.rbac.authorization.k8s.io", "");
    for controller in [
        "attachdetach",
        "certificate",
        "clusterrole-aggregation",
        "cronjob",
        "daemon-set",
        "deployment",
        "disruption",
        "endpoint",
        "endpointslice",
        "endpointslicemirroring",
        "expand",
        "generic-garbage-collector",
        "job",
        "namespace",
        "node",
        "persistent-volume-binder",
        "pod-garbage-collector",
        "pv-protection",
        "pvc-protection",
        "replicaset",
        "replication",
        "resourcequota",
        "root-ca-cert-publisher",
        "service-account",
        "statefulset",
        "ttl",
        "ttl-after-finished",
    ] {
        let is = |suffix: &str| roles.contains(&format!("system:controller:{controller}{suffix}"));
        assert!(is("-controller") || is(""), "controller {controller}");
    }
}

#[test]
fn the_rest_is_there() {
    assert_eq!(names("namespaces.", "").len(), 4);
    assert_eq!(names("services.", "kube-system"), BTreeSet::from(["kube-dns".to_owned()]));
    assert!(names("serviceaccounts.", "kube-system").contains("coredns"));
    assert!(names("priorityclasses.scheduling.k8s.io", "").contains("system-node-critical"));
    assert!(names("storageclasses.storage.k8s.io", "").contains("local-path"));
    assert!(names("configmaps.", "kube-public").contains("cluster-info"));
    for map in ["coredns", "extension-apiserver-authentication", "kube-proxy"] {
        assert!(names("configmaps.", "kube-system").contains(map), "{map}");
    }
    let without = BootstrapConfig {
        dns: None,
        local_path: false,
        api_addresses: vec![[127, 0, 0, 1].into()],
        ..config()
    };
    let plain = wanted(&without);
    assert!(!plain.iter().any(|w| w.object["metadata"]["name"] == "kube-dns"));
    assert!(!plain.iter().any(|w| w.object["kind"] == "StorageClass"), "a class that nobody serves");
    assert!(!plain.iter().any(|w| w.resource == "endpoints."), "no endpoints but loopback");
}

#[test]
fn every_binding_finds_its_role() {
    use coracle_requests::ObjectReader;
    let world = started();
    for resource in ["clusterrolebindings", "rolebindings"] {
        for binding in world.list(&format!("{resource}.rbac.authorization.k8s.io"), "") {
            let role = &binding["roleRef"];
            let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default();
            let (plural, namespace) =
                if role["kind"] == "Role" { ("roles", namespace) } else { ("clusterroles", "") };
            let name = role["name"].as_str().unwrap();
            assert!(
                world.get(&format!("{plural}.rbac.authorization.k8s.io"), namespace, name).is_some(),
                "{role}"
            );
        }
    }
}

#[test]
fn default_users_may_do_their_work() {
    let world = started();
    let chain = Chain::new(world.clone(), world.generation());
    let may = |user: &UserInfo, verb, group, resource, namespace| {
        let asked = Attributes::resource(user, verb, group, resource, namespace);
        matches!(chain.authorize(&asked), Decision::Allow(_))
    };
    let (scheduler, controllers) = ("system:kube-scheduler", "system:kube-controller-manager");
    let dns = "system:serviceaccount:kube-system:coredns";
    for (user, verb, group, resource, namespace, allowed) in [
        (scheduler, "list", "", "pods", "", true),
        (scheduler, "delete", "", "nodes", "", false),
        (controllers, "create", "", "pods", "a", true),
        (controllers, "update", "apps", "replicasets", "a", true),
        (controllers, "create", "rbac.authorization.k8s.io", "clusterrolebindings", "", false),
        (dns, "watch", "discovery.k8s.io", "endpointslices", "", true),
        (dns, "create", "discovery.k8s.io", "endpointslices", "kube-system", true),
        (dns, "create", "discovery.k8s.io", "endpointslices", "default", false),
        ("system:kube-proxy", "watch", "", "services", "", true),
        ("system:kube-proxy", "watch", "", "pods", "", true),
        ("system:kube-proxy", "list", "networking.k8s.io", "networkpolicies", "", true),
        ("system:kube-proxy", "get", "", "secrets", "a", false),
        ("jane", "list", "", "pods", "a", false),
        ("jane", "create", "authorization.k8s.io", "selfsubjectaccessreviews", "", true),
    ] {
        let info = UserInfo::authenticated(user, &[]);
        assert_eq!(
            may(&info, verb, group, resource, namespace),
            allowed,
            "{user} {verb} {resource} {namespace}"
        );
    }
    let anonymous = UserInfo::anonymous();
    for (path, allowed) in
        [("/livez", true), ("/readyz", true), ("/healthz", true), ("/version", true), ("/metrics", false)]
    {
        let decision = chain.authorize(&Attributes::path(&anonymous, "get", path));
        assert_eq!(matches!(decision, Decision::Allow(_)), allowed, "{path}");
    }
}

#[test]
fn aggregated_roles_hold_what_they_aggregate() {
    use coracle_requests::ObjectReader;
    let world = started();
    let rules = |name: &str| {
        let role = world.get("clusterroles.rbac.authorization.k8s.io", "", name).unwrap();
        coracle_access::authz::rules::Rule::of_role(&role)
    };
    for (part, whole) in [
        ("system:aggregate-to-view", "view"),
        ("view", "edit"),
        ("edit", "admin"),
        ("system:aggregate-to-admin", "admin"),
    ] {
        assert!(!rules(part).is_empty());
        assert!(
            coracle_access::authz::rules::missing(&rules(whole), &rules(part)).is_empty(),
            "{part} in {whole}"
        );
    }
}

fn change(world: &World, resource: &str, namespace: &str, name: &str, edit: impl Fn(&mut Value)) {
    use coracle_requests::ObjectReader;
    let mut object = (*world.get(resource, namespace, name).unwrap()).clone();
    edit(&mut object);
    world.put(resource, object);
}

fn only(world: &World) -> Planned {
    let mut writes = plan(&config(), world);
    assert_eq!(writes.len(), 1, "{writes:#?}");
    writes.remove(0)
}

#[test]
fn lost_rules_and_subjects_come_back_and_additions_stay() {
    let world = started();
    let roles = "clusterroles.rbac.authorization.k8s.io";
    let own = json!({ "verbs": ["get"], "apiGroups": ["mine"], "resources": ["x"] });
    change(&world, roles, "", "system:basic-user", |role| role["rules"] = json!([own]));
    let planned = only(&world);
    assert!(planned.replaces.is_some());
    assert_eq!(planned.object["rules"][0], own);
    assert!(planned.object["rules"].as_array().unwrap().len() > 1);
    world.put(planned.resource, planned.object);
    assert!(plan(&config(), world.as_ref()).is_empty());

    let bindings = "clusterrolebindings.rbac.authorization.k8s.io";
    let jane = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane" });
    change(&world, bindings, "", "cluster-admin", |b| b["subjects"] = json!([jane]));
    let subjects = only(&world).object["subjects"].clone();
    assert_eq!(subjects.as_array().unwrap().len(), 2);
    change(&world, bindings, "", "cluster-admin", |b| {
        b["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] = "false".into();
    });
    assert!(plan(&config(), world.as_ref()).is_empty(), "autoupdate is off");
}

const BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";

#[test]
fn deleted_bindings_come_back() {
    let world = started();
    world.remove(BINDINGS, "", "system:basic-user");
    let planned = only(&world);
    assert!(planned.replaces.is_none());
    assert_eq!(planned.object["subjects"][0]["name"], "system:authenticated");
}

#[test]
fn public_information_is_for_those_whom_discovery_is_bound_to() {
    let world = started();
    let ours =
        json!([{ "kind": "Group", "name": "system:authenticated" }, { "kind": "User", "name": "jane" }]);
    for (update, subjects) in [("false", 2), ("true", 3)] {
        world.remove(BINDINGS, "", "system:public-info-viewer");
        change(&world, BINDINGS, "", "system:discovery", |o| {
            o["metadata"]["annotations"] = json!({ rbac::AUTOUPDATE: update, "theirs": "yes" });
            o["subjects"] = ours.clone();
        });
        let planned = only(&world);
        let (metadata, bound) = (&planned.object["metadata"], &planned.object["subjects"]);
        assert_eq!(
            (&metadata["name"], &metadata["annotations"]["theirs"]),
            (&json!("system:public-info-viewer"), &json!("yes"))
        );
        assert_eq!(metadata["annotations"][rbac::AUTOUPDATE], update);
        assert_eq!((&bound[0], &bound[1]), (&ours[0], &ours[1]));
        assert_eq!(bound.as_array().map(Vec::len), Some(subjects), "{bound}");
        assert_eq!(planned.object["roleRef"]["name"], "system:public-info-viewer");
        world.put(planned.resource, planned.object);
    }
}

#[test]
fn aggregated_rules_belong_to_the_aggregation_controller() {
    let world = started();
    change(&world, "clusterroles.rbac.authorization.k8s.io", "", "view", |role| role["rules"] = json!([]));
    assert!(plan(&config(), world.as_ref()).is_empty());
    let mine = json!({ "matchLabels": { "mine": "true" } });
    change(&world, "clusterroles.rbac.authorization.k8s.io", "", "view", |role| {
        role["aggregationRule"]["clusterRoleSelectors"] = json!([mine]);
    });
    let planned = only(&world).object;
    let selectors = planned["aggregationRule"]["clusterRoleSelectors"].as_array().unwrap();
    assert_eq!((selectors.len(), &selectors[0]), (2, &mine), "ours comes back, theirs stays");
}

#[test]
fn signatures_of_the_clusters_description_survive_a_start() {
    let world = started();
    change(&world, "configmaps.", "kube-public", "cluster-info", |map| {
        map["data"]["jws-kubeconfig-abcdef"] = "x..y".into();
    });
    assert!(plan(&config(), world.as_ref()).is_empty());
    change(&world, "configmaps.", "kube-public", "cluster-info", |map| {
        map["data"]["kubeconfig"] = "old".into()
    });
    let data = only(&world).object["data"].clone();
    assert_eq!(data["jws-kubeconfig-abcdef"], "x..y");
    assert_ne!(data["kubeconfig"], "old");
}

#[test]
fn tracking_of_tokens_has_a_beginning() {
    let world = started();
    let name = "kube-apiserver-legacy-service-account-token-tracking";
    change(&world, "configmaps.", "kube-system", name, |map| map["data"]["since"] = "2020-02-29".into());
    assert!(plan(&config(), world.as_ref()).is_empty());
    change(&world, "configmaps.", "kube-system", name, |map| map["data"] = json!({ "since": "soon" }));
    assert!(only(&world).object["data"]["since"].as_str().unwrap().starts_with("20"));
}

/// Claims would wait for ever for a provisioner that does not run.
#[test]
fn the_default_class_goes_with_its_provisioner() {
    let world = started();
    let forsaken = |config| super::plan::forsaken(&config, world.as_ref());
    let without = || BootstrapConfig { local_path: false, ..config() };
    assert!(forsaken(config()).is_none());
    assert_eq!(forsaken(without()).expect("it is as it was made").object["metadata"]["name"], "local-path");
    change(&world, "storageclasses.storage.k8s.io", "", "local-path", |class| {
        class["metadata"]["annotations"] = json!({});
    });
    assert!(forsaken(without()).is_none(), "somebody's own");
    world.remove("storageclasses.storage.k8s.io", "", "local-path");
    assert!(forsaken(without()).is_none());
}

#[test]
fn users_changes_stay_but_the_servers_address_follows() {
    let world = started();
    change(&world, "storageclasses.storage.k8s.io", "", "local-path", |class| {
        class["metadata"]["annotations"] = json!({});
    });
    assert!(plan(&config(), world.as_ref()).is_empty());
    let moved = BootstrapConfig { api_addresses: vec![[192, 0, 2, 9].into()], ..config() };
    let writes = plan(&moved, world.as_ref());
    let resources: Vec<&str> = writes.iter().map(|w| w.resource).collect();
    assert_eq!(resources, ["endpoints.", "endpointslices.discovery.k8s.io"]);
    assert_eq!(writes[1].object["endpoints"][0]["addresses"], json!(["192.0.2.9"]));
    world.remove("namespaces.", "", "kube-node-lease");
    assert_eq!(only(&world).resource, "namespaces.");
}

/// The plan in the real registry over a store in memory: strategies and admission accept every object.
#[tokio::test]
async fn the_registry_takes_it_all_once() {
    use crate::{admission, registry::Registry, server, store::MemoryStore};
    let store = MemoryStore::new();
    let resources = server::load_resources(store.clone(), Arc::default()).await.unwrap();
    let cache = resources.cache;
    let authorizer = Gate::new(Chain::new(cache.clone(), server::rbac_generation(cache.clone())));
    let admission = admission::Chain::new(
        cache.clone(),
        &admission::Config { disabled: Vec::new(), ..Default::default() },
    )
    .unwrap();
    let registry = Registry {
        store,
        cache: cache.clone(),
        catalogue: resources.catalogue,
        admission: Arc::new(admission.guard_escalation(authorizer)),
        clock: Arc::new(jiff::Timestamp::now),
    };
    let begun = std::time::Instant::now();
    assert_eq!(apply(&registry, &config()).await.unwrap(), wanted(&config()).len());
    let first = begun.elapsed();
    let again = plan(&config(), &*cache);
    assert!(again.is_empty(), "{:#?}", again.iter().map(|p| (&p.replaces, &p.object)).next());
    let begun = std::time::Instant::now();
    assert_eq!(apply(&registry, &config()).await.unwrap(), 0);
    println!("first {first:?}, again {:?}", begun.elapsed());
    use coracle_requests::ObjectReader;
    let service = cache.get("services.", "default", "kubernetes").unwrap();
    assert_eq!(service["spec"]["clusterIP"], "10.43.0.1");
    let range = cache.get("servicecidrs.networking.k8s.io", "", "kubernetes").unwrap();
    let ready = &range["status"]["conditions"][0];
    assert_eq!((&ready["type"], &ready["status"]), (&json!("Ready"), &json!("True")));
    assert_eq!(ready["lastTransitionTime"], range["metadata"]["creationTimestamp"]);
    for (ip, namespace, name) in
        [("10.43.0.1", "default", "kubernetes"), ("10.43.0.10", "kube-system", "kube-dns")]
    {
        let address = cache.get("ipaddresses.networking.k8s.io", "", ip).expect(ip);
        let parent = json!({ "resource": "services", "namespace": namespace, "name": name });
        assert_eq!(address["spec"]["parentRef"], parent);
    }
    let moved = BootstrapConfig { api_addresses: vec![[192, 0, 2, 9].into()], ..config() };
    assert_eq!(apply(&registry, &moved).await.unwrap(), 2);
    let slice = cache.get("endpointslices.discovery.k8s.io", "default", "kubernetes").unwrap();
    assert_eq!(slice["endpoints"][0]["addresses"], json!(["192.0.2.9"]));
}

/// Somebody has deleted the address of a Service while the server was away; a foreign one stays as it is.
#[test]
fn lost_addresses_of_services_come_back() {
    let world = started();
    let lost = addresses::missing(world.as_ref());
    let names: Vec<&str> = lost.iter().map(|p| p.object["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["10.43.0.1", "10.43.0.10"], "the strategy makes them with their Services");
    for planned in lost {
        world.put(planned.resource, planned.object);
    }
    assert!(addresses::missing(world.as_ref()).is_empty());
    let headless = json!({ "metadata": { "name": "h", "namespace": "a" }, "spec": { "clusterIP": "None", "clusterIPs": ["None"] } });
    world.put("services.", headless);
    assert!(addresses::missing(world.as_ref()).is_empty());
}

/// What has one family gets the other and keeps what it had; what somebody has written is theirs.
#[test]
fn a_second_family_is_added_and_nothing_is_taken_away() {
    let both = BootstrapConfig {
        service_cidr: "10.43.0.0/16,fd43::/112".to_owned(),
        cluster_cidr: "10.42.0.0/16,fd42::/56".to_owned(),
        ..config()
    };
    let planned = |config: &BootstrapConfig, world: &World| {
        let all = plan(config, world).into_iter();
        all.map(|planned| (planned.object["metadata"]["name"].as_str().unwrap().to_owned(), planned.object))
            .collect::<std::collections::BTreeMap<_, _>>()
    };
    let world = started();
    let first = planned(&both, &world);
    assert_eq!(first.keys().collect::<Vec<_>>(), ["kube-proxy", "kubernetes"]);
    assert_eq!(first["kubernetes"]["spec"]["cidrs"], json!(["10.43.0.0/16", "fd43::/112"]));
    let data = &first["kube-proxy"]["data"];
    assert!(data["config.conf"].as_str().unwrap().ends_with("clusterCIDR: 10.42.0.0/16,fd42::/56\n"));
    world.put("servicecidrs.networking.k8s.io", first["kubernetes"].clone());
    let mut changed = first["kube-proxy"].clone();
    changed["data"]["config.conf"] = json!("mode: nftables");
    world.put("configmaps.", changed);
    let back = planned(&config(), &world);
    assert_eq!(back.keys().collect::<Vec<_>>(), ["kube-proxy"], "a range is never taken away");
    assert_eq!(
        back["kube-proxy"]["data"],
        json!({ "config.conf": "mode: nftables", "clusterCIDR": "10.42.0.0/16" })
    );
    let other = BootstrapConfig { service_cidr: "10.99.0.0/16,fd43::/112".to_owned(), ..both };
    assert!(!planned(&other, &world).contains_key("kubernetes"), "nor another put in its place");
}
