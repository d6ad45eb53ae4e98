//! The APIServices of custom resources' groups, and the condition of all that are local.

use super::condition::Condition;
use crate::discovery::{CUSTOM_GROUP_PRIORITY, CUSTOM_VERSION_PRIORITY};
use coracle_api::Object;
use coracle_requests::value::{has, name};
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

/// `true` on those that come and go with a group, `onstart` on those that are made when the server starts.
const LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Create(Object),
    Replace(Object),
    Delete(String),
    Status(Object),
}

/// What has to be written so that every custom group and version has an APIService, local unless somebody has put
/// another one in its place. Those without the label are nobody's but their makers'.
pub fn plan(custom: &BTreeSet<(String, String)>, present: &[Arc<Object>], now: Timestamp) -> Vec<Action> {
    let mut actions = Vec::new();
    let find = |wanted: &str| present.iter().find(|object| name(object) == wanted);
    for (group, version) in custom {
        let wanted = api_service(group, version);
        match find(name(&wanted)) {
            None => actions.push(Action::Create(wanted)),
            Some(found) if is_managed(found) && found["spec"] != wanted["spec"] => {
                let mut mended = (**found).clone();
                mended["spec"] = wanted["spec"].clone();
                actions.push(Action::Replace(mended));
            }
            Some(_) => {}
        }
    }
    let wanted =
        |object: &Object| custom.iter().any(|(group, version)| name(object) == format!("{version}.{group}"));
    for object in present {
        if is_managed(object) && !wanted(object) {
            actions.push(Action::Delete(name(object).to_owned()));
        } else if !has(object, "spec.service") && !Condition::local().stands_in(object) {
            actions.push(Action::Status(Condition::local().written_into(object, now)));
        }
    }
    actions
}

fn is_managed(object: &Object) -> bool {
    object["metadata"]["labels"][LABEL] == "true"
}

fn api_service(group: &str, version: &str) -> Object {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": format!("{version}.{group}"), "labels": { LABEL: "true" } },
        "spec": { "group": group, "version": version, "groupPriorityMinimum": CUSTOM_GROUP_PRIORITY,
            "versionPriority": CUSTOM_VERSION_PRIORITY },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(pairs: &[(&str, &str)]) -> BTreeSet<(String, String)> {
        pairs.iter().map(|(g, v)| ((*g).to_owned(), (*v).to_owned())).collect()
    }

    fn settled(mut object: Object) -> Arc<Object> {
        if object["spec"]["service"].is_null() {
            object = Condition::local().written_into(&object, Timestamp::UNIX_EPOCH);
        }
        Arc::new(object)
    }

    fn run(custom: &[(&str, &str)], present: &[Arc<Object>]) -> Vec<String> {
        let actions = plan(&groups(custom), present, Timestamp::UNIX_EPOCH);
        let told = actions.iter().map(|action| match action {
            Action::Create(o) => format!("create {}", name(o)),
            Action::Replace(o) => format!("replace {}", name(o)),
            Action::Delete(name) => format!("delete {name}"),
            Action::Status(o) => format!("status {}", name(o)),
        });
        told.collect()
    }

    #[test]
    fn groups_come_and_go() {
        let v1 = settled(api_service("a.b", "v1"));
        let v2 = settled(api_service("a.b", "v2"));
        assert_eq!(run(&[("a.b", "v1")], &[]), ["create v1.a.b"]);
        assert_eq!(run(&[("a.b", "v1"), ("a.b", "v2")], &[v1.clone(), v2.clone()]), [""; 0]);
        assert_eq!(run(&[("a.b", "v1")], &[v1, v2]), ["delete v2.a.b"]);
    }

    #[test]
    fn what_others_made_stays() {
        let mut remote = api_service("a.b", "v1");
        remote["spec"]["service"] = json!({ "namespace": "n", "name": "s" });
        assert_eq!(run(&[("a.b", "v1")], &[settled(remote.clone())]), ["replace v1.a.b"]);
        remote["metadata"]["labels"] = json!({});
        assert_eq!(run(&[("a.b", "v1")], &[settled(remote.clone())]), [""; 0]);
        assert_eq!(run(&[], &[settled(remote)]), [""; 0]);
        let mut started = api_service("apps", "v1");
        started["metadata"]["labels"][LABEL] = "onstart".into();
        assert_eq!(run(&[], &[settled(started.clone())]), [""; 0]);
        assert_eq!(run(&[], &[Arc::new(started)]), ["status v1.apps"]);
    }
}
