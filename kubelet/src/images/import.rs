//! Putting images into the runtime without a registry. CRI has no call for it, so containerd's own tool does it.

use async_trait::async_trait;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("cannot run ctr, which imports images into containerd: {0}")]
    NoTool(#[source] io::Error),
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("ctr refused the archive: {0}")]
    Refused(String),
}

/// Imports an archive in Docker's or OCI's format.
#[async_trait]
pub trait ImageImporter: Send + Sync {
    async fn import(&self, archive: Vec<u8>) -> Result<(), ImportError>;
    async fn import_file(&self, archive: &Path) -> Result<(), ImportError>;
}

/// `ctr --namespace k8s.io images import`, the namespace in which containerd's CRI keeps images.
pub struct Ctr {
    /// containerd's socket.
    pub address: PathBuf,
}

impl Ctr {
    fn command(&self, source: &str) -> Command {
        let mut command = Command::new("ctr");
        command.arg("--address").arg(&self.address).args([
            "--namespace",
            "k8s.io",
            "images",
            "import",
            source,
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }
}

fn verdict(output: &std::process::Output) -> Result<(), ImportError> {
    if output.status.success() {
        return Ok(());
    }
    Err(ImportError::Refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

#[async_trait]
impl ImageImporter for Ctr {
    async fn import(&self, archive: Vec<u8>) -> Result<(), ImportError> {
        let mut child = self.command("-").stdin(Stdio::piped()).spawn().map_err(ImportError::NoTool)?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&archive).await.map_err(ImportError::NoTool)?;
        }
        verdict(&child.wait_with_output().await.map_err(ImportError::NoTool)?)
    }

    async fn import_file(&self, archive: &Path) -> Result<(), ImportError> {
        if let Err(source) = tokio::fs::metadata(archive).await {
            return Err(ImportError::Read { path: archive.to_owned(), source });
        }
        let output = self.command(&archive.display().to_string()).output().await;
        verdict(&output.map_err(ImportError::NoTool)?)
    }
}
