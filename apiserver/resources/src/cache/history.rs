//! The recent events of one resource, for watches that resume.

use super::event::Event;
use super::watcher::{Filter, Item};
use coracle_store::Revision;
use std::collections::VecDeque;
use std::sync::Arc;

/// Events kept here per resource; older ones are read from the store's history, which is slower but complete.
const EVENTS: usize = 512;

/// Bytes of objects kept here per resource: with thirty busy resources the history stays under 8 MiB.
const BYTES: usize = 256 * 1024;

#[derive(Default)]
pub struct History {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Every event after this revision is here.
    complete_after: Revision,
}

impl History {
    /// Forgets everything; events after `revision` will be pushed.
    pub fn start_at(&mut self, revision: Revision) {
        self.events.clear();
        self.bytes = 0;
        self.complete_after = revision;
    }

    /// Forgets events up to and including `revision`.
    pub fn forget(&mut self, revision: Revision) {
        while let Some(oldest) = self.events.pop_front_if(|oldest| oldest.revision <= revision) {
            self.bytes -= oldest.weight();
            self.complete_after = oldest.revision;
        }
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Of the objects in it, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn push(&mut self, event: Arc<Event>) {
        self.bytes += event.weight();
        self.events.push_back(event);
        while self.events.len() > EVENTS || (self.bytes > BYTES && self.events.len() > 1) {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.weight();
            self.complete_after = oldest.revision;
        }
    }

    /// What a watcher with this filter has missed since `after`; `None` if that is no longer known here.
    pub fn after(&self, after: Revision, filter: &Filter) -> Option<Vec<Item>> {
        if after < self.complete_after {
            return None;
        }
        let start = self.events.partition_point(|e| e.revision <= after);
        let missed = self.events.range(start..);
        Some(missed.filter_map(|e| filter.view(e).map(|seen| (seen, e.clone()))).collect())
    }
}
