//! Why no node fits, in upstream's words.

use crate::framework::Status;
use std::collections::BTreeMap;

/// Reasons counted over nodes, and the plugins that gave them.
#[derive(Debug, Default)]
pub struct Diagnosis {
    pub nodes: usize,
    /// Nodes by reason.
    reasons: BTreeMap<String, usize>,
    /// What PreFilter said of all nodes at once.
    for_all: Option<String>,
    /// Plugins whose `helps` is asked about later events.
    pub plugins: Vec<&'static str>,
    /// What PostFilter said, if a plugin is there.
    pub preemption: Option<Status>,
}

impl Diagnosis {
    pub fn new(nodes: usize) -> Self {
        Self { nodes, ..Self::default() }
    }

    fn blame(&mut self, plugin: &'static str) {
        if !self.plugins.contains(&plugin) {
            self.plugins.push(plugin);
        }
    }

    /// One node was refused.
    pub fn refuse(&mut self, plugin: &'static str, status: &Status) {
        self.blame(plugin);
        for reason in status.reasons() {
            match self.reasons.get_mut(reason.as_ref()) {
                Some(count) => *count += 1,
                None => {
                    self.reasons.insert(reason.to_string(), 1);
                }
            }
        }
    }

    /// PreFilter refused the pod wherever it might go.
    pub fn refuse_all(&mut self, plugin: &'static str, status: &Status) {
        self.blame(plugin);
        self.for_all = Some(status.reasons().join(", "));
    }

    /// The message of the FailedScheduling event and of the pod's condition.
    pub fn message(&self) -> String {
        if self.nodes == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let mut counted: Vec<String> = self.reasons.iter().map(|(r, n)| format!("{n} {r}")).collect();
        counted.sort();
        let mut text = format!("0/{} nodes are available", self.nodes);
        if let Some(reason) = &self.for_all {
            text = format!("{text}: {reason}.");
        } else if counted.is_empty() {
            text.push('.');
        } else {
            text = format!("{text}: {}.", counted.join(", "));
        }
        let preemption = self.preemption.as_ref().map(|s| s.reasons().join(", ")).filter(|r| !r.is_empty());
        if let Some(reason) = preemption {
            text = format!("{text} {reason}");
        }
        text
    }
}
