//! The values of one node label as small numbers, so that counting by topology is indexing.

use std::collections::HashMap;

/// One label over all slots of a snapshot.
#[derive(Debug, Default)]
pub struct Topology {
    pub key: String,
    ids: HashMap<String, u32>,
    by_slot: Vec<u32>,
}

/// Nodes without the label.
const NONE: u32 = u32::MAX;

impl Topology {
    pub fn new<'a>(key: &str, labels: impl Iterator<Item = Option<&'a str>>) -> Self {
        let mut topology = Self { key: key.to_owned(), ..Self::default() };
        for value in labels {
            let id = value.map_or(NONE, |value| topology.id(value));
            topology.by_slot.push(id);
        }
        topology
    }

    fn id(&mut self, value: &str) -> u32 {
        if let Some(id) = self.ids.get(value) {
            return *id;
        }
        // More than 2^32 values would need as many nodes.
        let id = u32::try_from(self.ids.len()).unwrap_or(NONE);
        self.ids.insert(value.to_owned(), id);
        id
    }

    /// The number of the value that the node in this slot has.
    pub fn value(&self, slot: usize) -> Option<usize> {
        let id = *self.by_slot.get(slot)?;
        if id == NONE { None } else { usize::try_from(id).ok() }
    }

    /// How many values there are; their numbers run below it.
    pub fn values(&self) -> usize {
        self.ids.len()
    }
}
