//! ResourceQuota: how much a namespace may hold (<https://kubernetes.io/docs/concepts/policy/resource-quotas/>).
//!
//! Usage is counted from the objects that are there, at every write that a quota speaks of. Two writes that run at the
//! same moment may both pass where only one should: upstream serializes them through the quota's status, which is the
//! quota controller's here.

use super::{Operation, Plugin, Request, items};
use coracle_api::quantity::Quantity;
use coracle_api::{ApiError, Object};
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) struct ResourceQuota;

type Amounts = BTreeMap<String, Quantity>;

/// Core resources that a quota may name without `count/`.
const COUNTED: [&str; 7] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];

impl Plugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn validate(
        &self,
        request: &Request,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let Some(object) = object.filter(|_| writes && request.subresource.is_empty()) else { return Ok(()) };
        if request.namespace.is_empty() {
            return Ok(());
        }
        request.read.list("resourcequotas.", request.namespace).iter().try_for_each(|quota| {
            let hard = amounts(&quota["spec"]["hard"]);
            check(request, quota, &hard, object, old)
        })
    }
}

fn amounts(value: &Value) -> Amounts {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(name, q)| Some((name.clone(), q.as_str()?.parse().ok()?))).collect()
}

fn check(
    request: &Request,
    quota: &Object,
    hard: &Amounts,
    object: &Object,
    old: Option<&Object>,
) -> Result<(), ApiError> {
    let (group, resource) = (request.group, request.resource);
    if !in_scope(quota, resource, object) {
        return Ok(());
    }
    let name = quota["metadata"]["name"].as_str().unwrap_or_default();
    if request.operation == Operation::Create && resource == "pods" && group.is_empty() {
        let lacking = unspecified(hard, object);
        if !lacking.is_empty() {
            return Err(
                request.forbidden(&format!("failed quota: {name}: must specify {}", lacking.join("; ")))
            );
        }
    }
    let mut asked = usage(group, resource, object);
    if let Some(old) = old {
        // Only growth is judged, so that what is over quota can still shrink.
        let before = usage(group, resource, old);
        asked = asked.into_iter().map(|(k, q)| (k.clone(), minus(q, before.get(&k)))).collect();
    }
    asked.retain(|key, quantity| hard.contains_key(key) && quantity.nanos() > 0);
    if asked.is_empty() {
        return Ok(());
    }
    let used = used(request, quota, object);
    let over = |key: &&String| {
        let have = used.get(*key).map_or(0, |q| q.nanos());
        have + asked[*key].nanos() > hard[*key].nanos()
    };
    let exceeded: Vec<&String> = asked.keys().filter(over).collect();
    if exceeded.is_empty() {
        return Ok(());
    }
    let list = |of: &Amounts| {
        let one = |key: &&String| format!("{key}={}", of.get(*key).copied().unwrap_or(Quantity::ZERO));
        exceeded.iter().map(one).collect::<Vec<_>>().join(",")
    };
    let why = format!(
        "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
        list(&asked),
        list(&used),
        list(hard)
    );
    Err(request.forbidden(&why))
}

fn minus(a: Quantity, b: Option<&Quantity>) -> Quantity {
    let nanos = a.nanos() - b.map_or(0, |q| q.nanos());
    from_nanos(nanos, a)
}

fn from_nanos(nanos: i128, like: Quantity) -> Quantity {
    // Whole numbers keep the format they were written in, which is what messages show.
    if nanos % Quantity::from_units(1).nanos() == 0
        && like.format() == coracle_api::quantity::Format::BinarySi
        && let Ok(units) = i64::try_from(nanos / Quantity::from_units(1).nanos())
    {
        return Quantity::from_bytes(units);
    }
    format!("{nanos}n").parse().unwrap_or(like)
}

