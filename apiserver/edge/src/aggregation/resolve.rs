//! From the reference to a Service to an address that can be dialled, by its endpoints: no packet rules are needed.

use coracle_api::Object;
use coracle_api::well_known;
use coracle_requests::ObjectReader;
use coracle_requests::value::{i64_at, list_at, str_at};
use rand::seq::IndexedRandom;
use std::fmt;
use std::sync::Arc;

pub(super) const SLICES: &str = "endpointslices.discovery.k8s.io";

/// `spec.service` of an APIService.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceReference {
    pub namespace: String,
    pub name: String,
    /// The Service's port, not its endpoints'.
    pub port: u16,
}

impl ServiceReference {
    /// `None` for a local APIService. The port is 443 where none is given.
    pub fn of(api_service: &Object) -> Option<Self> {
        let service = api_service["spec"]["service"].as_object()?;
        let text = |field: &str| service.get(field).and_then(Object::as_str).unwrap_or_default().to_owned();
        let port = service.get("port").and_then(Object::as_u64).and_then(|port| u16::try_from(port).ok());
        Some(Self { namespace: text("namespace"), name: text("name"), port: port.unwrap_or(443) })
    }

    /// The name that the server's certificate must have.
    pub fn host(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

/// Something to dial.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// An IP address, or the name that a Service of type ExternalName gives.
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A random ready endpoint of the service, or in upstream's words why there is none.
pub fn resolve(reader: &dyn ObjectReader, service: &ServiceReference) -> Result<Address, String> {
    let found = reader.get("services.", &service.namespace, &service.name);
    let object = found.ok_or_else(|| format!("services {:?} not found", service.name))?;
    let kind = str_at(&object, "spec.type");
    if kind == "ExternalName" {
        let host = str_at(&object, "spec.externalName").trim_end_matches('.').to_owned();
        return Ok(Address { host, port: service.port });
    }
    if !matches!(kind, "" | "ClusterIP" | "NodePort" | "LoadBalancer") {
        return Err(format!("unsupported service type {kind:?}"));
    }
    let name = port_name(&object, service.port)
        .ok_or_else(|| format!("no service port {} found for service {:?}", service.port, service.name))?;
    let ready: Vec<Address> =
        slices(reader, service).iter().flat_map(|slice| ready_addresses(slice, name)).collect();
    let none = || format!("no endpoints available for service {:?}", service.name);
    ready.choose(&mut rand::rng()).cloned().ok_or_else(none)
}

/// The name (often empty) of the Service's port with this number.
pub(super) fn port_name(service: &Object, port: u16) -> Option<&str> {
    let ports = list_at(service, "spec.ports").iter();
    ports.into_iter().find(|p| i64_at(p, "port") == Some(i64::from(port))).map(|p| str_at(p, "name"))
}

pub(super) fn slices(reader: &dyn ObjectReader, service: &ServiceReference) -> Vec<Arc<Object>> {
    let mut slices = reader.list(SLICES, &service.namespace);
    slices.retain(|slice| slice["metadata"]["labels"][well_known::SERVICE_NAME] == *service.name);
    slices
}

/// `ready` left out means ready.
pub(super) fn ready_addresses(slice: &Object, port_name: &str) -> Vec<Address> {
    let mut ports = list_at(slice, "ports").iter().filter(|port| str_at(port, "name") == port_name);
    let port = ports.find_map(|port| u16::try_from(i64_at(port, "port")?).ok());
    let Some(port) = port else { return Vec::new() };
    let ready = list_at(slice, "endpoints").iter().filter(|e| e["conditions"]["ready"] != false);
    ready.filter_map(|e| Some(Address { host: e["addresses"][0].as_str()?.to_owned(), port })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_strategy::testing::World;
    use serde_json::json;

    fn reference(port: u16) -> ServiceReference {
        ServiceReference { namespace: "n".to_owned(), name: "s".to_owned(), port }
    }

    fn service(kind: &str) -> Object {
        json!({ "metadata": { "name": "s", "namespace": "n" }, "spec": { "type": kind, "externalName": "example.org.",
            "ports": [{ "name": "a", "port": 80 }, { "name": "b", "port": 443 }] } })
    }

    fn slice() -> Object {
        json!({
            "metadata": { "name": "s-1", "namespace": "n", "labels": { "kubernetes.io/service-name": "s" } },
            "ports": [{ "name": "a", "port": 8080 }, { "name": "b", "port": 8443 }],
            "endpoints": [
                { "addresses": ["10.0.0.1"], "conditions": { "ready": false } },
                { "addresses": ["10.0.0.2"], "conditions": {} },
            ],
        })
    }

    #[test]
    fn references_lead_to_ready_endpoints() {
        let world = World::default()
            .with("services./n/s", service("ClusterIP"))
            .with(&format!("{SLICES}/n/s-1"), slice());
        assert_eq!(resolve(&world, &reference(443)).unwrap().to_string(), "10.0.0.2:8443");
        assert_eq!(resolve(&world, &reference(80)).unwrap().to_string(), "10.0.0.2:8080");
        let error = resolve(&world, &reference(81)).unwrap_err();
        assert_eq!(error, "no service port 81 found for service \"s\"");
        let world = World::default().with("services./n/s", service("ClusterIP"));
        assert_eq!(resolve(&world, &reference(80)).unwrap_err(), "no endpoints available for service \"s\"");
        let world = World::default().with("services./n/s", service("ExternalName"));
        assert_eq!(resolve(&world, &reference(443)).unwrap().to_string(), "example.org:443");
        assert_eq!(resolve(&World::default(), &reference(443)).unwrap_err(), "services \"s\" not found");
    }

    #[test]
    fn the_port_is_443_unless_it_is_said() {
        let api_service = json!({ "spec": { "service": { "namespace": "n", "name": "s" } } });
        assert_eq!(ServiceReference::of(&api_service), Some(reference(443)));
        assert_eq!(ServiceReference::of(&json!({ "spec": {} })), None);
    }
}
