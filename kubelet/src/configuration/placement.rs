//! Which containers get CPUs and memory of their own, and what has to be near to what
//! (<https://kubernetes.io/docs/concepts/policy/node-resource-managers/>).

use super::documents::Written;
use super::reader::Reader;
use crate::placement::CpuSet;
use crate::placement::cpus::Options;
use crate::placement::memory::Amounts;
use crate::placement::settings::Settings;
use crate::placement::topology::{self, Policy, Scope};
use coracle_api::duration::written;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const CPU_OPTIONS: &str = "cpuManagerPolicyOptions";
const TOPOLOGY_OPTIONS: &str = "topologyManagerPolicyOptions";
const RESERVED_MEMORY: &str = "reservedMemory";

const CPU_POLICIES: [(&str, bool); 3] = [("none", false), ("static", true), ("None", false)];
const MEMORY_POLICIES: [(&str, bool); 3] = [("None", false), ("Static", true), ("none", false)];
const POLICIES: [(&str, Policy); 4] = [
    ("none", Policy::None),
    ("best-effort", Policy::BestEffort),
    ("restricted", Policy::Restricted),
    ("single-numa-node", Policy::SingleNumaNode),
];
const SCOPES: [(&str, Scope); 2] = [("container", Scope::Container), ("pod", Scope::Pod)];

/// Upstream's names of the options.
const CLOSEST: &str = "prefer-closest-numa-nodes";
const MOST_NODES: &str = "max-allowable-numa-nodes";

