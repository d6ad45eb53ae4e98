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
    /// Names of the images, maybe among other words.
    async fn import_file(&self, archive: &Path) -> Result<Vec<String>, ImportError>;
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
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
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

    async fn import_file(&self, archive: &Path) -> Result<Vec<String>, ImportError> {
        if let Err(source) = tokio::fs::metadata(archive).await {
            return Err(ImportError::Read { path: archive.to_owned(), source });
        }
        let output = self.command(&archive.display().to_string()).output().await;
        let output = output.map_err(ImportError::NoTool)?;
        verdict(&output)?;
        Ok(names(&String::from_utf8_lossy(&output.stdout)))
    }
}

/// Of what `ctr` prints, all that may name an image. How it prints that depends on its version.
fn names(printed: &str) -> Vec<String> {
    let words = printed.split(|c: char| c.is_whitespace() || c.is_control() || "()".contains(c));
    words.filter(|word| word.contains(':')).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ctr_names_what_it_imported() {
        let old = "unpacking docker.io/library/busybox:1.36 (sha256:0123abcd)...done\n";
        let new = "docker.io/library/busybox:1.36          \tsaved\u{1b}[1A\n";
        for printed in [old, new] {
            assert!(names(printed).contains(&"docker.io/library/busybox:1.36".to_owned()), "{printed}");
        }
        assert!(names("").is_empty());
    }
}
