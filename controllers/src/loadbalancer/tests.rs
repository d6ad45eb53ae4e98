use super::*;
use serde_json::{Value, json};

fn node(name: &str, addresses: &[(&str, &str)], ready: &str, labels: Value) -> Arc<Node> {
    let addresses: Vec<Value> = addresses.iter().map(|(t, a)| json!({ "type": t, "address": a })).collect();
    let met = json!({ CHECKED_ADDRESSES: "192.0.2.1,192.0.2.2,192.0.2.3,192.0.2.4,2001:db8::2,127.0.0.1" });
    let metadata = json!({ "name": name, "labels": labels, "annotations": met });
    let value = json!({ "metadata": metadata, "status": { "addresses": addresses,
        "conditions": [{ "type": "Ready", "status": ready }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } } } });
    Arc::new(serde_json::from_value(value).unwrap())
}

fn service(name: &str, port: i32, age: u32, spec: Value) -> Arc<Service> {
    let created = format!("2026-01-01T00:00:{age:02}Z");
    let mut whole = json!({ "type": "LoadBalancer", "ports": [{ "port": port, "protocol": "TCP" }] });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let metadata = json!({ "name": name, "namespace": "d", "uid": name, "creationTimestamp": created });
    Arc::new(serde_json::from_value(json!({ "metadata": metadata, "spec": whole })).unwrap())
}

fn slice(namespace: &str, service: &str, port: i32, endpoints: Value) -> Arc<EndpointSlice> {
    let metadata = json!({ "name": "s", "namespace": namespace, "labels": { SERVICE_NAME: service } });
    let value = json!({ "metadata": metadata, "addressType": "IPv4", "ports": [{ "port": port }], "endpoints": endpoints });
    Arc::new(serde_json::from_value(value).unwrap())
}

fn nodes() -> Vec<Arc<Node>> {
    vec![
        node("a", &[("InternalIP", "192.0.2.1"), ("Hostname", "a")], "True", json!({})),
        node(
            "b",
            &[("InternalIP", "192.0.2.2"), ("ExternalIP", "198.51.100.2"), ("InternalIP", "2001:db8::2")],
            "True",
            json!({}),
        ),
        node("c", &[("InternalIP", "192.0.2.3")], "False", json!({})),
        node("d", &[("InternalIP", "192.0.2.4")], "True", json!({ EXCLUDED: "" })),
    ]
}

/// The addresses of each Service, or why it has none.
fn show(services: Vec<Arc<Service>>, nodes: Vec<Arc<Node>>, slices: Vec<Arc<EndpointSlice>>) -> Vec<String> {
    let shares = shares(&World { services, nodes, slices });
    let text = |share: Share| match share {
        Ok(all) => all.into_iter().filter_map(|i| i.ip).collect::<Vec<_>>().join(" "),
        Err(why) => format!("!{why}"),
    };
    shares.into_iter().map(|(key, share)| format!("{}={}", key.name, text(share))).collect()
}

fn one(spec: Value) -> String {
    show(vec![service("s", 80, 0, spec)], nodes(), Vec::new()).pop().unwrap_or_default()
}

#[test]
fn a_service_gets_the_addresses_of_ready_nodes_in_its_families() {
    assert_eq!(one(json!({})), "s=192.0.2.1 198.51.100.2");
    assert_eq!(one(json!({ "ipFamilies": ["IPv6"] })), "s=2001:db8::2");
    assert_eq!(one(json!({ "ipFamilies": ["IPv6", "IPv4"] })), "s=2001:db8::2 192.0.2.1 198.51.100.2");
    assert_eq!(one(json!({ "loadBalancerIP": "192.0.2.1" })), "s=192.0.2.1");
    assert_eq!(
        one(json!({ "loadBalancerIP": "192.0.2.9" })),
        "s=!no node that takes traffic has the address 192.0.2.9"
    );
    assert_eq!(one(json!({ "loadBalancerIP": "x" })), "s=!loadBalancerIP \"x\" is no IP address");
    let ranges = json!({ "loadBalancerSourceRanges": ["192.0.2.0/24"] });
    assert_eq!(one(ranges), "s=192.0.2.1 198.51.100.2", "the proxies keep the others out");
    assert_eq!(one(json!({ "loadBalancerClass": "example.com/other" })), "");
    assert_eq!(one(json!({ "type": "NodePort" })), "");
    for claimed in ["127.0.0.1", "0.0.0.0", "169.254.169.254", "224.0.0.1"] {
        let nodes = vec![node("a", &[("InternalIP", claimed)], "True", json!({}))];
        let told = show(vec![service("s", 80, 0, json!({}))], nodes, vec![]).pop().unwrap();
        assert!(!told.contains(claimed), "{told}");
    }
    let unready = vec![node("a", &[("InternalIP", "192.0.2.1")], "Unknown", json!({}))];
    assert_eq!(show(vec![service("s", 80, 0, json!({}))], unready, vec![]), ["s=192.0.2.1"]);
    assert_eq!(
        show(vec![service("s", 80, 0, json!({}))], vec![], vec![]),
        ["s=!there are no available nodes"]
    );
}

