//! NamespaceLifecycle: nothing is made in a namespace that does not exist or is going, and the system's namespaces stay.

use super::{Operation, Plugin, Request};
use coracle_api::{ApiError, Object};
use parking_lot::RwLock;
use serde_json::json;
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct NamespaceLifecycle {
    /// Namespaces that were found alive, and at which revision of all namespaces that was so: every write asks.
    living: RwLock<HashMap<String, u64>>,
}

/// Names that are remembered; beyond, all are looked for anew.
const MOST_LIVING: usize = 4096;

/// Upstream's immortal namespaces.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn mutate(&self, request: &Request, _object: &mut Object, _old: Option<&Object>) -> Result<(), ApiError> {
        let in_namespace = !request.namespace.is_empty() && request.resource != "namespaces";
        // Asking whether one may do something in a namespace says nothing about its existence.
        if !in_namespace || request.resource == "localsubjectaccessreviews" {
            return Ok(());
        }
        // Before the namespace itself: a change in between is seen by the next write.
        let revision = request.read.changed_at("namespaces.");
        if revision.is_some() && self.living.read().get(request.namespace).copied() == revision {
            return Ok(());
        }
        let Some(namespace) = request.read.get("namespaces.", "", request.namespace) else {
            return Err(ApiError::not_found("", "namespaces", request.namespace));
        };
        let terminating = namespace["metadata"]["deletionTimestamp"].is_string()
            || namespace["status"]["phase"] == "Terminating";
        if request.operation == Operation::Create && request.subresource.is_empty() && terminating {
            return Err(being_terminated(request));
        }
        if let Some(revision) = revision.filter(|_| !terminating) {
            self.remember(request.namespace, revision);
        }
        Ok(())
    }

    fn validate(
        &self,
        request: &Request,
        _object: Option<&Object>,
        _old: Option<&Object>,
    ) -> Result<(), ApiError> {
        if request.is(Operation::Delete, "", "namespaces") && IMMORTAL.contains(&request.name) {
            return Err(request.forbidden("this namespace may not be deleted"));
        }
        Ok(())
    }
}

impl NamespaceLifecycle {
    fn remember(&self, namespace: &str, revision: u64) {
        let mut living = self.living.write();
        if living.len() >= MOST_LIVING {
            living.clear();
        }
        living.insert(namespace.to_owned(), revision);
    }
}

fn being_terminated(request: &Request) -> ApiError {
    let namespace = request.namespace;
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut error = request.forbidden(&why);
    error.details["causes"] = json!([{
        "reason": "NamespaceTerminating",
        "message": format!("namespace {namespace} is being terminated"),
        "field": "metadata.namespace",
    }]);
    error
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn content_needs_a_living_namespace() {
        let world = World::new();
        let try_it = || Try::create(&world, "pods.").mutate(&NamespaceLifecycle::default(), pod());
        let error = try_it().unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (404, "namespaces \"a\" not found"));
        world.put("namespaces.", json!({ "metadata": { "name": "a" }, "status": { "phase": "Active" } }));
        try_it().unwrap();
        for dying in [
            json!({ "metadata": { "name": "a" }, "status": { "phase": "Terminating" } }),
            json!({ "metadata": { "name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
        ] {
            world.put("namespaces.", dying);
            let error = try_it().unwrap_err();
            assert_eq!(error.code, 403);
            assert_eq!(
                error.message,
                "pods \"web\" is forbidden: unable to create new content in namespace a because it is being terminated"
            );
            assert_eq!(error.details["causes"][0]["reason"], "NamespaceTerminating");
            let update = Try { operation: Operation::Update, ..Try::create(&world, "pods.") };
            update.mutate(&NamespaceLifecycle::default(), pod()).unwrap();
        }
    }

    #[test]
    fn system_namespaces_stay() {
        let world = World::new();
        let delete = |name: &str| {
            let namespace = json!({ "metadata": { "name": name } });
            let request = Try { operation: Operation::Delete, ..Try::create(&world, "namespaces.") };
            request.validate(&NamespaceLifecycle::default(), &namespace, Some(&namespace))
        };
        for name in IMMORTAL {
            let message = format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted");
            assert_eq!(delete(name).unwrap_err().message, message);
        }
        delete("kube-node-lease").unwrap();
        delete("mine").unwrap();
    }
}
