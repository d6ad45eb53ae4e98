//! The tokens that a node may ask for.

use super::node_of;
use coracle_api::{ApiError, Object, UserInfo};

/// A kubelet may ask for the token of a pod that runs on its node, and for no other. `pod` is the one that the token will
/// be bound to, with the uid that the request names.
pub fn check_token(user: &UserInfo, account: &str, pod: Option<(&Object, &str)>) -> Result<(), ApiError> {
    let Some(node) = node_of(user) else { return Ok(()) };
    let deny = |why: &str| Err(ApiError::forbidden("", "serviceaccounts", account, why));
    match pod {
        None => deny("node requested token not bound to a pod"),
        Some((_, "")) => deny("node requested token with a pod binding without a uid"),
        Some((pod, _)) if pod["spec"]["nodeName"] != node => {
            deny("node requested token bound to a pod scheduled on a different node")
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_gets_tokens_of_its_own_pods() {
        let n1 = UserInfo::authenticated("system:node:n1", &["system:nodes"]);
        let on = |node: &str| json!({ "spec": { "nodeName": node } });
        check_token(&n1, "bot", Some((&on("n1"), "u"))).unwrap();
        assert!(check_token(&n1, "bot", Some((&on("n1"), ""))).is_err());
        assert!(check_token(&n1, "bot", Some((&on("n2"), "u"))).is_err());
        assert!(check_token(&n1, "bot", None).is_err());
        check_token(&UserInfo::authenticated("jane", &[]), "bot", None).unwrap();
    }
}
