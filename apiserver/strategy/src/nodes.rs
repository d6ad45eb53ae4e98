//! Nodes.

use super::pods::validate::resources;
use super::table::{self, cell_or_none};
use super::value::*;
use super::{
    Column, CreateStrategy, Env, ResourceFacts, SelectableFields, StatusStrategy, TableConvertor,
    UpdateStrategy, copy_field, rules,
};
use crate::{Facts, FieldLabels};
use coracle_api::{FieldError, Object};
use coracle_store::Durability;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::HashSet;

pub struct Nodes;

const COLUMNS: &[Column] = &[
    table::NAME,
    table::string("Status", "Whether the node is ready and takes pods"),
    table::string("Roles", "Roles from the node's labels"),
    table::AGE,
    table::string("Version", "Version of the kubelet"),
    table::wide("Internal-IP", "First internal address"),
    table::wide("External-IP", "First external address"),
    table::wide("OS-Image", "Operating system"),
    table::wide("Kernel-Version", "Kernel"),
    table::wide("Container-Runtime", "Container runtime and its version"),
];

impl ResourceFacts for Nodes {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }

    fn durability(&self, new: Option<&Object>, old: Option<&Object>) -> Durability {
        match (new, old) {
            (Some(new), Some(old)) if is_heartbeat(new, old) => Durability::Volatile,
            _ => Durability::Synced,
        }
    }
}

impl CreateStrategy for Nodes {
    fn defaults(&self, object: &mut Object) {
        object_at(object, "spec");
        if let Some(status) = at_mut(object, "status")
            && !has(status, "allocatable")
            && has(status, "capacity")
        {
            let capacity = at(status, "capacity").clone();
            set(status, "allocatable", capacity);
        }
    }

    /// A kubelet registers its node with its status. Nobody configures kubelets by the API any more.
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        for gone in ["metadata.generation", "spec.configSource", "status.config"] {
            remove(object, gone);
        }
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec");
        // Upstream calls it so.
        taints(list_at(object, "spec.taints"), &Path::root("metadata").field("taints"), errors);
        amounts(object, errors);
        pod_ranges(object, &path, errors);
    }
}

impl UpdateStrategy for Nodes {
    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "status");
        if at(old, "spec.configSource").is_null() {
            remove(new, "spec.configSource");
        }
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec");
        addresses(new, errors);
        for (fields, name) in [(&["podCIDRs", "podCIDR"][..], "podCIDR"), (&["providerID"], "providerID")] {
            let changed = fields.iter().any(|field| {
                let (new, old) = (at(&new["spec"], field), at(&old["spec"], field));
                let was_set = !old.is_null() && old != "" && old.as_array().is_none_or(|l| !l.is_empty());
                was_set && new != old
            });
            if changed {
                let detail = format!("node updates may not change {name} except from \"\" to valid");
                errors.forbidden(&path.field(fields[0]), &detail);
            }
        }
        if str_at(new, "spec.externalID") != str_at(old, "spec.externalID") {
            errors.forbidden(&path.field("externalID"), "may not be updated");
        }
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl StatusStrategy for Nodes {
    fn prepare_status_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "spec");
        if at(old, "status.config").is_null() {
            remove(new, "status.config");
        }
    }

    fn validate_status_update(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        amounts(new, &mut Errors(errors));
        addresses(new, &mut Errors(errors));
    }
}

impl TableConvertor for Nodes {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let unknown = |path: &str| match str_at(object, path) {
            "" => "<unknown>".into(),
            text => Value::from(text),
        };
        vec![
            name(object).into(),
            status(object).into(),
            cell_or_none(&roles(object)),
            table::age(object, now),
            str_at(object, "status.nodeInfo.kubeletVersion").into(),
            cell_or_none(address(object, "InternalIP")),
            cell_or_none(address(object, "ExternalIP")),
            unknown("status.nodeInfo.osImage"),
            unknown("status.nodeInfo.kernelVersion"),
            unknown("status.nodeInfo.containerRuntimeVersion"),
        ]
    }
}

