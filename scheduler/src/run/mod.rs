//! The scheduler's one task: takes in what happened, decides about one pod after the other, hands the outcome to
//! tasks that write.

mod backlog;
mod binding;
mod events;
mod extender;
mod gauges;
mod live;
mod objects;
mod preempting;
mod report;
mod scheduling_loop;

pub(crate) use events::Event;
pub(crate) use extender::{Extenders, Refused};
pub use objects::Objects;

use crate::cache::PodInfo;
use crate::config::Config;
use crate::core::SchedulerState;
use crate::framework::{Framework, ProfileError, WaitingPods};
use crate::metrics::Metrics;
use crate::plugins::{Handle, Registry};
use binding::Binder;
use coracle_client::Context;
use k8s_openapi::api::core::v1::Pod;
use report::Reporter;
use scheduling_loop::Scheduler;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("configuration refused")]
    Profile(#[from] ProfileError),
    #[error("configuration refused: {0}: {1}")]
    Extender(String, String),
    #[error("the informers ended")]
    Informers,
}

/// What a scheduler runs with.
#[derive(Clone)]
pub struct Options {
    pub config: Config,
    /// Reads the ConfigMap `kube-scheduler-config` and follows its changes; absent where a file says everything.
    pub live: Option<kube::Client>,
    pub registry: Registry,
    pub metrics: Arc<Metrics>,
    /// Set when everything that decisions need has been read.
    pub synced: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            config: Config::default(),
            live: None,
            registry: Registry::in_tree(),
            metrics: Arc::new(Metrics::default()),
            synced: Arc::default(),
        }
    }
}

/// Schedules the pods of the configured profiles until the context is stopped. A changed configuration takes effect
/// between two pods: bindings under way end first.
pub async fn run(context: Context, options: Options) -> Result<(), Error> {
    let live = options.live.clone();
    let mut live = live.map(|client| live::follow(client, options.registry.clone(), context.stop.clone()));
    let mut options = options;
    if let Some(config) = live.as_mut().and_then(|l| l.borrow_and_update().clone()) {
        options.config = config;
    }
    while !context.stop.is_cancelled() {
        let stop = context.stop.child_token();
        let next = {
            let once = run_once(&context, &options, &stop);
            tokio::pin!(once);
            tokio::select! {
                ended = &mut once => {
                    ended?;
                    None
                }
                next = next_config(&mut live, &options.config) => {
                    stop.cancel();
                    once.await?;
                    Some(next)
                }
            }
        };
        if let Some(config) = next {
            options.config = config;
        }
    }
    Ok(())
}

/// The next configuration of the ConfigMap that differs; never without one.
async fn next_config(live: &mut Option<watch::Receiver<Option<Config>>>, current: &Config) -> Config {
    loop {
        let Some(receiver) = live else { return std::future::pending().await };
        if receiver.changed().await.is_err() {
            return std::future::pending().await;
        }
        let next = receiver.borrow_and_update().clone();
        if let Some(config) = next.filter(|next| next != current) {
            return config;
        }
    }
}

/// Makes the frameworks of a configuration.
pub fn frameworks(
    config: &Config,
    registry: &Registry,
    handle: &Handle,
) -> Result<Vec<Arc<Framework>>, ProfileError> {
    config.profiles.iter().map(|profile| Framework::new(profile, registry, handle).map(Arc::new)).collect()
}

async fn run_once(context: &Context, options: &Options, stop: &CancellationToken) -> Result<(), Error> {
    let config = &options.config;
    let (sender, events) = unbounded_channel();
    let waiting = WaitingPods::default();
    let extenders = Extenders::new(&config.extenders).map_err(|(path, why)| Error::Extender(path, why))?;
    let whole_nodes = extenders.want_nodes();
    let extenders = Arc::new(extenders);
    let objects = Objects::start(context, &sender, stop).await;
    let handle = Handle { client: Some(context.client.clone()), cluster: objects, waiting: waiting.clone() };
    let frameworks = frameworks(config, &options.registry, &handle)?;
    events::synced(context, stop).await;
    if stop.is_cancelled() {
        return Ok(());
    }
    options.synced.store(true, Ordering::Relaxed);
    events::subscribe(context, &sender);
    let reporter = Reporter::new(context.client.clone());
    let binder = Binder::new(
        reporter.clone(),
        waiting,
        extenders,
        options.metrics.clone(),
        sender,
        config.parallel_bindings,
    );
    let core = SchedulerState::new(frameworks, config.percentage_of_nodes_to_score, config.backoff);
    let mut core = core.measured(options.metrics.clone());
    if whole_nodes {
        core.snapshot.keep_nodes_whole();
    }
    let pods = context.informers.of::<Pod>();
    let exactly = |pod: &Arc<Pod>, of: &PodInfo| pod.metadata.uid.as_deref() == Some(&of.uid);
    let bound = Box::new(move |of: &PodInfo| pods.get_key(&of.key).filter(|pod| exactly(pod, of)));
    let (client, metrics) = (context.client.clone(), options.metrics.clone());
    let scheduler = Scheduler::new(core, binder, client, metrics, bound);
    if scheduler.work(events, stop).await { Ok(()) } else { Err(Error::Informers) }
}

#[cfg(test)]
mod tests;
