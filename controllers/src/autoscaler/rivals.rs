//! Autoscalers whose targets select the same pods: each would undo what the other does, so none acts.

use coracle_api::LabelSelector;
use coracle_client::ObjectKey;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The selector of each autoscaler's target, as it was last seen.
#[derive(Default)]
pub struct Claims(BTreeMap<ObjectKey, String>);

impl Claims {
    pub fn forget(&mut self, key: &ObjectKey) {
        self.0.remove(key);
    }

    /// Whoever selects any of these pods: the autoscaler `key` itself, and others of its namespace.
    pub fn of(&mut self, key: &ObjectKey, selector: &str, pods: &[Arc<Pod>]) -> BTreeSet<ObjectKey> {
        self.0.insert(key.clone(), selector.to_owned());
        let near = self.0.iter().filter(|(other, _)| other.namespace == key.namespace);
        let selects = |selector: &str| {
            let selector = LabelSelector::parse(selector).ok()?;
            Some(
                pods.iter()
                    .any(|pod| selector.matches_with(|name| pod.labels().get(name).map(String::as_str))),
            )
        };
        near.filter(|(_, text)| selects(text).unwrap_or(false)).map(|(other, _)| other.clone()).collect()
    }
}

pub fn message(selector: &str, rivals: &BTreeSet<ObjectKey>) -> String {
    let names: Vec<String> = rivals.iter().map(ToString::to_string).collect();
    format!("pods by selector {selector} are controlled by multiple HPAs: [{}]", names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn two_that_select_one_pod_are_rivals() {
        let pod = |labels| -> Arc<Pod> {
            Arc::new(serde_json::from_value(json!({ "metadata": { "labels": labels } })).unwrap())
        };
        let pods = [pod(json!({ "app": "web", "track": "stable" })), pod(json!({ "app": "web" }))];
        let key = |namespace: &str, name: &str| ObjectKey::new(namespace, name);
        let mut claims = Claims::default();
        assert_eq!(claims.of(&key("a", "one"), "app=web", &pods).len(), 1);
        assert_eq!(claims.of(&key("b", "far"), "app=web", &pods).len(), 1);
        let rivals = claims.of(&key("a", "two"), "app=web,track=stable", &pods[..1]);
        assert_eq!(
            message("app=web", &rivals),
            "pods by selector app=web are controlled by multiple HPAs: [a/one a/two]"
        );
        claims.forget(&key("a", "one"));
        assert_eq!(claims.of(&key("a", "two"), "app=web", &pods).len(), 1);
        assert!(claims.of(&key("a", "none"), "app=none", &pods).iter().all(|k| k.name != "none"));
    }
}
