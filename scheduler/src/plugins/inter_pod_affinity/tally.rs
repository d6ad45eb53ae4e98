//! Sums by topology: of pods for filtering, of weights for scoring.

use crate::cache::{Snapshot, Topology};
use std::collections::HashMap;
use std::sync::Arc;

/// Sums of one topology key by value.
pub struct Tally {
    topology: Arc<Topology>,
    sums: Vec<i64>,
    /// Over all values.
    pub total: i64,
}

impl Tally {
    pub fn new(topology: Arc<Topology>) -> Self {
        Self { sums: vec![0; topology.values()], topology, total: 0 }
    }

    pub fn key(&self) -> &str {
        &self.topology.key
    }

    /// Adds to the value of the node in this slot; a node without the label has none.
    pub fn add(&mut self, slot: usize, by: i64) {
        if let Some(value) = self.topology.value(slot) {
            self.sums[value] += by;
            self.total += by;
        }
    }

    /// The sum at the node in this slot; `None` without the label.
    pub fn at(&self, slot: usize) -> Option<i64> {
        self.topology.value(slot).map(|value| self.sums[value])
    }
}

/// Tallies by topology key. Keys that turn up later are looked up in the topologies known at the beginning.
pub struct Tallies {
    pub list: Vec<Tally>,
    known: HashMap<String, Arc<Topology>>,
}

impl Tallies {
    pub fn new() -> Self {
        Self { list: Vec::new(), known: HashMap::new() }
    }

    /// Makes a key known, so that [`add`](Self::add) can count by it.
    pub fn learn(&mut self, key: &str, snapshot: &Snapshot) {
        if !self.known.contains_key(key) {
            self.known.insert(key.to_owned(), snapshot.topology(key));
        }
    }

    /// False when the key is not known: the caller's state must be made anew.
    pub fn add(&mut self, key: &str, slot: usize, by: i64) -> bool {
        if let Some(tally) = self.list.iter_mut().find(|t| t.key() == key) {
            tally.add(slot, by);
            return true;
        }
        let Some(topology) = self.known.get(key) else { return false };
        let mut tally = Tally::new(topology.clone());
        tally.add(slot, by);
        self.list.push(tally);
        true
    }

    pub fn sum_at(&self, slot: usize) -> i64 {
        self.list.iter().filter_map(|t| t.at(slot)).sum()
    }

    pub fn any_at(&self, slot: usize) -> bool {
        self.list.iter().any(|t| t.at(slot).is_some_and(|sum| sum > 0))
    }
}
