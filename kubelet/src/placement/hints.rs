//! Sets of NUMA nodes, and where a resource would best be taken from.

use std::collections::BTreeMap;

/// NUMA nodes, those with numbers below 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mask(u64);

impl Mask {
    pub fn one(node: u32) -> Self {
        Self(1u64.checked_shl(node).unwrap_or(0))
    }

    pub fn of(nodes: impl IntoIterator<Item = u32>) -> Self {
        Self(nodes.into_iter().fold(0, |all, node| all | Self::one(node).0))
    }

    pub fn has(self, node: u32) -> bool {
        self.0 & Self::one(node).0 != 0
    }

    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub fn has_all(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..64).filter(move |node| self.has(*node))
    }

    /// Whether it has fewer nodes, or as many with lower numbers.
    pub fn is_narrower(self, than: Self) -> bool {
        (self.count(), self.0) < (than.count(), than.0)
    }

    /// All sets of these nodes that are not empty, the small ones first.
    pub fn subsets(nodes: &[u32]) -> Vec<Self> {
        let some =
            |bits: u64| Self::of((0..).zip(nodes).filter(|(at, _)| bits >> at & 1 == 1).map(|(_, n)| *n));
        let mut all: Vec<Self> = (1..1u64 << nodes.len().min(16)).map(some).collect();
        all.sort_by_key(|mask| (mask.count(), *mask));
        all
    }
}

/// One way to give a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// `None`: from anywhere.
    pub nodes: Option<Mask>,
    /// There is none from fewer nodes, were all of the machine free.
    pub preferred: bool,
}

impl Hint {
    pub const ANYWHERE: Self = Self { nodes: None, preferred: true };
}

/// The ways to give each resource. `None`: it is the same everywhere. An empty list: it cannot be had.
pub type Hints = BTreeMap<String, Option<Vec<Hint>>>;

/// The hints of a resource. `fits` says whether so much of it is free on these nodes now, `could` whether there would be if
/// nobody had any.
pub fn hints(nodes: &[u32], fits: impl Fn(Mask) -> bool, could: impl Fn(Mask) -> bool) -> Vec<Hint> {
    let all = Mask::subsets(nodes);
    let least = all.iter().filter(|mask| could(**mask)).map(|mask| mask.count()).min();
    let fitting = all.into_iter().filter(|mask| fits(*mask));
    fitting.map(|mask| Hint { nodes: Some(mask), preferred: Some(mask.count()) == least }).collect()
}