/// A node can claim any address: what the cluster sends there must not go to its Services.
#[test]
fn a_claimed_address_is_nobodys() {
    let service = || vec![service("s", 80, 0, json!({}))];
    let liar = || node("liar", &[("InternalIP", "198.51.100.7")], "True", json!({}));
    let why = "s=!no node has an address of the Service's IP families; not met by the API server: liar at 198.51.100.7";
    assert_eq!(show(service(), vec![liar()], vec![]), [why]);
    let honest = node("a", &[("InternalIP", "192.0.2.1")], "True", json!({}));
    assert_eq!(show(service(), vec![honest, liar()], vec![]), ["s=192.0.2.1"]);
}

#[test]
fn policy_local_keeps_to_nodes_with_ready_endpoints() {
    let local = || service("s", 80, 0, json!({ "externalTrafficPolicy": "Local" }));
    let endpoints = json!([
        { "addresses": ["10.42.0.2"], "nodeName": "a", "conditions": { "ready": false } },
        { "addresses": ["10.42.1.2"], "nodeName": "b", "conditions": { "ready": true } },
    ]);
    let slices = vec![slice("d", "s", 8080, endpoints)];
    assert_eq!(show(vec![local()], nodes(), slices), ["s=198.51.100.2"]);
    let none = "s=!no node has a ready endpoint, and externalTrafficPolicy is Local";
    assert_eq!(show(vec![local()], nodes(), vec![]), [none]);
}

#[test]
fn of_two_services_with_one_port_the_first_has_it() {
    let (old, new) = (service("z", 80, 1, json!({})), service("a", 80, 2, json!({})));
    let refused = "a=!port 80/TCP of 192.0.2.1 is taken by Service d/z";
    let got = "z=192.0.2.1 198.51.100.2";
    assert_eq!(show(vec![new.clone(), old.clone()], nodes(), vec![]), [refused, got]);
    let udp = service("u", 80, 3, json!({ "ports": [{ "port": 80, "protocol": "UDP" }] }));
    assert_eq!(show(vec![udp, old.clone()], nodes(), vec![]), ["u=192.0.2.1 198.51.100.2", got]);
    // Who has the address already is not driven out by an older one that asks for it now.
    let mut holder = Service::clone(&new);
    holder.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    let has = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } });
    holder.status = Some(serde_json::from_value(has).unwrap());
    let shown = show(vec![old, Arc::new(holder)], nodes(), vec![]);
    assert_eq!(shown, ["a=192.0.2.1 198.51.100.2", "z=!port 80/TCP of 192.0.2.1 is taken by Service d/a"]);
}

#[test]
fn the_nodes_own_ports_are_nobodys() {
    let api = slice("default", "kubernetes", 6443, json!([{ "addresses": ["192.0.2.1"] }]));
    let only = vec![nodes().remove(0)];
    let ask = |port| show(vec![service("s", port, 0, json!({}))], only.clone(), vec![api.clone()]);
    assert_eq!(ask(6443), ["s=!port 6443/TCP of 192.0.2.1 is taken by the API server"]);
    assert_eq!(ask(10250), ["s=!port 10250/TCP of 192.0.2.1 is taken by the kubelet of node a"]);
    assert_eq!(ask(443), ["s=192.0.2.1"]);
    // Another node's address is free, so the Service is not refused.
    let both = nodes().into_iter().take(2).collect();
    assert_eq!(show(vec![service("s", 6443, 0, json!({}))], both, vec![api]), ["s=198.51.100.2"]);
}
