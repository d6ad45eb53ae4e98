//! What happened to pods on nodes, in order, so that what was counted once can be kept up to date.

use super::PodInfo;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Debug)]
pub struct Change {
    pub pod: Arc<PodInfo>,
    pub slot: usize,
    pub added: bool,
}

/// Changes kept: whoever was not looked at for longer counts anew. At 5,000 pods a second it is under a second, and
/// counting anew over 30,000 pods takes milliseconds.
const KEPT: usize = 4096;

/// A short memory of changes, each with a number. While nobody follows them they are numbered only: each would keep a
/// decoded pod alive, long after it has gone.
#[derive(Default)]
pub struct Changes {
    log: VecDeque<Change>,
    first: u64,
    /// Somebody has asked where to begin since everything was forgotten.
    followed: AtomicBool,
}

impl Changes {
    pub fn push(&mut self, change: Change) {
        if !*self.followed.get_mut() {
            self.first += 1;
            return;
        }
        if self.log.len() == KEPT {
            self.log.pop_front();
            self.first += 1;
        }
        self.log.push_back(change);
    }

    /// The number of the next change, for whoever follows from there on.
    pub fn next(&self) -> u64 {
        self.followed.store(true, Ordering::Relaxed);
        self.first + self.log.len() as u64
    }

    /// Everything from this number on; `None` when some of it is forgotten.
    pub fn since(&self, number: u64) -> Option<impl Iterator<Item = &Change>> {
        let skip = usize::try_from(number.checked_sub(self.first)?).ok()?;
        Some(self.log.iter().skip(skip))
    }

    /// Forgets everything, and the pods with it.
    pub fn clear(&mut self) {
        self.first += self.log.len() as u64;
        self.log = VecDeque::new();
        *self.followed.get_mut() = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    fn change(pod: &Arc<PodInfo>) -> Change {
        Change { pod: pod.clone(), slot: 0, added: true }
    }

    #[test]
    fn pods_are_remembered_only_for_who_follows() {
        let pod = Arc::new(PodInfo::new(Arc::new(Pod::default())));
        let mut changes = Changes::default();
        changes.push(change(&pod));
        assert_eq!(Arc::strong_count(&pod), 1, "nobody follows");
        let cursor = changes.next();
        assert_eq!(cursor, 1);
        (0..3).for_each(|_| changes.push(change(&pod)));
        assert_eq!(changes.since(cursor).map(Iterator::count), Some(3));
        changes.clear();
        changes.push(change(&pod));
        assert_eq!(Arc::strong_count(&pod), 1, "forgotten, and nothing new is kept");
        assert!(changes.since(cursor).is_none());
        assert_eq!(changes.next(), 5);
    }
}
