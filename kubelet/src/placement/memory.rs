//! Memory of one's own: the memory manager's static policy
//! (<https://kubernetes.io/docs/concepts/policy/node-resource-managers/#memory-management-policies>).

use super::hints::{Hint, Hints, Mask, hints};
use super::machine::Machine;
use super::{Given, Want, of};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes by kind: `memory`, `hugepages-2Mi`.
pub type Amounts = BTreeMap<String, u64>;

/// So much of one kind, from these nodes together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    #[serde(rename = "numaAffinity")]
    pub nodes: Vec<u32>,
    #[serde(rename = "type")]
    pub kind: String,
    pub size: u64,
}

impl Block {
    fn mask(&self) -> Mask {
        Mask::of(self.nodes.iter().copied())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    #[error("[memorymanager] failed to find NUMA nodes to extend the current topology hint")]
    NoRoom,
}

/// A node as the state file shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeState {
    pub number_of_assignments: usize,
    pub memory_map: BTreeMap<String, Table>,
    /// The nodes that it gives memory together with.
    pub cells: Vec<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Table {
    pub total: u64,
    pub system_reserved: u64,
    pub allocatable: u64,
    pub reserved: u64,
    pub free: u64,
}

#[derive(Clone, Debug)]
pub struct Memory {
    machine: Arc<Machine>,
    /// For the system, by node.
    reserved: BTreeMap<u32, Amounts>,
    given: Given<Vec<Block>>,
}

impl Memory {
    pub fn new(machine: Arc<Machine>, reserved: BTreeMap<u32, Amounts>) -> Self {
        Self { machine, reserved, given: Given::new() }
    }

    /// Goes on with what was kept. `false`: it does not fit into this machine any more.
    pub fn restore(&mut self, kept: Given<Vec<Block>>) -> bool {
        self.given = kept;
        let nodes = Mask::of(self.machine.node_ids());
        let fits = self.blocks().all(|block| {
            let mask = block.mask();
            nodes.has_all(mask)
                && self.is_apart(mask)
                && self.allocatable(mask, &block.kind) >= self.used(mask, &block.kind)
        });
        if !fits {
            self.given.clear();
        }
        fits
    }

    pub fn given(&self) -> &Given<Vec<Block>> {
        &self.given
    }

    pub fn own(&self, pod: &str, container: &str) -> Option<&Vec<Block>> {
        of(&self.given, pod, container)
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.given.values().flat_map(BTreeMap::values).flatten()
    }

    fn total(&self, node: u32, kind: &str) -> u64 {
        let Some(node) = self.machine.nodes.get(&node) else { return 0 };
        match kind {
            "memory" => node.memory_bytes,
            kind => node.hugepages.get(kind).copied().unwrap_or(0),
        }
    }

    fn kept_back(&self, node: u32, kind: &str) -> u64 {
        self.reserved.get(&node).and_then(|all| all.get(kind)).copied().unwrap_or(0)
    }

    fn allocatable_of(&self, node: u32, kind: &str) -> u64 {
        let pages = self.machine.nodes.get(&node).filter(|_| kind == "memory");
        let pages: u64 = pages.map_or(0, |node| node.hugepages.values().sum());
        self.total(node, kind).saturating_sub(self.kept_back(node, kind)).saturating_sub(pages)
    }

    fn allocatable(&self, mask: Mask, kind: &str) -> u64 {
        mask.iter().map(|node| self.allocatable_of(node, kind)).sum()
    }

    fn used(&self, mask: Mask, kind: &str) -> u64 {
        self.blocks().filter(|block| block.mask() == mask && block.kind == kind).map(|block| block.size).sum()
    }

    /// Whether memory was given from these nodes together, or from none of them.
    fn is_apart(&self, mask: Mask) -> bool {
        self.blocks().all(|block| block.mask() == mask || block.mask().and(mask).count() == 0)
    }