impl SelectableFields for Nodes {
    fn field_labels(&self, _group: &str) -> FieldLabels {
        FieldLabels { names: &["spec.unschedulable"], ..FieldLabels::CORE }
    }

    fn fields(&self, object: &Object) -> Vec<(&'static str, String)> {
        vec![("spec.unschedulable", bool_at(object, "spec.unschedulable").to_string())]
    }
}

crate::usual!(Nodes: DeleteStrategy, TransactionStrategy, ResetFieldsStrategy);

/// One range of each family at most, and `podCIDR` is the first of `podCIDRs` where both are there.
fn pod_ranges(object: &Object, path: &Path, errors: &mut Errors) {
    let (one, all) = (str_at(object, "spec.podCIDR"), path.field("podCIDRs"));
    let ranges: Vec<&str> = strings_at(object, "spec.podCIDRs").collect();
    if !one.is_empty() && ranges.is_empty() {
        rules::cidr(one, &all.index(0), errors);
    }
    for (i, cidr) in ranges.iter().enumerate() {
        rules::cidr(cidr, &all.index(i), errors);
    }
    if let Some(first) = ranges.first()
        && !one.is_empty()
        && *first != one
    {
        errors.invalid(&all.index(0), *first, "must be the same as podCIDR");
    }
    let families = |v6: bool| ranges.iter().filter(|range| range.contains(':') == v6).count();
    if families(true) > 1 || families(false) > 1 {
        errors.invalid(&all, ranges, "may specify no more than one CIDR for each IP family");
    }
}

/// What a node has to give. Upstream writes the paths with dots.
fn amounts(object: &Object, errors: &mut Errors) {
    for field in ["capacity", "allocatable"] {
        for (resource, quantity) in entries_at(&object["status"], field) {
            let here = Path::root("status").field(field).field(resource);
            resources::non_negative(quantity, &here, errors);
            resources::whole(resource, quantity, &here, errors);
        }
    }
}

/// No address stands there twice; upstream looks at them on updates only.
fn addresses(node: &Object, errors: &mut Errors) {
    let all = list_at(node, "status.addresses");
    for (i, one) in all.iter().enumerate() {
        if all[..i].contains(one) {
            let here = Path::root("status").field("addresses").index(i);
            let shown = rules::internal::shown(one, rules::internal::NODE_ADDRESS);
            errors.0.push(FieldError::duplicate_as(&here, &shown));
        }
    }
}

fn taints(taints: &[Value], path: &Path, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (i, taint) in taints.iter().enumerate() {
        let here = path.index(i);
        let (key, effect) = (str_at(taint, "key"), str_at(taint, "effect"));
        rules::qualified_name(key, &here.field("key"), errors);
        rules::label_value(str_at(taint, "value"), &here.field("value"), errors);
        rules::one_of(taint, "effect", &["NoSchedule", "PreferNoSchedule", "NoExecute"], &here, errors);
        if !seen.insert((key, effect)) {
            let shown = rules::internal::shown(taint, rules::internal::TAINT);
            let detail = format!("{shown}: taints must be unique by key and effect pair");
            errors.0.push(FieldError::duplicate_as(&here, &detail));
        }
    }
}

fn status(node: &Object) -> String {
    let ready = list_at(node, "status.conditions").iter().find(|c| str_at(c, "type") == "Ready");
    let word = match ready.map(|c| str_at(c, "status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let pause = if bool_at(node, "spec.unschedulable") { ",SchedulingDisabled" } else { "" };
    format!("{word}{pause}")
}

fn roles(node: &Object) -> String {
    let mut roles: Vec<&str> = entries_at(node, "metadata.labels")
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    roles.join(",")
}

fn address<'a>(node: &'a Object, kind: &str) -> &'a str {
    let found = list_at(node, "status.addresses").iter().find(|a| str_at(a, "type") == kind);
    found.map(|a| str_at(a, "address")).unwrap_or_default()
}

