//! The machine's CPUs and memory, as the kernel shows them in /sys.

use super::CpuSet;
use super::hints::Mask;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Where a CPU is. A core and a cache go by their first CPU's number, so that no two of a machine are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    pub core: u32,
    pub socket: u32,
    pub node: u32,
    /// The last-level cache that it shares.
    pub cache: u32,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub memory_bytes: u64,
    /// Preallocated huge pages in bytes, by resource: `hugepages-2Mi`.
    pub hugepages: BTreeMap<String, u64>,
    /// To each node, by its number.
    pub distances: BTreeMap<u32, u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Those that are online.
    pub cpus: BTreeMap<u32, Cpu>,
    pub nodes: BTreeMap<u32, Node>,
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

fn set(path: &Path) -> Option<CpuSet> {
    CpuSet::parse(&text(path)?)
}

impl Machine {
    /// `sys` is where sysfs is mounted. `cpus` and `memory_bytes` are the machine's as a whole, for kernels that do not say
    /// where they are: then they are all on node 0.
    pub fn read(sys: &Path, cpus: u32, memory_bytes: u64) -> Self {
        let devices = sys.join("devices/system");
        let mut nodes = BTreeMap::new();
        let mut node_of = BTreeMap::new();
        for id in set(&devices.join("node/online")).unwrap_or_default().iter() {
            let dir = devices.join(format!("node/node{id}"));
            for cpu in set(&dir.join("cpulist")).unwrap_or_default().iter() {
                node_of.insert(cpu, id);
            }
            nodes.insert(id, node(&dir));
        }
        if nodes.is_empty() {
            nodes.insert(0, Node { memory_bytes, ..Node::default() });
        }
        let dir = devices.join("cpu");
        let online = set(&dir.join("online")).filter(|set| !set.is_empty());
        let online = online.unwrap_or_else(|| (0..cpus).collect());
        let place = |cpu: u32| {
            let dir = dir.join(format!("cpu{cpu}"));
            let first = |path: &str| set(&dir.join(path)).and_then(|set| set.iter().next());
            Cpu {
                core: first("topology/thread_siblings_list").unwrap_or(cpu),
                socket: number(&dir.join("topology/physical_package_id")).unwrap_or(0),
                node: node_of.get(&cpu).copied().unwrap_or(0),
                cache: cache(&dir.join("cache")).unwrap_or(0),
            }
        };
        Self { cpus: online.iter().map(|cpu| (cpu, place(cpu))).collect(), nodes }
    }

    pub fn all(&self) -> CpuSet {
        self.cpus.keys().copied().collect()
    }

    pub fn node_ids(&self) -> Vec<u32> {
        self.nodes.keys().copied().collect()
    }

    /// CPUs of these nodes.
    pub fn of_nodes(&self, nodes: Mask) -> CpuSet {
        self.all().filter(|cpu| nodes.has(self.cpus[&cpu].node))
    }

    /// CPUs of the sockets that these nodes are in.
    pub fn of_sockets(&self, nodes: Mask) -> CpuSet {
        let sockets = self.sockets(nodes);
        self.all().filter(|cpu| sockets.contains(&self.cpus[&cpu].socket))
    }

    pub fn sockets(&self, nodes: Mask) -> std::collections::BTreeSet<u32> {
        self.cpus.values().filter(|cpu| nodes.has(cpu.node)).map(|cpu| cpu.socket).collect()
    }

    /// How many last-level caches these CPUs have.
    pub fn caches(&self, cpus: &CpuSet) -> usize {
        let caches = cpus.iter().filter_map(|cpu| self.cpus.get(&cpu)).map(|cpu| cpu.cache);
        caches.collect::<std::collections::BTreeSet<u32>>().len()
    }

    pub fn threads_per_core(&self) -> usize {
        let cores: std::collections::BTreeSet<u32> = self.cpus.values().map(|cpu| cpu.core).collect();
        self.cpus.len() / cores.len().max(1)
    }

    /// Mean distance between these nodes, each to each and to itself.
    pub fn distance(&self, nodes: Mask) -> f64 {
        let ids: Vec<u32> = nodes.iter().collect();
        let of = |one: &u32, other: &u32| {
            let known = self.nodes.get(one).and_then(|node| node.distances.get(other));
            f64::from(u32::try_from(known.copied().unwrap_or(10)).unwrap_or(u32::MAX))
        };
        let sum: f64 = ids.iter().flat_map(|one| ids.iter().map(move |other| of(one, other))).sum();
        let pairs = u32::try_from(ids.len() * ids.len()).unwrap_or(u32::MAX).max(1);
        sum / f64::from(pairs)
    }
}

/// The first CPU that shares the last level of cache.
fn cache(dir: &Path) -> Option<u32> {
    let indexes = fs::read_dir(dir).ok()?.flatten().filter_map(|entry| {
        let level: u32 = number(&entry.path().join("level"))?;
        Some((level, set(&entry.path().join("shared_cpu_list"))?))
    });
    indexes.max_by_key(|(level, _)| *level)?.1.iter().next()
}

