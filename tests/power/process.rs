//! A child as its parent handles it.

use crate::Error;
use crate::child::Task;
use crate::lines::{self, Line};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

pub struct Process {
    child: std::process::Child,
    lines: Receiver<Line>,
}

/// What a look at a child's output came to.
pub enum Heard {
    Line(Line),
    Nothing,
    /// It has ended, and all that it told was heard.
    End,
}

impl Process {
    /// What it writes to its standard error goes to the file, which is made anew.
    pub fn start(task: &Task, stderr: &Path) -> Result<Self, Error> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("child")
            .args(task.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(stderr)?)
            .spawn()?;
        let out = child.stdout.take().ok_or("no standard output")?;
        let (said, lines) = channel();
        std::thread::spawn(move || {
            let all = BufReader::with_capacity(1 << 16, out).lines().map_while(Result::ok);
            all.filter_map(|line| lines::parse(&line)).try_for_each(|line| said.send(line))
        });
        Ok(Self { child, lines })
    }

    pub fn hear(&self, within: Duration) -> Heard {
        match self.lines.recv_timeout(within) {
            Ok(line) => Heard::Line(line),
            Err(RecvTimeoutError::Timeout) => Heard::Nothing,
            Err(RecvTimeoutError::Disconnected) => Heard::End,
        }
    }

    pub fn say(&mut self, word: &str) {
        // One that has ended shows that by its output's end.
        let _ = self.child.stdin.as_mut().map(|stdin| writeln!(stdin, "{word}"));
    }

    /// Sends SIGKILL and does not wait.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    pub fn wait(&mut self) -> Result<std::process::ExitStatus, Error> {
        Ok(self.child.wait()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}
