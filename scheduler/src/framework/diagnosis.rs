//! Why no node fits, in upstream's words.

use super::{Status, Unhelpful};
use std::collections::BTreeMap;

/// Reasons counted over nodes, and the plugins that gave them.
#[derive(Clone, Debug, Default)]
pub struct Diagnosis {
    pub nodes: usize,
    /// Nodes by reason.
    reasons: BTreeMap<String, usize>,
    /// What PreFilter said of all nodes at once.
    pub for_all: Option<String>,
    /// Plugins whose `queueing_hint` is asked about later events.
    pub plugins: Vec<&'static str>,
    /// Slots of the nodes on which taking pods away could help.
    pub resolvable: Vec<usize>,
    /// Whether the pod waits for something of its own.
    pub pending: bool,
    /// What PostFilter said.
    pub preemption: Option<Unhelpful>,
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

    /// So many nodes were refused with this.
    pub fn refuse(&mut self, plugin: &'static str, status: &Status, nodes: usize) {
        if nodes == 0 {
            return;
        }
        self.blame(plugin);
        self.pending |= matches!(status, Status::Pending(_));
        self.count(status.reasons().iter().map(AsRef::as_ref), nodes);
    }

    fn count<'r>(&mut self, reasons: impl Iterator<Item = &'r str>, nodes: usize) {
        for reason in reasons {
            *self.reasons.entry(reason.to_owned()).or_insert(0) += nodes;
        }
    }

    /// An extender refused one node.
    pub fn refuse_by_extender(&mut self, reason: &str) {
        self.blame(EXTENDER);
        self.count(std::iter::once(reason), 1);
    }

    /// So many nodes were not looked at, because of these plugins' PreFilter.
    pub fn refuse_absent(&mut self, plugins: Vec<&'static str>, reason: String, nodes: usize) {
        plugins.into_iter().for_each(|p| self.blame(p));
        if nodes > 0 {
            self.reasons.insert(reason, nodes);
        }
    }

    /// PreFilter refused the pod wherever it might go.
    pub fn refuse_all(&mut self, plugins: Vec<&'static str>, reason: String) {
        plugins.into_iter().for_each(|p| self.blame(p));
        self.for_all = Some(reason);
    }

    /// The message of the FailedScheduling event and of the pod's condition.
    pub fn message(&self) -> String {
        self.message_with(self.preemption.as_ref().map_or("", Unhelpful::why))
    }

    /// As [`message`](Self::message), with other words of PostFilter's.
    pub fn message_with(&self, preemption: &str) -> String {
        if self.nodes == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let mut text = format!("0/{} nodes are available:", self.nodes);
        if let Some(reason) = self.for_all.as_ref().filter(|r| !r.is_empty()) {
            text = format!("{text} {reason}.");
        } else if self.for_all.is_none() && !self.reasons.is_empty() {
            let mut counted: Vec<String> = self.reasons.iter().map(|(r, n)| format!("{n} {r}")).collect();
            counted.sort();
            text = format!("{text} {}.", counted.join(", "));
        }
        if !preemption.is_empty() {
            text = format!("{text} {preemption}");
        }
        text
    }
}

/// The name under which extenders' refusals are remembered; every event may change their mind.
pub const EXTENDER: &str = "Extender";
