//! Aggregated ClusterRoles: their rules are those of the roles that they select
//! (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles>).

use crate::clients::Clients;
use crate::common::code_of;
use coracle_client::informer::deleting;
use coracle_client::{Action, Controller, Delta, Informer, ReconcileError, Reconciler};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::PostParams;
use kube::core::Selector;
use kube::core::SelectorExt;
use kube::{Api, ResourceExt};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "clusterrole-aggregation-controller";

struct Aggregation {
    client: kube::Client,
    roles: Informer<ClusterRole>,
}

/// What wakes the controller: any role may be part of any aggregated one, so all of those are looked at together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct All;

impl std::fmt::Display for All {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("clusterroles")
    }
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let roles = clients.informers.of::<ClusterRole>();
    let reconciler = Aggregation { client: clients.client(CONTROLLER), roles: roles.clone() };
    Controller::new(reconciler).watch(&roles, |_: &Delta<ClusterRole>| Some(All)).run(stop).await;
}

impl Reconciler for Aggregation {
    type Key = All;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, _: &All) -> Result<Action, ReconcileError> {
        let mut roles = self.roles.list();
        roles.sort_by_key(|r| r.name_any());
        for role in roles.iter().filter(|r| !deleting(r.as_ref())) {
            let Some(rules) = aggregated(role, &roles) else { continue };
            if role.rules.as_deref().unwrap_or_default() == rules {
                continue;
            }
            let changed = ClusterRole { rules: Some(rules), ..ClusterRole::clone(role) };
            let params = PostParams { field_manager: Some(CONTROLLER.to_owned()), ..PostParams::default() };
            let api: Api<ClusterRole> = Api::all(self.client.clone());
            match api.replace(&role.name_any(), &params, &changed).await {
                // The informer will bring the newer one, and this runs again.
                Err(error) if !matches!(code_of(&error), 404 | 409) => return Err(error.into()),
                _ => {}
            }
        }
        Ok(Action::AwaitChange)
    }
}

/// The rules that an aggregated role must have: those of the selected roles, selector by selector, each in the order of
/// their names, every rule once. `None` for other roles, and for a selector that nobody can read. `all` is sorted.
fn aggregated(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Option<Vec<PolicyRule>> {
    let selectors = role.aggregation_rule.as_ref()?.cluster_role_selectors.as_deref().unwrap_or_default();
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in selectors {
        let selector = Selector::try_from(selector.clone()).ok()?;
        let selected =
            all.iter().filter(|r| selector.matches(r.labels()) && r.metadata.name != role.metadata.name);
        for rule in selected.flat_map(|r| r.rules.as_deref().unwrap_or_default()) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    Some(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn role(name: &str, labels: Value, rules: &[&str], selects: Value) -> Arc<ClusterRole> {
        let rules: Vec<Value> =
            rules.iter().map(|r| json!({ "verbs": ["get"], "apiGroups": [""], "resources": [r] })).collect();
        let mut role = json!({ "metadata": { "name": name, "labels": labels }, "rules": rules });
        if selects.is_array() {
            role["aggregationRule"] = json!({ "clusterRoleSelectors": selects });
        }
        Arc::new(serde_json::from_value(role).unwrap())
    }

    fn resources(rules: &[PolicyRule]) -> Vec<&str> {
        rules.iter().flat_map(|r| r.resources.as_deref().unwrap_or_default()).map(String::as_str).collect()
    }

    #[test]
    fn rules_are_collected_by_name_and_once() {
        let select = json!([{ "matchLabels": { "to": "x" } }, { "matchExpressions": [{ "key": "also", "operator": "Exists" }] }]);
        let all = [
            role("a", json!({ "to": "x" }), &["pods", "services"], Value::Null),
            role("b", json!({ "also": "" }), &["nodes"], Value::Null),
            role("c", json!({ "to": "x", "also": "1" }), &["services", "secrets"], Value::Null),
            role("d", json!({ "to": "y" }), &["events"], Value::Null),
            role("sum", json!({ "to": "x" }), &["own"], select),
        ];
        let rules = aggregated(&all[4], &all).unwrap();
        assert_eq!(resources(&rules), ["pods", "services", "secrets", "nodes"]);
        assert!(aggregated(&all[0], &all).is_none());
        let none = role("none", json!({}), &["own"], json!([]));
        assert_eq!(aggregated(&none, &all), Some(Vec::new()));
    }
}