    /// What can be given out of each node, by kind.
    pub fn allocatable_blocks(&self) -> Vec<Block> {
        let kinds = |node: &u32| {
            let pages = self.machine.nodes.get(node).map(|node| node.hugepages.keys().cloned());
            std::iter::once("memory".to_owned()).chain(pages.into_iter().flatten()).collect::<Vec<_>>()
        };
        let block = |node: u32, kind: String| Block {
            nodes: vec![node],
            size: self.allocatable_of(node, &kind),
            kind,
        };
        let ids = self.machine.node_ids();
        ids.iter().flat_map(|node| kinds(node).into_iter().map(move |kind| block(*node, kind))).collect()
    }

    /// What containers of the pod had in these nodes that end before others begin.
    fn passing(&self, pod: &str, passing: &[String], mask: Mask, kind: &str) -> u64 {
        let blocks = passing.iter().filter_map(|name| of(&self.given, pod, name)).flatten();
        blocks.filter(|block| block.mask() == mask && block.kind == kind).map(|block| block.size).sum()
    }

    fn fits(&self, want: &Want, passing: &[String], mask: Mask) -> bool {
        self.is_apart(mask)
            && want.memory.iter().all(|(kind, size)| {
                let free = self.allocatable(mask, kind).saturating_sub(self.used(mask, kind));
                free + self.passing(&want.pod, passing, mask, kind) >= *size
            })
    }

    /// `passing` names the containers of the same pod that end before this one begins.
    pub fn hints(&self, want: &Want, passing: &[String]) -> Hints {
        let list = match self.own(&want.pod, &want.container) {
            _ if want.memory.is_empty() => return Hints::new(),
            Some(own) => own
                .first()
                .map(|block| vec![Hint { nodes: Some(block.mask()), preferred: true }])
                .unwrap_or_default(),
            None => self.list(want, passing),
        };
        want.memory.keys().map(|kind| (kind.clone(), Some(list.clone()))).collect()
    }

    fn list(&self, want: &Want, passing: &[String]) -> Vec<Hint> {
        let whole = |mask: Mask| {
            let total = |kind: &String| -> u64 { mask.iter().map(|node| self.total(node, kind)).sum() };
            want.memory.iter().all(|(kind, size)| total(kind) >= *size)
        };
        hints(&self.machine.node_ids(), |mask| self.fits(want, passing, mask), whole)
    }

    /// Gives a container its memory, from the nodes of the hint or more; what it has it keeps.
    ///
    /// # Errors
    /// If there is too little. Then nothing has changed.
    pub fn take(&mut self, want: &Want, hint: Hint, passing: &[String]) -> Result<(), MemoryError> {
        if want.memory.is_empty() || self.own(&want.pod, &want.container).is_some() {
            return Ok(());
        }
        let at_least = hint.nodes.unwrap_or_default();
        let mut list = self.list(want, passing);
        list.sort_by_key(|hint| (!hint.preferred, hint.nodes.map_or(0, Mask::count), hint.nodes));
        let fitting = list.into_iter().filter_map(|hint| hint.nodes).find(|nodes| nodes.has_all(at_least));
        let mask = fitting.ok_or(MemoryError::NoRoom)?;
        let pod = self.given.entry(want.pod.clone()).or_default();
        for (kind, size) in &want.memory {
            let mut reuse = *size;
            for name in passing {
                for block in pod.get_mut(name).into_iter().flatten() {
                    if block.mask() == mask && block.kind == *kind {
                        let taken = reuse.min(block.size);
                        block.size -= taken;
                        reuse -= taken;
                    }
                }
            }
        }
        let nodes: Vec<u32> = mask.iter().collect();
        let block =
            |(kind, size): (&String, &u64)| Block { nodes: nodes.clone(), kind: kind.clone(), size: *size };
        pod.insert(want.container.clone(), want.memory.iter().map(block).collect());
        Ok(())
    }

    /// Gives back what a pod has. Says whether it had any.
    pub fn release(&mut self, pod: &str) -> bool {
        self.given.remove(pod).is_some()
    }

    /// The nodes as the state file shows them.
    pub fn nodes(&self) -> BTreeMap<u32, NodeState> {
        self.machine.node_ids().into_iter().map(|node| (node, self.node(node))).collect()
    }

