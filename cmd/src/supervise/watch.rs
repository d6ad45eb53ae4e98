//! Looks at every run of a component, from a thread that none of them can hold up.

use super::Counts;
use super::judge::{Hang, Judge};
use super::notify::Watcher;
use coracle_apiserver::health::{Health, Matters};
use coracle_client::beat::Beat;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::oneshot;

/// Between two looks; each costs some microseconds a task, and wakes each for less than one.
pub const LOOK: Duration = Duration::from_secs(2);
/// Looks that what a run has left behind may still be there: its tasks are told to end when it does.
const LEFT_LOOKS: u32 = 5;
/// Tasks of the whole process: a hundred times what a storm on thousands of simulated nodes makes. Each takes a kilobyte
/// and more, so a leak would end in the machine's memory.
const MOST_TASKS: usize = 1_000_000;

/// What is done about a run that hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The supervisor ends it and begins another.
    Again,
    /// The process ends, and whoever watches it starts another.
    Down,
}

struct Run {
    number: u64,
    name: &'static str,
    beat: Beat,
    judge: Judge,
    tell: Option<oneshot::Sender<Hang>>,
    /// The run before hung as well: another one does not help.
    again: bool,
    /// Looks since it has ended.
    over: Option<u32>,
}

struct Shared {
    runs: Mutex<(u64, Vec<Run>)>,
    watcher: Watcher,
    counts: Arc<Counts>,
    health: Health,
    runtime: Option<tokio::runtime::Handle>,
}

/// The runs of one supervisor. Looks end with it.
#[derive(Clone)]
pub struct Watch(Arc<Shared>);

/// One run, seen until this value goes; what is left of it then is seen to.
pub struct Watched {
    shared: Weak<Shared>,
    number: u64,
    pub beat: Beat,
    /// Told once, when the run hangs.
    pub hangs: oneshot::Receiver<Hang>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.beat.abort();
        let Some(shared) = self.shared.upgrade() else { return };
        let mut runs = shared.runs.lock();
        if let Some(run) = runs.1.iter_mut().find(|run| run.number == self.number) {
            run.over = Some(0);
        }
    }
}

impl Watch {
    pub fn start(watcher: Watcher, counts: Arc<Counts>, health: Health) -> Self {
        let runtime = tokio::runtime::Handle::try_current().ok();
        let shared = Arc::new(Shared { runs: Mutex::default(), watcher, counts, health, runtime });
        let seen = Arc::downgrade(&shared);
        let looking = std::thread::Builder::new().name("watch".to_owned()).spawn(move || {
            while let Some(shared) = seen.upgrade() {
                shared.look();
                drop(shared);
                std::thread::sleep(LOOK);
            }
        });
        if let Err(error) = looking {
            tracing::error!(%error, "no thread to watch components: one that hangs is not found");
        }
        Self(shared)
    }

    /// `again`: the last run of this component hung.
    pub fn begin(&self, name: &'static str, again: bool) -> Watched {
        let (beat, (tell, hangs)) = (Beat::default(), oneshot::channel());
        let mut runs = self.0.runs.lock();
        runs.0 += 1;
        let number = runs.0;
        let run = Run {
            number,
            name,
            beat: beat.clone(),
            judge: Judge::default(),
            tell: Some(tell),
            again,
            over: None,
        };
        runs.1.push(run);
        Watched { shared: Arc::downgrade(&self.0), number, beat, hangs }
    }

    pub fn watcher(&self) -> &Watcher {
        &self.0.watcher
    }
}

impl Shared {
    fn look(&self) {
        let tasks = self.runtime.as_ref().map_or(0, |runtime| runtime.metrics().num_alive_tasks());
        let mut down = (tasks > MOST_TASKS).then(|| ("runtime", format!("{tasks} tasks, which is a leak")));
        let mut runs = self.runs.lock();
        runs.1.retain_mut(|run| {
            if let Some(why) = self.look_at(run) {
                down.get_or_insert((run.name, why));
            }
            run.over.is_none_or(|looks| looks <= LEFT_LOOKS)
        });
        drop(runs);
        match down {
            Some((component, why)) if self.watcher.restarts() => end(component, &why),
            _ => self.watcher.alive(),
        }
    }

    /// Why the process must end for this run.
    fn look_at(&self, run: &mut Run) -> Option<String> {
        let signs = run.beat.look();
        let hang = run.judge.look(&signs);
        if let Some(looks) = run.over {
            let blocked = hang.filter(|hang| hang.is_beyond_reach());
            // A thread that does not come back is waited for until it is known to be lost.
            let waits = blocked.is_none() && signs.iter().any(|(_, sign)| sign.inside);
            run.over = Some(if signs.is_empty() { LEFT_LOOKS + 1 } else { looks + u32::from(!waits) });
            if looks == LEFT_LOOKS && !signs.is_empty() {
                tracing::warn!(
                    component = run.name,
                    tasks = signs.len(),
                    "tasks of an ended run are still there"
                );
            }
            return blocked.map(|hang| hang.to_string());
        }
        let hang = hang?;
        let tell = run.tell.take();
        if tell.is_some() {
            self.counts.hung(run.name);
            tracing::error!(component = run.name, why = %hang, "component hangs");
            // Whoever supervises it may be what does not come back.
            self.health.report(run.name, Matters::Alive, Err(hang.to_string()));
        }
        let _ = tell.map(|tell| tell.send(hang));
        (way(hang, run.again) == Way::Down).then(|| hang.to_string())
    }
}

fn way(hang: Hang, again: bool) -> Way {
    if hang.is_beyond_reach() || again { Way::Down } else { Way::Again }
}

/// As kill -9 would: what is acknowledged is on the disk, containers go on.
fn end(component: &str, why: &str) -> ! {
    tracing::error!(component, why, "the process ends, to be started again");
    eprintln!("coracle: {component} {why}; the process ends, to be started again");
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::super::judge::How;
    use super::*;

    #[test]
    fn the_process_ends_only_where_another_run_cannot_help() {
        let hang = |how| Hang { task: "t", how };
        assert_eq!(way(hang(How::Stuck), false), Way::Again);
        assert_eq!(way(hang(How::Stuck), true), Way::Down);
        assert_eq!(way(hang(How::Blocked), false), Way::Down);
        assert_eq!(way(hang(How::Silent), false), Way::Down);
    }
}
