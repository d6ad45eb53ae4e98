//! What plugins remember of one pod from one extension point to the next.

use super::probe::Probe;
use std::any::Any;
use std::collections::HashSet;

/// One slot a key, filled in PreFilter or PreScore and read in Filter and Score. By custom the key is the plugin's
/// name, with a suffix when it needs several.
#[derive(Default)]
pub struct CycleState {
    slots: Vec<(&'static str, Box<dyn Any + Send + Sync>)>,
    skipped_filters: Vec<&'static str>,
    skipped_scores: Vec<&'static str>,
    only: Vec<(&'static str, HashSet<String>)>,
    expired: bool,
    /// Measures the plugins of this cycle.
    pub(crate) probe: Option<Probe>,
}

impl CycleState {
    /// Keeps `value` under the key, in place of what was there.
    pub fn put<T: Any + Send + Sync>(&mut self, key: &'static str, value: T) {
        self.remove(key);
        self.slots.push((key, Box::new(value)));
    }

    pub fn get<T: Any>(&self, key: &'static str) -> Option<&T> {
        self.slots.iter().find(|(k, _)| *k == key).and_then(|(_, value)| value.downcast_ref())
    }

    pub fn get_mut<T: Any>(&mut self, key: &'static str) -> Option<&mut T> {
        self.slots.iter_mut().find(|(k, _)| *k == key).and_then(|(_, value)| value.downcast_mut())
    }

    pub fn remove(&mut self, key: &'static str) {
        self.slots.retain(|(k, _)| *k != key);
    }

    /// Says in PreFilter that the pod can only run on these nodes: others are not looked at.
    pub fn only_nodes(&mut self, plugin: &'static str, names: HashSet<String>) {
        self.only.retain(|(p, _)| *p != plugin);
        self.only.push((plugin, names));
    }

    /// The nodes that all plugins leave, and who restricted them; `None` when nobody did.
    pub(crate) fn remaining_nodes(&self) -> Option<(HashSet<&str>, Vec<&'static str>)> {
        let (_, first) = self.only.first()?;
        let names = first.iter().map(String::as_str);
        let left = names.filter(|name| self.only.iter().all(|(_, names)| names.contains(*name))).collect();
        let mut plugins: Vec<&'static str> = self.only.iter().map(|(p, _)| *p).collect();
        plugins.sort_unstable();
        Some((left, plugins))
    }

    /// Whether the plugins' restrictions contradict each other.
    pub(crate) fn leaves_no_node(&self) -> bool {
        self.remaining_nodes().is_some_and(|(names, _)| names.is_empty())
    }

    /// Calls the plugin's Filter again: what it skipped for is no longer so.
    pub fn resume_filter(&mut self, plugin: &'static str) {
        self.skipped_filters.retain(|p| *p != plugin);
    }

    /// Says that the state could not be corrected by what happened: it is made anew before it is used again.
    pub fn expire(&mut self) {
        self.expired = true;
    }

    pub fn has_expired(&self) -> bool {
        self.expired
    }

    /// Makes ready for the plugin's PreFilter.
    pub(crate) fn restart(&mut self, plugin: &'static str) {
        self.resume_filter(plugin);
        self.only.retain(|(p, _)| *p != plugin);
    }

    pub(crate) fn skip_filter(&mut self, plugin: &'static str) {
        self.skipped_filters.push(plugin);
    }

    pub(crate) fn clear_skipped_scores(&mut self) {
        self.skipped_scores.clear();
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
