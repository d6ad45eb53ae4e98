//! One task per probe of a running container.

use super::action::{Action, Outcome, Target};
use super::counter::Counter;
use k8s_openapi::api::core::v1::{Container, Probe};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{Instant, Interval, MissedTickBehavior};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Startup,
    Liveness,
    Readiness,
}

impl Kind {
    /// As events name it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }

    pub fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => container.startup_probe.as_ref(),
            Self::Liveness => container.liveness_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
        }
    }
}

/// What a probe reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The verdict changed.
    Verdict(bool),
    /// One answer was bad; an event says so.
    Failed(String),
    /// One answer was good, but odd; an event says so.
    Warned(String),
    /// There was no answer, and nobody to blame in the container; an event says so.
    Lost(String),
}

/// What a question may wait for others of the same moment.
const MARK_INTERVAL: Duration = Duration::from_millis(50);

/// How often a question is put that comes to nothing; upstream's.
const TRIES: usize = 3;

fn seconds(value: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(value.and_then(|v| u64::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default))
}

fn count(value: Option<i32>, default: u32) -> u32 {
    value.and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default)
}

/// Starts probing; ends when the handle is aborted. `count_result` is told what came of each probe, as metrics name it, and how long that took.
/// `verdict` is what holds before the first answer. `initialDelay` counts from now on, because the container has just
/// started or the process that probed it has.
pub fn spawn(
    kind: Kind,
    probe: &Probe,
    container: &Container,
    (target, count_result): (Target, impl Fn(&'static str, Duration) + Send + Sync + 'static),
    verdict: bool,
    report: impl Fn(Report) + Send + Sync + 'static,
) -> AbortHandle {
    let action = Action::of_probe(probe, container);
    let delay =
        Duration::from_secs(probe.initial_delay_seconds.and_then(|v| u64::try_from(v).ok()).unwrap_or(0));
    let period = seconds(probe.period_seconds, 10);
    let timeout = seconds(probe.timeout_seconds, 1);
    let initial = (kind != Kind::Startup).then_some(verdict);
    let mut counter =
        Counter::new(count(probe.success_threshold, 1), count(probe.failure_threshold, 3), initial);
    let task = async move {
        tokio::time::sleep(delay).await;
        let mut ticks = ticks(period);
        loop {
            let began = Instant::now();
            let outcome = ask(&action, &target, timeout).await;
            count_result(outcome.result(), began.elapsed());
            if let Some(verdict) = told(outcome, &report).and_then(|success| counter.record(success)) {
                report(Report::Verdict(verdict));
            }
            ticks.tick().await;
        }
    };
    tokio::spawn(task).abort_handle()
}

/// Reports what is odd or bad. Whether the answer was good; `None` where there was none.
fn told(outcome: Outcome, report: impl Fn(Report)) -> Option<bool> {
    let (success, odd) = match outcome {
        Outcome::Success => (Some(true), None),
        Outcome::Warning(message) => (Some(true), Some(Report::Warned(message))),
        Outcome::Failure(message) => (Some(false), Some(Report::Failed(message))),
        Outcome::Unknown(message) => (None, Some(Report::Lost(message))),
    };
    odd.into_iter().for_each(report);
    success
}

/// From the second question on. Those of all probes fall on common marks, so that many wake the process together.
fn ticks(period: Duration) -> Interval {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    let epoch = *EPOCH.get_or_init(Instant::now);
    let due = Instant::now() + period;
    let past = (due - epoch).as_nanos() % MARK_INTERVAL.as_nanos();
    let first = due + (MARK_INTERVAL - Duration::from_nanos(u64::try_from(past).unwrap_or_default()));
    let mut ticks = tokio::time::interval_at(first, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

async fn ask(action: &Result<Action, String>, target: &Target, timeout: Duration) -> Outcome {
    let action = match action {
        Ok(action) => action,
        Err(message) => return Outcome::Unknown(message.clone()),
    };
    let mut outcome = action.run(target, timeout).await;
    for _ in 1..TRIES {
        if !matches!(outcome, Outcome::Unknown(_)) {
            break;
        }
        outcome = action.run(target, timeout).await;
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn questions_of_one_moment_fall_together_and_none_comes_early() {
        let period = Duration::from_secs(1);
        let mut seen = Vec::new();
        for _ in 0..3 {
            let began = Instant::now();
            let mut ticks = ticks(period);
            let first = ticks.tick().await;
            let late = first - (began + period);
            assert!(late <= MARK_INTERVAL, "{late:?}");
            assert_eq!(ticks.tick().await - first, period);
            seen.push(first);
            tokio::time::sleep(Duration::from_millis(17)).await;
        }
        let apart = |pair: &[Instant]| (pair[1] - pair[0]).as_millis() % MARK_INTERVAL.as_millis();
        assert!(seen.windows(2).all(|pair| apart(pair) == 0), "{seen:?}");
    }
}
