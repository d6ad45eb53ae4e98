//! Labels of pods on nodes, each set of them once: the replicas of a workload have the same ones, and a map of two takes
//! half a kilobyte.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Fewer sets are never looked through for those that nobody has any more.
const FEW: usize = 64;

#[derive(Default)]
pub struct SharedLabels {
    known: HashSet<Arc<BTreeMap<String, String>>>,
    /// How many sets were left when they were looked through last.
    left: usize,
}

impl SharedLabels {
    pub fn share(&mut self, labels: &BTreeMap<String, String>) -> Arc<BTreeMap<String, String>> {
        if let Some(known) = self.known.get(labels) {
            return known.clone();
        }
        if self.known.len() >= 2 * self.left.max(FEW) {
            self.known.retain(|labels| Arc::strong_count(labels) > 1);
            self.known.shrink_to(2 * self.known.len());
            self.left = self.known.len();
        }
        let labels = Arc::new(labels.clone());
        self.known.insert(labels.clone());
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_are_one_and_forgotten_ones_go() {
        let labels = |n: usize| BTreeMap::from([("n".to_owned(), n.to_string())]);
        let mut shared = SharedLabels::default();
        let held = shared.share(&labels(0));
        assert!(Arc::ptr_eq(&held, &shared.share(&labels(0))));
        for n in 1..100 * FEW {
            shared.share(&labels(n));
        }
        assert!(shared.known.len() <= 2 * FEW, "{} sets are kept", shared.known.len());
        assert!(Arc::ptr_eq(&held, &shared.share(&labels(0))), "one that somebody has stays");
    }
}