/// The condition of a Node on whose disk the store is and cannot be written. It is never stored durably, or it could not be
/// told.
pub const STORE_READ_ONLY: &str = "StoreReadOnly";

/// Whether the two differ in nothing but times at which the kubelet was heard of, and in whether the store can be written.
fn is_heartbeat(new: &Object, old: &Object) -> bool {
    // A Node whose kubelet has never reported may have no status.
    let none = Value::Object(serde_json::Map::new());
    let [new_status, old_status] = [new, old].map(|node| node.get("status").unwrap_or(&none));
    same_but(new, old, &["metadata", "status"])
        && same_but(&new["metadata"], &old["metadata"], &["resourceVersion", "managedFields"])
        && same_but(new_status, old_status, &["conditions"])
        && same_conditions(list_at(new, "status.conditions"), list_at(old, "status.conditions"))
}

fn same_conditions(new: &[Value], old: &[Value]) -> bool {
    let of_kubelet = |condition: &&Value| str_at(condition, "type") != STORE_READ_ONLY;
    let (new, old) = (new.iter().filter(of_kubelet), old.iter().filter(of_kubelet));
    new.clone().count() == old.clone().count()
        && new.zip(old).all(|(new, old)| same_but(new, old, &["lastHeartbeatTime"]))
}

/// Whether two objects are equal in every field but these.
fn same_but(new: &Value, old: &Value, except: &[&str]) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new == old };
    let counted = |key: &&String| !except.contains(&key.as_str());
    new.keys().filter(counted).all(|key| new.get(key) == old.get(key))
        && old.keys().filter(counted).all(|key| new.contains_key(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(heartbeat: &str, ready: &str) -> Object {
        json!({ "metadata": { "name": "n", "labels": { "node-role.kubernetes.io/control-plane": "" } },
            "status": { "conditions": [{ "type": "Ready", "status": ready, "lastHeartbeatTime": heartbeat }],
                "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
                "nodeInfo": { "kubeletVersion": "v1.36.0" } } })
    }

    #[test]
    fn kubelets_are_not_configured_by_the_api() {
        let world = crate::testing::World::default();
        let env = world.env();
        let source = json!({ "configMap": { "name": "c", "namespace": "n", "kubeletConfigKey": "k" } });
        let mut made = node("a", "True");
        made["spec"]["configSource"] = source.clone();
        made["status"]["config"] = json!({ "error": "x" });
        let asked = made.clone();
        Nodes.prepare_create(&mut made, &env);
        assert!(made["spec"]["configSource"].is_null() && made["status"]["config"].is_null());
        let (mut main, mut status) = (asked.clone(), asked.clone());
        Nodes.prepare_update(&mut main, &made, &env);
        assert!(main["spec"]["configSource"].is_null());
        Nodes.prepare_status_update(&mut status, &made, &env);
        assert!(status["status"]["config"].is_null());
        let mut kept = asked.clone();
        Nodes.prepare_update(&mut kept, &asked, &env);
        assert_eq!(kept["spec"]["configSource"], source);
    }

    #[test]
    fn heartbeats_are_volatile() {
        let durability = |new: &Object, old: &Object| Nodes.durability(Some(new), Some(old));
        assert_eq!(durability(&node("b", "True"), &node("a", "True")), Durability::Volatile);
        assert_eq!(durability(&node("b", "False"), &node("a", "True")), Durability::Synced);
        let mut labelled = node("b", "True");
        labelled["metadata"]["labels"] = json!({});
        assert_eq!(durability(&labelled, &node("a", "True")), Durability::Synced);
        let mut full = node("b", "True");
        let condition = json!({ "type": STORE_READ_ONLY, "status": "True", "reason": "DiskFull" });
        full["status"]["conditions"].as_array_mut().unwrap().push(condition);
        assert_eq!(durability(&full, &node("a", "True")), Durability::Volatile, "a full disk can be told of");
        let bare = json!({ "metadata": { "name": "n" } });
        let mut full = bare.clone();
        full["status"] = json!({ "conditions": [{ "type": STORE_READ_ONLY, "status": "True" }] });
        assert_eq!(durability(&full, &bare), Durability::Volatile, "also on a Node without a kubelet");
        assert_eq!(Nodes.durability(Some(&node("a", "True")), None), Durability::Synced);
        assert_eq!(Nodes.durability(None, Some(&node("a", "True"))), Durability::Synced);
    }

    #[test]
    fn rows() {
        let cells = Nodes.row(&node("a", "True"), Timestamp::UNIX_EPOCH);
        assert_eq!(
            cells,
            [
                "n",
                "Ready",
                "control-plane",
                "<unknown>",
                "v1.36.0",
                "10.0.0.1",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>"
            ]
        );
        let mut cordoned = node("a", "Unknown");
        cordoned["spec"] = json!({ "unschedulable": true });
        assert_eq!(Nodes.row(&cordoned, Timestamp::UNIX_EPOCH)[1], "NotReady,SchedulingDisabled");
    }

    #[test]
    fn ranges_of_pods_are_checked() {
        let told = |spec: Value| crate::testing::errors(&Nodes, json!({ "spec": spec }));
        assert!(
            told(json!({ "podCIDR": "10.42.1.0/24", "podCIDRs": ["10.42.1.0/24", "2001:db8::/64"] }))
                .is_empty()
        );
        let cidr = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        assert_eq!(
            told(json!({ "podCIDR": "10.42.1.0 dev lo" })),
            [format!("spec.podCIDRs[0]: Invalid value: \"10.42.1.0 dev lo\": {cidr}")]
        );
        assert_eq!(
            told(json!({ "podCIDR": "0.0.0.0/1", "podCIDRs": ["10.42.1.0/24"] })),
            ["spec.podCIDRs[0]: Invalid value: \"10.42.1.0/24\": must be the same as podCIDR"]
        );
        assert_eq!(
            told(json!({ "podCIDRs": ["10.42.1.0/24", "10.42.2.0/24"] })),
            [
                "spec.podCIDRs: Invalid value: [\"10.42.1.0/24\",\"10.42.2.0/24\"]: may specify no more than one CIDR for each IP family"
            ]
        );
    }

    #[test]
    fn taints_are_checked() {
        let list = json!([{ "key": "a", "effect": "NoSchedule" }, { "key": "a", "effect": "NoSchedule" }, { "key": "b" }]);
        let mut errors = Vec::new();
        taints(list.as_array().unwrap(), &Path::root("spec").field("taints"), &mut Errors(&mut errors));
        let told: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let shown = r#"{"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}"#;
        assert_eq!(
            told,
            [
                format!(
                    "spec.taints[1]: Duplicate value: {shown}: taints must be unique by key and effect pair"
                ),
                "spec.taints[2].effect: Required value".to_owned(),
            ]
        );
    }

    #[test]
    fn amounts_are_whole_where_they_count_and_no_address_stands_there_twice() {
        let status = json!({ "capacity": { "cpu": "1500m", "pods": "1500m", "a.b/c": "1500m" },
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }, { "type": "InternalIP", "address": "10.0.0.1" }] });
        let told = crate::testing::errors(&Nodes, json!({ "status": status }));
        // What can be allocated is all that there is, unless somebody says otherwise.
        let whole = ["capacity.a.b/c", "capacity.pods", "allocatable.a.b/c", "allocatable.pods"]
            .map(|place| format!("status.{place}: Invalid value: \"1500m\": must be an integer"));
        assert_eq!(told, whole);
        let mut errors = Vec::new();
        addresses(&json!({ "status": status }), &mut Errors(&mut errors));
        let twice = r#"status.addresses[1]: Duplicate value: {"Type":"InternalIP","Address":"10.0.0.1"}"#;
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [twice]);
    }
}
