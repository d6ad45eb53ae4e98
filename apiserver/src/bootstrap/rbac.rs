//! The default roles and bindings, from the table of facts, and the few that are Coracle's own.

use super::{Keep, Wanted};
use coracle_access::authz::rules::Rule;
use coracle_api::Object;
use serde_json::{Value, json};

/// Made by `make-rbac-table`, whose head describes the form.
const TABLE: &str = include_str!("rbac.table");

const GROUP: &str = "rbac.authorization.k8s.io";
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
pub(super) const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// The role that lets controllers act as `system:kube-controller-manager`, as upstream's do where
/// `--use-service-account-credentials` is off: everything that any controller's own role allows.
const CONTROLLERS_ROLE: &str = "coracle:controller-manager";

pub(super) fn objects() -> Vec<Wanted> {
    let mut all: Vec<Wanted> = parse(TABLE);
    all.push(controllers_role(&all));
    all.extend(parse(OWN));
    aggregate(&mut all);
    all
}

/// Coracle's additions, in the table's form: cluster DNS watches Services and writes the endpoints of its own; the
/// metrics of nodes and pods are read by whom metrics-server would let read them; machines join by bootstrap tokens under
/// kubeadm's names and rights, nodes read what the cluster says of kubelets, and may have the certificates of their port and of their proxy; every node's
/// pod network knows pods and NetworkPolicies; administrators are kubeadm's group, and the API server is to kubelets somebody with upstream's role for that.
const OWN: &str = "\
B kubeadm:cluster-admins cluster-admin g:kubeadm:cluster-admins
B coracle:kubelet-api-admin system:kubelet-api-admin u:kube-apiserver-kubelet-client
C coracle:node-certificates
 create|certificates.k8s.io|certificatesigningrequests/selfnodeserver,certificatesigningrequests/nodeproxyclient
B coracle:node-certificates coracle:node-certificates g:system:nodes
C coracle:node-certificate-approval
 approve|certificates.k8s.io|signers|kubernetes.io/kubelet-serving,kubernetes.io/kube-apiserver-client
B coracle:node-certificate-approval coracle:node-certificate-approval s:kube-system/certificate-controller
C kubeadm:get-nodes
 get|-|nodes
B kubeadm:get-nodes kubeadm:get-nodes g:system:bootstrappers:kubeadm:default-node-token
B kubeadm:kubelet-bootstrap system:node-bootstrapper g:system:bootstrappers:kubeadm:default-node-token
B kubeadm:node-autoapprove-bootstrap system:certificates.k8s.io:certificatesigningrequests:nodeclient g:system:bootstrappers:kubeadm:default-node-token
B kubeadm:node-autoapprove-certificate-rotation system:certificates.k8s.io:certificatesigningrequests:selfnodeclient g:system:nodes
R kube-public/kubeadm:bootstrap-signer-clusterinfo
 get|-|configmaps|cluster-info
R kube-public/coracle:cluster-info
 get,list,watch|-|configmaps|cluster-info
N kube-public/coracle:cluster-info Role/coracle:cluster-info g:system:nodes
N kube-public/kubeadm:bootstrap-signer-clusterinfo Role/kubeadm:bootstrap-signer-clusterinfo u:system:anonymous
R kube-system/kube-proxy
 get,list,watch|-|configmaps|kube-proxy,coredns
N kube-system/kube-proxy Role/kube-proxy u:system:kube-proxy
R kube-system/kubeadm:kubelet-config
 get,list,watch|-|configmaps|kubelet-config
N kube-system/kubeadm:kubelet-config Role/kubeadm:kubelet-config g:system:nodes
C system:aggregated-metrics-reader +view +edit +admin
 get,list,watch|metrics.k8s.io|pods,nodes
B coracle:controller-manager coracle:controller-manager u:system:kube-controller-manager
C coracle:network-policies
 list,watch|-|pods,namespaces
 list,watch|networking.k8s.io|networkpolicies
 list,watch|policy.networking.k8s.io|adminnetworkpolicies,baselineadminnetworkpolicies,clusternetworkpolicies
 patch|policy.networking.k8s.io|adminnetworkpolicies/status,baselineadminnetworkpolicies/status,clusternetworkpolicies/status
 list,watch|apiextensions.k8s.io|customresourcedefinitions|adminnetworkpolicies.policy.networking.k8s.io,baselineadminnetworkpolicies.policy.networking.k8s.io,clusternetworkpolicies.policy.networking.k8s.io
B coracle:network-policies coracle:network-policies u:system:kube-proxy
C system:coredns
 list,watch|-|endpoints,services,pods,namespaces
 list,watch|discovery.k8s.io|endpointslices
 create,patch,update|-,events.k8s.io|events
B system:coredns system:coredns s:kube-system/coredns
R kube-system/system:coredns
 get,list,watch|-|configmaps
 create,get,list,patch,update,watch|-|endpoints
 create,get,list,patch,update,watch,delete|discovery.k8s.io|endpointslices
 create,get,patch,update|coordination.k8s.io|leases
N kube-system/system:coredns Role/system:coredns s:kube-system/coredns
";

fn parse(table: &str) -> Vec<Wanted> {
    let mut all: Vec<Wanted> = Vec::new();
    for line in table.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        if let Some(rule) = line.strip_prefix(' ') {
            let role = all.last_mut().and_then(|w| w.object["rules"].as_array_mut());
            if let Some(rules) = role {
                rules.push(parse_rule(rule));
            }
            continue;
        }
        let mut words = line.split(' ');
        let (kind, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        match kind {
            "C" => all.push(cluster_role(name, words)),
            "R" => all.push(role(name)),
            "B" => all.push(cluster_role_binding(name, words)),
            _ => all.push(role_binding(name, words)),
        }
    }
    all
}