/// Options that are on or off, by their names.
fn flags(options: &mut Options) -> [(&'static str, &mut bool); 6] {
    [
        ("full-pcpus-only", &mut options.full_pcpus_only),
        ("distribute-cpus-across-numa", &mut options.distribute_cpus_across_numa),
        ("align-by-socket", &mut options.align_by_socket),
        ("distribute-cpus-across-cores", &mut options.distribute_cpus_across_cores),
        ("strict-cpu-reservation", &mut options.strict_cpu_reservation),
        ("prefer-align-cpus-by-uncorecache", &mut options.prefer_align_cpus_by_uncorecache),
    ]
}

/// Options that cannot be had together; upstream's.
const APART: [(&str, &str); 4] = [
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReservedMemory {
    numa_node: u32,
    limits: BTreeMap<String, Value>,
}

pub fn read(reader: &mut Reader<'_>) -> Settings {
    let all = Settings::default();
    let is_static = reader.word("cpuManagerPolicy", &CPU_POLICIES).unwrap_or(false);
    let topology = topology(reader);
    let options = cpu_options(reader, is_static, &topology);
    let parse = |text: &str| CpuSet::parse(text).filter(|set| !set.is_empty());
    let reserved_cpus = reader.parsed("reservedSystemCPUs", parse, "no list of CPUs such as 0-1,4");
    for cgroup in ["systemReservedCgroup", "kubeReservedCgroup"] {
        if reserved_cpus.is_some() && reader.text(cgroup).is_some() {
            reader.mistake("reservedSystemCPUs", format!("it cannot be had together with {cgroup}"));
        }
    }
    let memory = reader.word("memoryManagerPolicy", &MEMORY_POLICIES).unwrap_or(false);
    Settings {
        cpus: is_static.then_some(options),
        reserved_cpus,
        reconcile: reader.duration("cpuManagerReconcilePeriod").unwrap_or(all.reconcile),
        memory,
        reserved_memory: reserved_memory(reader, memory),
        topology,
    }
}

fn options(reader: &mut Reader<'_>, field: &str) -> BTreeMap<String, String> {
    reader.get(field).unwrap_or_default()
}

fn cpu_options(reader: &mut Reader<'_>, is_static: bool, topology: &topology::Settings) -> Options {
    let written = options(reader, CPU_OPTIONS);
    let mut read = Options::default();
    for (name, value) in &written {
        let mut flags = flags(&mut read);
        match flags.iter_mut().find(|(known, _)| known == name) {
            None => reader.mistake(CPU_OPTIONS, format!("unknown option {name:?}")),
            Some((_, flag)) => match value.parse() {
                Ok(on) => **flag = on,
                Err(_) => reader.mistake(CPU_OPTIONS, format!("{name}: {value:?} is neither true nor false")),
            },
        }
    }
    if !written.is_empty() && !is_static {
        reader.mistake(CPU_OPTIONS, "only cpuManagerPolicy static has options");
    }
    let on = |wanted: &str| {
        let mut copy = read;
        flags(&mut copy).iter().any(|(name, flag)| *name == wanted && **flag)
    };
    for (one, other) in APART.into_iter().filter(|(one, other)| on(one) && on(other)) {
        reader.mistake(CPU_OPTIONS, format!("{one} and {other} can not be used at the same time"));
    }
    if read.align_by_socket && topology.policy == Policy::SingleNumaNode {
        reader.mistake(
            CPU_OPTIONS,
            "align-by-socket cannot be had with topologyManagerPolicy single-numa-node",
        );
    }
    read
}

fn topology(reader: &mut Reader<'_>) -> topology::Settings {
    let mut all = topology::Settings {
        policy: reader.word("topologyManagerPolicy", &POLICIES).unwrap_or_default(),
        scope: reader.word("topologyManagerScope", &SCOPES).unwrap_or_default(),
        ..topology::Settings::default()
    };
    let written = options(reader, TOPOLOGY_OPTIONS);
    for (name, value) in &written {
        let bad = match name.as_str() {
            CLOSEST => value.parse().map(|on| all.closest = on).is_err(),
            // Their sets are counted in 16 bits.
            MOST_NODES => match value.parse() {
                Ok(most @ 8..=16) => {
                    all.most_nodes = most;
                    false
                }
                _ => true,
            },
            _ => {
                reader.mistake(TOPOLOGY_OPTIONS, format!("unknown option {name:?}"));
                false
            }
        };
        if bad {
            reader.mistake(TOPOLOGY_OPTIONS, format!("{name}: {value:?} cannot be had"));
        }
    }
    if !written.is_empty() && all.policy == Policy::None {
        reader.mistake(TOPOLOGY_OPTIONS, "topologyManagerPolicy none has no options");
    }
    all
}

fn reserved_memory(reader: &mut Reader<'_>, is_static: bool) -> BTreeMap<u32, Amounts> {
    let written: Vec<ReservedMemory> = reader.get(RESERVED_MEMORY).unwrap_or_default();
    let mut all: BTreeMap<u32, Amounts> = BTreeMap::new();
    for ReservedMemory { numa_node, limits } in &written {
        let node = all.entry(*numa_node).or_default();
        if limits.is_empty() {
            reader.mistake(RESERVED_MEMORY, format!("NUMA node {numa_node} has no limits"));
        }
        for (kind, amount) in limits {
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            let bytes =
                text.parse::<coracle_api::Quantity>().ok().and_then(|q| u64::try_from(q.units()).ok());
            match bytes.filter(|bytes| *bytes > 0) {
                _ if kind != "memory" && !kind.starts_with("hugepages-") => {
                    reader.mistake(RESERVED_MEMORY, format!("{kind:?} is neither memory nor hugepages-"));
                }
                None => reader.mistake(RESERVED_MEMORY, format!("{text:?} is no quantity above zero")),
                Some(bytes) => {
                    if node.insert(kind.clone(), bytes).is_some() {
                        reader.mistake(
                            RESERVED_MEMORY,
                            format!("{kind} of NUMA node {numa_node} stands twice"),
                        );
                    }
                }
            }
        }
    }
    if is_static && written.is_empty() {
        reader.mistake(RESERVED_MEMORY, "memoryManagerPolicy Static needs it");
    }
    if !is_static && !written.is_empty() {
        reader.mistake(RESERVED_MEMORY, "only memoryManagerPolicy Static takes it");
    }
    all
}

fn word<T: PartialEq>(words: &'static [(&'static str, T)], value: &T) -> Value {
    words.iter().find(|(_, known)| known == value).map_or(Value::Null, |(word, _)| json!(word))
}

