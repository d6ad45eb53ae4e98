//! Which struct fields Go's types hold by value: they are there, if empty, in every object that upstream decodes.
//!
//! Nobody comes to own such a field itself by setting something inside it, as would be so for a field that was absent.
//! OpenAPI does not tell them from pointers, so they are named here.

/// Whether the built-in struct `owner` (its short name) always has `field`.
pub(super) fn is_always_there(owner: &str, field: &str) -> bool {
    match field {
        // Of objects, and of the templates in them; a ReplicationController's template is a pointer.
        "metadata" | "spec" | "status" => true,
        "template" => owner != "ReplicationControllerSpec",
        "strategy" => owner == "DeploymentSpec",
        "updateStrategy" => matches!(owner, "DaemonSetSpec" | "StatefulSetSpec"),
        "resources" => {
            matches!(owner, "Container" | "EphemeralContainer" | "PersistentVolumeClaimSpec")
        }
        "loadBalancer" => matches!(owner, "ServiceStatus" | "IngressStatus"),
        "daemonEndpoints" | "nodeInfo" => owner == "NodeStatus",
        "devices" => matches!(owner, "ResourceClaimSpec" | "AllocationResult"),
        _ => ALWAYS_THERE.contains(&(owner, field)),
    }
}

const ALWAYS_THERE: &[(&str, &str)] = &[
    ("Binding", "target"),
    ("ClusterRoleBinding", "roleRef"),
    ("CronJobSpec", "jobTemplate"),
    ("CustomResourceDefinitionSpec", "names"),
    ("CustomResourceDefinitionStatus", "acceptedNames"),
    ("Event", "deprecatedSource"),
    ("Event", "involvedObject"),
    ("Event", "regarding"),
    ("Event", "source"),
    ("FlowSchemaSpec", "priorityLevelConfiguration"),
    ("HorizontalPodAutoscalerSpec", "scaleTargetRef"),
    ("IngressServiceBackend", "port"),
    ("LimitedPriorityLevelConfiguration", "limitResponse"),
    ("MutatingWebhook", "clientConfig"),
    ("NetworkPolicySpec", "podSelector"),
    ("NodeDaemonEndpoints", "kubeletEndpoint"),
    ("ResourceSliceSpec", "pool"),
    ("RoleBinding", "roleRef"),
    ("ValidatingWebhook", "clientConfig"),
    ("VolumeAttachmentSpec", "source"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{self, FieldRef, Kind};

    /// Every name stands for a struct field of some type, so that none is misspelt.
    #[test]
    fn names_exist() {
        for (owner, field) in ALWAYS_THERE {
            let of = |ty: schema::TypeRef<'static>| ty.field(field).map(FieldRef::ty);
            let found = schema::types().filter(|ty| ty.short_name() == *owner).find_map(of);
            assert!(found.is_some_and(|ty| ty.kind() == Kind::Struct), "{owner}.{field}");
        }
    }
}
