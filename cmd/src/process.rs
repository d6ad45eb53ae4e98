//! How commands begin and end: what kept them from it, and who tells them.

use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// Everything that can keep the server from starting; the text says what to do.
#[derive(Debug)]
pub struct StartError(String);

impl StartError {
    /// `what` failed because of `error`, whose whole chain is shown.
    pub fn new(what: &str, error: impl std::error::Error) -> Self {
        Self(format!("{what}: {}", coracle_api::error::chain(&error)))
    }
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

pub fn fail(text: &str) -> ExitCode {
    for line in text.lines() {
        eprintln!("coracle: {line}");
    }
    ExitCode::FAILURE
}

/// SIGTERM or SIGINT.
pub async fn until_told_to_end() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    Ok(())
}