/// What the namespace holds of this resource already, without the object itself.
fn used(request: &Request, quota: &Object, object: &Object) -> Amounts {
    let full = format!("{}.{}", request.resource, request.group);
    let mut sum = Amounts::new();
    for present in request.read.list(&full, request.namespace) {
        let itself = request.operation == Operation::Create
            && present["metadata"]["name"] == object["metadata"]["name"];
        if itself || !in_scope(quota, request.resource, &present) {
            continue;
        }
        for (key, quantity) in usage(request.group, request.resource, &present) {
            let have = sum.get(&key).map_or(0, |q| q.nanos());
            sum.insert(key, from_nanos(have + quantity.nanos(), quantity));
        }
    }
    sum
}

/// What one object counts for.
fn usage(group: &str, resource: &str, object: &Object) -> Amounts {
    let one = Quantity::from_units(1);
    let mut usage = Amounts::new();
    let is_done = resource == "pods"
        && (object["status"]["phase"] == "Succeeded" || object["status"]["phase"] == "Failed");
    let count =
        if group.is_empty() { format!("count/{resource}") } else { format!("count/{resource}.{group}") };
    // A pod that has ended still is an object, but no longer a running pod.
    usage.insert(count, one);
    if !group.is_empty() || is_done {
        return usage;
    }
    if COUNTED.contains(&resource) {
        usage.insert(resource.to_owned(), one);
    }
    match resource {
        "pods" => pod_usage(object, &mut usage),
        "services" => service_usage(object, &mut usage),
        "persistentvolumeclaims" => claim_usage(object, &mut usage),
        _ => {}
    }
    usage
}

fn add(usage: &mut Amounts, key: &str, quantity: Quantity) {
    let have = usage.get(key).map_or(0, |q| q.nanos());
    usage.insert(key.to_owned(), from_nanos(have + quantity.nanos(), quantity));
}

fn pod_usage(pod: &Object, usage: &mut Amounts) {
    for (field, prefix) in [("requests", "requests."), ("limits", "limits.")] {
        let mut sum = Amounts::new();
        let init = items(&pod["spec"]["initContainers"]).iter();
        let (beside, before): (Vec<_>, Vec<_>) = init.partition(|c| c["restartPolicy"] == "Always");
        for container in items(&pod["spec"]["containers"]).iter().chain(beside) {
            for (key, quantity) in amounts(&container["resources"][field]) {
                add(&mut sum, &key, quantity);
            }
        }
        for container in before {
            for (key, quantity) in amounts(&container["resources"][field]) {
                let more = sum.get(&key).is_none_or(|have| have.nanos() < quantity.nanos());
                if more {
                    sum.insert(key, quantity);
                }
            }
        }
        for (key, quantity) in amounts(&pod["spec"]["overhead"]) {
            if sum.contains_key(&key) || field == "requests" {
                add(&mut sum, &key, quantity);
            }
        }
        for (key, quantity) in sum {
            if field == "requests" && matches!(key.as_str(), "cpu" | "memory" | "ephemeral-storage") {
                usage.insert(key.clone(), quantity);
            }
            usage.insert(format!("{prefix}{key}"), quantity);
        }
    }
}

fn service_usage(service: &Object, usage: &mut Amounts) {
    let ports = i64::try_from(items(&service["spec"]["ports"]).len()).unwrap_or(i64::MAX);
    let kind = service["spec"]["type"].as_str().unwrap_or_default();
    if kind == "LoadBalancer" {
        usage.insert("services.loadbalancers".to_owned(), Quantity::from_units(1));
    }
    let allocates = service["spec"]["allocateLoadBalancerNodePorts"] != false;
    if kind == "NodePort" || (kind == "LoadBalancer" && allocates) {
        usage.insert("services.nodeports".to_owned(), Quantity::from_units(ports));
    }
}

