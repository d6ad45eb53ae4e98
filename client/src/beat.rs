//! Signs of life of a component's tasks, by which a supervisor finds what hangs.
//!
//! A task that is followed counts when it is polled, and answers a beat: whoever follows it wakes it, and it says that it
//! was woken without anything below it being polled. So three things are told apart: a task that the runtime does not come
//! to, one whose poll does not return (a lock that nobody releases, a loop without an end), and one that waits in the
//! middle of its work for something that never comes. A task that waits for work may do so for ever.
//!
//! Nothing here looks at a clock: what is too long is counted in looks, so that a process that was stopped, or a machine
//! that slept, is not taken for one that hangs.

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use tokio::task::{AbortHandle, JoinHandle};

thread_local! {
    /// The task that this thread polls.
    static CURRENT: RefCell<Option<Arc<Pulse>>> = const { RefCell::new(None) };
}

/// How long a piece of work may stand still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It computes, and asks what answers at once.
    Usual,
    /// It waits for somebody who has a time limit of its own: another program, a server elsewhere.
    Long,
}

/// One followed task.
#[derive(Default)]
pub struct Pulse {
    name: &'static str,
    beat: Beat,
    /// Wakes the task itself.
    task: AtomicWaker,
    /// What is below was woken by something of its own.
    woken: AtomicBool,
    /// Times that what is below was polled.
    polls: AtomicU64,
    inside: AtomicBool,
    usual: AtomicU32,
    long: AtomicU32,
    asked: AtomicU64,
    answered: AtomicU64,
}

impl Wake for Pulse {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.task.wake();
    }
}

/// What a task was doing when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sign {
    pub name: &'static str,
    /// Grows with every poll.
    pub polls: u64,
    /// Whether a poll is under way.
    pub inside: bool,
    /// Whether it is in the middle of a piece of work, and how patient that one is.
    pub working: Option<Patience>,
    /// Whether the last beat was answered.
    pub answered: bool,
}

impl Pulse {
    fn sign(&self) -> Sign {
        let working = match (self.long.load(Ordering::Relaxed), self.usual.load(Ordering::Relaxed)) {
            (0, 0) => None,
            (0, _) => Some(Patience::Usual),
            _ => Some(Patience::Long),
        };
        Sign {
            name: self.name,
            polls: self.polls.load(Ordering::Relaxed),
            inside: self.inside.load(Ordering::Acquire),
            working,
            answered: self.answered.load(Ordering::Acquire) == self.asked.load(Ordering::Acquire),
        }
    }

    fn ask(&self) {
        self.asked.fetch_add(1, Ordering::AcqRel);
        self.task.wake();
    }

    fn works(&self, patience: Patience) -> &AtomicU32 {
        match patience {
            Patience::Usual => &self.usual,
            Patience::Long => &self.long,
        }
    }
}

#[derive(Default)]
struct Tasks {
    pulses: Swept<Weak<Pulse>>,
    /// Of tasks that end with the run, whatever they do.
    handles: Swept<AbortHandle>,
}

/// What is there, and not much more of what is gone.
struct Swept<T> {
    all: Vec<T>,
    /// So long it may get before what is gone is taken out: twice what was left the last time.
    until: usize,
}

impl<T> Default for Swept<T> {
    fn default() -> Self {
        Self { all: Vec::new(), until: FEW }
    }
}

impl<T> Swept<T> {
    fn push(&mut self, one: T, is_there: impl Fn(&T) -> bool) {
        if self.all.len() >= self.until {
            self.all.retain(is_there);
            self.until = (self.all.len() * 2).max(FEW);
        }
        self.all.push(one);
    }
}

/// Not worth a look.
const FEW: usize = 64;

/// The tasks of one run of a component. Cloning shares them.
#[derive(Clone, Default)]
pub struct Beat(Arc<Mutex<Tasks>>);

impl Beat {
    /// Follows `future` as a task of this run. It is to be spawned, or polled by a task that does nothing else.
    pub fn follow<F: Future>(&self, name: &'static str, future: F) -> Followed<F> {
        let pulse = Arc::new(Pulse {
            name,
            beat: self.clone(),
            // The first poll is due.
            woken: AtomicBool::new(true),
            ..Pulse::default()
        });
        self.0.lock().pulses.push(Arc::downgrade(&pulse), |pulse| pulse.strong_count() > 0);
        let waker = Waker::from(pulse.clone());
        Followed { pulse, waker, future: Box::pin(future) }
    }

    /// Asks every task for an answer, and says what each was doing before that.
    pub fn look(&self) -> Vec<(usize, Sign)> {
        let alive: Vec<Arc<Pulse>> = self.0.lock().pulses.all.iter().filter_map(Weak::upgrade).collect();
        let of = |pulse: Arc<Pulse>| {
            let sign = pulse.sign();
            if sign.answered {
                pulse.ask();
            }
            (Arc::as_ptr(&pulse).addr(), sign)
        };
        alive.into_iter().map(of).collect()
    }

    /// Ends what was spawned by [`spawn`] in this run. A task whose poll does not return stays.
    pub fn abort(&self) {
        self.0.lock().handles.all.drain(..).for_each(|handle| handle.abort());
    }

    fn keep(&self, handle: AbortHandle) {
        self.0.lock().handles.push(handle, |handle| !handle.is_finished());
    }
}

