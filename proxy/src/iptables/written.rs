//! What is in force, and the smallest step from there to a plan.

use super::rules::{self, RuleSet, is_dynamic};
use crate::plan::{Plan, changed};
use coracle_client::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};

/// The tables that hold rules of ours.
pub const TABLES: [&str; 2] = ["filter", "nat"];

/// What is in force: by Service, and in all.
pub struct Written {
    pub plan: Plan,
    pub whole: RuleSet,
    fragments: BTreeMap<ObjectKey, RuleSet>,
}

/// Chains to fill and chains to remove, by table in the order of [`TABLES`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Step {
    fill: [BTreeMap<String, String>; 2],
    gone: [BTreeSet<String>; 2],
}

impl Step {
    /// For iptables-restore: declares every chain (which empties it), fills it, and removes those that are no longer
    /// wanted. Empty where there is nothing to do.
    pub fn input(&self, at: usize) -> String {
        let (fill, gone) = (&self.fill[at], &self.gone[at]);
        if fill.is_empty() && gone.is_empty() {
            return String::new();
        }
        let mut text = format!("*{}\n", TABLES[at]);
        for chain in fill.keys().chain(gone) {
            text.push_str(&format!(":{chain} - [0:0]\n"));
        }
        text.extend(fill.values().map(String::as_str));
        text.extend(gone.iter().map(|chain| format!("-X {chain}\n")));
        text.push_str("COMMIT\n");
        text
    }
}

impl Written {
    pub fn new(plan: &Plan) -> Self {
        let one = |(key, ports): (&ObjectKey, &crate::plan::Ports)| {
            (key.clone(), rules::service(ports, &plan.settings))
        };
        let fragments: BTreeMap<ObjectKey, RuleSet> = plan.services.iter().map(one).collect();
        let mut whole = rules::first(plan);
        fragments.values().for_each(|fragment| whole.append(fragment));
        whole.append(&rules::last(plan));
        Self { plan: plan.clone(), whole, fragments }
    }

    /// From another state of ours.
    pub fn step_from(&self, before: &RuleSet) -> Step {
        let mut step = Step::default();
        for at in 0..2 {
            let (was, is) = (before.chains(at), self.whole.chains(at));
            let differing = is.iter().filter(|(chain, rules)| was.get(*chain) != Some(rules));
            step.fill[at] = differing.map(|(chain, rules)| (chain.clone(), rules.clone())).collect();
            step.gone[at] = was.keys().filter(|chain| !is.contains_key(*chain)).cloned().collect();
        }
        step
    }

    /// From a state of which only the names of chains are known.
    pub fn step_from_unknown(&self, known: &[BTreeSet<String>; 2]) -> Step {
        let mut step = self.step_from(&RuleSet::default());
        for (at, known) in known.iter().enumerate() {
            let is = self.whole.chains(at);
            step.gone[at] = known.iter().filter(|chain| !is.contains_key(*chain)).cloned().collect();
        }
        step
    }

    /// On to a plan with the same settings. Costs what the changed Services cost, and the chains of all where their lines
    /// there change.
    pub fn advance(&mut self, plan: &Plan) -> Step {
        let mut step = Step::default();
        let mut shared: [BTreeSet<String>; 2] = Default::default();
        let before = std::mem::replace(&mut self.plan, plan.clone());
        for (key, _, now) in changed(&before.services, &plan.services) {
            let new = now.map(|ports| rules::service(ports, &plan.settings)).unwrap_or_default();
            let old = self.fragments.remove(key).unwrap_or_default();
            for (at, shared) in shared.iter_mut().enumerate() {
                self.exchange(at, old.chains(at), new.chains(at), &mut step, shared);
            }
            if now.is_some() {
                self.fragments.insert(key.clone(), new);
            }
        }
        let (first, last) = (rules::first(plan), rules::last(plan));
        for (at, chains) in shared.into_iter().enumerate() {
            for chain in chains {
                let of = self.fragments.values();
                let parts = std::iter::once(&first).chain(of).chain(std::iter::once(&last));
                let rules: String = parts.filter_map(|part| part.chains(at).get(&chain).cloned()).collect();
                self.whole.chains_mut(at).insert(chain.clone(), rules.clone());
                step.fill[at].insert(chain, rules);
            }
        }
        step
    }

    /// Puts a Service's own chains in the place of those it had, and notes in which chains of all its lines differ.
    fn exchange(
        &mut self,
        at: usize,
        old: &BTreeMap<String, String>,
        new: &BTreeMap<String, String>,
        step: &mut Step,
        shared: &mut BTreeSet<String>,
    ) {
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for chain in names.into_iter().filter(|chain| old.get(*chain) != new.get(*chain)) {
            match new.get(chain) {
                _ if !is_dynamic(chain) => {
                    shared.insert(chain.clone());
                }
                Some(rules) => {
                    self.whole.chains_mut(at).insert(chain.clone(), rules.clone());
                    step.fill[at].insert(chain.clone(), rules.clone());
                }
                None => {
                    self.whole.chains_mut(at).remove(chain);
                    step.gone[at].insert(chain.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use crate::iptables::rules::tests::{networks, port};
    use std::sync::Arc;

    fn plan(services: &[(&str, &[(&str, bool)])]) -> Plan {
        let mut plan = Plan { settings: Arc::new(networks()), ..Plan::empty(Family::V4) };
        for (name, endpoints) in services {
            let mut one = port(endpoints);
            one.name.service = (*name).to_owned();
            plan.services.insert(ObjectKey::new("default", *name), Arc::new(vec![one]));
        }
        plan
    }

    #[test]
    fn only_what_differs_is_written() {
        let before = plan(&[("a", &[("10.42.0.2", true)]), ("b", &[("10.42.0.3", true)])]);
        let mut written = Written::new(&before);
        assert_eq!(written.advance(&before), Step::default());
        // Another endpoint of one Service: its own chains, and none of all Services'.
        let step = written.advance(&plan(&[("a", &[("10.42.0.4", true)]), ("b", &[("10.42.0.3", true)])]));
        let (filled, gone) = (&step.fill[1], &step.gone[1]);
        assert_eq!(filled.len(), 2, "{filled:?}");
        assert!(filled.keys().all(|chain| is_dynamic(chain)) && step.fill[0].is_empty());
        assert_eq!(gone.len(), 1);
        assert!(step.input(0).is_empty() && step.input(1).contains("-X KUBE-SEP-"));
        // A Service goes: its chains, and its lines in the chains of all.
        let step = written.advance(&plan(&[("b", &[("10.42.0.3", true)])]));
        assert_eq!(step.fill[1].keys().collect::<Vec<_>>(), ["KUBE-SERVICES"]);
        assert_eq!(step.gone[1].len(), 2);
    }

    #[test]
    fn steps_lead_to_what_is_made_at_once() {
        let plans = [
            plan(&[("a", &[("10.42.0.2", true)])]),
            plan(&[("a", &[]), ("b", &[("10.42.0.3", true)])]),
            plan(&[("b", &[("10.42.0.3", true), ("10.42.1.3", false)])]),
            plan(&[]),
        ];
        let mut written = Written::new(&plans[0]);
        for plan in &plans {
            written.advance(plan);
            assert_eq!(written.whole, Written::new(plan).whole);
        }
    }
}
