//! What the client of a pod, or of something that makes pods, is warned of: fields that do nothing, contradict one
//! another, or are on their way out.

use super::super::rules;
use super::super::value::*;
use coracle_api::pod::restarts_as_sidecar;
use coracle_api::well_known;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// Annotations that lost their meaning.
const DEAD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

/// Volume plugins that are gone or going.
const DEAD_VOLUMES: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Labels of nodes that were renamed.
const OLD_LABELS: [(&str, &str); 8] = [
    (well_known::BETA_ARCH, "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    (well_known::BETA_OS, "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (well_known::BETA_REGION, "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"),
    (well_known::BETA_ZONE, "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

#[derive(Default)]
pub struct Notes {
    pub found: Vec<String>,
}

impl Notes {
    pub fn add(&mut self, path: &Path, text: &str) {
        self.found.push(format!("{path}: {text}"));
    }
}

/// `root` is where the pod or its template stands: empty for a pod.
pub fn of_pod(pod: &Value, root: &Path) -> Vec<String> {
    let mut notes = Notes::default();
    let (spec, path) = (at(pod, "spec"), root.field("spec"));
    placement(spec, &path, &mut notes);
    let annotations = root.field("metadata").field("annotations");
    for (key, text) in DEAD_ANNOTATIONS {
        if !at(pod, "metadata.annotations")[key].is_null() {
            notes.add(&annotations.key(key), text);
        }
    }
    volumes(spec, &path, &mut notes);
    lists(spec, &path, &mut notes);
    for name in ["memory", "ephemeral-storage"] {
        fraction(at(spec, "overhead"), name, &path.field("overhead"), &mut notes);
    }
    profiles(pod, root, &mut notes);
    let mut ports: BTreeMap<String, Vec<(Path, &Value)>> = BTreeMap::new();
    for (container, here) in containers(spec, &path) {
        for (kind, amounts) in entries_at(container, "resources") {
            for name in ["memory", "ephemeral-storage"] {
                fraction(amounts, name, &here.field("resources").field(kind), &mut notes);
            }
        }
        variables(container, &here, &mut notes);
        self::ports(container, &here, &mut ports, &mut notes);
    }
    port_names(spec, &path, &mut notes);
    if i64_at(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        let text = "must be >= 0; negative values are invalid and will be treated as 1";
        notes.add(&path.field("terminationGracePeriodSeconds"), text);
    }
    notes.found
}

fn containers<'a>(spec: &'a Value, path: &Path) -> Vec<(&'a Value, Path)> {
    let of = |list: &'static str| {
        let here = path.field(list);
        list_at(spec, list).iter().enumerate().map(move |(i, c)| (c, here.index(i)))
    };
    of("initContainers").chain(of("containers")).chain(of("ephemeralContainers")).collect()
}

/// What to say of a label of nodes that is on its way out.
pub fn old_label(key: &str) -> Option<&'static str> {
    OLD_LABELS.iter().find(|(old, _)| *old == key).map(|(_, text)| *text)
}

fn placement(spec: &Value, path: &Path, notes: &mut Notes) {
    for (key, _) in entries_at(spec, "nodeSelector") {
        if let Some(text) = old_label(key) {
            notes.add(&path.field("nodeSelector").key(key), text);
        }
    }
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let affinity = path.field("affinity");
    let nodes = affinity.field("nodeAffinity");
    let terms = nodes.field(REQUIRED).field("nodeSelectorTerms");
    let required = list_at(
        at(spec, "affinity.nodeAffinity"),
        "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
    );
    for (i, term) in required.iter().enumerate() {
        node_term(term, &terms.index(i), notes);
    }
    for (i, term) in list_at(at(spec, "affinity.nodeAffinity"), PREFERRED).iter().enumerate() {
        node_term(at(term, "preference"), &nodes.field(PREFERRED).index(i).field("preference"), notes);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (of, here) = (at(at(spec, "affinity"), kind), affinity.field(kind));
        for (i, term) in list_at(of, REQUIRED).iter().enumerate() {
            pod_term(term, &here.field(REQUIRED).index(i), notes);
        }
        for (i, term) in list_at(of, PREFERRED).iter().enumerate() {
            pod_term(
                at(term, "podAffinityTerm"),
                &here.field(PREFERRED).index(i).field("podAffinityTerm"),
                notes,
            );
        }
    }
    for (i, constraint) in list_at(spec, "topologySpreadConstraints").iter().enumerate() {
        let here = path.field("topologySpreadConstraints").index(i);
        let key = str_at(constraint, "topologyKey");
        if let Some(text) = old_label(key) {
            notes.add(&here.field("topologyKey"), &format!("{key} is {text}"));
        }
        no_selector(constraint, &here, notes);
    }
}

