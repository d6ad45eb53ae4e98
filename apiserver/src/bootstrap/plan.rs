//! What must be written, decided from what is there.

use super::rbac::AUTOUPDATE;
use super::{BootstrapConfig, Keep, Wanted, cluster, wanted};
use coracle_access::authz::rules::{Rule, joined, missing};
use coracle_api::Object;
use coracle_requests::ObjectReader;
use serde_json::{Map, Value, json};
use std::sync::Arc;

const CLUSTER_ROLE_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const DISCOVERY: &str = "system:discovery";
const PUBLIC_INFO_VIEWER: &str = "system:public-info-viewer";

/// One write.
#[derive(Clone, Debug)]
pub struct Planned {
    /// `<plural>.<group>`
    pub resource: &'static str,
    pub object: Object,
    /// The object as it is now; `None` creates.
    pub replaces: Option<Arc<Object>>,
}

/// Everything to write, in an order that works: namespaces come first. Takes a few milliseconds and no I/O.
pub fn plan(config: &BootstrapConfig, read: &dyn ObjectReader) -> Vec<Planned> {
    plan_of(wanted(config), read)
}

/// The part of [`plan`] that concerns these objects.
pub(super) fn plan_of(wanted: Vec<Wanted>, read: &dyn ObjectReader) -> Vec<Planned> {
    let mut writes = Vec::new();
    for wanted in wanted {
        let text = |field: &str| wanted.object["metadata"][field].as_str().unwrap_or_default();
        let Some(present) = read.get(wanted.resource, text("namespace"), text("name")) else {
            let object = split_binding(&wanted, read).unwrap_or(wanted.object);
            writes.push(Planned { resource: wanted.resource, object, replaces: None });
            continue;
        };
        if let Some(object) = merged(&wanted.object, &present, wanted.keep) {
            writes.push(Planned { resource: wanted.resource, object, replaces: Some(present) });
        }
    }
    writes
}

/// Whom `system:discovery` is bound to could see what `system:public-info-viewer` shows before it was a role of its own, so
/// a binding that is missing begins with the other's subjects, labels and annotations
/// (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#discovery-roles>).
fn split_binding(wanted: &Wanted, read: &dyn ObjectReader) -> Option<Object> {
    if wanted.resource != CLUSTER_ROLE_BINDINGS || wanted.object["metadata"]["name"] != PUBLIC_INFO_VIEWER {
        return None;
    }
    let source = read.get(CLUSTER_ROLE_BINDINGS, "", DISCOVERY)?;
    let mut object = wanted.object.clone();
    object["subjects"] = source["subjects"].clone();
    for map in ["labels", "annotations"] {
        object["metadata"][map] = source["metadata"][map].clone();
    }
    Some(merged(&wanted.object, &object, wanted.keep).unwrap_or(object))
}

/// The default storage class of a provisioner that does not run: claims would wait for it for ever. One that somebody has
/// changed is theirs.
pub(super) fn forsaken(config: &BootstrapConfig, read: &dyn ObjectReader) -> Option<Planned> {
    let Wanted { resource, object: made, .. } = cluster::storage_class();
    let present = read.get(resource, "", cluster::LOCAL_PATH_CLASS).filter(|_| !config.local_path)?;
    let metadata = |object: &Object| {
        let metadata = &object["metadata"];
        [metadata["annotations"].clone(), metadata["labels"].clone(), metadata["finalizers"].clone()]
    };
    let fields = made.as_object().into_iter().flatten().filter(|(field, _)| *field != "metadata");
    let as_made = fields.into_iter().all(|(field, value)| present[field] == *value);
    let untouched = as_made && metadata(&present) == metadata(&made);
    untouched.then(|| Planned { resource, object: (*present).clone(), replaces: Some(present) })
}

/// The object as it should be, if it is not.
fn merged(wanted: &Object, present: &Object, keep: Keep) -> Option<Object> {
    let mut new = present.clone();
    match keep {
        Keep::AsItIs => return None,
        Keep::Fields(fields) => {
            for field in fields {
                new[*field] = wanted[*field].clone();
            }
        }
        Keep::Day(key) => {
            let day = present["data"][key].as_str().unwrap_or_default();
            if day.parse::<jiff::civil::Date>().is_err() {
                new["data"][key] = wanted["data"][key].clone();
            }
        }
        Keep::Ready => {
            add_second_range(&mut new, wanted);
            add_ready(&mut new, wanted);
        }
        Keep::Range => follow_range(&mut new, wanted),
        Keep::Entry(key) => new["data"][key] = wanted["data"][key].clone(),
        Keep::Rules | Keep::Subjects if present["metadata"]["annotations"][AUTOUPDATE] == "false" => {
            return None;
        }
        Keep::Rules => {
            add_missing_metadata(&mut new, wanted);
            if wanted["aggregationRule"].is_object() {
                add_missing_selectors(&mut new, wanted);
            } else {
                add_missing_rules(&mut new, wanted);
            }
        }
        Keep::Subjects => {
            add_missing_metadata(&mut new, wanted);
            if new["roleRef"] != wanted["roleRef"] {
                new["roleRef"] = wanted["roleRef"].clone();
            }
            add_missing_subjects(&mut new, wanted);
        }
    }
    (new != *present).then_some(new)
}

