use super::*;
use serde_json::{Value, json};

#[derive(Default)]
pub struct Fake {
    services: Vec<Arc<Service>>,
    slices: Vec<Arc<EndpointSlice>>,
}

impl Directory for Fake {
    fn has_namespace(&self, namespace: &str) -> bool {
        namespace == "default"
    }
    fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
        let is = |s: &&Arc<Service>| {
            s.metadata.namespace.as_deref() == Some(namespace) && s.metadata.name.as_deref() == Some(name)
        };
        self.services.iter().find(is).cloned()
    }
    fn slices(&self, _namespace: &str, service: &str) -> Vec<Arc<EndpointSlice>> {
        let of = |s: &&Arc<EndpointSlice>| {
            s.metadata
                .labels
                .as_ref()
                .and_then(|l| l.get("kubernetes.io/service-name"))
                .is_some_and(|n| n == service)
        };
        self.slices.iter().filter(of).cloned().collect()
    }
    fn service_at(&self, ip: IpAddr) -> Option<Arc<Service>> {
        self.services.iter().find(|s| cluster_ips(s).contains(&ip)).cloned()
    }
    fn slices_at(&self, ip: IpAddr) -> Vec<Arc<EndpointSlice>> {
        let text = ip.to_string();
        let has = |s: &&Arc<EndpointSlice>| s.endpoints.iter().flatten().any(|e| e.addresses.contains(&text));
        self.slices.iter().filter(has).cloned().collect()
    }
}

fn alias(name: &str, target: &str) -> Arc<Service> {
    service(name, json!({ "type": "ExternalName", "externalName": target }))
}

fn service(name: &str, spec: Value) -> Arc<Service> {
    let value = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
    Arc::new(serde_json::from_value(value).expect("a service"))
}

pub fn zone() -> Zone<Fake> {
    let slice = json!({"metadata": {"name": "db-1", "namespace": "default",
        "labels": {"kubernetes.io/service-name": "db"}}, "addressType": "IPv4",
        "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": ["10.42.0.2"], "hostname": "db-0", "conditions": {"ready": true}},
            {"addresses": ["10.42.0.3"], "conditions": {"ready": true}},
            {"addresses": ["10.42.0.4"], "conditions": {"ready": false}}]});
    let chain =
        (0..12).map(|n| alias(&format!("link-{n}"), &format!("link-{}.default.svc.cluster.local", n + 1)));
    Zone {
        domain: "cluster.local".to_owned(),
        directory: Fake {
            services: vec![
                service("web", json!({"clusterIP": "10.43.0.9", "ports": [{"name": "http", "port": 80}]})),
                service("db", json!({"clusterIP": "None", "ports": [{"name": "sql", "port": 5432}]})),
                service("idle", json!({"clusterIP": "None"})),
                alias("out", "example.org"),
                alias("alias", "Second.default.svc.cluster.local."),
                alias("second", "web.default.svc.cluster.local"),
                alias("further", "out.default.svc.cluster.local"),
                alias("ring", "ring.default.svc.cluster.local"),
                alias("there", "back.default.svc.cluster.local"),
                alias("back", "there.default.svc.cluster.local"),
                alias("lost", "none.default.svc.cluster.local"),
            ]
            .into_iter()
            .chain(chain)
            .collect(),
            slices: vec![Arc::new(serde_json::from_value(slice).expect("a slice"))],
        },
    }
}

/// Records as text, or the kind of the negative answer.
fn ask(name: &str, asked: QueryType) -> Vec<String> {
    match zone().answer(name, asked) {
        Answer::Found { records, extra } => {
            records.into_iter().chain(extra).map(|r| format!("{} {:?}", r.name, r.data)).collect()
        }
        other => vec![format!("{other:?}")],
    }
}

#[test]
fn a_service_has_its_cluster_address() {
    assert_eq!(
        ask("web.default.svc.cluster.local", QueryType::A),
        ["web.default.svc.cluster.local Address(10.43.0.9)"]
    );
    assert_eq!(ask("web.default.svc.cluster.local", QueryType::Aaaa), ["NoData"]);
    assert_eq!(ask("wep.default.svc.cluster.local", QueryType::A), ["NoName"]);
    assert_eq!(ask("a.web.default.svc.cluster.local", QueryType::A), ["NoName"]);
}

#[test]
fn a_headless_service_has_the_addresses_of_its_ready_endpoints() {
    let all = ask("db.default.svc.cluster.local", QueryType::A);
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(
        ask("db-0.db.default.svc.cluster.local", QueryType::A),
        ["db-0.db.default.svc.cluster.local Address(10.42.0.2)"]
    );
    assert_eq!(ask("10-42-0-3.db.default.svc.cluster.local", QueryType::A).len(), 1);
    assert_eq!(ask("10-42-0-4.db.default.svc.cluster.local", QueryType::A), ["NoName"]);
    assert_eq!(ask("idle.default.svc.cluster.local", QueryType::A), ["NoName"]);
}

#[test]
fn ports_have_srv_records() {
    assert_eq!(
        ask("_http._tcp.web.default.svc.cluster.local", QueryType::Srv),
        [
            "_http._tcp.web.default.svc.cluster.local Srv { port: 80, target: \"web.default.svc.cluster.local\" }",
            "web.default.svc.cluster.local Address(10.43.0.9)"
        ]
    );
    assert_eq!(ask("_sql._tcp.db.default.svc.cluster.local", QueryType::Srv).len(), 4);
    assert_eq!(ask("_http._udp.web.default.svc.cluster.local", QueryType::Srv), ["NoName"]);
}

#[test]
fn external_names_are_aliases_and_others_are_forwarded() {
    assert_eq!(
        ask("out.default.svc.cluster.local", QueryType::A),
        ["out.default.svc.cluster.local Cname(\"example.org\")"]
    );
    assert_eq!(ask("example.org", QueryType::A), ["NotOurs"]);
    assert_eq!(ask("notcluster.local", QueryType::A), ["NotOurs"]);
}

#[test]
fn pods_have_the_address_in_their_name() {
    assert_eq!(
        ask("10-42-0-7.default.pod.cluster.local", QueryType::A),
        ["10-42-0-7.default.pod.cluster.local Address(10.42.0.7)"]
    );
    assert_eq!(ask("10-42-0-7.nowhere.pod.cluster.local", QueryType::A), ["NoName"]);
    assert_eq!(ask("ten.default.pod.cluster.local", QueryType::A), ["NoName"]);
}

#[test]
fn addresses_point_back() {
    assert_eq!(
        ask("9.0.43.10.in-addr.arpa", QueryType::Ptr),
        ["9.0.43.10.in-addr.arpa Ptr(\"web.default.svc.cluster.local\")"]
    );
    assert_eq!(
        ask("2.0.42.10.in-addr.arpa", QueryType::Ptr),
        ["2.0.42.10.in-addr.arpa Ptr(\"db-0.db.default.svc.cluster.local\")"]
    );
    assert_eq!(ask("8.8.8.8.in-addr.arpa", QueryType::Ptr), ["NotOurs"]);
}

#[test]
fn the_zone_itself_answers() {
    assert_eq!(ask("cluster.local", QueryType::Soa), ["cluster.local Soa"]);
    assert_eq!(
        ask("dns-version.cluster.local", QueryType::Txt),
        ["dns-version.cluster.local Txt(\"1.1.0\")"]
    );
    assert_eq!(ask("default.svc.cluster.local", QueryType::A), ["NoData"]);
    assert_eq!(ask("gone.svc.cluster.local", QueryType::A), ["NoName"]);
}
