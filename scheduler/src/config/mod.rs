//! What a scheduler is told: its profiles, how hard it looks, and whom else it asks.
//!
//! [`Config::parse`] reads upstream's `KubeSchedulerConfiguration` (v1, and v1beta2 and v1beta3 converted), whole and
//! strictly: all mistakes are told at once, each with its path.

mod defaults;
mod extender;
mod fields;
mod legacy;
mod merge;
mod parse;

#[cfg(test)]
mod tests;

pub use extender::{Extender, ExtenderTls, ManagedResource};
pub use merge::default_plugins;

pub use crate::framework::Profile;
use crate::framework::Registry;
use std::time::Duration;

/// The Lease by which schedulers of one name agree on one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    pub elect: bool,
    pub namespace: String,
    pub lease: String,
    /// A Lease that was not renewed for so long may be taken over.
    pub lease_duration: Duration,
    /// A leader that could not renew for so long steps down.
    pub renew_deadline: Duration,
    /// Between two attempts to take or renew it.
    pub retry_period: Duration,
}

impl Default for Election {
    /// Upstream's.
    fn default() -> Self {
        Self {
            elect: true,
            namespace: "kube-system".to_owned(),
            lease: "kube-scheduler".to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Plain data.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub profiles: Vec<Profile>,
    /// 0 adapts to the cluster's size as upstream does; else the percentage of nodes after which filtering stops.
    pub percentage_of_nodes_to_score: usize,
    /// First and longest pause of a pod that could not be scheduled.
    pub backoff: (Duration, Duration),
    /// Bindings under way at once. Bound so that a burst of pods does not hold a request each in memory.
    pub parallel_bindings: usize,
    pub extenders: Vec<Extender>,
    pub election: Election,
}

impl Default for Config {
    /// One profile, `default-scheduler`, with upstream's plugins.
    fn default() -> Self {
        Self {
            profiles: vec![Profile::default_for("default-scheduler", &Registry::in_tree())],
            percentage_of_nodes_to_score: 0,
            backoff: (Duration::from_secs(1), Duration::from_secs(10)),
            parallel_bindings: 64,
            extenders: Vec::new(),
            election: Election::default(),
        }
    }
}

impl Profile {
    /// Upstream's default plugins under a name.
    pub fn default_for(scheduler_name: &str, registry: &Registry) -> Self {
        Self {
            scheduler_name: scheduler_name.to_owned(),
            plugins: default_plugins(registry),
            ..Self::default()
        }
    }
}

/// A mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where it is, for example `profiles[0].plugins.score.enabled[1].name`.
    pub path: String,
    /// Worded as upstream words field errors.
    pub why: String,
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.path.is_empty() { f.write_str(&self.why) } else { write!(f, "{}: {}", self.path, self.why) }
    }
}

/// Every mistake of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Mistakes(pub Vec<Mistake>);

/// A configuration that can run, and what its author should know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    pub config: Config,
    /// Old names that were translated, fields that mean nothing here.
    pub warnings: Vec<String>,
}

impl Config {
    /// Reads YAML (or JSON).
    pub fn parse(text: &str, registry: &Registry) -> Result<Parsed, Mistakes> {
        parse::parse(text, registry)
    }
}
