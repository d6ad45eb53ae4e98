//! A profile put together: the plugins of each extension point, ready to run.

use super::probe::timed;
use super::{CycleState, Handle, Plugin, Point, Registry, Reuse, Status};
use crate::cache::{NodeInfo, PodInfo, Snapshot};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A named set of plugins, chosen by a pod's `spec.schedulerName`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    pub scheduler_name: String,
    /// Overrides the configuration's.
    pub percentage_of_nodes_to_score: Option<usize>,
    /// Plugins and the weights of their scores, by extension point, in the order in which they run. A weight of 0
    /// counts as 1.
    pub plugins: BTreeMap<Point, Vec<(String, i64)>>,
    /// Arguments of plugins, by name.
    pub arguments: HashMap<String, Value>,
}

/// Why a profile cannot run; upstream words these alike.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProfileError {
    #[error("profile {profile}: plugin {plugin} does not exist")]
    UnknownPlugin { profile: String, plugin: String },
    #[error("profile {profile}: plugin {plugin} does not extend {point} plugin")]
    WrongPoint { profile: String, plugin: String, point: &'static str },
    #[error("profile {profile}: plugin {plugin}: {why}")]
    Arguments { profile: String, plugin: String, why: String },
    #[error("profile {0}: exactly one queue sort plugin required")]
    QueueSort(String),
    #[error("profile {0}: at least one bind plugin is needed")]
    Bind(String),
}

/// A plugin's refusal: its place in the order of filters, its name, and what it said.
pub(crate) type Refusal = (usize, &'static str, Status);

/// A plugin that filters, with what the scheduler asks it about often.
pub(crate) struct Filtering {
    pub plugin: Arc<dyn Plugin>,
    pub name: &'static str,
    pub reuse: Reuse,
    /// Pods that it was asked about.
    asked: AtomicU64,
}

pub(crate) struct Scoring {
    pub plugin: Arc<dyn Plugin>,
    pub name: &'static str,
    pub weight: i64,
    /// The column of its kept scores.
    pub column: Option<usize>,
    asked: AtomicU64,
}

/// The plugins of one profile by extension point.
pub struct Framework {
    pub scheduler_name: String,
    /// Overrides the configuration's.
    pub percentage: Option<usize>,
    pub(crate) pre_enqueue: Vec<Arc<dyn Plugin>>,
    pub(crate) sort: Arc<dyn Plugin>,
    pub(crate) pre_filter: Vec<Filtering>,
    pub(crate) filter: Vec<Filtering>,
    pub(crate) post_filter: Vec<Arc<dyn Plugin>>,
    pub(crate) pre_score: Vec<Arc<dyn Plugin>>,
    pub(crate) score: Vec<Scoring>,
    pub(crate) reserve: Vec<Arc<dyn Plugin>>,
    pub(crate) permit: Vec<Arc<dyn Plugin>>,
    pub(crate) pre_bind: Vec<Arc<dyn Plugin>>,
    pub(crate) bind: Vec<Arc<dyn Plugin>>,
    pub(crate) post_bind: Vec<Arc<dyn Plugin>>,
    /// Plugins whose state follows pods that come and go.
    following: Vec<Arc<dyn Plugin>>,
    all: HashMap<&'static str, Arc<dyn Plugin>>,
}

/// Plugins with weights.
type Weighted = Vec<(Arc<dyn Plugin>, i64)>;

/// The plugins of a profile, made and by point.
struct Made<'a> {
    profile: &'a Profile,
    all: HashMap<&'static str, Arc<dyn Plugin>>,
}

