//! Turns at something that waits: so many in all, and so many for each who asks.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

pub struct Turns<K> {
    most: usize,
    each: usize,
    taken: Mutex<(usize, HashMap<K, usize>)>,
}

/// Given back when it is dropped.
pub struct Turn<K: Hash + Eq> {
    turns: Arc<Turns<K>>,
    whose: K,
}

impl<K: Hash + Eq + Clone> Turns<K> {
    pub fn new(most: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { most, each, taken: Mutex::new((0, HashMap::new())) })
    }

    /// A turn at once, or none.
    pub fn take(self: &Arc<Self>, whose: K) -> Option<Turn<K>> {
        let mut taken = self.taken.lock();
        let (all, each) = &mut *taken;
        if *all >= self.most || each.get(&whose).is_some_and(|own| *own >= self.each) {
            return None;
        }
        *all += 1;
        *each.entry(whose.clone()).or_default() += 1;
        Some(Turn { turns: self.clone(), whose })
    }
}

impl<K: Hash + Eq> Drop for Turn<K> {
    fn drop(&mut self) {
        let mut taken = self.turns.taken.lock();
        let (all, each) = &mut *taken;
        *all -= 1;
        if let Some(own) = each.get_mut(&self.whose) {
            *own -= 1;
            if *own == 0 {
                each.remove(&self.whose);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_all_turns() {
        let turns = Turns::new(5, 2);
        let held: Vec<Turn<u8>> = (0..4).filter_map(|n| turns.take(n / 2)).collect();
        assert_eq!(held.len(), 4);
        assert!(turns.take(0).is_none());
        let last = turns.take(2);
        assert!(last.is_some() && turns.take(3).is_none());
        drop(held);
        assert!(turns.take(0).is_some());
        drop(last);
        assert_eq!(turns.taken.lock().1.len(), 0);
    }
}
