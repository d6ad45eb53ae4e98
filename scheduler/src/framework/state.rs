//! What plugins remember of one pod from one extension point to the next.

use std::any::Any;

/// One slot a plugin, filled in PreFilter or PreScore and read in Filter and Score. Lives for one cycle.
#[derive(Default)]
pub struct CycleState {
    slots: Vec<(&'static str, Box<dyn Any + Send + Sync>)>,
    skipped_filters: Vec<&'static str>,
    skipped_scores: Vec<&'static str>,
}

impl CycleState {
    /// Keeps `value` under the plugin's name, in place of what was there.
    pub fn put<T: Any + Send + Sync>(&mut self, key: &'static str, value: T) {
        self.slots.retain(|(k, _)| *k != key);
        self.slots.push((key, Box::new(value)));
    }

    pub fn get<T: Any>(&self, key: &'static str) -> Option<&T> {
        self.slots.iter().find(|(k, _)| *k == key).and_then(|(_, value)| value.downcast_ref())
    }

    pub(crate) fn skip_filter(&mut self, plugin: &'static str) {
        self.skipped_filters.push(plugin);
    }

    pub(crate) fn skip_score(&mut self, plugin: &'static str) {
        self.skipped_scores.push(plugin);
    }

    pub(crate) fn filters(&self, plugin: &'static str) -> bool {
        !self.skipped_filters.contains(&plugin)
    }

    pub(crate) fn scores(&self, plugin: &'static str) -> bool {
        !self.skipped_scores.contains(&plugin)
    }
}
