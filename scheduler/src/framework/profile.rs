//! A profile put together: the plugins of each extension point, ready to run.

use super::{CycleState, NodeScore, Plugin, Point, Status};
use crate::cache::{NodeInfo, PodInfo, Snapshot};
use crate::config::Profile;
use crate::plugins::Registry;
use std::sync::Arc;

/// The highest normalized score of one plugin.
pub const MAX_NODE_SCORE: i64 = 100;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProfileError {
    #[error("profile {profile}: plugin {plugin} does not exist")]
    UnknownPlugin { profile: String, plugin: String },
    #[error("profile {0}: exactly one plugin must sort the queue")]
    QueueSort(String),
    #[error("profile {0}: at least one plugin must bind")]
    Bind(String),
}

type Plugins = Vec<Arc<dyn Plugin>>;

/// The plugins of one profile by extension point.
pub struct Framework {
    pub scheduler_name: String,
    pre_enqueue: Plugins,
    pub(crate) sort: Arc<dyn Plugin>,
    pre_filter: Plugins,
    filter: Plugins,
    post_filter: Plugins,
    pre_score: Plugins,
    score: Vec<(Arc<dyn Plugin>, i64)>,
    pub(crate) reserve: Plugins,
    pub(crate) permit: Plugins,
    pub(crate) pre_bind: Plugins,
    pub(crate) bind: Plugins,
    pub(crate) post_bind: Plugins,
    all: Plugins,
}

impl Framework {
    /// Refuses a profile that names an unknown plugin, or lacks one that sorts or binds.
    pub fn new(profile: &Profile, registry: &Registry) -> Result<Self, ProfileError> {
        let mut all = Vec::new();
        for (name, weight) in &profile.plugins {
            let plugin = registry.get(name).ok_or_else(|| ProfileError::UnknownPlugin {
                profile: profile.scheduler_name.clone(),
                plugin: name.clone(),
            })?;
            all.push((plugin, *weight));
        }
        let at = |point: Point| -> Plugins {
            all.iter().filter(|(p, _)| p.points().contains(&point)).map(|(p, _)| p.clone()).collect()
        };
        let [sort] = at(Point::QueueSort)
            .try_into()
            .map_err(|_: Plugins| ProfileError::QueueSort(profile.scheduler_name.clone()))?;
        let bind = at(Point::Bind);
        if bind.is_empty() {
            return Err(ProfileError::Bind(profile.scheduler_name.clone()));
        }
        let score =
            all.iter().filter(|(p, w)| *w > 0 && p.points().contains(&Point::Score)).cloned().collect();
        Ok(Self {
            scheduler_name: profile.scheduler_name.clone(),
            pre_enqueue: at(Point::PreEnqueue),
            sort,
            pre_filter: at(Point::PreFilter),
            filter: at(Point::Filter),
            post_filter: at(Point::PostFilter),
            pre_score: at(Point::PreScore),
            score,
            reserve: at(Point::Reserve),
            permit: at(Point::Permit),
            pre_bind: at(Point::PreBind),
            bind,
            post_bind: at(Point::PostBind),
            all: all.iter().map(|(p, _)| p.clone()).collect(),
        })
    }

    pub(crate) fn plugin(&self, name: &str) -> Option<&Arc<dyn Plugin>> {
        self.all.iter().find(|p| p.name() == name)
    }

    /// The first plugin that keeps the pod out of the queue.
    pub(crate) fn kept_out_by(&self, pod: &PodInfo) -> Option<&'static str> {
        self.pre_enqueue.iter().find(|p| !p.pre_enqueue(pod).is_success()).map(|p| p.name())
    }

    /// Runs PreFilter; the first refusal ends it and says whose it was.
    pub(crate) fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot,
    ) -> Result<(), (&'static str, Status)> {
        for plugin in &self.pre_filter {
            match plugin.pre_filter(state, pod, snapshot) {
                Status::Success => {}
                Status::Skip => state.skip_filter(plugin.name()),
                refusal => return Err((plugin.name(), refusal)),
            }
        }
        Ok(())
    }

    /// Runs Filter for one node; the first refusal ends it and says whose it was.
    pub(crate) fn filter(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
    ) -> Result<(), (&'static str, Status)> {
        for plugin in self.filter.iter().filter(|p| state.filters(p.name())) {
            let status = plugin.filter(state, pod, node);
            if !status.is_success() {
                return Err((plugin.name(), status));
            }
        }
        Ok(())
    }

    /// Runs PostFilter until one plugin has helped. The last reasons are what the event says of preemption.
    pub(crate) fn post_filter(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot,
    ) -> Option<Status> {
        let mut answer = None;
        for plugin in &self.post_filter {
            let status = plugin.post_filter(state, pod, snapshot);
            let helped = status.is_success();
            answer = Some(status);
            if helped {
                break;
            }
        }
        answer
    }

    /// The weighted total of every node, in the order of `nodes`, or what failed.
    pub(crate) fn score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot,
        nodes: &[usize],
    ) -> Result<Vec<i64>, Status> {
        let infos: Vec<&NodeInfo> = nodes.iter().map(|i| snapshot.node(*i)).collect();
        for plugin in &self.pre_score {
            match plugin.pre_score(state, pod, &infos) {
                Status::Success => {}
                Status::Skip => state.skip_score(plugin.name()),
                failed => return Err(failed),
            }
        }
        let mut totals = vec![0; nodes.len()];
        for (plugin, weight) in self.score.iter().filter(|(p, _)| state.scores(p.name())) {
            let score = |(node, info): (&usize, &&NodeInfo)| NodeScore {
                node: *node,
                score: plugin.score(state, pod, info),
            };
            let mut scores: Vec<NodeScore> = nodes.iter().zip(&infos).map(score).collect();
            plugin.normalize(state, pod, &mut scores);
            for (total, scored) in totals.iter_mut().zip(&scores) {
                *total += scored.score * weight;
            }
        }
        Ok(totals)
    }
}
