//! Which of the free CPUs somebody gets.

use super::CpuSet;
use super::cpus::Options;
use super::hints::Mask;
use super::machine::{Cpu, Machine};
use std::collections::BTreeMap;

/// Part of a machine that a CPU is in.
type Part = fn(&Cpu) -> u32;

fn socket(cpu: &Cpu) -> u32 {
    cpu.socket
}
fn node(cpu: &Cpu) -> u32 {
    cpu.node
}
fn cache(cpu: &Cpu) -> u32 {
    cpu.cache
}
fn core(cpu: &Cpu) -> u32 {
    cpu.core
}

fn parts(machine: &Machine, of: &CpuSet, part: Part) -> BTreeMap<u32, CpuSet> {
    let mut all: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for (id, cpu) in of.iter().filter_map(|id| Some((id, machine.cpus.get(&id)?))) {
        all.entry(part(cpu)).or_default().0.insert(id);
    }
    all
}

/// So many of the free CPUs; `None` if there are fewer.
pub fn pick(machine: &Machine, free: &CpuSet, count: usize, options: &Options) -> Option<CpuSet> {
    if free.len() < count {
        return None;
    }
    let spread = options.distribute_cpus_across_numa.then(|| distributed(machine, free, count, options));
    Some(spread.flatten().unwrap_or_else(|| packed(machine, free, count, options)))
}

/// Free CPUs of which `taken` are not there any more.
struct Left<'a> {
    machine: &'a Machine,
    free: CpuSet,
    taken: CpuSet,
    count: usize,
}

impl Left<'_> {
    fn missing(&self) -> usize {
        self.count - self.taken.len()
    }

    fn take(&mut self, cpus: &CpuSet) {
        self.free = self.free.without(cpus);
        self.taken = self.taken.or(cpus);
    }

    /// Takes parts that are wholly free, as many as are wanted whole; those first whose surroundings have the least free.
    fn take_whole(&mut self, part: Part) {
        let whole = parts(self.machine, &self.machine.all(), part);
        let mut free: Vec<CpuSet> = parts(self.machine, &self.free, part)
            .into_iter()
            .filter(|(id, set)| whole[id] == *set)
            .map(|(_, s)| s)
            .collect();
        free.sort_by_key(|set| self.crowd(set.iter().next().unwrap_or(0)));
        for set in free {
            if set.len() <= self.missing() {
                self.take(&set);
            }
        }
    }

    /// How much is free around a CPU: in its socket, in its node, then its core and itself.
    fn crowd(&self, cpu: u32) -> (usize, usize, u32, u32) {
        let Some(at) = self.machine.cpus.get(&cpu) else { return (0, 0, 0, cpu) };
        let count = |part: Part| {
            let same = |id: u32| self.machine.cpus.get(&id).is_some_and(|cpu| part(cpu) == part(at));
            self.free.iter().filter(|id| same(*id)).count()
        };
        (count(socket), count(node), at.core, cpu)
    }

    /// The rest out of one cache, the fullest that has enough.
    fn take_from_one_cache(&mut self) {
        let mut caches: Vec<CpuSet> = parts(self.machine, &self.free, cache).into_values().collect();
        caches.sort_by_key(CpuSet::len);
        if let Some(fits) = caches.into_iter().find(|set| set.len() >= self.missing())
            && self.missing() > 0
        {
            let rest = packed(self.machine, &fits, self.missing(), &Options::default());
            self.take(&rest);
        }
    }

    /// The rest one by one: beside what was taken, then where the least is free.
    fn take_single(&mut self) {
        while self.missing() > 0 {
            let beside = |cpu: u32| {
                let at = self.machine.cpus.get(&cpu).map(socket);
                self.taken.iter().filter(|taken| self.machine.cpus.get(taken).map(socket) == at).count()
            };
            let in_core = |cpu: u32| {
                let at = self.machine.cpus.get(&cpu).map(core);
                self.free.iter().filter(|other| self.machine.cpus.get(other).map(core) == at).count()
            };
            let rank = |cpu: &u32| {
                let (sockets, nodes, core, cpu) = self.crowd(*cpu);
                (std::cmp::Reverse(beside(cpu)), sockets, nodes, in_core(cpu), core, cpu)
            };
            let Some(next) = self.free.iter().min_by_key(rank) else { return };
            self.take(&[next].into_iter().collect());
        }
    }

    /// The rest so that no core gives two while another has one.
    fn take_across_cores(&mut self) {
        let mut order = Vec::new();
        for set in parts(self.machine, &self.free, core).into_values() {
            order.extend((0usize..).zip(set.iter()).map(|(turn, cpu)| (turn, self.crowd(cpu))));
        }
        order.sort_unstable();
        let rest: CpuSet = order.into_iter().take(self.missing()).map(|(_, (.., cpu))| cpu).collect();
        self.take(&rest);
    }
}

/// From as few parts of the machine as can be.
fn packed(machine: &Machine, free: &CpuSet, count: usize, options: &Options) -> CpuSet {
    let mut left = Left { machine, free: free.clone(), taken: CpuSet::default(), count };
    let sockets = parts(machine, &machine.all(), socket).len();
    let large: [Part; 2] = if machine.nodes.len() >= sockets { [socket, node] } else { [node, socket] };
    large.into_iter().for_each(|part| left.take_whole(part));
    if options.prefer_align_cpus_by_uncorecache {
        left.take_whole(cache);
        left.take_from_one_cache();
    }
    if options.distribute_cpus_across_cores {
        left.take_across_cores();
        return left.taken;
    }
    left.take_whole(core);
    left.take_single();
    left.taken
}

