//! `rules` of webhooks, `resourceRules` and `excludeResourceRules` of policies.

use crate::Attributes;
use coracle_api::Resource;
use serde_json::Value;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
}

#[derive(Clone, Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// Resource and subresource, each possibly `*`; the subresource is empty for the resource itself.
    resources: Vec<(String, String)>,
    scope: Scope,
    /// Of policies; empty ones name everything.
    names: Vec<String>,
}

/// A list of rules, of which one must match.
#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<Rule>);

fn texts(value: &Value) -> Vec<String> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn names(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

impl Rules {
    /// From a list of RuleWithOperations or NamedRuleWithOperations.
    pub fn new(rules: &Value) -> Self {
        let list = rules.as_array().map(Vec::as_slice).unwrap_or_default();
        Self(list.iter().map(Rule::new).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The resource of the first rule that concerns one of `resources`, which are the request's own or equivalent ones.
    pub(super) fn find(
        &self,
        attributes: &Attributes<'_>,
        resources: &[Arc<Resource>],
    ) -> Option<Arc<Resource>> {
        let fits = |rule: &Rule| resources.iter().find(|resource| rule.matches(attributes, resource));
        self.0.iter().find_map(fits).cloned()
    }

    /// Whether a rule concerns the request if its group, version and plural were others.
    pub(super) fn could_match(&self, attributes: &Attributes<'_>) -> bool {
        self.0.iter().any(|rule| rule.concerns(attributes))
    }
}

impl Rule {
    fn new(rule: &Value) -> Self {
        let resources = texts(&rule["resources"]).into_iter().map(|text| match text.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), subresource.to_owned()),
            None => (text, String::new()),
        });
        Self {
            operations: texts(&rule["operations"]),
            groups: texts(&rule["apiGroups"]),
            versions: texts(&rule["apiVersions"]),
            resources: resources.collect(),
            scope: match rule["scope"].as_str() {
                Some("Cluster") => Scope::Cluster,
                Some("Namespaced") => Scope::Namespaced,
                _ => Scope::All,
            },
            names: texts(&rule["resourceNames"]),
        }
    }

    fn matches(&self, attributes: &Attributes<'_>, resource: &Resource) -> bool {
        self.concerns(attributes)
            && names(&self.groups, &resource.group)
            && names(&self.versions, &resource.version)
            && self.resources.iter().any(|(plural, subresource)| {
                (plural == "*" || *plural == resource.plural)
                    && (subresource == "*" || subresource == attributes.subresource)
            })
    }

    /// What does not depend on the version.
    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        let in_scope = match self.scope {
            Scope::All => true,
            // A Namespace is cluster-scoped, although its requests name a namespace.
            Scope::Cluster => attributes.is_namespace() || attributes.namespace.is_empty(),
            Scope::Namespaced => !attributes.is_namespace() && !attributes.namespace.is_empty(),
        };
        in_scope
            && names(&self.operations, attributes.operation.name())
            && (self.names.is_empty() || self.names.iter().any(|name| name == attributes.name))
    }
}