fn node(dir: &Path) -> Node {
    let total = text(&dir.join("meminfo")).and_then(|text| {
        let line = text.lines().find_map(|line| line.split_once("MemTotal:"))?.1;
        line.split_whitespace().next()?.parse::<u64>().ok()
    });
    let distances = text(&dir.join("distance")).unwrap_or_default();
    let distances = distances.split_whitespace().filter_map(|one| one.parse().ok());
    let mut hugepages = BTreeMap::new();
    for entry in fs::read_dir(dir.join("hugepages")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let kib = name.strip_prefix("hugepages-").and_then(|n| n.strip_suffix("kB")?.parse::<u64>().ok());
        if let (Some(kib), Some(count)) = (kib, number::<u64>(&entry.path().join("nr_hugepages"))) {
            let size = match kib {
                k if k % (1 << 20) == 0 => format!("{}Gi", k >> 20),
                k if k % (1 << 10) == 0 => format!("{}Mi", k >> 10),
                k => format!("{k}Ki"),
            };
            hugepages.insert(format!("hugepages-{size}"), kib * 1024 * count);
        }
    }
    Node {
        memory_bytes: total.unwrap_or(0) * 1024,
        hugepages,
        // The kernel writes them in the order of the nodes that are online, which have no gaps but after hot unplugging.
        distances: (0..).zip(distances).collect(),
    }
}

/// A machine of `sockets`, each with so many nodes, cores of a node, and threads of a core, numbered as Linux does: first
/// the first thread of every core. Each node has 8 GiB.
#[cfg(test)]
pub fn made(sockets: u32, nodes: u32, cores: u32, threads: u32) -> Machine {
    let all_cores = sockets * nodes * cores;
    let place = |cpu: u32| {
        let core = cpu % all_cores;
        let node = core / cores;
        Cpu { core, socket: node / nodes, node, cache: node * cores }
    };
    let distances = |one: u32| {
        let far = |other: u32| match one == other {
            true => 10,
            false if one / nodes == other / nodes => 12,
            false => 32,
        };
        (0..sockets * nodes).map(|other| (other, far(other))).collect()
    };
    let node = |id: u32| Node { memory_bytes: 8 << 30, hugepages: BTreeMap::new(), distances: distances(id) };
    Machine {
        cpus: (0..all_cores * threads).map(|cpu| (cpu, place(cpu))).collect(),
        nodes: (0..sockets * nodes).map(|id| (id, node(id))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_with_two_threads_a_core_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join("devices/system").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("cpu/online", "0-7\n");
        write("node/online", "0-1\n");
        for (node, list) in [(0, "0-1,4-5"), (1, "2-3,6-7")] {
            write(&format!("node/node{node}/cpulist"), list);
            write(&format!("node/node{node}/meminfo"), &format!("Node {node} MemTotal:       1024 kB\n"));
            write(&format!("node/node{node}/distance"), if node == 0 { "10 21" } else { "21 10" });
            write(&format!("node/node{node}/hugepages/hugepages-2048kB/nr_hugepages"), "2\n");
        }
        for cpu in 0..8u32 {
            let core = cpu % 4;
            write(&format!("cpu/cpu{cpu}/topology/thread_siblings_list"), &format!("{core},{}", core + 4));
            write(&format!("cpu/cpu{cpu}/topology/physical_package_id"), &(core / 2).to_string());
            let cache = if core < 2 { "0-1,4-5" } else { "2-3,6-7" };
            write(&format!("cpu/cpu{cpu}/cache/index3/level"), "3");
            write(&format!("cpu/cpu{cpu}/cache/index3/shared_cpu_list"), cache);
            write(&format!("cpu/cpu{cpu}/cache/index0/level"), "1");
            write(&format!("cpu/cpu{cpu}/cache/index0/shared_cpu_list"), &cpu.to_string());
        }
        let machine = Machine::read(dir.path(), 2, 5);
        assert_eq!(machine.cpus[&7], Cpu { core: 3, socket: 1, node: 1, cache: 2 });
        assert_eq!(machine.threads_per_core(), 2);
        assert_eq!(machine.of_nodes(Mask::one(1)).to_string(), "2-3,6-7");
        assert_eq!(machine.nodes[&1].memory_bytes, 1 << 20);
        assert_eq!(machine.nodes[&1].hugepages["hugepages-2Mi"], 4 << 20);
        assert!((machine.distance(Mask::of([0, 1])) - 15.5).abs() < 1e-9);
    }

    #[test]
    fn a_machine_that_says_nothing_has_one_node() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::read(dir.path(), 2, 5);
        assert_eq!((machine.all().to_string().as_str(), machine.nodes[&0].memory_bytes), ("0-1", 5));
        assert_eq!(machine.threads_per_core(), 1);
    }
}
