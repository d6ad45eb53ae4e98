//! Which fields of which kind a field selector may name, as upstream's conversions of field labels say.
//!
//! See <https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/>.

use coracle_api::Resource;
use coracle_resources::custom::CustomResource;

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// How a kind words its refusal of a field.
#[derive(Clone, Copy)]
enum Words {
    /// Kinds without selectable fields of their own.
    Plain,
    Core,
    Job,
    /// With apiVersion and kind.
    Versioned,
}

/// The fields of one kind, beside its name, and its namespace if it has one.
struct Fields {
    names: &'static [&'static str],
    words: Words,
}

const POD: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];
const CORE_EVENT: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];
const EVENT: &[&str] = &[
    "reason",
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reportingController",
    "type",
];

fn fields(group: &str, kind: &str) -> Fields {
    let of = |names, words| Fields { names, words };
    match (group, kind) {
        ("", "Pod") => of(POD, Words::Core),
        ("", "Node") => of(&["spec.unschedulable"], Words::Core),
        ("", "ReplicationController") => of(&["status.replicas"], Words::Core),
        ("", "Event") => of(CORE_EVENT, Words::Core),
        ("", "Namespace") => of(&["status.phase"], Words::Core),
        ("", "Secret") => of(&["type"], Words::Core),
        ("", "Service") => of(&["spec.clusterIP", "spec.type"], Words::Core),
        ("events.k8s.io", "Event") => of(EVENT, Words::Core),
        ("apps", "ReplicaSet") => of(&["status.replicas"], Words::Versioned),
        ("batch", "Job") => of(&["status.successful"], Words::Job),
        ("certificates.k8s.io", "CertificateSigningRequest") => of(&["spec.signerName"], Words::Core),
        ("certificates.k8s.io", "ClusterTrustBundle") => of(&["spec.signerName"], Words::Core),
        ("resource.k8s.io", "ResourceSlice") => of(&["spec.nodeName", "spec.driver"], Words::Versioned),
        _ => of(&[], Words::Plain),
    }
}

/// The name under which objects of the resource are indexed, for a field of a selector.
///
/// # Errors
/// Upstream's words for a field that this kind cannot be selected by. `indexed` are the names that the resource's
/// strategy knows: what it indexes beyond the kinds named here (custom resources) is selectable too.
pub(super) fn canonical<'a>(
    resource: &Resource,
    custom: Option<&CustomResource>,
    indexed: &[&'static str],
    field: &'a str,
) -> Result<&'a str, String> {
    if let Some(custom) = custom {
        let known = field == NAME || (field == NAMESPACE && resource.namespaced) || custom.selects_by(field);
        return if known { Ok(field) } else { Err(format!("field label not supported: {field}")) };
    }
    let Fields { names, words } = fields(&resource.group, &resource.kind);
    let plain = matches!(words, Words::Plain);
    if field == NAME || (field == NAMESPACE && (resource.namespaced || plain)) {
        return Ok(field);
    }
    // Pods were once assigned to hosts.
    if (&*resource.kind, field) == ("Pod", "spec.host") {
        return Ok("spec.nodeName");
    }
    if names.contains(&field) || (plain && indexed.contains(&field)) {
        return Ok(field);
    }
    Err(match words {
        Words::Plain if indexed.is_empty() => {
            format!("{field:?} is not a known field selector: only {NAME:?}, {NAMESPACE:?}")
        }
        Words::Job => format!("field label {field:?} not supported for batchv1.Job"),
        Words::Versioned => {
            format!(
                "field label not supported for {}, Kind={}: {field}",
                resource.api_version(),
                resource.kind
            )
        }
        Words::Core | Words::Plain => format!("field label not supported: {field}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_api::catalogue::catalogue;
    use coracle_strategy as strategy;
    use serde_json::Value;

    /// Every field that may be selected by is indexed, so no selector is accepted and then never matches.
    #[test]
    fn all_are_indexed() {
        for resource in catalogue().iter().filter(|r| r.is_stored()) {
            let storage = &resource.storage;
            let plural = storage.key.split('.').next().unwrap();
            let strategy = strategy::for_resource(&storage.group, plural);
            let indexed: Vec<&str> =
                strategy.fields(&Value::Null).into_iter().map(|(name, _)| name).collect();
            // Upstream accepts the list of addresses too, and indexes only the first.
            let names =
                fields(&resource.group, &resource.kind).names.iter().filter(|n| **n != "status.podIPs");
            for name in names {
                assert!(indexed.contains(name), "{} {name}", resource.kind);
            }
        }
    }
}