fn follow_range(new: &mut Object, wanted: &Object) {
    let data = &new["data"];
    let as_made = data["clusterCIDR"].as_str().map(cluster::proxy_document);
    if as_made.is_some_and(|text| data["config.conf"] == text) {
        new["data"]["config.conf"] = wanted["data"]["config.conf"].clone();
    }
    new["data"]["clusterCIDR"] = wanted["data"]["clusterCIDR"].clone();
}

/// A cluster may become one of both families; the ranges that it has never change.
fn add_second_range(new: &mut Object, wanted: &Object) {
    let ranges = |object: &Object| object["spec"]["cidrs"].as_array().cloned().unwrap_or_default();
    let (now, asked) = (ranges(new), ranges(wanted));
    if now.len() == 1 && asked.len() == 2 && now[0] == asked[0] {
        new["spec"] = wanted["spec"].clone();
    } else if now != asked {
        let text = |ranges: &[Value]| Value::from(ranges).to_string();
        tracing::warn!(
            has = text(&now),
            asked = text(&asked),
            "the ServiceCIDR kubernetes keeps the ranges that it was made with"
        );
    }
}

/// Upstream's condition of the default ServiceCIDR. Nobody else sets it before the controllers run, so it is as old as
/// the object.
fn add_ready(new: &mut Object, wanted: &Object) {
    let metadata = &new["metadata"];
    let decided =
        new["status"]["conditions"].as_array().is_some_and(|c| c.iter().any(|c| c["type"] == "Ready"));
    if decided || metadata["deletionTimestamp"].is_string() || new["spec"] != wanted["spec"] {
        return;
    }
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "", "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": metadata["creationTimestamp"],
    });
    new["status"] = json!({ "conditions": [condition] });
}

fn add_missing_metadata(new: &mut Object, wanted: &Object) {
    for map in ["labels", "annotations"] {
        let Some(entries) = wanted["metadata"][map].as_object() else { continue };
        for (key, value) in entries {
            if new["metadata"][map].is_null() {
                new["metadata"][map] = Map::new().into();
            }
            if new["metadata"][map][key].is_null() {
                new["metadata"][map][key] = value.clone();
            }
        }
    }
}

fn list<'a>(object: &'a mut Object, field: &str) -> Option<&'a mut Vec<Value>> {
    if object[field].is_null() {
        object[field] = Vec::<Value>::new().into();
    }
    object[field].as_array_mut()
}

fn add_missing_rules(new: &mut Object, wanted: &Object) {
    if new["rules"] == wanted["rules"] {
        return;
    }
    let lacking = missing(&Rule::of_role(new), &Rule::of_role(wanted));
    if let Some(rules) = list(new, "rules").filter(|_| !lacking.is_empty()) {
        rules.extend(joined(lacking).iter().map(Rule::to_json));
    }
}

fn add_missing_selectors(new: &mut Object, wanted: &Object) {
    const SELECTORS: &str = "clusterRoleSelectors";
    if new["aggregationRule"].is_null() {
        new["aggregationRule"] = wanted["aggregationRule"].clone();
        return;
    }
    let rule = &mut new["aggregationRule"];
    let present = rule[SELECTORS].as_array().cloned().unwrap_or_default();
    let ours = wanted["aggregationRule"][SELECTORS].as_array().cloned().unwrap_or_default();
    let lacking: Vec<Value> = ours.into_iter().filter(|s| !present.contains(s)).collect();
    if let Some(selectors) = list(rule, SELECTORS).filter(|_| !lacking.is_empty()) {
        selectors.extend(lacking);
    }
}

fn add_missing_subjects(new: &mut Object, wanted: &Object) {
    let Some(subjects) = wanted["subjects"].as_array() else { return };
    let present = new["subjects"].as_array().cloned().unwrap_or_default();
    let lacking: Vec<Value> =
        subjects.iter().filter(|s| !present.iter().any(|p| same(p, s))).cloned().collect();
    if let Some(list) = list(new, "subjects").filter(|_| !lacking.is_empty()) {
        list.extend(lacking);
    }
}

/// Defaulting may have added the API group.
fn same(a: &Value, b: &Value) -> bool {
    ["kind", "name", "namespace"].iter().all(|field| a[*field] == b[*field])
}
