//! What of the machine is kept from pods
//! (<https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/>).

use super::documents::Written;
use super::reader::Reader;
use coracle_api::quantity::Quantity;
use serde_json::{Map, Value, json};

/// So much of each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    pub cpu_millis: u64,
    pub memory_bytes: u64,
    pub ephemeral_storage_bytes: u64,
    /// Processes and threads; `None` where nobody says.
    pub pids: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// For what is neither a pod nor of Kubernetes.
    pub system: Amounts,
    /// For Kubernetes' own processes on the node.
    pub kube: Amounts,
    /// Whether pods together are limited to what is left.
    pub enforce_pods: bool,
    /// The cgroup of the system's processes, where it is to be limited to what is reserved for them.
    pub system_cgroup: Option<String>,
    /// Likewise of Kubernetes' own.
    pub kube_cgroup: Option<String>,
}

impl Default for Reserved {
    fn default() -> Self {
        Self {
            system: Amounts::default(),
            kube: Amounts::default(),
            enforce_pods: true,
            system_cgroup: None,
            kube_cgroup: None,
        }
    }
}

impl Reserved {
    pub fn read(reader: &mut Reader<'_>) -> Self {
        const ENFORCE: &str = "enforceNodeAllocatable";
        let words: Vec<String> = reader.get(ENFORCE).unwrap_or_else(|| vec!["pods".to_owned()]);
        for word in &words {
            if !matches!(word.as_str(), "none" | "pods" | "system-reserved" | "kube-reserved") {
                reader.mistake(
                    ENFORCE,
                    format!("{word:?} is unknown, known are none, pods, system-reserved, kube-reserved"),
                );
            }
        }
        let has = |wanted: &str| words.iter().any(|word| word == wanted);
        if has("none") && words.len() > 1 {
            reader.mistake(ENFORCE, "beside \"none\" there can be nothing");
        }
        let mut cgroup = |word: &str, field: &str| {
            let named = reader.text(field).map(|name| format!("/{}", name.trim_matches('/')));
            if has(word) && named.is_none() {
                reader.mistake(field, format!("{word:?} in {ENFORCE} needs it"));
            }
            named.filter(|_| has(word))
        };
        Self {
            system_cgroup: cgroup("system-reserved", "systemReservedCgroup"),
            kube_cgroup: cgroup("kube-reserved", "kubeReservedCgroup"),
            enforce_pods: has("pods"),
            system: amounts(reader, "systemReserved"),
            kube: amounts(reader, "kubeReserved"),
        }
    }

    pub fn show(&self, all: &mut Written) {
        all.insert("systemReserved".to_owned(), self.system.show());
        all.insert("kubeReserved".to_owned(), self.kube.show());
        let mut enforce = Vec::new();
        enforce.extend(self.enforce_pods.then_some("pods"));
        let cgroups = [
            ("system-reserved", "systemReservedCgroup", &self.system_cgroup),
            ("kube-reserved", "kubeReservedCgroup", &self.kube_cgroup),
        ];
        for (word, field, cgroup) in cgroups {
            if let Some(cgroup) = cgroup {
                enforce.push(word);
                all.insert(field.to_owned(), json!(cgroup));
            }
        }
        if enforce.is_empty() {
            enforce.push("none");
        }
        all.insert("enforceNodeAllocatable".to_owned(), json!(enforce));
    }

    /// CPUs by name are what is reserved, whatever is said of amounts.
    pub fn take_cpus(&mut self, count: usize) {
        self.system.cpu_millis = u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(1000);
        self.kube.cpu_millis = 0;
    }

    /// Both together.
    pub fn all(&self) -> Amounts {
        let (one, other) = (&self.system, &self.kube);
        Amounts {
            cpu_millis: one.cpu_millis.saturating_add(other.cpu_millis),
            memory_bytes: one.memory_bytes.saturating_add(other.memory_bytes),
            ephemeral_storage_bytes: one
                .ephemeral_storage_bytes
                .saturating_add(other.ephemeral_storage_bytes),
            pids: match (one.pids, other.pids) {
                (None, None) => None,
                (one, other) => Some(one.unwrap_or(0).saturating_add(other.unwrap_or(0))),
            },
        }
    }
}

fn amounts(reader: &mut Reader<'_>, field: &str) -> Amounts {
    let written: Map<String, Value> = reader.get(field).unwrap_or_default();
    let mut all = Amounts::default();
    for name in written.keys() {
        let path = format!("{field}.{name}");
        if !matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage" | "pid") {
            reader.mistake(&path, "only cpu, memory, ephemeral-storage and pid can be reserved");
            continue;
        }
        let Some(amount) = reader.quantity(&path) else { continue };
        let units = u64::try_from(amount.units()).unwrap_or(u64::MAX);
        match name.as_str() {
            "cpu" => all.cpu_millis = u64::try_from(amount.milli()).unwrap_or(u64::MAX),
            "memory" => all.memory_bytes = units,
            "ephemeral-storage" => all.ephemeral_storage_bytes = units,
            _ => all.pids = Some(units),
        }
    }
    all
}

impl Amounts {
    fn show(&self) -> Value {
        let whole = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        let bytes = |amount: u64| (amount > 0).then(|| Quantity::from_bytes(whole(amount)).to_string());
        let cpu = (self.cpu_millis > 0).then(|| Quantity::from_milli(whole(self.cpu_millis)).to_string());
        let entries = [
            ("cpu", cpu),
            ("memory", bytes(self.memory_bytes)),
            ("ephemeral-storage", bytes(self.ephemeral_storage_bytes)),
            ("pid", self.pids.map(|pids| pids.to_string())),
        ];
        let entries =
            entries.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), json!(amount?))));
        Value::Object(entries.collect())
    }
}
