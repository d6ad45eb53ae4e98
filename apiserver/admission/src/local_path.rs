//! Who may say what to a node of its volumes of local-path, by annotations of its Node. A right to patch Nodes, which drains
//! and labels them, is none to have a node remove or copy tenants' volumes.
//!
//! No plugin: nobody can turn it off.

use super::Request;
use coracle_access::authz::node::node_of;
use coracle_api::storage::{ANSWERED_BY_NODE, ASKED_OF_NODE, TOLD_BY_NODE};
use coracle_api::{ApiError, Object};
use coracle_pki::MASTERS;

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
    let told = changed(new, old).find_map(|key| match whose(key)? {
        Whose::Node if itself => None,
        Whose::Node => Some((key, "the node itself")),
        Whose::Provisioner => Some((key, "the provisioner of local-path")),
    });
    match told {
        Some((key, who)) => {
            Err(request.forbidden(&format!("the annotation {key} is written by {who} alone")))
        }
        None => Ok(()),
    }
}

enum Whose {
    Provisioner,
    Node,
}

/// `None`: anybody's.
fn whose(key: &str) -> Option<Whose> {
    if key.starts_with(ASKED_OF_NODE) {
        return Some(Whose::Provisioner);
    }
    [ANSWERED_BY_NODE, TOLD_BY_NODE].iter().any(|own| key.starts_with(own)).then_some(Whose::Node)
}

/// Keys of annotations that are set, changed or removed; one that is changed may come twice.
fn changed<'a>(new: &'a Object, old: Option<&'a Object>) -> impl Iterator<Item = &'a str> {
    let annotations = |object: &'a Object| object["metadata"]["annotations"].as_object();
    let (new, old) = (annotations(new), old.and_then(annotations));
    let keys = new.into_iter().chain(old).flat_map(|all| all.keys());
    keys.filter(move |key| new.and_then(|all| all.get(*key)) != old.and_then(|all| all.get(*key)))
        .map(String::as_str)
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
    fn told(user: &UserInfo, new: &Object, old: Option<&Object>) -> Option<String> {
        let world = World::new();
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        let one = Try { user: user.clone(), operation, ..Try::create(&world, "nodes.") };
        one.with(new, |request| check(request, Some(new), old)).err().map(|error| error.message)
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
                    let told = told(&user, new, old);
                    assert_eq!(told.is_none(), may, "{name} {new} over {old:?}: {told:?}");
                    assert!(
                        told.is_none_or(|told| told.contains(&format!("the annotation {key} is written by")))
                    );
                }
            }
        }
    }

    /// What one may write covers nothing else.
    #[test]
    fn every_change_is_looked_at() {
        let own = UserInfo::authenticated("system:node:one", &["system:nodes"]);
        let old = node(json!({ DONE: "x", ASKED: "x" }));
        for new in [json!({ DONE: "y", ASKED: "y" }), json!({ DONE: "x" }), json!({ DONE: "y" })] {
            let told = told(&own, &node(new), Some(&old)).expect("refused");
            assert!(told.contains(ASKED) && !told.contains(DONE), "{told}");
        }
    }

    #[test]
    fn what_stays_and_what_is_anybodys_is_not_looked_at() {
        let jane = UserInfo::authenticated("jane", &[]);
        let (old, new) =
            (json!({ ASKED: "x", ROOT: "/r" }), json!({ ASKED: "x", ROOT: "/r", "coracle.io/else": "" }));
        assert_eq!(told(&jane, &node(new), Some(&node(old))), None);
        let bare = json!({ "metadata": { "name": "one" } });
        assert_eq!(told(&jane, &bare, Some(&bare)), None);
    }
}
