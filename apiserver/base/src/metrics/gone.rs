//! Resources that are served no more: their series are dropped, and with them what they cost.

use coracle_metrics::{Family, Metric};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A watch or a request that was under way when its resource went is counted at its end; by then all have ended.
const REMEMBER_TTL: Duration = Duration::from_secs(600);
/// Names that are remembered, should nobody ask for metrics. The oldest give way: a series that comes back for one of
/// those stays.
const MOST: usize = 4096;

/// A resource as labels name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub group: Box<str>,
    pub plural: Box<str>,
}

impl Name {
    /// Of `<plural>.<group>`.
    pub fn of(key: &str) -> Self {
        let (plural, group) = key.split_once('.').unwrap_or((key, ""));
        Self { group: group.into(), plural: plural.into() }
    }
}

#[derive(Default)]
pub(super) struct Gone(Mutex<VecDeque<(Name, Instant)>>);

impl Gone {
    pub fn add(&self, name: Name, now: Instant) {
        let mut all = self.0.lock();
        all.retain(|(known, _)| *known != name);
        all.push_back((name, now));
        if all.len() > MOST {
            all.pop_front();
        }
    }

    /// It is served again.
    pub fn remove(&self, name: &Name) {
        self.0.lock().retain(|(known, _)| known != name);
    }

    /// Those whose series may have come back; the caller drops them.
    pub fn names(&self, now: Instant) -> Vec<Name> {
        let mut all = self.0.lock();
        let names = all.iter().map(|(name, _)| name.clone()).collect();
        all.retain(|(_, since)| now.saturating_duration_since(*since) < REMEMBER_TTL);
        names
    }
}

/// Drops the series of these resources. `labels` are the family's places of the group and of the plural.
pub(super) fn drop_from<M: Metric>(family: &Family<M>, labels: (usize, usize), gone: &[Name]) {
    let (group, plural) = labels;
    family.retain(|values| {
        !gone.iter().any(|name| values[group] == name.group && values[plural] == name.plural)
    });
}
