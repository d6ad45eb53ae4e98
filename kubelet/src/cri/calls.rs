//! Calls that are brought to their end.
//!
//! A runtime that loses its caller in the middle of a call has to undo what it did, and where that fails it keeps tasks
//! that nobody can delete. So every call that changes something of a pod runs on a task of its own: dropping its future
//! ends the waiting, not the call.

use super::{Result, Runtime, api};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

/// One pod's way to change what the runtime has of it. Whoever clears up after the pod waits until all of its calls have
/// [settled](Self::settled) and looks then: what they made is in the runtime's lists.
pub struct Calls {
    runtime: Arc<dyn Runtime>,
    /// All calls of the process, which waits for them before it ends.
    all: TaskTracker,
    underway: watch::Sender<usize>,
}

/// Counts one call until it is dropped.
struct Begun(watch::Sender<usize>);

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Calls {
    pub fn new(runtime: Arc<dyn Runtime>, all: TaskTracker) -> Self {
        Self { runtime, all, underway: watch::Sender::new(0) }
    }

    /// Whether a call has been begun and has not come to its end: there may be more in the runtime soon.
    pub fn underway(&self) -> bool {
        *self.underway.borrow() > 0
    }

    /// Returns when no call is under way.
    pub async fn settled(&self) {
        // The sender is `self`, so this cannot fail.
        let _ = self.underway.subscribe().wait_for(|count| *count == 0).await;
    }

    async fn finish<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.underway.send_modify(|count| *count += 1);
        let begun = Begun(self.underway.clone());
        let task = self.all.spawn(async move {
            let _begun = begun;
            call.await
        });
        match task.await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // Nobody aborts it but the process's end.
                Err(_) => std::future::pending().await,
            },
        }
    }

    pub async fn run_pod_sandbox(&self, config: api::PodSandboxConfig, handler: String) -> Result<String> {
        let runtime = self.runtime.clone();
        self.finish(async move { runtime.run_pod_sandbox(config, &handler).await }).await
    }

    pub async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        let (runtime, id) = (self.runtime.clone(), id.to_owned());
        self.finish(async move { runtime.stop_pod_sandbox(&id).await }).await
    }

    pub async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        let (runtime, id) = (self.runtime.clone(), id.to_owned());
        self.finish(async move { runtime.remove_pod_sandbox(&id).await }).await
    }

    pub async fn create_container(
        &self,
        sandbox: &str,
        config: api::ContainerConfig,
        sandbox_config: api::PodSandboxConfig,
    ) -> Result<String> {
        let (runtime, sandbox) = (self.runtime.clone(), sandbox.to_owned());
        let call = async move { runtime.create_container(&sandbox, config, sandbox_config).await };
        // Two whole configurations inside make this future a large one.
        self.finish(Box::pin(call)).await
    }

    pub async fn start_container(&self, id: &str) -> Result<()> {
        let (runtime, id) = (self.runtime.clone(), id.to_owned());
        self.finish(async move { runtime.start_container(&id).await }).await
    }

    pub async fn update_container_resources(
        &self,
        id: &str,
        linux: api::LinuxContainerResources,
    ) -> Result<()> {
        let (runtime, id) = (self.runtime.clone(), id.to_owned());
        self.finish(async move { runtime.update_container_resources(&id, linux).await }).await
    }

    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<()> {
        let (runtime, id) = (self.runtime.clone(), id.to_owned());
        self.finish(async move { runtime.stop_container(&id, grace).await }).await
    }

    pub async fn remove_container(&self, id: &str) -> Result<()> {
        let (runtime, id) = (self.runtime.clone(), id.to_owned());
        self.finish(async move { runtime.remove_container(&id).await }).await
    }
}
