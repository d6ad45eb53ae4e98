//! The tokens that a node may ask for.

use super::node_of;
use coracle_api::{ApiError, Object, UserInfo};
use serde_json::Value;
use std::sync::Arc;

/// A kubelet may ask for the token of a pod that runs on its node, and for no other. `reference` is what the token shall
/// be bound to, `pod` finds a pod by its name. Returns the pod; `None` for users that are no nodes.
///
/// # Errors
/// 403 if it may not, 404 if there is no such pod.
pub fn check_token(
    user: &UserInfo,
    account: &str,
    reference: &Value,
    pod: impl FnOnce(&str) -> Option<Arc<Object>>,
) -> Result<Option<Arc<Object>>, ApiError> {
    let Some(node) = node_of(user) else { return Ok(None) };
    let deny = |why: &str| Err(ApiError::forbidden("", "serviceaccounts", account, why));
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (name, uid) = (text("name"), text("uid"));
    if text("apiVersion") != "v1" || text("kind") != "Pod" || name.is_empty() {
        return deny("node requested token not bound to a pod");
    }
    if uid.is_empty() {
        return deny("node requested token with a pod binding without a uid");
    }
    let pod = pod(name).ok_or_else(|| ApiError::not_found("", "pods", name))?;
    if pod["metadata"]["uid"] != uid {
        return deny(&format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. \
             The object might have been deleted and then recreated"
        ));
    }
    if pod["spec"]["nodeName"] != node {
        return deny("node requested token bound to a pod scheduled on a different node");
    }
    Ok(Some(pod))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_gets_tokens_of_its_own_pods() {
        let n1 = UserInfo::authenticated("system:node:n1", &["system:nodes"]);
        let bound =
            |kind: &str, uid: &str| json!({ "apiVersion": "v1", "kind": kind, "name": "web", "uid": uid });
        let ask = |reference: &Value, node: Option<&str>| {
            let pod = node.map(|node| json!({ "metadata": { "uid": "u" }, "spec": { "nodeName": node } }));
            check_token(&n1, "bot", reference, |_| pod.map(Arc::new)).map(|_| ())
        };
        ask(&bound("Pod", "u"), Some("n1")).unwrap();
        for (reference, node, code, words) in [
            (bound("Pod", ""), Some("n1"), 403, "without a uid"),
            (bound("Pod", "other"), Some("n1"), 403, "bound object reference (other) does not match"),
            (bound("Pod", "u"), Some("n2"), 403, "scheduled on a different node"),
            (bound("Secret", "u"), Some("n1"), 403, "not bound to a pod"),
            (Value::Null, None, 403, "not bound to a pod"),
            (bound("Pod", "u"), None, 404, "pods \"web\" not found"),
        ] {
            let refused = ask(&reference, node).unwrap_err();
            assert_eq!(refused.code, code, "{reference}");
            assert!(refused.message.contains(words), "{}", refused.message);
        }
        let jane = UserInfo::authenticated("jane", &[]);
        assert!(check_token(&jane, "bot", &Value::Null, |_| None).unwrap().is_none());
    }
}
