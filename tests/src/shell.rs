//! Commands as a user types them, run by a shell with kubectl and `coracle` at hand.

use crate::wait::wait_for;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longest that one command may run before it is killed (exit code 124, as timeout(1) says it). Nothing here takes
/// longer than some seconds on an idle machine; the rest is for a busy one.
const COMMAND_LIMIT_SECONDS: u32 = 120;
/// Longest wait for what a command shows to become what a test expects.
const STATE_LIMIT: Duration = Duration::from_secs(100);

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit code {}\n{}{}", self.code, self.stdout, self.stderr)
    }
}

/// A user's terminal: a kubeconfig, a home of its own (for kubectl's caches) and a directory to work in.
pub struct Shell {
    home: PathBuf,
    kubeconfig: PathBuf,
}

impl Shell {
    /// `home` must exist; it is the commands' HOME and working directory.
    pub fn new(home: &Path, kubeconfig: &Path) -> Self {
        let bin = home.join("bin");
        if !bin.exists() {
            std::fs::create_dir_all(&bin).expect("a directory below HOME");
            std::os::unix::fs::symlink(crate::coracle(), bin.join("coracle")).expect("a link to the binary");
        }
        Self { home: home.to_owned(), kubeconfig: kubeconfig.to_owned() }
    }

    /// Another terminal, in a new home directory called `name`, with a kubeconfig of its own. Its commands work in the
    /// namespace of the same name, which it makes.
    #[track_caller]
    pub fn in_namespace(&self, name: &str) -> Self {
        let home = self.home.join(name);
        std::fs::create_dir(&home).expect("a home directory");
        let kubeconfig = home.join("kubeconfig");
        std::fs::copy(&self.kubeconfig, &kubeconfig).expect("a copy of the kubeconfig");
        let shell = Self::new(&home, &kubeconfig);
        shell.ok(&format!(
            "kubectl create namespace {name} && kubectl config set-context --current --namespace={name}"
        ));
        shell.until("kubectl get serviceaccount default -o name", "serviceaccount/default");
        shell
    }

    /// Puts a program in front of what the PATH has.
    pub fn provide(&self, name: &str, program: &Path) {
        let link = self.home.join("bin").join(name);
        std::os::unix::fs::symlink(program, link).expect("a link to a program");
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The command with this terminal's environment, not started yet.
    pub fn command(&self, line: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .current_dir(&self.home)
            .env("PATH", format!("{}:{path}", self.home.join("bin").display()))
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("LC_ALL", "C")
            // Half of the tests' processor time is kubectl's, and a quarter of that is collecting garbage just before its end.
            .env("GOGC", "400")
            // A quarter of the rest is its threads' looking for work.
            .env("GOMAXPROCS", "1")
            .stdin(Stdio::null());
        command
    }

    /// Starts a command that goes on beside the test, its output going to `file` in HOME.
    pub fn start(&self, line: &str, file: &str) -> Background {
        let out = std::fs::File::create(self.home.join(file)).expect("a file in HOME");
        let err = out.try_clone().expect("a second handle of a file");
        let child = self.command(&format!("exec {line}")).stdout(out).stderr(err).spawn();
        Background { child: child.expect("sh starts"), file: self.home.join(file) }
    }

    /// Runs a command to its end, whatever it is.
    pub fn run(&self, line: &str) -> Output {
        self.run_with(line, "")
    }

    /// Likewise with `input` on its standard input.
    pub fn run_with(&self, line: &str, input: &str) -> Output {
        let mut command = Command::new("timeout");
        let inner = self.command(line);
        command
            .args(["-k", "5", &COMMAND_LIMIT_SECONDS.to_string(), "sh", "-c", line])
            .current_dir(&self.home);
        for (name, value) in inner.get_envs().filter_map(|(n, v)| v.map(|v| (n, v))) {
            command.env(name, value);
        }
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.expect("timeout(1) starts");
        let mut stdin = child.stdin.take().expect("standard input is a pipe");
        let text = input.to_owned();
        let writer = std::thread::spawn(move || {
            // A command that does not read its input closes the pipe; that is its right.
            let _ = stdin.write_all(text.as_bytes());
        });
        let output = child.wait_with_output().expect("output of a command");
        writer.join().expect("writing standard input does not panic");
        Output {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Standard output of a command that must succeed.
    #[track_caller]
    pub fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.code, 0, "{line}\n{output}");
        output.stdout
    }

    /// The command succeeds and prints exactly this.
    #[track_caller]
    pub fn says(&self, line: &str, expected: &str) {
        let found = self.ok(line);
        assert_eq!(found.trim_end(), expected.trim_end(), "{line}");
    }

    /// The command succeeds and its output has every one of these in it, in this order.
    #[track_caller]
    pub fn shows(&self, line: &str, parts: &[&str]) {
        let found = self.ok(line);
        let mut rest = found.as_str();
        for part in parts {
            let at = rest.find(part);
            let at = at.unwrap_or_else(|| panic!("{line}\nno {part:?} (in this place) in:\n{found}"));
            rest = &rest[at + part.len()..];
        }
    }

    /// The command fails and says exactly this on standard error.
    #[track_caller]
    pub fn refuses(&self, line: &str, expected: &str) {
        let output = self.run(line);
        assert_ne!(output.code, 0, "{line} must fail\n{output}");
        assert_eq!(output.stderr.trim_end(), expected.trim_end(), "{line}");
    }

    /// Applies a manifest and returns what kubectl said about it.
    #[track_caller]
    pub fn apply(&self, manifest: &str) -> String {
        let output = self.run_with("kubectl apply -f -", manifest);
        assert_eq!(output.code, 0, "kubectl apply of\n{manifest}\n{output}");
        output.stdout
    }

    /// Runs a command until it prints exactly this.
    #[track_caller]
    pub fn until(&self, line: &str, expected: &str) {
        self.until_that(line, |stdout| stdout.trim_end() == expected);
    }

    /// Runs a command until its standard output is what `content` wants.
    #[track_caller]
    pub fn until_that(&self, line: &str, content: impl Fn(&str) -> bool) -> String {
        self.within(STATE_LIMIT, line, content)
    }

    /// Likewise with a limit of its own, for what takes its time by design.
    #[track_caller]
    pub fn within(&self, limit: Duration, line: &str, content: impl Fn(&str) -> bool) -> String {
        wait_for(line, limit, || {
            let output = self.run(line);
            if output.code == 0 && content(&output.stdout) {
                Ok(output.stdout)
            } else {
                Err(output.to_string())
            }
        })
    }
}

/// A command that runs beside the test; killed when dropped.
pub struct Background {
    child: Child,
    file: PathBuf,
}

impl Background {
    /// Everything it has printed so far.
    pub fn printed(&self) -> String {
        std::fs::read_to_string(&self.file).unwrap_or_default()
    }

    /// Waits until what it printed is what `content` wants.
    pub fn until_that(&self, what: &str, content: impl Fn(&str) -> bool) -> String {
        wait_for(what, STATE_LIMIT, || {
            let printed = self.printed();
            if content(&printed) { Ok(printed) } else { Err(printed) }
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).expect("the process exists");
    }

    /// Exit code, after it has ended by itself; -1 when a signal ended it.
    pub fn wait(mut self) -> i32 {
        let status = wait_for("the end of a command", STATE_LIMIT, || {
            self.child.try_wait().expect("a child's state").ok_or_else(|| self.printed())
        });
        status.code().unwrap_or(-1)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