/// Of a node selector.
pub fn node_term(term: &Value, path: &Path, notes: &mut Notes) {
    for (i, requirement) in list_at(term, "matchExpressions").iter().enumerate() {
        let key = str_at(requirement, "key");
        if let Some(text) = old_label(key) {
            notes.add(&path.field("matchExpressions").index(i).field("key"), &format!("{key} is {text}"));
        }
    }
}

fn pod_term(term: &Value, path: &Path, notes: &mut Notes) {
    let key = str_at(term, "topologyKey");
    if let Some(text) = old_label(key) {
        notes.add(&path.field("topologyKey"), &format!("{key} is {text}"));
    }
    no_selector(term, path, notes);
}

fn no_selector(holder: &Value, path: &Path, notes: &mut Notes) {
    if !has(holder, "labelSelector") {
        notes.add(&path.field("labelSelector"), "a null labelSelector results in matching no pod");
    }
}

fn volumes(spec: &Value, path: &Path, notes: &mut Notes) {
    let volumes = path.field("volumes");
    for (i, volume) in list_at(spec, "volumes").iter().enumerate() {
        for (kind, text) in DEAD_VOLUMES {
            if has(volume, kind) {
                let shown = if kind == "storageos" { "storageOS" } else { kind };
                notes.add(&volumes.index(i).field(shown), text);
            }
        }
        let claim = volumes.index(i).field("ephemeral").field("volumeClaimTemplate").field("spec");
        let requests = at(volume, "ephemeral.volumeClaimTemplate.spec.resources.requests");
        fraction(requests, "storage", &claim.field("resources").field("requests"), notes);
        let sources = list_at(volume, "projected.sources");
        let tokens: HashSet<&str> =
            sources.iter().map(|s| str_at(s, "serviceAccountToken.path")).filter(|p| !p.is_empty()).collect();
        for source in sources.iter().filter(|_| !tokens.is_empty()) {
            for (field, shown) in
                [("configMap", "configMap"), ("secret", "secrets"), ("downwardAPI", "downwardAPI")]
            {
                for (j, item) in list_at(at(source, field), "items").iter().enumerate() {
                    let taken = str_at(item, "path");
                    if tokens.contains(taken) {
                        let here = volumes.index(i).field("projected").field("sources").field(shown).index(j);
                        let text = format!("has duplicated path with ServiceAccountToken \"{taken}\"");
                        notes.add(&here, &text);
                    }
                }
            }
        }
    }
}

fn lists(spec: &Value, path: &Path, notes: &mut Notes) {
    for (list, field) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let mut seen = HashSet::new();
        for (i, item) in list_at(spec, list).iter().enumerate() {
            let (value, here) = (str_at(item, field), path.field(list).index(i).field(field));
            if !seen.insert(value) {
                notes.add(&here, &format!("duplicate {field} \"{value}\""));
            }
            if field == "name" && value.is_empty() {
                notes.add(&here, "invalid empty name \"\"");
            }
            if field == "ip" {
                notes.found.extend(rules::ip_warning(value, &here));
            }
        }
    }
    let here = path.field("dnsConfig").field("nameservers");
    let servers = strings_at(spec, "dnsConfig.nameservers").enumerate();
    notes.found.extend(servers.filter_map(|(i, ip)| rules::ip_warning(ip, &here.index(i))));
}

