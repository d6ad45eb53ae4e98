//! Components run under a supervisor: one that panics or fails is restarted with back-off, the others go on.

use coracle_api::error::chain;
use coracle_apiserver::health::{Health, Matters};
use futures::FutureExt;
use std::error::Error;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// First pause before a restart; doubled with each failure in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause before a restart, so that a mended machine is used again within the minute.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A component that ran this long was well: its next failure starts again with the first pause.
const WELL_AFTER: Duration = Duration::from_secs(60);
/// How long components may take to end; longer than the kubelet's last status, shorter than init systems wait.
const STOP_TIME: Duration = Duration::from_secs(10);

/// Owns the components of the process.
pub struct Supervisor {
    stop: CancellationToken,
    health: Health,
    components: JoinSet<()>,
}

impl Supervisor {
    /// Components appear as checks in `health`, under their names.
    pub fn new(stop: CancellationToken, health: Health) -> Self {
        Self { stop, health, components: JoinSet::new() }
    }

    /// Starts a component. `start` is called for every (re)start with a token of that run's own, which is cancelled
    /// when the run is over, so that nothing of it stays behind.
    pub fn spawn<F, R, E>(&mut self, name: &'static str, start: F)
    where
        F: Fn(CancellationToken) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let (stop, health) = (self.stop.clone(), self.health.clone());
        health.report(name, Matters::Ready, Ok(()));
        self.components.spawn(async move {
            let mut pause = FIRST_PAUSE;
            while !stop.is_cancelled() {
                let began = Instant::now();
                let why = run_once(&start, stop.child_token()).await;
                if stop.is_cancelled() {
                    break;
                }
                if began.elapsed() >= WELL_AFTER {
                    pause = FIRST_PAUSE;
                }
                tracing::error!(component = name, %why, pause_ms = pause.as_millis(), "component ended, restarting it");
                health.report(name, Matters::Ready, Err(why));
                let _ = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                health.report(name, Matters::Ready, Ok(()));
            }
        });
    }

    /// Stops every component and waits for them, ten seconds at most.
    pub async fn shut_down(mut self) {
        self.stop.cancel();
        let all = async { while self.components.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_TIME, all).await.is_err() {
            tracing::warn!("some components did not end in time");
        }
    }
}

async fn run_once<F, R, E>(start: &F, token: CancellationToken) -> String
where
    F: Fn(CancellationToken) -> R,
    R: Future<Output = Result<(), E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let guard = token.clone().drop_guard();
    let outcome = AssertUnwindSafe(start(token)).catch_unwind().await;
    drop(guard);
    match outcome {
        Ok(Ok(())) => "it returned".to_owned(),
        Ok(Err(error)) => chain(error.into().as_ref()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown");
            format!("panic: {text}")
        }
    }
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
        assert_eq!(run_once(&fails, CancellationToken::new()).await, "kernel rules: no such chain");
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
