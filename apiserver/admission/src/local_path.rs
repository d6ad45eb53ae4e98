//! Who may say what to a node of its volumes of local-path, by annotations of its Node. A right to patch Nodes, which drains
//! and labels them, is none to have a node remove or copy tenants' volumes.
//!
//! No plugin: nobody can turn it off.

use super::Request;
use coracle_access::authz::node::node_of;
use coracle_api::storage::{ANSWERED_BY_NODE, ASKED_OF_NODE, TOLD_BY_NODE};
use coracle_api::{ApiError, Object};
use coracle_pki::MASTERS;
use std::collections::BTreeSet;

/// Refuses annotations that are not the writer's, set, changed or removed, by way of the Node or of its status.
pub(super) fn check(
    request: &Request,
    object: Option<&Object>,
    old: Option<&Object>,
) -> Result<(), ApiError> {
    let Some(new) = object.filter(|_| (request.group, request.resource) == ("", "nodes")) else {
        return Ok(());
    };
    // The provisioner is one of them, and no network reaches it.
    if request.user.in_group(MASTERS) {
        return Ok(());
    }
    let itself = node_of(request.user) == Some(request.name);
    match changed(new, old)
        .into_iter()
        .find_map(|key| whose(key).filter(|whose| !whose.is(itself)).zip(Some(key)))
    {
        Some((whose, key)) => {
            Err(request.forbidden(&format!("the annotation {key} is written by {}", whose.name())))
        }
        None => Ok(()),
    }
}

#[derive(Clone, Copy)]
enum Whose {
    Provisioner,
    Node,
}

impl Whose {
    fn is(self, itself: bool) -> bool {
        itself && matches!(self, Self::Node)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Provisioner => "the provisioner of local-path alone",
            Self::Node => "the node itself alone",
        }
    }
}

fn whose(key: &str) -> Option<Whose> {
    if key.starts_with(ASKED_OF_NODE) {
        return Some(Whose::Provisioner);
    }
    [ANSWERED_BY_NODE, TOLD_BY_NODE].iter().any(|own| key.starts_with(own)).then_some(Whose::Node)
}

fn changed<'a>(new: &'a Object, old: Option<&'a Object>) -> Vec<&'a str> {
    let annotations = |object: &'a Object| object["metadata"]["annotations"].as_object();
    let (new, old) = (annotations(new), old.and_then(annotations));
    let keys: BTreeSet<&String> = new.into_iter().chain(old).flat_map(|all| all.keys()).collect();
    let value =
        |all: Option<&'a serde_json::Map<String, Object>>, key: &str| all.and_then(|all| all.get(key));
    let changed = keys.into_iter().filter(|key| value(new, key) != value(old, key));
    changed.map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use coracle_api::UserInfo;
    use serde_json::{Value, json};

    const ASKED: &str = "local-path.coracle.io/pvc-1";
    const DONE: &str = "done.local-path.coracle.io/pvc-1";
    const ROOT: &str = "coracle.io/local-path-root";

    fn node(annotations: Value) -> Object {
        json!({ "metadata": { "name": "one", "annotations": annotations } })
    }

    /// What is said to whoever writes one over the other.
    fn told(user: &UserInfo, new: &Object, old: Option<&Object>) -> Vec<Option<String>> {
        let world = World::new();
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        let of = |resource| {
            let one = Try { user: user.clone(), operation, ..Try::create(&world, resource) };
            one.with(new, |request| check(request, Some(new), old)).err().map(|error| error.message)
        };
        vec![of("nodes."), of("nodes./status")]
    }

    #[test]
    fn each_writes_its_own() {
        let users = [
            ("jane", &[][..], [false, false, false]),
            ("kubernetes-admin", &["kubeadm:cluster-admins"], [false, false, false]),
            ("system:coracle:local-path", &[], [false, false, false]),
            ("system:coracle:local-path", &["system:masters"], [true, true, true]),
            ("system:node:one", &["system:nodes"], [false, true, true]),
            ("system:node:two", &["system:nodes"], [false, false, false]),
        ];
        for (name, groups, may) in users {
            let user = UserInfo::authenticated(name, groups);
            for (key, may) in [ASKED, DONE, ROOT].into_iter().zip(may) {
                let bare = node(json!({ "a": "b" }));
                let (with, other) =
                    (node(json!({ "a": "b", key: "x" })), node(json!({ "a": "b", key: "y" })));
                let writes =
                    [(&with, None), (&with, Some(&bare)), (&other, Some(&with)), (&bare, Some(&with))];
                for (new, old) in writes {
                    for told in told(&user, new, old) {
                        assert_eq!(told.is_none(), may, "{name} {new} over {old:?}: {told:?}");
                        assert!(told.is_none_or(|told| {
                            told.contains(&format!("the annotation {key} is written by"))
                        }));
                    }
                }
            }
        }
    }

    #[test]
    fn what_stays_and_what_is_anybodys_is_not_looked_at() {
        let jane = UserInfo::authenticated("jane", &[]);
        let (old, new) =
            (json!({ ASKED: "x", ROOT: "/r" }), json!({ ASKED: "x", ROOT: "/r", "coracle.io/else": "" }));
        assert_eq!(told(&jane, &node(new), Some(&node(old))), [None, None]);
        let bare = json!({ "metadata": { "name": "one" } });
        assert_eq!(told(&jane, &bare, Some(&bare)), [None, None]);
    }
}