/// An amount of bytes that is not a whole number of them.
pub fn fraction(amounts: &Value, name: &str, path: &Path, notes: &mut Notes) {
    let Some(value) = amounts.get(name) else { return };
    if let Some(quantity) = rules::parse_quantity(value).filter(|q| q.milli() % 1000 != 0) {
        let text = format!("fractional byte value \"{quantity}\" is invalid, must be an integer");
        notes.add(&path.key(name), &text);
    }
}

/// Profiles that are asked for by annotation only.
fn profiles(pod: &Value, root: &Path, notes: &mut Notes) {
    let annotations = root.field("metadata").field("annotations");
    let noted = |key: &str| !at(pod, "metadata.annotations")[key].is_null();
    let text = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
    let key = "seccomp.security.alpha.kubernetes.io/pod";
    if !has(pod, "spec.securityContext.seccompProfile") && noted(key) {
        notes.add(&annotations.key(key), text);
    }
    for (container, _) in containers(at(pod, "spec"), root) {
        let name = str_at(container, "name");
        let key = format!("container.seccomp.security.alpha.kubernetes.io/{name}");
        if !has(container, "securityContext.seccompProfile") && noted(&key) {
            notes.add(&annotations.key(&key), text);
        }
        let key = format!("container.apparmor.security.beta.kubernetes.io/{name}");
        let profile = has(pod, "spec.securityContext.appArmorProfile")
            || has(container, "securityContext.appArmorProfile");
        if !profile && noted(&key) {
            let text = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
            notes.add(&annotations.key(&key), text);
        }
    }
}

/// A later variable of the same name is fine where it builds on the earlier one.
fn variables(container: &Value, path: &Path, notes: &mut Notes) {
    let mut seen = HashSet::new();
    for (i, variable) in list_at(container, "env").iter().enumerate() {
        let (name, value) = (str_at(variable, "name"), str_at(variable, "value"));
        let reference = format!("$({name})");
        let builds = !has(variable, "valueFrom") && value != reference && value.contains(&reference);
        if !seen.insert(name) && !builds {
            let text =
                format!("hides previous definition of \"{name}\", which may be dropped when using apply");
            notes.add(&path.field("env").index(i), &text);
        }
    }
}

/// A port as upstream prints the struct.
fn port_shown(port: &Value) -> String {
    let number = |field: &str| i64_at(port, field).unwrap_or(0);
    let (name, protocol, ip) = (str_at(port, "name"), str_at(port, "protocol"), str_at(port, "hostIP"));
    let (host, container) = (number("hostPort"), number("containerPort"));
    format!("{{Name:{name} HostPort:{host} ContainerPort:{container} Protocol:{protocol} HostIP:{ip}}}")
}

/// Of the containers that run together, one name is one port: the first that has it.
fn port_names(spec: &Value, path: &Path, notes: &mut Notes) {
    let mut names: BTreeMap<&str, Path> = BTreeMap::new();
    let sidecar = |container: &Value| restarts_as_sidecar(container["restartPolicy"].as_str());
    for (list, all) in [("initContainers", false), ("containers", true)] {
        for (i, container) in list_at(spec, list).iter().enumerate().filter(|(_, c)| all || sidecar(c)) {
            for (j, port) in list_at(container, "ports").iter().enumerate() {
                let (name, here) = (str_at(port, "name"), path.field(list).index(i).field("ports").index(j));
                if name.is_empty() {
                    continue;
                }
                match names.get(name) {
                    Some(first) => {
                        let text = format!(
                            "duplicate port name {name:?} with {first}, services and probes that select ports by name will use {first}"
                        );
                        notes.add(&here, &text);
                    }
                    None => drop(names.insert(name, here)),
                }
            }
        }
    }
}