fn list(text: &str) -> Vec<&str> {
    text.split(',').map(|item| if item == "-" { "" } else { item }).collect()
}

fn parse_rule(line: &str) -> Value {
    let mut parts = line.split('|');
    let verbs = list(parts.next().unwrap_or_default());
    let second = parts.next().unwrap_or_default();
    if let Some(paths) = second.strip_prefix('!') {
        return json!({ "verbs": verbs, "nonResourceURLs": list(paths) });
    }
    let resources = list(parts.next().unwrap_or_default());
    let mut rule = json!({ "verbs": verbs, "apiGroups": list(second), "resources": resources });
    if let Some(names) = parts.next() {
        rule["resourceNames"] = json!(list(names));
    }
    rule
}

fn object(kind: &str, namespace: &str, name: &str) -> Object {
    let mut object = json!({
        "apiVersion": API_VERSION, "kind": kind,
        "metadata": {
            "name": name,
            "annotations": { AUTOUPDATE: "true" },
            "labels": { "kubernetes.io/bootstrapping": "rbac-defaults" },
        },
    });
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

fn aggregate_label(name: &str) -> String {
    format!("{GROUP}/aggregate-to-{name}")
}

fn cluster_role<'a>(name: &str, marks: impl Iterator<Item = &'a str>) -> Wanted {
    let mut role = object("ClusterRole", "", name);
    role["rules"] = json!([]);
    for mark in marks {
        if let Some(label) = mark.strip_prefix('+') {
            role["metadata"]["labels"][aggregate_label(label)] = "true".into();
        } else if let Some(label) = mark.strip_prefix('<') {
            let selector = json!({ "matchLabels": { aggregate_label(label): "true" } });
            role["aggregationRule"] = json!({ "clusterRoleSelectors": [selector] });
        }
    }
    Wanted { resource: "clusterroles.rbac.authorization.k8s.io", object: role, keep: Keep::Rules }
}

fn split(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or(("", name))
}

fn role(name: &str) -> Wanted {
    let (namespace, name) = split(name);
    let mut role = object("Role", namespace, name);
    role["rules"] = json!([]);
    Wanted { resource: "roles.rbac.authorization.k8s.io", object: role, keep: Keep::Rules }
}

fn subject(text: &str) -> Value {
    let (kind, name) = text.split_once(':').unwrap_or_default();
    match kind {
        "u" => json!({ "apiGroup": GROUP, "kind": "User", "name": name }),
        "g" => json!({ "apiGroup": GROUP, "kind": "Group", "name": name }),
        _ => {
            let (namespace, name) = split(name);
            json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace })
        }
    }
}

fn binding<'a>(
    kind: &str,
    namespace: &str,
    name: &str,
    role: (&str, &str),
    subjects: impl Iterator<Item = &'a str>,
) -> Object {
    let mut binding = object(kind, namespace, name);
    binding["roleRef"] = json!({ "apiGroup": GROUP, "kind": role.0, "name": role.1 });
    let subjects: Vec<Value> = subjects.map(subject).collect();
    if !subjects.is_empty() {
        binding["subjects"] = subjects.into();
    }
    binding
}

fn cluster_role_binding<'a>(name: &str, mut words: impl Iterator<Item = &'a str>) -> Wanted {
    let role = words.next().unwrap_or_default();
    let object = binding("ClusterRoleBinding", "", name, ("ClusterRole", role), words);
    Wanted { resource: "clusterrolebindings.rbac.authorization.k8s.io", object, keep: Keep::Subjects }
}

fn role_binding<'a>(name: &str, mut words: impl Iterator<Item = &'a str>) -> Wanted {
    let (namespace, name) = split(name);
    let role = split(words.next().unwrap_or_default());
    let object = binding("RoleBinding", namespace, name, role, words);
    Wanted { resource: "rolebindings.rbac.authorization.k8s.io", object, keep: Keep::Subjects }
}

fn name_of(object: &Object) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn controllers_role(all: &[Wanted]) -> Wanted {
    let mut rules: Vec<Rule> = Vec::new();
    let controllers = all.iter().filter(|w| w.object["kind"] == "ClusterRole");
    for role in controllers.filter(|w| name_of(&w.object).starts_with("system:controller:")) {
        rules.extend(Rule::of_role(&role.object));
    }
    rules.sort();
    rules.dedup();
    let mut role = cluster_role(CONTROLLERS_ROLE, std::iter::empty());
    role.object["rules"] = rules.iter().map(Rule::to_json).collect();
    role
}

/// Fills the aggregated roles as the aggregation controller would: the rules of all selected roles in the order of their
/// names. Their own rules feed further ones (view into edit into admin), so it goes on until nothing changes.
fn aggregate(all: &mut [Wanted]) {
    loop {
        let mut changed = false;
        for i in 0..all.len() {
            let selectors = &all[i].object["aggregationRule"]["clusterRoleSelectors"];
            let Some(labels) = selectors[0]["matchLabels"].as_object().cloned() else { continue };
            let selected = |o: &Object| {
                o["kind"] == "ClusterRole" && labels.iter().all(|(k, v)| &o["metadata"]["labels"][k] == v)
            };
            let mut sources: Vec<&Object> = all.iter().map(|w| &w.object).filter(|o| selected(o)).collect();
            sources.sort_by_key(|o| name_of(o));
            let mut rules: Vec<Value> = Vec::new();
            for rule in sources.iter().flat_map(|o| o["rules"].as_array()).flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
            let rules = Value::from(rules);
            if all[i].object["rules"] != rules {
                all[i].object["rules"] = rules;
                changed = true;
            }
        }
        if !changed {
            return;
        }
    }
}
