//! How commands begin and end: what kept them from it, and who tells them.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Whether the process is to begin anew when the command has come to its end.
static ANEW: AtomicBool = AtomicBool::new(false);

/// For a command that is about to end well: the same program runs again from its beginning then, with the same arguments and
/// under the same process number, so that nobody who watches over it takes it for ended.
pub fn begin_anew_at_the_end() {
    ANEW.store(true, Ordering::Release);
}

pub fn begins_anew() -> bool {
    ANEW.load(Ordering::Acquire)
}

/// Runs this program from its beginning, with the same arguments, in the place of this process. Returns if that fails.
pub fn again() -> std::io::Error {
    let mut arguments = std::env::args_os();
    let mut again = Command::new("/proc/self/exe");
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    again.args(arguments).exec()
}
