//! CPUs of one's own: the CPU manager's static policy
//! (<https://kubernetes.io/docs/concepts/policy/node-resource-managers/#cpu-management-policies>).

use super::hints::{Hint, Hints, Mask, hints};
use super::machine::Machine;
use super::pick::pick;
use super::{CpuSet, Given, Want, of};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Under upstream's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Nobody shares a core with others.
    pub full_pcpus_only: bool,
    /// Where one node is not enough, as many from each.
    pub distribute_cpus_across_numa: bool,
    /// Nodes of one socket count as one.
    pub align_by_socket: bool,
    /// From as many cores as can be.
    pub distribute_cpus_across_cores: bool,
    /// What is reserved for the system, no container runs on, not even one without CPUs of its own.
    pub strict_cpu_reservation: bool,
    /// From as few last-level caches as can be.
    pub prefer_align_cpus_by_uncorecache: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuError {
    #[error("SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}")]
    HalfCores { requested: usize, per_core: usize },
    #[error(
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, requested CPUs = \
         {requested}, CPUs per core = {per_core}"
    )]
    FewCores { requested: usize, available: usize, per_core: usize },
    #[error("not enough cpus available to satisfy request: requested={requested}, available={available}")]
    Few { requested: usize, available: usize },
}

/// What is kept over restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    #[serde(rename = "defaultCpuSet", default)]
    pub shared: CpuSet,
    #[serde(rename = "entries", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub given: Given<CpuSet>,
}

/// Why what was kept is of no use.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    #[error(
        "the shared CPUs {shared} are not all but the {given} that were given and the {reserved} that are reserved"
    )]
    Changed { shared: CpuSet, given: CpuSet, reserved: CpuSet },
}

#[derive(Clone, Debug)]
pub struct Cpus {
    machine: Arc<Machine>,
    options: Options,
    /// For the system: nobody gets them as his own.
    reserved: CpuSet,
    state: State,
}

impl Cpus {
    /// `reserved` CPUs by name, or else so many.
    pub fn new(machine: Arc<Machine>, options: Options, reserved: Option<CpuSet>, count: usize) -> Self {
        let reserved = reserved.filter(|set| !set.is_empty());
        let reserved = reserved.or_else(|| pick(&machine, &machine.all(), count, &Options::default()));
        let mut made =
            Self { reserved: reserved.unwrap_or_default(), machine, options, state: State::default() };
        made.state.shared = made.pool();
        made
    }

    /// All that containers run on.
    fn pool(&self) -> CpuSet {
        let all = self.machine.all();
        if self.options.strict_cpu_reservation { all.without(&self.reserved) } else { all }
    }

