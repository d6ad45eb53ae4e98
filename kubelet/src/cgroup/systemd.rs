//! Slices of systemd, by its own program: a cgroup that systemd does not know of would be cleared away.

use super::files::weight;
use super::limits::Limits;
use std::process::{ExitStatus, Stdio};
use tokio::process::Command;

const PROGRAM: &str = "systemctl";

#[derive(Debug, thiserror::Error)]
pub enum SliceError {
    #[error("cannot run {PROGRAM}")]
    Run(#[source] std::io::Error),
    #[error("{PROGRAM} cannot limit {slice} ({status}): {message}")]
    Refused { slice: String, status: ExitStatus, message: String },
}

/// Makes slices and limits them until the machine is started anew.
#[derive(Debug, Default)]
pub struct Slices(());

impl Slices {
    /// The last part of the path is the slice; systemd makes those above it.
    pub async fn set(&self, path: &str, limits: &Limits) -> Result<(), SliceError> {
        let slice = path.rsplit('/').next().unwrap_or_default().to_owned();
        let mut set = vec!["set-property".to_owned(), "--runtime".to_owned(), slice.clone()];
        set.extend(properties(limits));
        call(&slice, &set).await?;
        call(&slice, &["start".to_owned(), slice.clone()]).await
    }
}

async fn call(slice: &str, arguments: &[String]) -> Result<(), SliceError> {
    let output = Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output();
    let output = output.await.map_err(SliceError::Run)?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(SliceError::Refused { slice: slice.to_owned(), status: output.status, message })
}

/// systemd translates those of version 2 where the kernel has version 1 (systemd.resource-control(5)).
fn properties(limits: &Limits) -> Vec<String> {
    let most = |limit: Option<u64>| limit.map_or_else(|| "infinity".to_owned(), |limit| limit.to_string());
    let mut all = vec![
        format!("MemoryMax={}", most(limits.memory_max)),
        format!("MemoryMin={}", limits.memory_min),
        format!("MemoryLow={}", limits.memory_low),
        format!("TasksMax={}", most(limits.pids_max)),
    ];
    all.extend(limits.cpu_shares.map(|shares| format!("CPUWeight={}", weight(shares))));
    all.extend(limits.cpu_quota.map(|(quota, period)| match quota {
        0 => "CPUQuota=".to_owned(),
        // In percent of one CPU, at least one.
        _ => format!("CPUQuota={}%", (quota * 100 / period.max(1)).max(1)),
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_properties() {
        let limits = Limits {
            cpu_shares: Some(1024),
            cpu_quota: Some((50_000, 100_000)),
            memory_max: Some(4096),
            pids_max: None,
            ..Limits::default()
        };
        let expected = [
            "MemoryMax=4096",
            "MemoryMin=0",
            "MemoryLow=0",
            "TasksMax=infinity",
            "CPUWeight=39",
            "CPUQuota=50%",
        ];
        assert_eq!(properties(&limits), expected);
        let free = Limits { cpu_quota: Some((0, 100_000)), ..Limits::default() };
        assert_eq!(properties(&free).last().map(String::as_str), Some("CPUQuota="), "no quota any more");
    }
}