    fn node(&self, node: u32) -> NodeState {
        let here: Vec<&Block> = self.blocks().filter(|block| block.nodes.contains(&node)).collect();
        let mask = here.first().map_or(Mask::one(node), |block| block.mask());
        let table = |kind: String| {
            let (allocatable, used) = (self.allocatable_of(node, &kind), self.used(mask, &kind));
            // Of what nodes give together, those before this one give first.
            let before: u64 =
                mask.iter().take_while(|id| *id < node).map(|id| self.allocatable_of(id, &kind)).sum();
            let reserved = used.saturating_sub(before).min(allocatable);
            let table = Table {
                total: self.total(node, &kind),
                system_reserved: self.kept_back(node, &kind),
                allocatable,
                reserved,
                free: allocatable - reserved,
            };
            (kind, table)
        };
        let pages = self.machine.nodes.get(&node).into_iter().flat_map(|node| node.hugepages.keys().cloned());
        NodeState {
            number_of_assignments: here.len(),
            memory_map: std::iter::once("memory".to_owned()).chain(pages).map(table).collect(),
            cells: mask.iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::made;
    use super::*;

    const GIB: u64 = 1 << 30;

    fn want(pod: &str, container: &str, gib: u64) -> Want {
        let memory = Amounts::from([("memory".to_owned(), gib * GIB)]);
        Want { pod: pod.to_owned(), container: container.to_owned(), memory, ..Want::default() }
    }

    /// Two nodes of 8 GiB, of which the first keeps one back.
    fn memory() -> Memory {
        let reserved = BTreeMap::from([(0, Amounts::from([("memory".to_owned(), GIB)]))]);
        Memory::new(Arc::new(made(2, 1, 2, 1)), reserved)
    }

    const ANY: Hint = Hint { nodes: None, preferred: false };

    fn nodes(memory: &Memory, pod: &str) -> Vec<u32> {
        memory.own(pod, "c").unwrap()[0].nodes.clone()
    }

    #[test]
    fn nodes_that_give_together_give_nothing_alone() {
        let mut memory = memory();
        memory.take(&want("a", "c", 10), ANY, &[]).unwrap();
        assert_eq!(nodes(&memory, "a"), [0, 1]);
        let list = memory.hints(&want("b", "c", 1), &[])["memory"].clone().unwrap();
        assert_eq!(list, [Hint { nodes: Some(Mask::of([0, 1])), preferred: false }]);
        memory.take(&want("b", "c", 5), ANY, &[]).unwrap();
        assert_eq!(memory.take(&want("c", "c", 1), ANY, &[]), Err(MemoryError::NoRoom));
        assert_eq!(memory.nodes()[&1].memory_map["memory"].free, 0);
        assert_eq!(memory.nodes()[&1].cells, [0, 1]);
        assert!(memory.release("a") && memory.release("b"));
        memory.take(&want("a", "c", 8), ANY, &[]).unwrap();
        assert_eq!(nodes(&memory, "a"), [1], "the first has only seven");
        memory.take(&want("b", "c", 7), Hint { nodes: Some(Mask::one(0)), preferred: true }, &[]).unwrap();
        assert_eq!(nodes(&memory, "b"), [0]);
        let kept = memory.given().clone();
        assert!(self::memory().restore(kept.clone()));
        let mut smaller = Memory::new(Arc::new(made(1, 1, 2, 1)), BTreeMap::new());
        assert!(!smaller.restore(kept));
    }

    #[test]
    fn what_passes_is_used_again() {
        let mut memory = memory();
        let passing = ["init".to_owned()];
        memory.take(&want("a", "init", 6), Hint { nodes: Some(Mask::one(0)), preferred: true }, &[]).unwrap();
        memory
            .take(&want("a", "c", 5), Hint { nodes: Some(Mask::one(0)), preferred: true }, &passing)
            .unwrap();
        assert_eq!(nodes(&memory, "a"), [0]);
        assert_eq!(memory.nodes()[&0].memory_map["memory"].free, GIB, "six of seven, not eleven");
        assert_eq!(serde_json::to_value(memory.own("a", "init")).unwrap()[0]["size"], GIB);
    }
}