fn ports<'a>(
    container: &'a Value,
    path: &Path,
    all: &mut BTreeMap<String, Vec<(Path, &'a Value)>>,
    notes: &mut Notes,
) {
    let host = |port: &Value| i64_at(port, "hostPort").unwrap_or(0);
    for (i, port) in list_at(container, "ports").iter().enumerate() {
        let here = path.field("ports").index(i);
        if !str_at(port, "hostIP").is_empty() && host(port) == 0 {
            notes.add(&here, &format!("hostIP set without hostPort: {}", port_shown(port)));
        }
        let key = format!("{}/{}", i64_at(port, "containerPort").unwrap_or(0), str_at(port, "protocol"));
        let others = all.entry(key).or_default();
        for (there, other) in others.iter() {
            let same_ip = str_at(port, "hostIP") == str_at(other, "hostIP");
            if same_ip && host(port) == host(other) {
                notes.add(&here, &format!("duplicate port definition with {there}"));
            } else if host(port) == 0 || host(other) == 0 {
                notes.add(&here, &format!("overlapping port definition with {there}"));
            } else {
                let any = |p: &Value| matches!(str_at(p, "hostIP"), "" | "0.0.0.0" | "::");
                if host(port) == host(other) && (any(port) || any(other)) {
                    notes.add(&here, &format!("dangerously ambiguous port definition with {there}"));
                }
            }
        }
        others.push((here, port));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(pod: Value) -> Vec<String> {
        of_pod(&pod, &Path::root(""))
    }

    #[test]
    fn a_plain_pod_is_no_matter() {
        assert!(
            of(json!({ "spec": { "containers": [{ "name": "c", "env": [{ "name": "A" }] }] } })).is_empty()
        );
    }

    #[test]
    fn what_hides_or_overlaps() {
        let container = json!({
            "name": "c",
            "env": [{ "name": "A", "value": "x" }, { "name": "A", "value": "$(A)y" }, { "name": "A", "value": "z" }],
            "ports": [
                { "containerPort": 80, "protocol": "TCP" }, { "containerPort": 80, "protocol": "TCP" },
                { "containerPort": 80, "protocol": "TCP", "hostPort": 80 },
            ],
            "resources": { "limits": { "memory": "1m" } },
        });
        assert_eq!(
            of(json!({ "spec": { "containers": [container] } })),
            [
                "spec.containers[0].resources.limits[memory]: fractional byte value \"1m\" is invalid, must be an integer",
                "spec.containers[0].env[2]: hides previous definition of \"A\", which may be dropped when using apply",
                "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
                "spec.containers[0].ports[2]: overlapping port definition with spec.containers[0].ports[0]",
                "spec.containers[0].ports[2]: overlapping port definition with spec.containers[0].ports[1]",
            ]
        );
    }

    #[test]
    fn names_of_ports_are_of_the_pod() {
        let container = |name: &str, port: &str| json!({ "name": name, "ports": [{ "name": port, "containerPort": 1, "hostIP": "1.2.3.4" }] });
        let mut sidecar = container("s", "a");
        sidecar["restartPolicy"] = "Always".into();
        let spec =
            json!({ "initContainers": [container("i", "a"), sidecar], "containers": [container("c", "a")] });
        let found = of(json!({ "spec": spec }));
        assert_eq!(
            found.last().unwrap(),
            "spec.containers[0].ports[0]: duplicate port name \"a\" with spec.initContainers[1].ports[0], services and probes that select ports by name will use spec.initContainers[1].ports[0]"
        );
        assert_eq!(
            found[0],
            "spec.initContainers[0].ports[0]: hostIP set without hostPort: {Name:a HostPort:0 ContainerPort:1 Protocol: HostIP:1.2.3.4}"
        );
    }

    #[test]
    fn what_is_deprecated_in_a_template() {
        let template = json!({
            "metadata": { "annotations": { "scheduler.alpha.kubernetes.io/critical-pod": "" } },
            "spec": {
                "nodeSelector": { "beta.kubernetes.io/os": "linux" },
                "topologySpreadConstraints": [{ "topologyKey": "zone" }],
                "volumes": [{ "name": "v", "gitRepo": {} }],
                "imagePullSecrets": [{ "name": "a" }, { "name": "a" }],
                "terminationGracePeriodSeconds": -1,
            },
        });
        assert_eq!(
            of_pod(&template, &Path::root("spec").field("template")),
            [
                "spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
                "spec.template.spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
                "spec.template.metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; \
                 use the \"priorityClassName\" field instead",
                "spec.template.spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
                "spec.template.spec.imagePullSecrets[1].name: duplicate name \"a\"",
                "spec.template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
            ]
        );
    }
}