/// A future whose signs of life somebody sees.
pub struct Followed<F> {
    pulse: Arc<Pulse>,
    /// Handed to the future, so that its own wake-ups are told from beats.
    waker: Waker,
    future: Pin<Box<F>>,
}

/// Puts back what was polled before, whatever happens in between.
struct Entered<'a>(&'a Pulse, Option<Arc<Pulse>>);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let before = self.1.take();
        CURRENT.with(|current| *current.borrow_mut() = before);
        self.0.inside.store(false, Ordering::Release);
    }
}

impl<F: Future> Future for Followed<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { pulse, waker, future } = self.get_mut();
        pulse.task.register(context.waker());
        pulse.answered.store(pulse.asked.load(Ordering::Acquire), Ordering::Release);
        if !pulse.woken.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        pulse.polls.fetch_add(1, Ordering::Relaxed);
        pulse.inside.store(true, Ordering::Release);
        let before = CURRENT.with(|current| current.borrow_mut().replace(pulse.clone()));
        let _entered = Entered(pulse, before);
        future.as_mut().poll(&mut Context::from_waker(waker))
    }
}

fn current() -> Option<Arc<Pulse>> {
    CURRENT.with(|current| current.borrow().clone())
}

/// Follows `future` in the run of the task that asks; to be spawned by whoever ends it. Outside of any run it is followed
/// by nobody.
pub fn inherit<F: Future>(name: &'static str, future: F) -> Followed<F> {
    current().map_or_else(Beat::default, |pulse| pulse.beat.clone()).follow(name, future)
}

/// Spawns a task that is followed in the run of the task that asks, and ends when that run does.
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let beat = current().map(|pulse| pulse.beat.clone());
    let task = tokio::spawn(beat.clone().unwrap_or_default().follow(name, future));
    if let Some(beat) = beat {
        beat.keep(task.abort_handle());
    }
    task
}

/// A piece of work that is under way.
struct Work(Option<Arc<Pulse>>, Patience);

impl Work {
    fn begin(patience: Patience) -> Self {
        let pulse = current();
        if let Some(pulse) = &pulse {
            pulse.works(patience).fetch_add(1, Ordering::Relaxed);
        }
        Self(pulse, patience)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(pulse) = &self.0 {
            pulse.works(self.1).fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Says that the task is at work while `future` lasts: standing still there is hanging.
pub async fn working<T>(patience: Patience, future: impl Future<Output = T>) -> T {
    let _work = Work::begin(patience);
    future.await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::Notify;

    fn only(beat: &Beat) -> Sign {
        let signs = beat.look();
        assert_eq!(signs.len(), 1, "{signs:?}");
        signs[0].1
    }

    #[tokio::test]
    async fn who_waits_for_work_answers_and_is_not_polled() {
        let beat = Beat::default();
        let task = tokio::spawn(beat.follow("waits", std::future::pending::<()>()));
        tokio::task::yield_now().await;
        let first = only(&beat);
        assert!(first.answered && first.working.is_none() && first.polls == 1, "{first:?}");
        assert!(!only(&beat).answered, "nobody has come to it yet");
        tokio::task::yield_now().await;
        let later = only(&beat);
        assert!(later.answered && later.polls == 1, "{later:?}");
        task.abort();
        assert!(task.await.is_err());
        assert!(beat.look().is_empty(), "it is gone");
    }

    #[tokio::test]
    async fn work_is_seen_while_it_lasts_also_in_tasks_that_were_spawned() {
        let (beat, go) = (Beat::default(), Arc::new(Notify::new()));
        let goes = go.clone();
        let run = beat.follow("root", async move {
            spawn("below", async move { working(Patience::Usual, goes.notified()).await }).await.unwrap();
            working(Patience::Long, std::future::pending::<()>()).await;
        });
        let task = tokio::spawn(run);
        let works = |signs: &[(usize, Sign)]| -> Vec<_> {
            signs.iter().map(|(_, sign)| (sign.name, sign.working)).collect()
        };
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        assert_eq!(works(&beat.look()), [("root", None), ("below", Some(Patience::Usual))]);
        go.notify_one();
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        assert_eq!(works(&beat.look()), [("root", Some(Patience::Long))]);
        task.abort();
    }

    #[tokio::test]
    async fn what_was_spawned_ends_with_the_run() {
        let beat = Beat::default();
        let run = async {
            drop(spawn("left", std::future::pending::<()>()));
        };
        tokio::spawn(beat.follow("root", run)).await.unwrap();
        assert_eq!(only(&beat).name, "left");
        beat.abort();
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        assert!(beat.look().is_empty());
    }

    #[test]
    fn a_poll_that_does_not_return_is_seen_from_outside() {
        let (beat, lock) = (Beat::default(), Arc::new(Mutex::new(())));
        let held = lock.lock();
        let (followed, locks) = (beat.clone(), lock.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(followed.follow("locked", async move { drop(locks.lock()) }));
        });
        while !beat.look().iter().any(|(_, sign)| sign.inside) {
            std::thread::yield_now();
        }
        let sign = only(&beat);
        assert!(sign.inside && !sign.answered && sign.polls == 1, "{sign:?}");
        drop(held);
        thread.join().unwrap();
    }
}