impl Made<'_> {
    fn at(&self, point: Point) -> Result<Weighted, ProfileError> {
        let named = self.profile.plugins.get(&point).into_iter().flatten();
        let mut found = Vec::new();
        for (name, weight) in named {
            let plugin = self.all.get(name.as_str()).ok_or_else(|| ProfileError::UnknownPlugin {
                profile: self.profile.scheduler_name.clone(),
                plugin: name.clone(),
            })?;
            if !plugin.points().contains(&point) {
                return Err(ProfileError::WrongPoint {
                    profile: self.profile.scheduler_name.clone(),
                    plugin: name.clone(),
                    point: point.field(),
                });
            }
            found.push((plugin.clone(), *weight));
        }
        Ok(found)
    }

    fn only(&self, point: Point) -> Result<Vec<Arc<dyn Plugin>>, ProfileError> {
        Ok(self.at(point)?.into_iter().map(|(plugin, _)| plugin).collect())
    }

    fn filtering(&self, point: Point) -> Result<Vec<Filtering>, ProfileError> {
        let wrap = |plugin: Arc<dyn Plugin>| Filtering {
            name: plugin.name(),
            reuse: plugin.reuse(),
            plugin,
            asked: AtomicU64::new(0),
        };
        Ok(self.only(point)?.into_iter().map(wrap).collect())
    }

    fn scoring(&self) -> Result<Vec<Scoring>, ProfileError> {
        let mut columns = 0..;
        let mut wrap = |(plugin, weight): (Arc<dyn Plugin>, i64)| {
            let kept = plugin.reuse() == Reuse::Node;
            Scoring {
                name: plugin.name(),
                column: if kept { columns.next() } else { None },
                weight: weight.max(1),
                plugin,
                asked: AtomicU64::new(0),
            }
        };
        Ok(self.at(Point::Score)?.into_iter().map(&mut wrap).collect())
    }
}

fn make(
    profile: &Profile,
    registry: &Registry,
    handle: &Handle,
) -> Result<HashMap<&'static str, Arc<dyn Plugin>>, ProfileError> {
    let mut all: HashMap<&'static str, Arc<dyn Plugin>> = HashMap::new();
    for (name, _) in profile.plugins.values().flatten() {
        if all.contains_key(name.as_str()) {
            continue;
        }
        let no_arguments = serde_json::Value::Null;
        let arguments = profile.arguments.get(name).unwrap_or(&no_arguments);
        let plugin = registry.make(name, handle, arguments).ok_or_else(|| ProfileError::UnknownPlugin {
            profile: profile.scheduler_name.clone(),
            plugin: name.clone(),
        })?;
        let plugin = plugin.map_err(|why| ProfileError::Arguments {
            profile: profile.scheduler_name.clone(),
            plugin: name.clone(),
            why: why.join("; "),
        })?;
        all.insert(plugin.name(), plugin);
    }
    Ok(all)
}

impl Framework {
    /// Refuses a profile that names an unknown plugin, or lacks one that sorts or binds.
    pub fn new(profile: &Profile, registry: &Registry, handle: &Handle) -> Result<Self, ProfileError> {
        let made = Made { profile, all: make(profile, registry, handle)? };
        let name = || profile.scheduler_name.clone();
        let [sort] =
            made.only(Point::QueueSort)?.try_into().map_err(|_: Vec<_>| ProfileError::QueueSort(name()))?;
        let bind = made.only(Point::Bind)?;
        if bind.is_empty() {
            return Err(ProfileError::Bind(name()));
        }
        let following = |p: &&Arc<dyn Plugin>| p.reuse() != Reuse::Node;
        Ok(Self {
            scheduler_name: name(),
            percentage: profile.percentage_of_nodes_to_score,
            pre_enqueue: made.only(Point::PreEnqueue)?,
            sort,
            pre_filter: made.filtering(Point::PreFilter)?,
            filter: made.filtering(Point::Filter)?,
            post_filter: made.only(Point::PostFilter)?,
            pre_score: made.only(Point::PreScore)?,
            score: made.scoring()?,
            reserve: made.only(Point::Reserve)?,
            permit: made.only(Point::Permit)?,
            pre_bind: made.only(Point::PreBind)?,
            bind,
            post_bind: made.only(Point::PostBind)?,
            following: made.only(Point::PreFilter)?.iter().filter(following).cloned().collect(),
            all: made.all,
        })
    }

    pub(crate) fn plugin(&self, name: &str) -> Option<&Arc<dyn Plugin>> {
        self.all.get(name)
    }

