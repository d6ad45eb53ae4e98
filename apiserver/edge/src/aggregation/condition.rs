//! The `Available` condition, in upstream's reasons and words.

use super::resolve::{self, ServiceReference, port_name};
use coracle_api::condition::set_condition_of;
use coracle_api::{Object, meta};
use coracle_requests::ObjectReader;
use coracle_requests::value::{list_at, str_at};
use jiff::Timestamp;
use serde_json::{Value, json};

const AVAILABLE: &str = "Available";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
}

impl Condition {
    pub fn local() -> Self {
        let message = "Local APIServices are always available".to_owned();
        Self { status: "True", reason: "Local", message }
    }

    pub fn passed() -> Self {
        Self { status: "True", reason: "Passed", message: "all checks passed".to_owned() }
    }

    pub fn failed(reason: &'static str, message: String) -> Self {
        Self { status: "False", reason, message }
    }

    /// Why it is no use to ask the server, if so. Only Services of type ClusterIP can be looked into this far.
    pub fn before_asking(reader: &dyn ObjectReader, service: &ServiceReference) -> Option<Self> {
        let ServiceReference { namespace, name, port } = service;
        let Some(object) = reader.get("services.", namespace, name) else {
            let message = format!("service/{name} in {namespace:?} is not present");
            return Some(Self::failed("ServiceNotFound", message));
        };
        if !matches!(str_at(&object, "spec.type"), "" | "ClusterIP") {
            return None;
        }
        let Some(port_name) = port_name(&object, *port) else {
            let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
            return Some(Self::failed("ServicePortError", message));
        };
        let slices = resolve::slices(reader, service);
        if slices.is_empty() {
            let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
            return Some(Self::failed("EndpointsNotFound", message));
        }
        if slices.iter().any(|slice| !resolve::ready_addresses(slice, port_name).is_empty()) {
            return None;
        }
        let message = format!(
            "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
        );
        Some(Self::failed("MissingEndpoints", message))
    }

    /// Whether the APIService says so already.
    pub fn stands_in(&self, api_service: &Object) -> bool {
        present(api_service).is_some_and(|c| {
            str_at(c, "status") == self.status
                && str_at(c, "reason") == self.reason
                && str_at(c, "message") == self.message
        })
    }

    /// The APIService with this condition and all its others; the time of the last transition moves with the status.
    pub fn written_into(&self, api_service: &Object, now: Timestamp) -> Object {
        let condition = json!({ "type": AVAILABLE, "status": self.status, "reason": self.reason,
            "message": self.message, "lastTransitionTime": meta::time::format_seconds(now) });
        let mut object = api_service.clone();
        set_condition_of(&mut object, condition);
        object
    }
}

fn present(api_service: &Object) -> Option<&Value> {
    list_at(api_service, "status.conditions").iter().find(|c| str_at(c, "type") == AVAILABLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_strategy::testing::World;

    fn found(world: &World) -> Option<(&'static str, String)> {
        let service = ServiceReference { namespace: "n".to_owned(), name: "s".to_owned(), port: 443 };
        Condition::before_asking(world, &service).map(|c| (c.reason, c.message))
    }

    #[test]
    fn what_is_missing_is_named() {
        let service = |kind: &str, port: u16| {
            json!({ "metadata": { "name": "s", "namespace": "n" },
                "spec": { "type": kind, "ports": [{ "name": "https", "port": port }] } })
        };
        let slice = |ready: bool| {
            json!({ "metadata": { "name": "s-1", "namespace": "n", "labels": { "kubernetes.io/service-name": "s" } },
                "ports": [{ "name": "https", "port": 8443 }],
                "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": ready } }] })
        };
        let world = || World::default().with("services./n/s", service("ClusterIP", 443));
        let with = |ready| world().with("endpointslices.discovery.k8s.io/n/s-1", slice(ready));
        let table = [
            (World::default(), "ServiceNotFound", "service/s in \"n\" is not present"),
            (
                World::default().with("services./n/s", service("ClusterIP", 80)),
                "ServicePortError",
                "service/s in \"n\" is not listening on port 443",
            ),
            (world(), "EndpointsNotFound", "cannot find endpointslices for service/s in \"n\""),
            (
                with(false),
                "MissingEndpoints",
                "endpointslices for service/s in \"n\" have no addresses with port name \"https\"",
            ),
        ];
        for (world, reason, message) in table {
            assert_eq!(found(&world), Some((reason, message.to_owned())));
        }
        assert_eq!(found(&with(true)), None);
        assert_eq!(found(&World::default().with("services./n/s", service("ExternalName", 1))), None);
    }

    #[test]
    fn the_transition_is_that_of_the_status() {
        let old = json!({ "metadata": { "name": "v1.g" }, "status": { "conditions": [
            { "type": "Other", "status": "True" },
            { "type": "Available", "status": "False", "reason": "A", "message": "a", "lastTransitionTime": "then" },
        ] } });
        let time = |o: &Object| o["status"]["conditions"][1]["lastTransitionTime"].clone();
        let same = Condition::failed("B", "b".to_owned()).written_into(&old, Timestamp::UNIX_EPOCH);
        assert_eq!((time(&same), &same["status"]["conditions"][1]["reason"]), (json!("then"), &json!("B")));
        assert!(Condition::failed("B", "b".to_owned()).stands_in(&same));
        let passed = Condition::passed().written_into(&old, Timestamp::UNIX_EPOCH);
        assert_eq!(time(&passed), json!("1970-01-01T00:00:00Z"));
        assert_eq!(passed["status"]["conditions"][0]["type"], "Other");
        let first = Condition::passed().written_into(&json!({}), Timestamp::UNIX_EPOCH);
        assert!(Condition::passed().stands_in(&first));
    }
}
