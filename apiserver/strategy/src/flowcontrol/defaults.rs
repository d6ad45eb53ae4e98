//! The objects that every cluster has: the mandatory ones, without which nothing is admitted, and upstream's suggested
//! ones.
//!
//! <https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#defaults>

use coracle_api::Object;
use serde_json::{Value, json};

pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";
pub const SCHEMAS: &str = "flowschemas.flowcontrol.apiserver.k8s.io";
pub const LEVELS: &str = "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io";
/// `"true"`: the server keeps the spec as it is here. `"false"`: the spec is the users'.
pub const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// Names of mandatory levels and schemas alike: these are restored whatever the annotation says.
pub const MANDATORY: [&str; 2] = ["exempt", "catch-all"];

fn object(kind: &str, name: &str, spec: Value) -> Object {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": { "name": name, "annotations": { AUTOUPDATE: "true" } }, "spec": spec,
    })
}

/// A level with queues: its shares, what it lends, its queues and the size of a flow's hand.
fn queued(name: &str, shares: u32, lendable: u32, queues: u32, hand: u32) -> Object {
    let queuing = json!({ "queues": queues, "handSize": hand, "queueLengthLimit": 50 });
    let limited = json!({
        "nominalConcurrencyShares": shares, "lendablePercent": lendable,
        "limitResponse": { "type": "Queue", "queuing": queuing },
    });
    object("PriorityLevelConfiguration", name, json!({ "type": "Limited", "limited": limited }))
}

/// All PriorityLevelConfigurations, mandatory ones first.
pub fn levels() -> Vec<Object> {
    let exempt = json!({ "nominalConcurrencyShares": 0, "lendablePercent": 0 });
    let rejecting = json!({
        "nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": { "type": "Reject" },
    });
    let level = |name: &str, spec: Value| object("PriorityLevelConfiguration", name, spec);
    vec![
        level("exempt", json!({ "type": "Exempt", "exempt": exempt })),
        level("catch-all", json!({ "type": "Limited", "limited": rejecting })),
        queued("system", 30, 33, 64, 6),
        queued("node-high", 40, 25, 64, 6),
        queued("leader-election", 10, 0, 16, 4),
        queued("workload-high", 40, 50, 128, 6),
        queued("workload-low", 100, 90, 128, 6),
        queued("global-default", 20, 50, 128, 6),
    ]
}

fn groups(names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "kind": "Group", "group": { "name": name } })).collect()
}

fn users(names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "kind": "User", "user": { "name": name } })).collect()
}

fn accounts(names: &[&str]) -> Value {
    let account = |name| json!({ "name": name, "namespace": "kube-system" });
    names.iter().map(|name| json!({ "kind": "ServiceAccount", "serviceAccount": account(*name) })).collect()
}

fn both(one: Value, other: Value) -> Value {
    let lists = [one, other].map(|v| if let Value::Array(items) = v { items } else { Vec::new() });
    lists.concat().into()
}

fn resources(verbs: &[&str], group: &str, names: &[&str], cluster: bool) -> Value {
    let mut rule = json!({ "verbs": verbs, "apiGroups": [group], "resources": names, "namespaces": ["*"] });
    if cluster {
        rule["clusterScope"] = true.into();
    }
    rule
}

/// Rules for everything that the subjects may do.
fn everything(subjects: Value) -> Value {
    json!({
        "subjects": subjects,
        "resourceRules": [resources(&["*"], "*", &["*"], true)],
        "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
    })
}

fn some(subjects: Value, rules: &[Value]) -> Value {
    json!({ "subjects": subjects, "resourceRules": rules })
}

fn schema(name: &str, level: &str, precedence: u32, by: &str, rule: Value) -> Object {
    let mut spec = json!({
        "matchingPrecedence": precedence, "priorityLevelConfiguration": { "name": level }, "rules": [rule],
    });
    if !by.is_empty() {
        spec["distinguisherMethod"] = json!({ "type": by });
    }
    object("FlowSchema", name, spec)
}

const EVERYBODY: [&str; 2] = ["system:unauthenticated", "system:authenticated"];
const MANAGER: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";

/// All FlowSchemas, mandatory ones first.
pub fn schemas() -> Vec<Object> {
    let elect = |group: &str, names: &[&str]| resources(&["get", "create", "update"], group, names, false);
    let leases = elect("coordination.k8s.io", &["leases"]);
    let probes = json!({
        "subjects": groups(&EVERYBODY),
        "nonResourceRules": [{ "verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"] }],
    });
    let endpoints = accounts(&["endpoint-controller", "endpointslicemirroring-controller"]);
    let nodes = [
        resources(&["*"], "", &["nodes", "nodes/status"], true),
        resources(&["*"], "coordination.k8s.io", &["leases"], false),
    ];
    let (user, namespace) = ("ByUser", "ByNamespace");
    let leaders = both(users(&[MANAGER, SCHEDULER]), accounts(&["*"]));
    vec![
        schema("exempt", "exempt", 1, "", everything(groups(&["system:masters"]))),
        schema("catch-all", "catch-all", 10_000, user, everything(groups(&EVERYBODY))),
        schema("probes", "exempt", 2, "", probes),
        schema(
            "system-leader-election",
            "leader-election",
            100,
            user,
            some(leaders, std::slice::from_ref(&leases)),
        ),
        schema(
            "endpoint-controller",
            "workload-high",
            150,
            user,
            some(both(users(&[MANAGER]), endpoints), &[elect("", &["endpoints"])]),
        ),
        schema(
            "workload-leader-election",
            "leader-election",
            200,
            user,
            some(accounts(&["*"]), &[elect("", &["endpoints", "configmaps"]), leases]),
        ),
        schema("system-node-high", "node-high", 400, user, some(groups(&["system:nodes"]), &nodes)),
        schema("system-nodes", "system", 500, user, everything(groups(&["system:nodes"]))),
        schema("kube-controller-manager", "workload-high", 800, namespace, everything(users(&[MANAGER]))),
        schema("kube-scheduler", "workload-high", 800, namespace, everything(users(&[SCHEDULER]))),
        schema("kube-system-service-accounts", "workload-high", 900, namespace, everything(accounts(&["*"]))),
        schema(
            "service-accounts",
            "workload-low",
            9000,
            user,
            everything(groups(&["system:serviceaccounts"])),
        ),
        schema("global-default", "global-default", 9900, user, everything(groups(&EVERYBODY))),
    ]
}