    /// The first plugin that keeps the pod out of the queue.
    pub(crate) fn kept_out_by(&self, pod: &PodInfo) -> Option<&'static str> {
        self.pre_enqueue.iter().find(|p| !p.pre_enqueue(pod).is_success()).map(|p| p.name())
    }

    /// How many scores of a node are kept.
    pub(crate) fn columns(&self) -> usize {
        self.score.iter().filter(|s| s.column.is_some()).count()
    }

    /// Runs PreFilter of the plugins for which `wanted` holds; the first refusal ends it, unless taking pods away could
    /// help: then the others are asked too, because their state is needed to try that.
    pub(crate) fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot,
        wanted: impl Fn(Reuse) -> bool,
    ) -> Result<(), (&'static str, Status)> {
        let mut answer = Ok(());
        for entry in self.pre_filter.iter().filter(|e| wanted(e.reuse)) {
            state.restart(entry.name);
            entry.asked.fetch_add(1, Ordering::Relaxed);
            let probe = state.probe.take();
            let run = || entry.plugin.pre_filter(state, pod, snapshot);
            let status = timed(probe.as_ref(), entry.name, "PreFilter", run);
            state.probe = probe;
            match status {
                Status::Success => {}
                Status::Skip => state.skip_filter(entry.name),
                refusal @ Status::Unschedulable(_) => answer = Err((entry.name, refusal)),
                refusal => return Err((entry.name, refusal)),
            }
        }
        answer
    }

    /// Runs Filter of the plugins for which `wanted` holds, for one node; the first refusal ends it.
    pub(crate) fn filter(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
        wanted: impl Fn(usize, Reuse) -> bool,
    ) -> Result<(), Refusal> {
        for (index, entry) in self.filter.iter().enumerate() {
            if !wanted(index, entry.reuse) || !state.filters(entry.name) {
                continue;
            }
            let run = || entry.plugin.filter(state, pod, node);
            let status = timed(state.probe.as_ref(), entry.name, "Filter", run);
            if !status.is_success() {
                return Err((index, entry.name, status));
            }
        }
        Ok(())
    }

    /// Counts the plugins that filter this pod, or that score its nodes.
    pub(crate) fn count_asked(&self, state: &CycleState, scores: bool) {
        let filters = self.filter.iter().filter(|e| !scores && state.filters(e.name)).map(|e| &e.asked);
        let scorers = self.score.iter().filter(|e| scores && state.scores(e.name)).map(|e| &e.asked);
        for asked in filters.chain(scorers) {
            asked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many pods each plugin was asked about at which extension point, since the last call.
    pub(crate) fn take_asked(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let filtering =
            |point: &'static str, list: &'_ [Filtering]| -> Vec<(&'static str, &'static str, u64)> {
                list.iter().map(|e| (e.name, point, e.asked.swap(0, Ordering::Relaxed))).collect()
            };
        let mut all = filtering("PreFilter", &self.pre_filter);
        all.extend(filtering("Filter", &self.filter));
        all.extend(self.score.iter().map(|e| (e.name, "Score", e.asked.swap(0, Ordering::Relaxed))));
        all.into_iter().filter(|(_, _, asked)| *asked > 0)
    }

    /// The filters of this pod that look beyond the one node, as indices into `filter`.
    pub(crate) fn beyond(&self, state: &CycleState) -> impl Iterator<Item = usize> {
        let beyond = |e: &Filtering| e.reuse != Reuse::Node && state.filters(e.name);
        self.filter.iter().enumerate().filter(move |(_, e)| beyond(e)).map(|(index, _)| index)
    }

    pub(crate) fn looks_beyond_nodes(&self, state: &CycleState) -> bool {
        self.beyond(state).next().is_some()
    }

    /// Tells the plugins' states that a pod came to a node (or left it).
    pub(crate) fn follow(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        other: &PodInfo,
        node: &NodeInfo,
        added: bool,
    ) {
        for plugin in &self.following {
            if added {
                plugin.add_pod(state, pod, other, node);
            } else {
                plugin.remove_pod(state, pod, other, node);
            }
        }
    }

    /// Gives back what Reserve took.
    pub(crate) fn unreserve(&self, pod: &PodInfo, node: &str) {
        self.reserve.iter().rev().for_each(|p| p.unreserve(pod, node));
    }
}
