//! What the watch cache costs, by resource.

use coracle_metrics::Text;
use coracle_metrics::{Family, Gauge};

/// What a resource costs in the watch cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub objects: usize,
    /// Of the objects and what is kept beside them.
    pub bytes: usize,
    /// Of the events that watches resume from.
    pub history_bytes: usize,
    pub watches: usize,
}

pub(super) struct Cached {
    bytes: Family<Gauge>,
    history_bytes: Family<Gauge>,
    watches: Family<Gauge>,
}

impl Default for Cached {
    fn default() -> Self {
        let family = |name, help| Family::new(name, help, &["resource"], Gauge::default);
        Self {
            bytes: family("coracle_cache_bytes", "Memory of the objects in the watch cache, by resource."),
            history_bytes: family(
                "coracle_cache_history_bytes",
                "Memory of the recent events that watches resume from, by resource.",
            ),
            watches: family("coracle_cache_watches", "Watches at this moment, by resource."),
        }
    }
}

impl Cached {
    pub fn all(&self) -> [&Family<Gauge>; 3] {
        [&self.bytes, &self.history_bytes, &self.watches]
    }

    pub fn set(&self, resource: &str, figures: Figures) {
        let values = [figures.bytes, figures.history_bytes, figures.watches];
        for (family, value) in self.all().into_iter().zip(values) {
            family.with(&[resource], |gauge| gauge.set(i64::try_from(value).unwrap_or(i64::MAX)));
        }
    }

    pub fn retain(&self, keep: impl Fn(&[Box<str>]) -> bool) {
        self.all().into_iter().for_each(|family| family.retain(&keep));
    }

    pub fn render(&self, text: &mut Text) {
        self.all().into_iter().for_each(|family| family.render(text));
    }
}
