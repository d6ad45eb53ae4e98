//! What resources of one container, or of one pod, agree upon
//! (<https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/>).

use super::hints::{Hint, Hints, Mask};
use super::machine::Machine;
use std::cmp::Ordering;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    #[default]
    None,
    BestEffort,
    Restricted,
    SingleNumaNode,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    #[default]
    Container,
    Pod,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub policy: Policy,
    pub scope: Scope,
    /// Of sets with as many nodes the one whose nodes are nearest to one another.
    pub closest: bool,
    /// A policy is refused on a machine with more nodes: the number of their sets doubles with each.
    pub most_nodes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { policy: Policy::None, scope: Scope::Container, closest: false, most_nodes: 8 }
    }
}

impl Settings {
    /// Where the resources are to be taken from. `None`: the policy does not let the pod in.
    pub fn decide(&self, machine: &Machine, hints: &[Hints]) -> Option<Hint> {
        let anywhere = Hint { nodes: None, preferred: false };
        if self.policy == Policy::None {
            return Some(anywhere);
        }
        let all = Mask::of(machine.node_ids());
        let mut lists = lists(hints);
        if self.policy == Policy::SingleNumaNode {
            let one = |hint: &Hint| hint.preferred && hint.nodes.is_none_or(|nodes| nodes.count() == 1);
            lists.iter_mut().for_each(|list| list.retain(one));
        }
        let best = self.merge(machine, all, &lists);
        let hint = if self.policy == Policy::SingleNumaNode && best.nodes == Some(all) && all.count() > 1 {
            Hint { nodes: None, ..best }
        } else {
            best
        };
        (self.policy == Policy::BestEffort || hint.preferred).then_some(hint)
    }

    /// The best of all ways to combine one hint of each list.
    fn merge(&self, machine: &Machine, all: Mask, lists: &[Vec<Hint>]) -> Hint {
        let least = |list: &Vec<Hint>| list.iter().filter_map(|hint| hint.nodes).map(Mask::count).min();
        let most_of_least = lists.iter().filter_map(least).max().unwrap_or(0);
        let mut best: Option<Hint> = None;
        each(lists, &mut Vec::new(), &mut |combined| {
            let hint = together(all, combined);
            let better = match best {
                _ if hint.nodes.is_none_or(|nodes| nodes.count() == 0) => false,
                None => true,
                Some(best) => self.is_better(machine, most_of_least, hint, best),
            };
            if better {
                best = Some(hint);
            }
        });
        best.unwrap_or(Hint { nodes: Some(all), preferred: false })
    }

    fn is_better(&self, machine: &Machine, wanted: usize, hint: Hint, best: Hint) -> bool {
        if hint.preferred != best.preferred {
            return hint.preferred;
        }
        let (Some(one), Some(other)) = (hint.nodes, best.nodes) else { return false };
        if hint.preferred {
            return self.is_narrower(machine, one, other);
        }
        // Nobody's favourite: as near as can be to what the widest of them needs, rather above than below.
        match (other.count().cmp(&wanted), one.count().cmp(&wanted)) {
            (Ordering::Greater, _) => self.is_narrower(machine, one, other),
            (Ordering::Equal, Ordering::Equal) => self.is_narrower(machine, one, other),
            (Ordering::Equal, _) | (Ordering::Less, Ordering::Greater) => false,
            (Ordering::Less, Ordering::Equal) => true,
            (Ordering::Less, Ordering::Less) => match one.count().cmp(&other.count()) {
                Ordering::Greater => true,
                Ordering::Less => false,
                Ordering::Equal => self.is_narrower(machine, one, other),
            },
        }
    }

    fn is_narrower(&self, machine: &Machine, one: Mask, other: Mask) -> bool {
        if one.count() == other.count() && self.closest {
            match machine.distance(one).total_cmp(&machine.distance(other)) {
                Ordering::Less => return true,
                Ordering::Greater => return false,
                Ordering::Equal => {}
            }
        }
        one.is_narrower(other)
    }
}

