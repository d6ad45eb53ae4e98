//! What tests of policies share: a server with the whole admission chain, and short ways to write policies.

use crate::support::*;
use coracle_api::UserInfo;
use coracle_apiserver::admission::{Chain, Config};
use coracle_apiserver::authz::{Attributes, Authorizer, Decision, Gate, rules};
use coracle_apiserver::server::{EdgeOptions, ServerConfig};
use serde_json::{Value, json};
use std::sync::Arc;

pub const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
pub const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// Users whose name begins with `weak` may not get Secrets; nobody else is refused anything.
struct NoSecretsForTheWeak;

impl Authorizer for NoSecretsForTheWeak {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let weak = attributes.user.name.starts_with("weak");
        if weak && attributes.verb == "get" && attributes.resource == "secrets" {
            return Decision::NoOpinion("weak users see no secrets".to_owned());
        }
        Decision::Allow(String::new())
    }

    fn rules_for(&self, _: &UserInfo, _: &str) -> rules::Resolved {
        rules::Resolved::default()
    }
}

/// With a namespace `default` whose label `team` is `blue`.
pub async fn world() -> Fixture {
    with_options(EdgeOptions::default()).await
}

pub async fn with_options(options: EdgeOptions) -> Fixture {
    let (store, resources) = in_memory().await;
    let cache = resources.cache.clone();
    let authorizer = Gate::local(NoSecretsForTheWeak);
    let chain = Chain::new(cache.clone(), &Config::default())
        .unwrap()
        .counted_in(cache.metrics().clone())
        .guard_escalation(authorizer.clone());
    let config = ServerConfig { admission: Arc::new(chain), ..governed_by(authorizer) };
    let fixture = Fixture::of(config, options, store, resources);
    let namespace = json!({ "metadata": { "name": "default", "labels": { "team": "blue" } } });
    fixture.post("/api/v1/namespaces", &namespace).await.expect(201);
    fixture
}

/// Of one resource in one group and version, for creates and updates.
pub fn rules_of(group: &str, resource: &str) -> Value {
    json!([{ "apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource] }])
}

pub fn config_map_rules() -> Value {
    rules_of("", "configmaps")
}

/// A ValidatingAdmissionPolicy on ConfigMaps; `spec` is added to it.
pub fn validating(name: &str, spec: &Value) -> Value {
    let mut full = json!({ "matchConstraints": { "resourceRules": config_map_rules() } });
    merge(&mut full, spec);
    json!({ "metadata": { "name": name }, "spec": full })
}

pub fn binding(name: &str, policy: &str, spec: &Value) -> Value {
    let mut full = json!({ "policyName": policy });
    merge(&mut full, spec);
    json!({ "metadata": { "name": name }, "spec": full })
}

pub fn merge(into: &mut Value, from: &Value) {
    for (key, value) in from.as_object().unwrap() {
        into[key] = value.clone();
    }
}

impl Fixture {
    /// Writes a ValidatingAdmissionPolicy on ConfigMaps and a binding of the same name that denies.
    pub async fn enforce(&self, name: &str, spec: &Value) {
        self.bind(name, spec, &json!({ "validationActions": ["Deny"] })).await;
    }

    pub async fn bind(&self, name: &str, spec: &Value, bound: &Value) {
        let path = format!("{GROUP}/validatingadmissionpolicies");
        self.post(&path, &validating(name, spec)).await.expect(201);
        let path = format!("{GROUP}/validatingadmissionpolicybindings");
        self.post(&path, &binding(name, name, bound)).await.expect(201);
    }

    /// Writes a MutatingAdmissionPolicy on ConfigMaps and a binding of the same name.
    pub async fn mutate(&self, name: &str, mutations: &Value, spec: &Value) {
        let mut full = json!({ "mutations": mutations, "reinvocationPolicy": "Never" });
        merge(&mut full, spec);
        let path = format!("{GROUP}/mutatingadmissionpolicies");
        self.post(&path, &validating(name, &full)).await.expect(201);
        let path = format!("{GROUP}/mutatingadmissionpolicybindings");
        self.post(&path, &binding(name, name, &json!({}))).await.expect(201);
    }
}

pub fn apply(expression: &str) -> Value {
    json!({ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": expression } })
}

pub fn json_patch(expression: &str) -> Value {
    json!({ "patchType": "JSONPatch", "jsonPatch": { "expression": expression } })
}

pub fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap_or_default()
}
