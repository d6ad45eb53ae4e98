//! Pods that wait for an event, grouped so that a hint is asked once for all pods to which it gives the same answer.

use crate::cache::PodInfo;
use crate::framework::{ClusterEvent, Framework};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Pods of one class that the same plugins refused.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct GroupKey {
    pub class: Arc<[u8]>,
    pub plugins: Vec<&'static str>,
    /// Kept out by PreEnqueue rather than refused in a cycle.
    pub gated: bool,
}

struct Group {
    framework: Arc<Framework>,
    /// Any of them.
    pod: Arc<PodInfo>,
    members: HashSet<String>,
    /// Members that wait for their victims on a node.
    nominated: HashMap<String, HashSet<String>>,
}

impl Group {
    fn helped(&self, key: &GroupKey, event: &ClusterEvent<'_>) -> bool {
        let helps =
            |name: &&str| self.framework.plugin(name).is_none_or(|p| p.queueing_hint(&self.pod, event));
        key.plugins.is_empty() || key.plugins.iter().any(helps)
    }
}

#[derive(Default)]
pub struct Groups {
    by_key: HashMap<GroupKey, Group>,
}

impl Groups {
    pub fn insert(
        &mut self,
        key: &GroupKey,
        framework: &Arc<Framework>,
        pod: &Arc<PodInfo>,
        nominated: Option<&str>,
    ) {
        let group = self.by_key.entry(key.clone()).or_insert_with(|| Group {
            framework: framework.clone(),
            pod: pod.clone(),
            members: HashSet::new(),
            nominated: HashMap::new(),
        });
        let members = match nominated {
            Some(node) => group.nominated.entry(node.to_owned()).or_default(),
            None => &mut group.members,
        };
        members.insert(pod.uid.clone());
    }

    pub fn remove(&mut self, key: &GroupKey, uid: &str, nominated: Option<&str>) {
        let Some(group) = self.by_key.get_mut(key) else { return };
        if let Some(node) = nominated
            && let Some(members) = group.nominated.get_mut(node)
        {
            members.remove(uid);
            if members.is_empty() {
                group.nominated.remove(node);
            }
        }
        group.members.remove(uid);
        if group.members.is_empty() && group.nominated.is_empty() {
            self.by_key.remove(key);
        }
    }

    /// The pods of `highest` priority at most that the event can help. Room that comes free on one node is for those who wait for it there, and for
    /// those who wait for nothing in particular; others keep waiting for their own victims.
    pub fn helped_by(&self, event: &ClusterEvent<'_>, highest: i32) -> Vec<String> {
        let mut helped = Vec::new();
        for (key, group) in &self.by_key {
            // A class has one priority.
            if group.pod.priority > highest || !group.helped(key, event) {
                continue;
            }
            helped.extend(group.members.iter().cloned());
            match event {
                ClusterEvent::PodGone { node, .. } => {
                    helped.extend(group.nominated.get(*node).into_iter().flatten().cloned());
                }
                _ => helped.extend(group.nominated.values().flatten().cloned()),
            }
        }
        helped
    }

    /// How many pods each plugin keeps waiting, by profile.
    pub fn by_plugin(&self) -> HashMap<(&'static str, &str), usize> {
        let mut counts = HashMap::new();
        for (key, group) in &self.by_key {
            let size = group.members.len() + group.nominated.values().map(HashSet::len).sum::<usize>();
            for plugin in &key.plugins {
                *counts.entry((*plugin, group.framework.scheduler_name.as_str())).or_insert(0) += size;
            }
        }
        counts
    }
}
