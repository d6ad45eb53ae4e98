//! Labels and taints as flags give them.

use coracle_api::validation::{label_value, qualified_name};
use serde_json::{Value, json};

/// What a node may say of itself in the namespaces that are Kubernetes' own (upstream's list for `--node-labels`).
const OWN: [&str; 8] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
];
/// Prefixes, with those below them, of which it may say anything.
const OPEN: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// `KEY=VALUE` each; mistakes go to `mistakes`.
pub fn parse(given: &Option<Vec<String>>, mistakes: &mut Vec<String>) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    for text in given.iter().flatten() {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        if !qualified_name(key).is_empty() || !label_value(value).is_empty() {
            mistakes.push(format!("node-labels: \"{text}\" is no label such as KEY=VALUE"));
        } else if !may_say(key) {
            mistakes.push(format!(
                "node-labels: a node may not say {key} of itself; of kubernetes.io and k8s.io it may those below {}, and {}",
                OPEN.join(", "),
                OWN.join(", ")
            ));
        } else {
            labels.push((key.to_owned(), value.to_owned()));
        }
    }
    labels
}

fn may_say(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    let within = |domain: &str| {
        prefix == domain || prefix.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
    };
    let kubernetes = within("kubernetes.io") || within("k8s.io");
    !kubernetes || OPEN.iter().any(|open| within(open)) || OWN.contains(&key)
}

/// `KEY=VALUE:EFFECT`, `KEY:EFFECT`.
pub fn taint(text: &str) -> Option<Value> {
    let (key, effect) = text.rsplit_once(':')?;
    let (key, value) = key.split_once('=').map_or((key, None), |(key, value)| (key, Some(value)));
    let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect);
    (known && !key.is_empty()).then(|| json!({ "key": key, "value": value, "effect": effect }))
}
