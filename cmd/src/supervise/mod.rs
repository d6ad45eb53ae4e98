//! Components run under a supervisor: one that panics, fails or hangs is restarted with back-off, the others go on. Where
//! that does not help the process ends, if somebody outside starts another: systemd, or `coracle supervise`.

mod counts;
#[cfg(debug_assertions)]
mod faults;
mod judge;
pub mod notify;
mod watch;

pub use counts::Counts;

use coracle_api::error::chain;
use coracle_apiserver::health::{Health, Matters};
use coracle_kubelet::ComponentState;
use futures::FutureExt;
use judge::Hang;
use notify::Watcher;
use std::collections::BTreeMap;
use std::error::Error;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::{Receiver, channel};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use watch::{Watch, Watched};

/// First pause before a restart; doubled with each failure in a row.
const FIRST_RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Longest pause before a restart, so that a mended machine is used again within the minute.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// A component that ran this long was well: its next failure starts again with the first pause.
const WELL_DURATION: Duration = Duration::from_secs(60);
/// How long components may take to end; longer than the kubelet's last status, shorter than init systems wait.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Owns the components of the process.
pub struct Supervisor {
    stop: CancellationToken,
    health: Health,
    components: JoinSet<()>,
    states: BTreeMap<&'static str, Receiver<ComponentState>>,
    watch: Watch,
    counts: Arc<Counts>,
}

/// Why a run is over.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Failed(String),
    Hung(Hang),
}

impl Supervisor {
    /// Components appear as checks in `health`, under their names. The environment says who watches over the process.
    pub fn new(stop: CancellationToken, health: Health) -> Self {
        let counts = Arc::<Counts>::default();
        let watch = Watch::start(Watcher::of_environment(), counts.clone(), health.clone());
        Self { stop, health, components: JoinSet::new(), states: BTreeMap::new(), watch, counts }
    }

    /// How a component is, once it has been started.
    pub fn state(&self, name: &str) -> Option<Receiver<ComponentState>> {
        self.states.get(name).cloned()
    }

    /// What is counted of components.
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Tells whoever watches over the process that it has started.
    pub fn ready(&self) {
        self.watch.watcher().ready();
    }

    /// Starts a component. `start` is called for every (re)start with a token of that run's own, which is cancelled
    /// when the run is over, so that nothing of it stays behind.
    pub fn spawn<F, R, E>(&mut self, name: &'static str, start: F)
    where
        F: Fn(CancellationToken) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let (stop, health, watch) = (self.stop.clone(), self.health.clone(), self.watch.clone());
        let counts = self.counts.clone();
        health.report(name, Matters::Ready, Ok(()));
        let (state, seen) = channel(works(0));
        self.states.insert(name, seen);
        counts.started(name);
        self.components.spawn(async move {
            let (mut pause, mut hung) = (FIRST_RETRY_INTERVAL, false);
            while !stop.is_cancelled() {
                let began = Instant::now();
                let ended = run_once(name, &start, stop.child_token(), watch.begin(name, hung)).await;
                if stop.is_cancelled() {
                    break;
                }
                if began.elapsed() >= WELL_DURATION {
                    pause = FIRST_RETRY_INTERVAL;
                }
                counts.restarted(name);
                let (matters, why) = match ended {
                    Ended::Failed(why) => (Matters::Ready, why),
                    Ended::Hung(hang) => (Matters::Alive, hang.to_string()),
                };
                hung = matters == Matters::Alive;
                tracing::error!(component = name, %why, pause_ms = pause.as_millis(), "component ended, restarting it");
                let restarts = state.borrow().restarts;
                let failed = ComponentState { failure: Some(why.clone()), ..works(restarts) };
                state.send_replace(failed);
                health.report(name, matters, Err(why));
                let _ = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
                pause = (pause * 2).min(MAX_RETRY_INTERVAL);
                state.send_replace(works(restarts.saturating_add(1)));
                health.report(name, Matters::Ready, Ok(()));
            }
        });
    }

    /// Stops every component and waits for them, ten seconds at most.
    pub async fn shut_down(mut self) {
        self.watch.watcher().stopping();
        self.stop.cancel();
        let all = async { while self.components.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_TIMEOUT, all).await.is_err() {
            tracing::warn!("some components did not end in time");
        }
    }
}

/// A component that works from now on.
pub fn works(restarts: u32) -> ComponentState {
    ComponentState { failure: None, restarts, since: jiff::Timestamp::now() }
}

async fn run_once<F, R, E>(
    name: &'static str,
    start: &F,
    token: CancellationToken,
    mut watched: Watched,
) -> Ended
where
    F: Fn(CancellationToken) -> R,
    R: Future<Output = Result<(), E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    // Dropped after what runs: then its tasks are told to end, and what does not is ended.
    let beat = watched.beat.clone();
    let _guard = token.clone().drop_guard();
    let run = start(token);
    #[cfg(debug_assertions)]
    let run = faults::around(name, run);
    let run = AssertUnwindSafe(beat.follow(name, run)).catch_unwind();
    let outcome = tokio::select! {
        biased;
        Ok(hang) = &mut watched.hangs => return Ended::Hung(hang),
        outcome = run => outcome,
    };
    Ended::Failed(match outcome {
        Ok(Ok(())) => "it returned".to_owned(),
        Ok(Err(error)) => chain(error.into().as_ref()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown");
            format!("panic: {text}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Debug, thiserror::Error)]
    #[error("kernel rules")]
    struct Rules(#[from] std::io::Error);

    #[tokio::test]
    async fn a_failure_is_told_with_its_causes() {
        let fails = |_| async { Err::<(), Rules>(std::io::Error::other("no such chain").into()) };
        let watch = Watch::start(Watcher::of_environment(), Arc::default(), Health::default());
        let ended = run_once("proxy", &fails, CancellationToken::new(), watch.begin("proxy", false)).await;
        assert_eq!(ended, Ended::Failed("kernel rules: no such chain".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panicking_component_is_restarted_and_its_neighbour_is_not() {
        let stop = CancellationToken::new();
        let health = Health::default();
        let mut supervisor = Supervisor::new(stop.clone(), health.clone());
        let (bad, good) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (b, g) = (bad.clone(), good.clone());
        supervisor.spawn("bad", move |_| {
            b.fetch_add(1, Ordering::SeqCst);
            async { if true { panic!("leak") } else { Ok::<(), String>(()) } }
        });
        supervisor.spawn("good", move |token| {
            g.fetch_add(1, Ordering::SeqCst);
            async move {
                token.cancelled().await;
                Ok::<(), String>(())
            }
        });
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(health.failing(), ["bad"]);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(bad.load(Ordering::SeqCst) >= 4);
        assert_eq!(good.load(Ordering::SeqCst), 1);
        assert!(!health.failing().contains(&"good".to_owned()));
        supervisor.shut_down().await;
    }
}
