//! The side of a node: it says where it keeps volumes, and does what it is asked for them.

use super::job::perform;
use super::mail::{self, Answer};
use super::room;
use crate::quota;
use crate::volumes::Mounter;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Between looks at how much room there is, which no event tells. Shorter, and idle nodes do something; longer, and the
/// scheduler believes longer in room that is gone.
const ROOM_INTERVAL: Duration = Duration::from_secs(60);

/// Pause after the API server did not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Works for ever on what its Node asks for. `node` is the newest copy of it; `client` may patch it. One volume after the
/// other: they share a disk.
pub async fn serve(
    client: kube::Client,
    mut node: watch::Receiver<Option<Arc<Node>>>,
    root: PathBuf,
    mounter: Arc<dyn Mounter>,
) {
    // What this process has written last. An older copy of the Node does not show yet what was done: a job that was done
    // once may be somebody's harm the second time.
    let mut written = None;
    loop {
        let now = node.borrow_and_update().clone();
        if let Some(now) = now.filter(|now| revision(now) >= written) {
            match step(&client, &now, &root, &mounter, &mut written).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(%error, "what was done for local-path volumes is not told yet, trying again");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                    continue;
                }
            }
        }
        if let Ok(Err(_)) = tokio::time::timeout(ROOM_INTERVAL, node.changed()).await {
            return std::future::pending().await;
        }
    }
}

/// Revisions are numbers that grow (KEP-5504).
fn revision(node: &Node) -> Option<u64> {
    node.resource_version()?.parse().ok()
}

async fn step(
    client: &kube::Client,
    node: &Node,
    root: &std::path::Path,
    mounter: &Arc<dyn Mounter>,
    written: &mut Option<u64>,
) -> Result<(), kube::Error> {
    let name = node.name_any();
    let mut write = async |patch: Value| {
        *written = revision(&write(client, &name, patch).await?);
        Ok::<_, kube::Error>(())
    };
    let quotas = quota::can_hold(mounter.projects(), root);
    if !mail::is_introduced(node, root, quotas) {
        write(mail::introducing(root, quotas)).await?;
    }
    for (volume, job) in mail::open(node) {
        let (asked, place, host) = (job.clone(), root.to_owned(), mounter.clone());
        let done = tokio::task::spawn_blocking(move || perform(&place, &asked, host.as_ref())).await;
        let (error, full) = match done {
            Ok(Ok(())) => (String::new(), false),
            Ok(Err(error)) => (error.to_string(), error.is_full()),
            Err(panic) => (panic.to_string(), false),
        };
        write(mail::answering(&volume, &Answer { job, error, full })).await?;
    }
    match room::free(root) {
        Ok(free) if room::is_news(mail::room(node), free) => write(mail::telling(free)).await,
        _ => Ok(()),
    }
}

async fn write(client: &kube::Client, node: &str, patch: Value) -> Result<Node, kube::Error> {
    let api: Api<Node> = Api::all(client.clone());
    api.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await
}