fn claim_usage(claim: &Object, usage: &mut Amounts) {
    let storage = claim["spec"]["resources"]["requests"]["storage"].as_str().and_then(|q| q.parse().ok());
    let class = claim["spec"]["storageClassName"].as_str().unwrap_or_default();
    let suffix = format!("{class}.storageclass.storage.k8s.io");
    if !class.is_empty() {
        usage.insert(format!("{suffix}/persistentvolumeclaims"), Quantity::from_units(1));
    }
    let Some(storage) = storage else { return };
    usage.insert("requests.storage".to_owned(), storage);
    if !class.is_empty() {
        usage.insert(format!("{suffix}/requests.storage"), storage);
    }
}

/// Compute resources that the quota limits and some container leaves open, as `cpu for: a,b`.
fn unspecified(hard: &Amounts, pod: &Object) -> Vec<String> {
    let mut lacking = Vec::new();
    for key in hard.keys() {
        let (field, resource) = match key.as_str() {
            "cpu" | "memory" => ("requests", key.as_str()),
            "requests.cpu" => ("requests", "cpu"),
            "requests.memory" => ("requests", "memory"),
            "limits.cpu" => ("limits", "cpu"),
            "limits.memory" => ("limits", "memory"),
            _ => continue,
        };
        let all = ["containers", "initContainers"].into_iter().flat_map(|list| items(&pod["spec"][list]));
        let open = all.filter(|c| c["resources"][field][resource].is_null());
        let names: Vec<&str> = open.filter_map(|c| c["name"].as_str()).collect();
        if !names.is_empty() {
            lacking.push(format!("{key} for: {}", names.join(",")));
        }
    }
    lacking
}

fn in_scope(quota: &Object, resource: &str, object: &Object) -> bool {
    let mut simple = items(&quota["spec"]["scopes"]).iter().filter_map(Value::as_str);
    let selector = items(&quota["spec"]["scopeSelector"]["matchExpressions"]);
    if resource != "pods" {
        return simple.next().is_none() && selector.is_empty();
    }
    simple.all(|scope| pod_in(scope, object))
        && selector.iter().all(|term| {
            let scope = term["scopeName"].as_str().unwrap_or_default();
            let class = object["spec"]["priorityClassName"].as_str().unwrap_or_default();
            let listed = || items(&term["values"]).iter().any(|v| v == class);
            match (scope, term["operator"].as_str()) {
                ("PriorityClass", Some("In")) => listed(),
                ("PriorityClass", Some("NotIn")) => !listed(),
                ("PriorityClass", Some("DoesNotExist")) => class.is_empty(),
                ("PriorityClass", _) => !class.is_empty(),
                _ => pod_in(scope, object),
            }
        })
}

fn pod_in(scope: &str, pod: &Object) -> bool {
    let terminating = pod["spec"]["activeDeadlineSeconds"].is_number();
    let asks = |c: &Value| {
        ["requests", "limits"].iter().any(|f| c["resources"][*f].as_object().is_some_and(|r| !r.is_empty()))
    };
    let best_effort =
        || !["containers", "initContainers"].into_iter().flat_map(|l| items(&pod["spec"][l])).any(asks);
    match scope {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => best_effort(),
        "NotBestEffort" => !best_effort(),
        "PriorityClass" => pod["spec"]["priorityClassName"].as_str().is_some_and(|c| !c.is_empty()),
        "CrossNamespacePodAffinity" => crosses_namespaces(&pod["spec"]["affinity"]),
        _ => false,
    }
}

fn crosses_namespaces(affinity: &Value) -> bool {
    let term = |t: &Value| !items(&t["namespaces"]).is_empty() || t["namespaceSelector"].is_object();
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let of = &affinity[*kind];
        items(&of["requiredDuringSchedulingIgnoredDuringExecution"]).iter().any(term)
            || items(&of["preferredDuringSchedulingIgnoredDuringExecution"])
                .iter()
                .any(|w| term(&w["podAffinityTerm"]))
    })
}

#[cfg(test)]
#[path = "resource_quota_tests.rs"]
mod tests;
