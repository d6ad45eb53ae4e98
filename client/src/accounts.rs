//! What a set of controllers of one process acts with, and how they run together.

use crate::beat;
use crate::context::Context;
use crate::informer::Informers;
use futures::future::BoxFuture;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Makes a client that acts as the service account of this name in kube-system, for example
/// `replicaset-controller`: upstream's roles are per controller.
pub type ClientFor = Arc<dyn Fn(&str) -> kube::Client + Send + Sync>;

/// Clients by service account, and the informers of the process. Cloning is cheap.
#[derive(Clone)]
pub struct Clients {
    default: kube::Client,
    by_account: Option<ClientFor>,
    pub informers: Informers,
}

impl Clients {
    /// Without `by_account` all act as the context's client, which then needs the rights of all.
    pub fn new(context: &Context, by_account: Option<ClientFor>) -> Self {
        Self { default: context.client.clone(), by_account, informers: context.informers.clone() }
    }

    /// The client of the process itself.
    pub fn own(&self) -> kube::Client {
        self.default.clone()
    }

    /// The client of one controller, by its service account's name.
    pub fn client(&self, account: &str) -> kube::Client {
        self.by_account.as_ref().map_or_else(|| self.default.clone(), |make| make(account))
    }
}

/// A controller, with its name for errors.
pub type NamedTask = (&'static str, BoxFuture<'static, ()>);

/// Runs tasks that end when `stop` is cancelled, until all have ended. When one ends before that, `stop` is cancelled for
/// the others; the error is the name of that one.
pub async fn run_until_one_ends(all: Vec<NamedTask>, stop: &CancellationToken) -> Result<(), &'static str> {
    let mut tasks = JoinSet::new();
    let names: HashMap<_, _> =
        all.into_iter().map(|(name, task)| (tasks.spawn(beat::inherit(name, task)).id(), name)).collect();
    let mut result = Ok(());
    while let Some(ended) = tasks.join_next_with_id().await {
        if !stop.is_cancelled() {
            let id = ended.map_or_else(|panic| panic.id(), |(id, ())| id);
            result = Err(names.get(&id).copied().unwrap_or("unknown"));
            stop.cancel();
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_end_when_one_does() {
        let stop = CancellationToken::new();
        let waits = stop.clone();
        let all: Vec<NamedTask> =
            vec![("waits", Box::pin(async move { waits.cancelled().await })), ("ends", Box::pin(async {}))];
        assert_eq!(run_until_one_ends(all, &stop).await, Err("ends"));
        let told = stop.clone();
        let all: Vec<NamedTask> = vec![("told", Box::pin(async move { told.cancelled().await }))];
        assert_eq!(run_until_one_ends(all, &stop).await, Ok(()));
    }
}
