//! The loop that every controller runs: keys in, reconcile, retry with back-off.

use crate::beat::{self, Patience};
use crate::informer::{Delta, Informer, Kind, ObjectKey};
use crate::queue::WorkQueue;
use futures::future::BoxFuture;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What a reconcile that went well wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Wait for the next change.
    AwaitChange,
    /// Look again after this time, whatever happens.
    RequeueAfter(Duration),
}

/// A step that failed; the key is retried with back-off.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error("api request failed")]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Other(String),
}

impl ReconcileError {
    /// Conflicts and already-gone objects are how optimistic concurrency works, not something to report.
    fn is_expected(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == 409 || status.code == 404)
    }
}

/// A level-triggered controller: recomputes from state, and takes no event's payload.
pub trait Reconciler: Send + Sync + 'static {
    type Key: Clone + Eq + Hash + fmt::Debug + fmt::Display + Send + Sync + 'static;

    /// How long a reconcile may stand still before it counts as hanging. `None` where nobody can say: it copies whole
    /// volumes.
    const PATIENCE: Option<Patience> = Some(Patience::Usual);

    /// Upstream's controller name, for logs, for example `replicaset`.
    fn name(&self) -> &'static str;

    /// Brings the world of one key closer to what is declared. Idempotent; may be cancelled at any await.
    fn reconcile(&self, key: &Self::Key) -> impl Future<Output = Result<Action, ReconcileError>> + Send;
}

/// A reconciler wired to its informers: changes become keys, keys are worked on once everything has synced.
///
/// ```ignore
/// Controller::new(Pods { .. }).objects(&pods).watch(&nodes, |delta| pods_of(delta)).workers(2).run(stop).await
/// ```
pub struct Controller<R: Reconciler> {
    reconciler: Arc<R>,
    queue: WorkQueue<R::Key>,
    workers: usize,
    syncs: Vec<BoxFuture<'static, ()>>,
}

impl<R: Reconciler> Controller<R> {
    pub fn new(reconciler: R) -> Self {
        Self::with_queue(reconciler, WorkQueue::new())
    }

    /// For a reconciler that adds keys of its own to `queue`.
    pub fn with_queue(reconciler: R, queue: WorkQueue<R::Key>) -> Self {
        queue.set_name(reconciler.name());
        Self { reconciler: Arc::new(reconciler), queue, workers: 1, syncs: Vec::new() }
    }

    /// Reconciles what `keys` returns at every change of an object. `keys` is a handler of the informer
    /// ([`Informer::on_change`]), and dropped with the controller.
    pub fn watch<K, I>(
        self,
        informer: &Informer<K>,
        keys: impl Fn(&Delta<K>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        K: Kind,
        I: IntoIterator<Item = R::Key>,
    {
        let queue = self.queue.downgrade();
        informer.on_change_while(move |delta| {
            let Some(queue) = queue.upgrade() else { return false };
            keys(delta).into_iter().for_each(|key| queue.add(key));
            true
        });
        self.reads(informer)
    }

    /// Waits for this informer too before the first reconcile.
    pub fn reads<K: Kind>(mut self, informer: &Informer<K>) -> Self {
        let informer = informer.clone();
        self.syncs.push(Box::pin(async move { informer.synced().await }));
        self
    }

    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Works until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let synced = futures::future::join_all(self.syncs);
        if stop.run_until_cancelled(synced).await.is_some() {
            run(self.reconciler, self.queue, self.workers, stop).await;
        }
    }
}

impl<R: Reconciler<Key = ObjectKey>> Controller<R> {
    /// Reconciles the key of every object that changes.
    pub fn objects<K: Kind>(self, informer: &Informer<K>) -> Self {
        self.watch(informer, |delta| delta.object().map(|object| ObjectKey::of(object.as_ref())))
    }
}

/// Runs `workers` workers on the queue until `stop` is cancelled.
///
/// Call it after the informers that `reconcile` reads have synced.
pub async fn run<R: Reconciler>(
    reconciler: Arc<R>,
    queue: WorkQueue<R::Key>,
    workers: usize,
    stop: CancellationToken,
) {
    let mut tasks = JoinSet::new();
    for _ in 0..workers.max(1) {
        let (reconciler, queue, stop) = (reconciler.clone(), queue.clone(), stop.clone());
        tasks.spawn(beat::inherit(reconciler.name(), async move {
            while let Some(key) = stop.run_until_cancelled(queue.next()).await {
                let work = work(reconciler.as_ref(), &queue, key);
                match R::PATIENCE {
                    Some(patience) => beat::working(patience, work).await,
                    None => work.await,
                }
            }
        }));
    }
    while let Some(joined) = tasks.join_next().await {
        if let Err(panic) = joined {
            // The supervisor restarts the component; the other workers end with it.
            std::panic::resume_unwind(panic.into_panic());
        }
    }
}

async fn work<R: Reconciler>(reconciler: &R, queue: &WorkQueue<R::Key>, key: R::Key) {
    match reconciler.reconcile(&key).await {
        Ok(next) => {
            queue.forget(&key);
            if let Action::RequeueAfter(delay) = next {
                queue.add_after(key.clone(), delay);
            }
        }
        Err(error) => {
            if error.is_expected() {
                tracing::debug!(controller = reconciler.name(), %key, error = ?error, "reconcile again");
            } else {
                tracing::warn!(controller = reconciler.name(), %key, error = ?error, "reconcile failed");
            }
            queue.retry(key.clone());
        }
    }
    queue.done(&key);
}
