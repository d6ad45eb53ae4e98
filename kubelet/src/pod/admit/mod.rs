//! Whether a pod that was put on this node may run here. The scheduler asks the same before it binds; whoever names a node
//! himself goes past it.

mod ports;
mod preempt;
mod resources;

use crate::pod_facts::critical::is_critical;
use crate::pod_facts::features;
use crate::pod_facts::qos::{self, QosClass};
use crate::pod_facts::sysctls;
use crate::pod_facts::termination::is_over;
use coracle_api::well_known;
use coracle_client::placement::{selects, tolerates_taint};
use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Node, Pod, Taint};
use resources::InsufficientResource;

/// Why a pod is refused: the reason of its status, and of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: String,
    pub message: String,
}

impl Refusal {
    pub fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: message.into() }
    }

    fn predicate(name: &str, why: &str) -> Self {
        Self::new(name, format!("Predicate {name} failed: {why}"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Admitted,
    Preempts {
        /// The UIDs of those at whose cost it is admitted.
        victims: Vec<String>,
        /// The first resource that there was not enough of.
        short_of: String,
    },
    Refused(Refusal),
}

/// What a pod is judged by.
pub struct AdmitAttributes<'a> {
    pub node: &'a Node,
    /// The pods that count on this node, each with what it was granted.
    pub others: &'a [&'a Pod],
    /// Whether the kernel confines by AppArmor.
    pub apparmor: bool,
    /// Kernel parameters that pods may set beside the safe ones: names, or beginnings with a `*`.
    pub sysctls: &'a [String],
}

/// Whether no kubelet has begun with the pod: what runs already is not judged again.
pub fn is_new(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    pod.metadata.deletion_timestamp.is_none()
        && !is_over(pod)
        && status.is_none_or(|status| status.start_time.is_none())
}

/// Judges a new pod, in upstream's order.
pub fn judge(pod: &Pod, at: &AdmitAttributes<'_>) -> Verdict {
    let early = under_pressure(pod, at.node)
        .or_else(|| {
            let forbidden = pod.spec.as_ref().and_then(|spec| sysctls::forbidden(spec, at.sysctls));
            forbidden.map(|m| Refusal::new("SysctlForbidden", m))
        })
        .or_else(|| wrong_system(pod))
        .or_else(|| groups_policy(pod, at.node))
        .or_else(|| lacks_features(pod));
    if let Some(refusal) = early {
        return Verdict::Refused(refusal);
    }
    let room = match general(pod, at) {
        Ok(room) => room,
        Err(refusal) => return Verdict::Refused(refusal),
    };
    match unconfined(pod, at.apparmor) {
        Some(refusal) => Verdict::Refused(refusal),
        None => room,
    }
}

/// A node that runs short takes critical pods only, and of memory also those that have asked for some.
fn under_pressure(pod: &Pod, node: &Node) -> Option<Refusal> {
    let conditions = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let short: Vec<&str> = conditions
        .filter(|c| c.status == "True" && c.type_.ends_with("Pressure"))
        .map(|c| c.type_.as_str())
        .collect();
    if short.is_empty() || is_critical(pod) {
        return None;
    }
    if short == ["MemoryPressure"] {
        let taint = Taint {
            key: well_known::MEMORY_PRESSURE.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        if qos::class(pod) != QosClass::BestEffort || tolerates_taint(pod.spec.as_ref(), &taint) {
            return None;
        }
    }
    Some(Refusal::new("Evicted", format!("The node had condition: [{}]. ", short.join(" "))))
}

fn wrong_system(pod: &Pod) -> Option<Refusal> {
    let label = pod.metadata.labels.as_ref().and_then(|l| l.get(well_known::OS));
    if label.is_some_and(|os| os != "linux") {
        let text = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return Some(Refusal::new("PodOSSelectorNodeLabelDoesNotMatch", text));
    }
    let field = pod.spec.as_ref().and_then(|s| s.os.as_ref());
    let text = "Failed to admit pod as the OS field doesn't match node OS";
    field.filter(|os| os.name != "linux").map(|_| Refusal::new("PodOSNotSupported", text))
}

/// A runtime that does not know the policy would give the pod more groups than it wants.
fn groups_policy(pod: &Pod, node: &Node) -> Option<Refusal> {
    let context = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let strict = context.and_then(|c| c.supplemental_groups_policy.as_deref()) == Some("Strict");
    let features = node.status.as_ref().and_then(|s| s.features.as_ref());
    let known = features.and_then(|f| f.supplemental_groups_policy) == Some(true);
    (strict && !known).then(|| {
        let text = "SupplementalGroupsPolicy=Strict is not supported in this node";
        Refusal::new("SupplementalGroupsPolicyNotSupported", text)
    })
}

fn lacks_features(pod: &Pod) -> Option<Refusal> {
    let missing = features::missing(pod).join(", ");
    let text = format!("Pod requires node features that are not available: {missing}");
    (!missing.is_empty()).then(|| Refusal::new("PodFeatureUnsupported", text))
}

/// Room first, then the place, ports and taints. What is wrong beside missing room makes preemption pointless.
fn general(pod: &Pod, at: &AdmitAttributes<'_>) -> Result<Verdict, Refusal> {
    let shortages = resources::shortages(pod, at.others, at.node);
    let misplaced = misplaced(pod, at);
    if shortages.is_empty() {
        return misplaced.map_or(Ok(Verdict::Admitted), Err);
    }
    let short = |s: &InsufficientResource| Refusal::new(&format!("OutOf{}", s.resource), s.message());
    if !is_critical(pod) {
        return Err(short(&shortages[0]));
    }
    if let Some(refusal) = misplaced {
        return Err(refusal);
    }
    let victims = preempt::victims(pod, at.others, &shortages)
        .ok_or_else(|| Refusal::new("UnexpectedAdmissionError", preempt::hopeless(&shortages)))?;
    let short_of = shortages.first().map(|s| s.resource.to_string()).unwrap_or_default();
    let victims = victims.iter().filter_map(|p| p.metadata.uid.clone()).collect();
    Ok(Verdict::Preempts { victims, short_of })
}

fn misplaced(pod: &Pod, at: &AdmitAttributes<'_>) -> Option<Refusal> {
    if pod.spec.as_ref().is_some_and(|spec| !selects(spec, at.node)) {
        return Some(Refusal::predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"));
    }
    if ports::taken(pod, at.others.iter().copied()) {
        let why = "node(s) didn't have free ports for the requested pod ports";
        return Some(Refusal::predicate("NodePorts", why));
    }
    driven_off(pod, at.node)
        .then(|| Refusal::predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate"))
}

/// Whether a taint drives the pod off the node.
fn driven_off(pod: &Pod, node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|s| s.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "NoExecute").any(|taint| !tolerates_taint(pod.spec.as_ref(), taint))
}

/// A profile that nobody enforces would be a false promise.
fn unconfined(pod: &Pod, apparmor: bool) -> Option<Refusal> {
    let spec = pod.spec.as_ref()?;
    let confines = |p: Option<&AppArmorProfile>| p.is_some_and(|p| p.type_ != "Unconfined");
    let whole = confines(spec.security_context.as_ref().and_then(|c| c.app_armor_profile.as_ref()));
    let own =
        |c: &Container| confines(c.security_context.as_ref().and_then(|s| s.app_armor_profile.as_ref()));
    let wanted = whole || spec.containers.iter().chain(spec.init_containers.iter().flatten()).any(own);
    (wanted && !apparmor)
        .then(|| Refusal::new("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
