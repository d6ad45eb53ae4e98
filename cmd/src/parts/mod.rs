//! Parts of the cluster as processes of their own, beside or instead of the server's: each needs a kubeconfig and works
//! against any API server.

mod accounts;
pub mod args;
pub mod controllers;
pub mod kubelet;
pub mod leading;
pub mod port;
pub mod proxy;
pub mod scheduler;
mod server_names;
pub mod signing;

use crate::process::until_told_to_end;
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often the files are looked at. The administrator's kubeconfig holds a certificate for days, whose other half begins
/// when the server writes the next one.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Runs a part until SIGTERM or SIGINT, and anew whenever one of the `files` (kubeconfig, certificates) holds something
/// else.
///
/// # Errors
/// Of the part.
pub async fn until_told<R>(files: Vec<PathBuf>, part: impl Fn(CancellationToken) -> R) -> Result<(), String>
where
    R: Future<Output = Result<(), String>>,
{
    let told = CancellationToken::new();
    let ended = told.clone();
    tokio::spawn(async move {
        if until_told_to_end().await.is_ok() {
            ended.cancel();
        }
    });
    loop {
        let stop = told.child_token();
        let watching = tokio::spawn(until_changed(files.clone(), stop.clone()));
        let outcome = part(stop).await;
        watching.abort();
        outcome?;
        if told.is_cancelled() {
            tracing::info!("ending");
            return Ok(());
        }
        tracing::info!(?files, "another kubeconfig or certificate, beginning anew");
    }
}

/// Cancels `stop` once one of the files holds something else.
async fn until_changed(files: Vec<PathBuf>, stop: CancellationToken) {
    let first = contents(&files).await;
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let now = contents(&files).await;
        if now.iter().all(Option::is_some) && now != first {
            return stop.cancel();
        }
    }
}

async fn contents(files: &[PathBuf]) -> Vec<Option<Vec<u8>>> {
    futures::future::join_all(files.iter().map(|file| async move { tokio::fs::read(file).await.ok() })).await
}
