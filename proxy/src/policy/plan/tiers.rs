//! What administrators' policies say: the first rule that a packet meets decides.

use super::targets::{labelled, selector};
use super::{Direction, PASSES, PolicyPlanner};
use crate::policy::model::{Action, AdminPolicy, AdminRule, Tier};
use coracle_api::selector::LabelSelector;
use std::collections::BTreeMap;

/// A line of a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Decided(String),
    /// What a packet must be that the next tier decides on.
    Passed(String),
}

pub(super) fn rules_of(policy: &AdminPolicy, direction: Direction) -> &[AdminRule] {
    match direction {
        Direction::Ingress => &policy.ingress,
        Direction::Egress => &policy.egress,
    }
}

/// A tier's lines, where what it passes on goes by `next`.
pub(super) fn ending(lines: Option<&Vec<Line>>, next: &str) -> Vec<String> {
    let line = |line: &Line| match line {
        Line::Decided(line) => line.clone(),
        Line::Passed(what) => format!("{what}{next}"),
    };
    lines.into_iter().flatten().map(line).collect()
}

impl PolicyPlanner<'_> {
    /// By the pods of this node that policies of a tier select: what those say, in their order.
    pub(super) fn tier(&mut self, tier: Tier, direction: Direction) -> BTreeMap<usize, Vec<Line>> {
        let mut by_pod: BTreeMap<usize, Vec<Line>> = BTreeMap::new();
        let all = self.world.admin.iter().filter(|policy| policy.tier == tier);
        for policy in all.filter(|policy| !rules_of(policy, direction).is_empty()) {
            let namespaces = self.named(&selector(&policy.subject.namespaces));
            let pods = policy.subject.pods.as_ref().map_or_else(LabelSelector::everything, selector);
            let pods = self.local(|target| {
                namespaces.contains(target.namespace) && labelled(&pods, target.pod.metadata.labels.as_ref())
            });
            if pods.is_empty() {
                continue;
            }
            let lines: Vec<Line> =
                rules_of(policy, direction).iter().flat_map(|rule| self.decided(rule, direction)).collect();
            for at in pods {
                by_pod.entry(at).or_default().extend(lines.iter().cloned());
            }
        }
        by_pod
    }

    fn decided(&mut self, rule: &AdminRule, direction: Direction) -> Vec<Line> {
        let verdict = match rule.action {
            Action::Allow => PASSES,
            Action::Deny => "drop",
            Action::Pass => "",
        };
        let lines = self.rule(&rule.peers, &rule.ports, direction, verdict).into_iter();
        lines.map(if verdict.is_empty() { Line::Passed } else { Line::Decided }).collect()
    }
}
