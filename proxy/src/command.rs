//! Programs that write packet rules, and how their writes are told from others'.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("{program} could not be run")]
    Run {
        program: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error("{program} refused: {stderr}")]
    Refused { program: &'static str, stderr: String },
}

impl CommandError {
    /// Whether the kernel refused for want of a right (EPERM). `ip` ends with 2 whatever the kernel refused: of the kernel's
    /// number only the C library's text gets through to us.
    pub fn is_not_permitted(&self) -> bool {
        matches!(self, Self::Refused { stderr, .. } if stderr.contains("Operation not permitted"))
    }
}

/// So many writes of ours are remembered; their notices come within milliseconds.
const REMEMBERED: usize = 256;
/// Notices of our own writes come this long after the program's end at most, where processes cannot be told apart.
const ECHO_WINDOW: Duration = Duration::from_millis(200);

/// Which changes to the kernel's rules are ours. Cloning shares it.
#[derive(Clone, Default)]
pub struct Own(Arc<Mutex<Writes>>);

#[derive(Default)]
struct Writes {
    pids: VecDeque<u32>,
    running: usize,
    ended: Option<Instant>,
}

impl Own {
    fn began(&self, pid: Option<u32>) {
        let mut writes = self.0.lock();
        writes.running += 1;
        writes.pids.extend(pid);
        if writes.pids.len() > REMEMBERED {
            writes.pids.pop_front();
        }
    }

    fn ended(&self) {
        let mut writes = self.0.lock();
        writes.running -= 1;
        writes.ended = Some(Instant::now());
    }

    /// Whether a change that the kernel ascribes to `pid` was made by a program of ours. The kernel gives numbers of the
    /// machine's first PID namespace: in another one, whatever happens while one of ours runs counts as ours.
    pub fn made(&self, pid: Option<u32>) -> bool {
        match pid {
            Some(pid) if sees_all_processes() => self.0.lock().pids.contains(&pid),
            _ => self.is_writing(),
        }
    }

    /// Whether a program of ours writes, or did a moment ago.
    pub fn is_writing(&self) -> bool {
        let writes = self.0.lock();
        writes.running > 0 || writes.ended.is_some_and(|at| at.elapsed() < ECHO_WINDOW)
    }

    /// Runs a program to its end, with `input` on its standard input.
    ///
    /// # Errors
    /// It could not be run. That it failed is in its output.
    pub async fn run(
        &self,
        program: &'static str,
        args: &[&str],
        input: Option<&str>,
    ) -> Result<Output, CommandError> {
        let failed = |source| CommandError::Run { program, source };
        let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut child = Command::new(program)
            .args(args)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        self.began(child.id());
        let _ended = Ended(self);
        if let (Some(mut pipe), Some(text)) = (child.stdin.take(), input) {
            // Whoever refuses the beginning does not read the rest, and says why.
            if let Err(error) = pipe.write_all(text.as_bytes()).await
                && error.kind() != std::io::ErrorKind::BrokenPipe
            {
                return Err(failed(error));
            }
        }
        child.wait_with_output().await.map_err(failed)
    }

    /// The same, where failing is an error; gives what it printed.
    ///
    /// # Errors
    /// It could not be run, or failed.
    pub async fn done(
        &self,
        program: &'static str,
        args: &[&str],
        input: Option<&str>,
    ) -> Result<String, CommandError> {
        let output = self.run(program, args, input).await?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(CommandError::Refused { program, stderr })
    }
}

struct Ended<'a>(&'a Own);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// The inode of the first PID namespace is the same on every Linux (include/linux/proc_ns.h, PROC_PID_INIT_INO).
fn sees_all_processes() -> bool {
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == "pid:[4026531836]")
}

/// Whether there is such a program on the PATH.
pub fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path).chain(system).any(|dir| dir.join(program).is_file())
}
