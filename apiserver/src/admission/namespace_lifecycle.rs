//! NamespaceLifecycle: nothing is made in a namespace that does not exist or is going, and the system's namespaces stay.

use super::{Operation, Plugin, Request};
use coracle_api::{ApiError, Object};
use serde_json::json;

pub(super) struct NamespaceLifecycle;

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
        let Some(namespace) = request.read.get("namespaces.", "", request.namespace) else {
            return Err(ApiError::not_found("", "namespaces", request.namespace));
        };
        let terminating = namespace["metadata"]["deletionTimestamp"].is_string()
            || namespace["status"]["phase"] == "Terminating";
        if request.operation == Operation::Create && request.subresource.is_empty() && terminating {
            return Err(being_terminated(request));
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
        let try_it = || Try::create(&world, "pods.").mutate(&NamespaceLifecycle, pod());
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
            update.mutate(&NamespaceLifecycle, pod()).unwrap();
        }
    }

    #[test]
    fn system_namespaces_stay() {
        let world = World::new();
        let delete = |name: &str| {
            let namespace = json!({ "metadata": { "name": name } });
            let request = Try { operation: Operation::Delete, ..Try::create(&world, "namespaces.") };
            request.validate(&NamespaceLifecycle, &namespace, Some(&namespace))
        };
        for name in IMMORTAL {
            let message = format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted");
            assert_eq!(delete(name).unwrap_err().message, message);
        }
        delete("kube-node-lease").unwrap();
        delete("mine").unwrap();
    }
}
