//! PodSecurity: the Pod Security Standards, by namespace labels
//! (<https://kubernetes.io/docs/concepts/security/pod-security-admission/>).
//!
//! `enforce` refuses pods, `warn` answers with warnings, `audit` annotates the audit event. Objects that make pods are
//! warned of and annotated, never refused. Exemptions and defaults are those of [`Settings`].

mod baseline;
mod namespaces;
pub mod policy;
mod restricted;
mod rules;

#[cfg(test)]
mod tests;

use super::{Operation, Plugin, Request, annotations, items};
use coracle_api::{ApiError, Object};
use policy::{PREFIX, Policy, Standard};
use rules::Pod;
use serde_json::Value;

/// Upstream's `PodSecurityConfiguration`.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// For namespaces without labels.
    pub defaults: Policy,
    pub exempt_users: Vec<String>,
    pub exempt_namespaces: Vec<String>,
    pub exempt_runtime_classes: Vec<String>,
}

#[derive(Default)]
pub(super) struct PodSecurity {
    pub settings: Settings,
}

/// Subresources that cannot change what a pod may do.
const HARMLESS: [&str; 8] =
    ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn validate(
        &self,
        request: &Request,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let Some(object) = object.filter(|_| writes) else { return Ok(()) };
        match (request.group, request.resource, request.subresource) {
            ("", "namespaces", "") => self.namespace(request, object, old),
            ("", "pods", subresource) if HARMLESS.contains(&subresource) => Ok(()),
            ("", "pods", _) if old.is_some_and(|old| !is_significant(object, old)) => Ok(()),
            ("", "pods", _) => {
                self.pod(request, Pod { metadata: &object["metadata"], spec: &object["spec"] }, true)
            }
            (_, _, "") => match template(request, object) {
                Some(template) => {
                    let pod = Pod { metadata: &template["metadata"], spec: &template["spec"] };
                    self.pod(request, pod, false)
                }
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// Where an object that makes pods keeps their template.
fn template<'a>(request: &Request, object: &'a Object) -> Option<&'a Value> {
    let pointer = match (request.group, request.resource) {
        ("", "podtemplates") => "/template",
        ("", "replicationcontrollers")
        | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => "/spec/template",
        ("batch", "cronjobs") => "/spec/jobTemplate/spec/template",
        _ => return None,
    };
    object.pointer(pointer)
}

/// Of what an update may change in a pod, images matter; seccomp annotations did.
fn is_significant(new: &Object, old: &Object) -> bool {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let is_note = |key: &str| key == POD || key.starts_with(CONTAINER);
    let notes = |pod: &'_ Object| -> Vec<(String, Value)> {
        let all = pod["metadata"]["annotations"].as_object().into_iter().flatten();
        all.filter(|(key, _)| is_note(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let same_images = |list: &str| {
        let of = |container: &'_ Value| (container["name"].clone(), container["image"].clone());
        let (new, old) = (items(&new["spec"][list]), items(&old["spec"][list]));
        new.len() == old.len() && new.iter().zip(old).all(|(new, old)| new == old || of(new) == of(old))
    };
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    notes(new) != notes(old) || !lists.into_iter().all(same_images)
}

/// Operation, kind of object and subresource, as metrics show them.
fn labels<'a>(request: &'a Request) -> [&'a str; 3] {
    let operation = if request.operation == Operation::Create { "create" } else { "update" };
    let is_pod = request.group.is_empty() && request.resource == "pods";
    [operation, if is_pod { "pod" } else { "controller" }, request.subresource]
}

fn count(request: &Request, standard: Standard, mode: &str, is_refused: bool) {
    let decision = if is_refused { "deny" } else { "allow" };
    let [operation, resource, subresource] = labels(request);
    let (level, version) = (standard.level.name(), standard.counted_version());
    request.metrics.pod_security([decision, level, &version, mode, operation, resource, subresource]);
}

/// The request is exempt for this reason.
fn exempt(request: &Request, why: &str) {
    request.metrics.pod_security_exempt(labels(request));
    annotate("exempt", why.to_owned());
}

fn annotate(key: &str, value: String) {
    annotations::annotate(&format!("{PREFIX}{key}"), value);
}

impl PodSecurity {
    fn exemption(&self, request: &Request) -> Option<&'static str> {
        let listed = |list: &[String], name: &str| list.iter().any(|n| n == name);
        if listed(&self.settings.exempt_namespaces, request.namespace) {
            Some("namespace")
        } else if listed(&self.settings.exempt_users, &request.user.name) {
            Some("user")
        } else {
            None
        }
    }

    fn exempts_class(&self, spec: &Value) -> bool {
        let class = spec["runtimeClassName"].as_str().unwrap_or_default();
        !class.is_empty() && self.settings.exempt_runtime_classes.iter().any(|c| c == class)
    }

    fn pod(&self, request: &Request, pod: Pod, enforce: bool) -> Result<(), ApiError> {
        if let Some(why) = self.exemption(request) {
            exempt(request, why);
            return Ok(());
        }
        let Some(namespace) = request.read.get("namespaces.", "", request.namespace) else { return Ok(()) };
        let (policy, mistakes) = Policy::of_labels(&namespace["metadata"]["labels"], self.settings.defaults);
        if mistakes.is_empty() && policy.is_privileged() {
            count(request, policy.enforce, "enforce", false);
            return Ok(());
        }
        if self.exempts_class(pod.spec) {
            exempt(request, "runtimeClass");
            return Ok(());
        }
        if !mistakes.is_empty() {
            let list = mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let list = if mistakes.len() == 1 { list } else { format!("[{list}]") };
            request.metrics.pod_security_error(labels(request));
            annotate("error", format!("Failed to parse policy: {list}"));
        }
        let broken = |standard| rules::violations(pod, standard);
        let audited = broken(policy.audit);
        if !audited.is_empty() {
            let why = format!("would violate PodSecurity \"{}\": {}", policy.audit, rules::details(&audited));
            annotate("audit-violations", why);
            count(request, policy.audit, "audit", true);
        }
        if enforce {
            annotate("enforce-policy", policy.enforce.to_string());
            let refused = broken(policy.enforce);
            count(request, policy.enforce, "enforce", !refused.is_empty());
            if !refused.is_empty() {
                let why =
                    format!("violates PodSecurity \"{}\": {}", policy.enforce, rules::details(&refused));
                return Err(request.forbidden(&why));
            }
        }
        let warned = broken(policy.warn);
        if !warned.is_empty() {
            count(request, policy.warn, "warn", true);
            request.warn(format!(
                "would violate PodSecurity \"{}\": {}",
                policy.warn,
                rules::details(&warned)
            ));
        }
        Ok(())
    }
}
