//! From a Service to those who answer for it.
//!
//! The addresses come from EndpointSlices: this process may run on a machine without a proxy for cluster IPs.

use super::error::TransportError;
use coracle_api::Object;
use coracle_api::well_known;
use coracle_requests::ObjectReader;
use coracle_requests::value::{at, i64_at, list_at, str_at};

/// An address to connect to: an IP address or a DNS name, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
}

/// Everybody who answers for a port of a service, the ready ones if there are any, else those that still serve.
///
/// # Errors
/// The service, its port or everybody behind it is missing.
pub fn resolve(
    read: &dyn ObjectReader,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<Vec<Endpoint>, TransportError> {
    let service =
        read.get("services.", namespace, name).ok_or_else(|| TransportError::NoService(name.to_owned()))?;
    if str_at(&service, "spec.type") == "ExternalName" {
        let host = str_at(&service, "spec.externalName").to_owned();
        return Ok(vec![Endpoint { host, port }]);
    }
    let ports = list_at(&service, "spec.ports");
    let wanted = ports
        .iter()
        .find(|p| i64_at(p, "port") == Some(port.into()))
        .ok_or_else(|| TransportError::NoPort { service: name.to_owned(), port })?;
    let slices = read.list("endpointslices.discovery.k8s.io", namespace);
    let own = |slice: &Object| slice["metadata"]["labels"][well_known::SERVICE_NAME] == name;
    let slices: Vec<_> = slices.into_iter().filter(|slice| own(slice)).collect();
    for condition in ["ready", "serving"] {
        let found: Vec<Endpoint> =
            slices.iter().flat_map(|slice| endpoints(slice, str_at(wanted, "name"), condition)).collect();
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Err(TransportError::NoEndpoints(name.to_owned()))
}

/// Those of a slice that meet a condition, which counts as met where nothing is said.
fn endpoints(slice: &Object, port_name: &str, condition: &str) -> Vec<Endpoint> {
    let port = list_at(slice, "ports").iter().find(|p| str_at(p, "name") == port_name);
    let Some(port) = port.and_then(|p| i64_at(p, "port")).and_then(|p| u16::try_from(p).ok()) else {
        return Vec::new();
    };
    let meets = |endpoint: &&Object| {
        let said = at(endpoint, "conditions").get(condition).and_then(Object::as_bool);
        said.unwrap_or(condition == "ready")
    };
    let all = list_at(slice, "endpoints").iter().filter(meets);
    let addresses = all.filter_map(|endpoint| list_at(endpoint, "addresses").first()?.as_str());
    addresses.map(|host| Endpoint { host: host.to_owned(), port }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_requests::testing::World;
    use serde_json::json;

    fn world() -> std::sync::Arc<World> {
        let world = World::new();
        world.put(
            "services.",
            json!({ "metadata": { "name": "hook", "namespace": "n" },
                "spec": { "ports": [{ "name": "https", "port": 443 }, { "name": "other", "port": 80 }] } }),
        );
        world
    }

    fn slice(name: &str, service: &str, endpoints: Object) -> Object {
        json!({ "metadata": { "name": name, "namespace": "n", "labels": { "kubernetes.io/service-name": service } },
            "ports": [{ "name": "https", "port": 8443 }], "endpoints": endpoints })
    }

    #[test]
    fn ready_ones_first_then_serving_ones() {
        let world = world();
        let ask = |port| resolve(&*world, "n", "hook", port);
        assert_eq!(ask(443).unwrap_err().to_string(), "no endpoints available for service \"hook\"");
        world.put(
            "endpointslices.discovery.k8s.io",
            slice("x", "other", json!([{ "addresses": ["10.0.0.9"] }])),
        );
        let going = json!([{ "addresses": ["10.0.0.1"], "conditions": { "ready": false, "serving": true } }]);
        world.put("endpointslices.discovery.k8s.io", slice("a", "hook", going));
        assert_eq!(ask(443).unwrap(), [Endpoint { host: "10.0.0.1".into(), port: 8443 }]);
        world.put(
            "endpointslices.discovery.k8s.io",
            slice("b", "hook", json!([{ "addresses": ["10.0.0.2"], "conditions": { "ready": true } }])),
        );
        assert_eq!(ask(443).unwrap(), [Endpoint { host: "10.0.0.2".into(), port: 8443 }]);
        assert_eq!(ask(80).unwrap_err().to_string(), "no endpoints available for service \"hook\"");
        assert_eq!(ask(9).unwrap_err().to_string(), "no service port 9 found for service \"hook\"");
    }

    #[test]
    fn services_outside_have_a_name() {
        let world = world();
        let spec = json!({ "type": "ExternalName", "externalName": "hooks.example.com" });
        world.put("services.", json!({ "metadata": { "name": "far", "namespace": "n" }, "spec": spec }));
        let found = resolve(&*world, "n", "far", 8443).unwrap();
        assert_eq!(found, [Endpoint { host: "hooks.example.com".into(), port: 8443 }]);
        let error = resolve(&*world, "n", "none", 443).unwrap_err();
        assert_eq!(error.to_string(), "service \"none\" not found");
    }
}