    /// Goes on with what was kept.
    ///
    /// # Errors
    /// If the machine or what is reserved has changed since.
    pub fn restore(&mut self, kept: State) -> Result<(), StateError> {
        let given =
            kept.given.values().flat_map(BTreeMap::values).fold(CpuSet::default(), |all, set| all.or(set));
        let pool = self.pool();
        let fits = pool.has_all(&given) && given.and(&self.reserved).is_empty();
        if !fits || kept.shared != pool.without(&given) {
            return Err(StateError::Changed { shared: kept.shared, given, reserved: self.reserved.clone() });
        }
        self.state = kept;
        Ok(())
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn options(&self) -> Options {
        self.options
    }

    /// What can be had as one's own.
    pub fn free(&self) -> CpuSet {
        self.state.shared.without(&self.reserved)
    }

    /// All that can be had as one's own, given or not.
    pub fn allocatable(&self) -> CpuSet {
        self.machine.all().without(&self.reserved)
    }

    pub fn shared(&self) -> &CpuSet {
        &self.state.shared
    }

    /// A container's own.
    pub fn own(&self, pod: &str, container: &str) -> Option<&CpuSet> {
        of(&self.state.given, pod, container)
    }

    /// All that containers have as their own, counted by NUMA node.
    pub fn given_by_node(&self) -> BTreeMap<u32, usize> {
        let given = self.pool().without(&self.state.shared);
        let node = |id: u32| self.machine.cpus.get(&id).map_or(0, |cpu| cpu.node);
        self.machine
            .node_ids()
            .into_iter()
            .map(|id| (id, given.iter().filter(|cpu| node(*cpu) == id).count()))
            .collect()
    }

    /// `passing` are those that containers of the same pod had that end before this one begins.
    pub fn hints(&self, want: &Want, passing: &CpuSet) -> Hints {
        if want.cpus == 0 {
            return Hints::new();
        }
        let nodes = self.machine.node_ids();
        let count = |set: &CpuSet, mask: Mask| set.and(&self.machine.of_nodes(mask)).len();
        let list = match self.own(&want.pod, &want.container) {
            // What it has already is where it wants to be.
            Some(own) => {
                hints(&nodes, |mask| count(own, mask) >= want.cpus, |mask| count(own, mask) >= want.cpus)
            }
            None => {
                let (free, all) = (self.free().or(passing), self.machine.all());
                let mut list = hints(
                    &nodes,
                    |mask| count(&free, mask) >= want.cpus,
                    |mask| count(&all, mask) >= want.cpus,
                );
                if self.options.align_by_socket {
                    self.prefer_by_socket(&mut list, want.cpus);
                }
                list
            }
        };
        Hints::from([("cpu".to_owned(), Some(list))])
    }

    fn prefer_by_socket(&self, list: &mut [Hint], count: usize) {
        let sockets = |mask: Mask| self.machine.sockets(mask).len();
        let fits = |mask: &Mask| self.machine.of_sockets(*mask).len() >= count;
        let least = Mask::subsets(&self.machine.node_ids()).into_iter().filter(fits).map(sockets).min();
        for hint in list {
            hint.preferred = hint.nodes.map(sockets) == least;
        }
    }

    /// Gives a container its own CPUs, near where the hint says; those that it has it keeps.
    ///
    /// # Errors
    /// If there are too few. Then nothing has changed.
    pub fn take(&mut self, want: &Want, hint: Hint, passing: &CpuSet) -> Result<(), CpuError> {
        if want.cpus == 0 || self.own(&want.pod, &want.container).is_some() {
            return Ok(());
        }
        let free = self.free().or(passing);
        self.check_cores(want.cpus, &free)?;
        let few = CpuError::Few { requested: want.cpus, available: free.len() };
        let near = hint.nodes.map(|nodes| {
            let there = match self.options.align_by_socket {
                true => self.machine.of_sockets(nodes),
                false => self.machine.of_nodes(nodes),
            };
            free.and(&there)
        });
        let near = near.unwrap_or_default();
        let get = |free: &CpuSet, count: usize| pick(&self.machine, free, count, &self.options);
        let first = get(&near, near.len().min(want.cpus)).ok_or_else(|| few.clone())?;
        let rest = get(&free.without(&first), want.cpus - first.len()).ok_or(few)?;
        let own = first.or(&rest);
        self.state.shared = self.state.shared.without(&own);
        self.state.given.entry(want.pod.clone()).or_default().insert(want.container.clone(), own);
        Ok(())
    }

    fn check_cores(&self, requested: usize, free: &CpuSet) -> Result<(), CpuError> {
        if !self.options.full_pcpus_only {
            return Ok(());
        }
        let per_core = self.machine.threads_per_core();
        if !requested.is_multiple_of(per_core) {
            return Err(CpuError::HalfCores { requested, per_core });
        }
        let whole = |cpu: u32| {
            let core = self.machine.cpus.get(&cpu).map(|cpu| cpu.core);
            self.machine.cpus.iter().all(|(id, cpu)| Some(cpu.core) != core || free.has(*id))
        };
        let available = free.filter(whole).len();
        if requested > available {
            return Err(CpuError::FewCores { requested, available, per_core });
        }
        Ok(())
    }

    /// Gives back what a pod has. Says whether it had any.
    pub fn release(&mut self, pod: &str) -> bool {
        let Some(had) = self.state.given.remove(pod) else { return false };
        let given = self.state.given.values().flat_map(BTreeMap::values);
        let given = given.fold(CpuSet::default(), |all, set| all.or(set));
        let had = had.values().fold(CpuSet::default(), |all, set| all.or(set));
        self.state.shared = self.state.shared.or(&had.without(&given));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::made;
    use super::*;

    fn want(pod: &str, container: &str, cpus: usize) -> Want {
        Want { pod: pod.to_owned(), container: container.to_owned(), cpus, ..Want::default() }
    }

    const ANY: Hint = Hint { nodes: None, preferred: false };

    fn take(cpus: &mut Cpus, want: &Want, hint: Hint) -> String {
        cpus.take(want, hint, &CpuSet::default()).unwrap();
        cpus.own(&want.pod, &want.container).unwrap().to_string()
    }

    #[test]
    fn what_is_given_is_shared_no_more_until_it_is_given_back() {
        let mut cpus = Cpus::new(Arc::new(made(1, 1, 4, 2)), Options::default(), None, 1);
        assert_eq!(
            (cpus.shared().to_string(), cpus.free().to_string()),
            ("0-7".to_owned(), "1-7".to_owned())
        );
        assert_eq!(take(&mut cpus, &want("a", "c", 2), ANY), "1,5");
        assert_eq!(take(&mut cpus, &want("a", "c", 2), ANY), "1,5", "again");
        assert_eq!(take(&mut cpus, &want("b", "c", 1), ANY), "4");
        assert_eq!(cpus.shared().to_string(), "0,2-3,6-7");
        let kept = cpus.state().clone();
        let text = serde_json::to_value(&kept).unwrap();
        assert_eq!(
            text,
            serde_json::json!({ "defaultCpuSet": "0,2-3,6-7", "entries": { "a": { "c": "1,5" }, "b": { "c": "4" } } })
        );
        let mut next = Cpus::new(Arc::new(made(1, 1, 4, 2)), Options::default(), None, 1);
        next.restore(serde_json::from_value(text).unwrap()).unwrap();
        let few = next.take(&want("d", "c", 5), ANY, &CpuSet::default()).unwrap_err();
        assert_eq!(few, CpuError::Few { requested: 5, available: 4 });
        assert!(next.release("a") && !next.release("a"));
        assert_eq!(next.shared().to_string(), "0-3,5-7");
        let mut other = Cpus::new(Arc::new(made(1, 1, 3, 2)), Options::default(), None, 1);
        assert!(other.restore(kept.clone()).is_err(), "another machine");
        let reserved = CpuSet::parse("4");
        let mut other = Cpus::new(Arc::new(made(1, 1, 4, 2)), Options::default(), reserved, 0);
        assert!(other.restore(kept).is_err(), "a CPU that was given is reserved now");
    }

    #[test]
    fn what_passes_is_used_again() {
        let mut cpus = Cpus::new(Arc::new(made(1, 1, 4, 1)), Options::default(), None, 1);
        assert_eq!(take(&mut cpus, &want("a", "init", 3), ANY), "1-3");
        let passing = cpus.own("a", "init").unwrap().clone();
        assert!(cpus.take(&want("a", "c", 2), ANY, &CpuSet::default()).is_err());
        cpus.take(&want("a", "c", 2), ANY, &passing).unwrap();
        assert_eq!(cpus.own("a", "c").unwrap().to_string(), "1-2");
        cpus.release("a");
        assert_eq!(cpus.shared().to_string(), "0-3");
    }

    #[test]
    fn cores_are_whole_and_reserved_ones_are_left_alone() {
        let options = Options { full_pcpus_only: true, strict_cpu_reservation: true, ..Options::default() };
        let mut cpus = Cpus::new(Arc::new(made(1, 1, 4, 2)), options, CpuSet::parse("0"), 0);
        assert_eq!(cpus.shared().to_string(), "1-7");
        let error =
            |cpus: &mut Cpus, count| cpus.take(&want("a", "c", count), ANY, &CpuSet::default()).unwrap_err();
        assert_eq!(
            error(&mut cpus, 3).to_string(),
            "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
        );
        assert_eq!(error(&mut cpus, 8), CpuError::FewCores { requested: 8, available: 6, per_core: 2 });
        assert_eq!(take(&mut cpus, &want("a", "c", 6), ANY), "1-3,5-7");
        assert_eq!(cpus.shared().to_string(), "4");
    }

    #[test]
    fn hints_say_where_there_is_enough() {
        let mut cpus = Cpus::new(Arc::new(made(2, 1, 2, 1)), Options::default(), None, 1);
        let list = |cpus: &Cpus, count| {
            cpus.hints(&want("a", "c", count), &CpuSet::default())["cpu"].clone().unwrap()
        };
        let hint =
            |nodes: &[u32], preferred| Hint { nodes: Some(Mask::of(nodes.iter().copied())), preferred };
        assert_eq!(list(&cpus, 2), [hint(&[1], true), hint(&[0, 1], false)]);
        assert_eq!(list(&cpus, 3), [hint(&[0, 1], true)]);
        assert_eq!(list(&cpus, 4), []);
        assert_eq!(take(&mut cpus, &want("b", "c", 1), hint(&[1], true)), "2");
        assert_eq!(cpus.given_by_node(), BTreeMap::from([(0, 0), (1, 1)]));
        let by_socket = Options { align_by_socket: true, ..Options::default() };
        let cpus = Cpus::new(Arc::new(made(1, 2, 2, 1)), by_socket, None, 1);
        assert_eq!(list(&cpus, 2), [hint(&[1], true), hint(&[0, 1], true)]);
    }
}