pub fn show(settings: &Settings, all: &mut Written) {
    let topology = &settings.topology;
    let options = settings.cpus.map(|mut options| {
        let on = flags(&mut options).into_iter().filter(|(_, on)| **on);
        on.map(|(name, _)| (name, "true")).collect::<BTreeMap<_, _>>()
    });
    let mut of_topology = BTreeMap::new();
    if topology.closest {
        of_topology.insert(CLOSEST, "true".to_owned());
    }
    if topology.most_nodes != topology::Settings::default().most_nodes {
        of_topology.insert(MOST_NODES, topology.most_nodes.to_string());
    }
    let bytes = |amounts: &Amounts| -> BTreeMap<String, String> {
        let amount = |bytes: u64| coracle_api::Quantity::from_bytes(i64::try_from(bytes).unwrap_or(i64::MAX));
        amounts.iter().map(|(kind, bytes)| (kind.clone(), amount(*bytes).to_string())).collect()
    };
    let reserved: Vec<Value> = settings
        .reserved_memory
        .iter()
        .map(|(node, amounts)| json!({ "numaNode": node, "limits": bytes(amounts) }))
        .collect();
    let entries = [
        ("cpuManagerPolicy", word(&CPU_POLICIES, &settings.cpus.is_some())),
        (CPU_OPTIONS, json!(options.filter(|options| !options.is_empty()))),
        ("cpuManagerReconcilePeriod", json!(written(settings.reconcile))),
        ("memoryManagerPolicy", word(&MEMORY_POLICIES, &settings.memory)),
        (RESERVED_MEMORY, if reserved.is_empty() { Value::Null } else { json!(reserved) }),
        ("reservedSystemCPUs", json!(settings.reserved_cpus)),
        ("topologyManagerPolicy", word(&POLICIES, &topology.policy)),
        ("topologyManagerScope", word(&SCOPES, &topology.scope)),
        (TOPOLOGY_OPTIONS, if of_topology.is_empty() { Value::Null } else { json!(of_topology) }),
    ];
    all.extend(entries.map(|(name, value)| (name.to_owned(), value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(written: Value) -> Result<Settings, String> {
        let written: Written = serde_json::from_value(written).unwrap();
        let mut reader = Reader::new(&written);
        let read = read(&mut reader);
        if reader.mistakes.is_empty() { Ok(read) } else { Err(reader.mistakes.join("\n")) }
    }

    #[test]
    fn what_is_read_is_shown_again() {
        let written = json!({
            "cpuManagerPolicy": "static", "cpuManagerReconcilePeriod": "5s", "reservedSystemCPUs": "0-1",
            "cpuManagerPolicyOptions": { "full-pcpus-only": "true", "strict-cpu-reservation": "true" },
            "memoryManagerPolicy": "Static", "topologyManagerPolicy": "restricted", "topologyManagerScope": "pod",
            "topologyManagerPolicyOptions": { "prefer-closest-numa-nodes": "true", "max-allowable-numa-nodes": "12" },
            "reservedMemory": [{ "numaNode": 0, "limits": { "memory": "1Gi" } }],
        });
        let read = settings(written.clone()).unwrap();
        assert!(read.cpus.unwrap().full_pcpus_only && read.topology.closest);
        let mut all = Written::new();
        show(&read, &mut all);
        assert_eq!(Value::Object(all), written);
        assert_eq!(settings(json!({})).unwrap(), Settings::default());
    }

    #[test]
    fn what_cannot_be_had_together_is_named() {
        let mistakes = settings(json!({
            "cpuManagerPolicy": "static", "reservedSystemCPUs": "0-", "kubeReservedCgroup": "/kube",
            "cpuManagerPolicyOptions": { "full-pcpus-only": "true", "distribute-cpus-across-cores": "true",
                "align-by-socket": "maybe", "whole": "true" },
            "memoryManagerPolicy": "Some", "topologyManagerPolicyOptions": { "max-allowable-numa-nodes": "7", "x": "" },
            "reservedMemory": [{ "numaNode": 0, "limits": { "cpu": "1", "memory": "0" } }, { "numaNode": 1, "limits": {} }],
        }));
        let mistakes = mistakes.unwrap_err();
        for word in [
            "full-pcpus-only and distribute-cpus-across-cores can not be used at the same time",
            "align-by-socket: \"maybe\"",
            "unknown option \"whole\"",
            "reservedSystemCPUs: \"0-\"",
            "memoryManagerPolicy: \"Some\"",
            "max-allowable-numa-nodes: \"7\"",
            "unknown option \"x\"",
            "topologyManagerPolicy none has no options",
            "\"cpu\" is neither memory",
            "\"0\" is no quantity",
            "NUMA node 1 has no limits",
            "only memoryManagerPolicy Static takes it",
        ] {
            assert!(mistakes.contains(word), "{word} is missing from {mistakes}");
        }
        let one = |written| settings(written).unwrap_err();
        assert!(one(json!({ "memoryManagerPolicy": "Static" })).contains("Static needs it"));
        assert!(
            one(json!({ "reservedSystemCPUs": "0", "kubeReservedCgroup": "/k" })).contains("together with")
        );
        let socket = json!({ "cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node",
            "cpuManagerPolicyOptions": { "align-by-socket": "true" } });
        assert!(one(socket).contains("align-by-socket cannot be had"));
        let none = one(json!({ "cpuManagerPolicyOptions": { "full-pcpus-only": "false" } }));
        assert!(none.contains("only cpuManagerPolicy static"), "{none}");
    }
}