fn lists(hints: &[Hints]) -> Vec<Vec<Hint>> {
    let list = |hints: &Option<Vec<Hint>>| match hints {
        None => vec![Hint::ANYWHERE],
        Some(list) if list.is_empty() => vec![Hint { nodes: None, preferred: false }],
        Some(list) => list.clone(),
    };
    let lists: Vec<Vec<Hint>> = hints.iter().flat_map(|hints| hints.values().map(list)).collect();
    // Who wants nothing that is placed is at home everywhere.
    if lists.is_empty() { vec![vec![Hint::ANYWHERE]] } else { lists }
}

fn each(lists: &[Vec<Hint>], chosen: &mut Vec<Hint>, then: &mut impl FnMut(&[Hint])) {
    match lists.split_first() {
        None => then(chosen),
        Some((first, rest)) => {
            for hint in first {
                chosen.push(*hint);
                each(rest, chosen, then);
                chosen.pop();
            }
        }
    }
}

/// The nodes that all have in common. Preferred where each prefers them, and all the same.
fn together(all: Mask, hints: &[Hint]) -> Hint {
    let mut named = hints.iter().filter_map(|hint| hint.nodes);
    let first = named.next();
    let same = named.clone().all(|nodes| Some(nodes) == first);
    let nodes = named.chain(first).fold(all, Mask::and);
    Hint { nodes: Some(nodes), preferred: same && hints.iter().all(|hint| hint.preferred) }
}

#[cfg(test)]
mod tests {
    use super::super::machine::made;
    use super::*;

    fn hint(nodes: &[u32], preferred: bool) -> Hint {
        Hint { nodes: Some(Mask::of(nodes.iter().copied())), preferred }
    }

    fn of(name: &str, list: Option<Vec<Hint>>) -> Hints {
        Hints::from([(name.to_owned(), list)])
    }

    fn decide(policy: Policy, hints: &[Hints]) -> Option<Hint> {
        Settings { policy, ..Settings::default() }.decide(&made(2, 1, 4, 1), hints)
    }

    #[test]
    fn policies_differ_in_what_they_let_in() {
        let anywhere = vec![hint(&[0], true), hint(&[1], true), hint(&[0, 1], false)];
        let both = [
            of("cpu", Some(anywhere.clone())),
            of("gpu", Some(vec![hint(&[1], true), hint(&[0, 1], false)])),
        ];
        for policy in [Policy::BestEffort, Policy::Restricted, Policy::SingleNumaNode] {
            assert_eq!(decide(policy, &both), Some(hint(&[1], true)), "{policy:?}");
        }
        let apart = [of("cpu", Some(vec![hint(&[0], true)])), of("gpu", Some(vec![hint(&[1], true)]))];
        assert_eq!(decide(Policy::BestEffort, &apart), Some(hint(&[0, 1], false)));
        assert_eq!(decide(Policy::Restricted, &apart), None);
        let wide = [of("cpu", Some(vec![hint(&[0, 1], true)]))];
        assert_eq!(decide(Policy::Restricted, &wide), Some(hint(&[0, 1], true)));
        assert_eq!(decide(Policy::SingleNumaNode, &wide), None);
        assert_eq!(decide(Policy::SingleNumaNode, &[of("gpu", Some(Vec::new()))]), None);
        for policy in [Policy::None, Policy::BestEffort, Policy::Restricted, Policy::SingleNumaNode] {
            assert!(decide(policy, &[of("gpu", None)]).is_some(), "{policy:?}");
            assert!(decide(policy, &[]).is_some(), "{policy:?}");
        }
    }

    #[test]
    fn near_nodes_are_chosen_where_that_is_wanted() {
        let machine = made(2, 2, 2, 1);
        let pairs = [hint(&[0, 2], true), hint(&[2, 3], true)];
        let decide = |closest| {
            let settings = Settings { policy: Policy::Restricted, closest, ..Settings::default() };
            settings.decide(&machine, &[of("cpu", Some(pairs.to_vec()))]).unwrap()
        };
        assert_eq!(decide(false), pairs[0]);
        assert_eq!(decide(true), pairs[1]);
    }

    #[test]
    fn nobodys_favourite_is_as_wide_as_is_needed() {
        let cpu = vec![hint(&[0, 1], true), hint(&[0], false)];
        let gpu = vec![hint(&[0], false), hint(&[0, 1], false)];
        let all = [of("cpu", Some(cpu)), of("gpu", Some(gpu))];
        assert_eq!(decide(Policy::BestEffort, &all), Some(hint(&[0], false)));
    }
}