/// Evenly from as few nodes as have enough; `None` if it cannot be even.
fn distributed(machine: &Machine, free: &CpuSet, count: usize, options: &Options) -> Option<CpuSet> {
    let group = if options.full_pcpus_only { machine.threads_per_core() } else { 1 };
    let by_node = parts(machine, free, node);
    let of = |id: u32| by_node.get(&id).map_or(0, CpuSet::len);
    let subsets = Mask::subsets(&machine.node_ids());
    let fewest = subsets
        .iter()
        .filter(|mask| mask.iter().map(of).sum::<usize>() >= count)
        .map(|mask| mask.count())
        .min()?;
    for size in fewest..=machine.nodes.len() {
        let share = count / size / group * group;
        let extra = (count - share * size) / group;
        let even = |mask: &&Mask| {
            mask.count() == size
                && mask.iter().all(|id| of(id) >= share)
                && mask.iter().filter(|id| of(*id) >= share + group).count() >= extra
        };
        // What is left is to be as even as can be.
        let uneven = |mask: &&Mask| {
            let left = |id: u32| of(id) - if mask.has(id) { share } else { 0 };
            let all = machine.node_ids().into_iter().map(left);
            (all.clone().max().unwrap_or(0) - all.min().unwrap_or(0), **mask)
        };
        let Some(mask) = subsets.iter().filter(even).min_by_key(uneven) else { continue };
        let mut more = extra;
        let mut taken = CpuSet::default();
        for id in mask.iter() {
            let one_more = more > 0 && of(id) >= share + group;
            more -= usize::from(one_more);
            let count = share + if one_more { group } else { 0 };
            taken = taken.or(&packed(machine, by_node.get(&id)?, count, options));
        }
        return (taken.len() == count).then_some(taken);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::machine::made;
    use super::*;
    use proptest::prelude::*;

    fn picked(machine: &Machine, free: &str, count: usize, options: &Options) -> String {
        pick(machine, &CpuSet::parse(free).unwrap(), count, options).unwrap().to_string()
    }

    #[test]
    fn whole_sockets_then_cores_then_threads() {
        // Two sockets of four cores with two threads: core 0 is 0 and 8, socket 1 has 4-7 and 12-15.
        let machine = made(2, 1, 4, 2);
        let plain = Options::default();
        for (free, count, expected) in [
            ("0-15", 8, "0-3,8-11"),
            ("0-15", 10, "0-4,8-12"),
            ("0-15", 2, "0,8"),
            ("0-15", 1, "0"),
            ("1-15", 2, "1,9"),
            ("1-15", 1, "8"),
            ("0-5,8-13", 3, "4-5,12"),
            ("1-15", 8, "4-7,12-15"),
        ] {
            assert_eq!(picked(&machine, free, count, &plain), expected, "{count} of {free}");
        }
        assert_eq!(pick(&machine, &CpuSet::parse("0-2").unwrap(), 4, &plain), None);
    }

    #[test]
    fn options_spread_or_gather() {
        let machine = made(2, 1, 4, 2);
        let across_cores = Options { distribute_cpus_across_cores: true, ..Options::default() };
        assert_eq!(picked(&machine, "0-15", 4, &across_cores), "0-3");
        let across_nodes = Options { distribute_cpus_across_numa: true, ..Options::default() };
        assert_eq!(picked(&machine, "0-15", 10, &across_nodes), "0-2,4-6,8-9,12-13");
        let whole = Options { full_pcpus_only: true, ..across_nodes };
        assert_eq!(picked(&machine, "0-15", 12, &whole), "0-2,4-6,8-10,12-14");
        assert_eq!(picked(&machine, "0-15", 4, &whole), "0-1,8-9", "one node is enough");
    }

    #[test]
    fn a_cache_is_not_shared_without_need() {
        let mut machine = made(1, 1, 8, 1);
        machine.cpus.iter_mut().for_each(|(id, cpu)| cpu.cache = id / 4 * 4);
        let by_cache = Options { prefer_align_cpus_by_uncorecache: true, ..Options::default() };
        assert_eq!(picked(&machine, "1-7", 4, &by_cache), "4-7");
        assert_eq!(picked(&machine, "1-7", 3, &by_cache), "1-3");
        assert_eq!(picked(&machine, "1-7", 4, &Options::default()), "1-4");
    }

    proptest! {
        #[test]
        fn as_many_as_are_asked_for_and_only_free_ones(
            free in proptest::collection::btree_set(0u32..32, 0..32),
            count in 0usize..32, flags in 0u32..16,
        ) {
            let machine = made(2, 2, 4, 2);
            let free = CpuSet(free);
            let options = Options {
                full_pcpus_only: flags & 1 > 0,
                distribute_cpus_across_numa: flags & 2 > 0,
                distribute_cpus_across_cores: flags & 4 > 0,
                prefer_align_cpus_by_uncorecache: flags & 8 > 0,
                ..Options::default()
            };
            match pick(&machine, &free, count, &options) {
                Some(picked) => {
                    prop_assert_eq!(picked.len(), count);
                    prop_assert!(free.has_all(&picked));
                }
                None => prop_assert!(free.len() < count),
            }
        }
    }
}
