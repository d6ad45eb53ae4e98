//! `coracle supervise -- server ...`: a small process that runs another one, and starts that again when it ends by itself
//! or falls silent. What systemd does with `Restart=always` and `WatchdogSec=`, by the same protocol.

use crate::args::SuperviseArgs;
use crate::supervise::notify::{PATIENCE, SOCKET, WHO};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;
use tokio::net::UnixDatagram;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::Instant;

/// First pause before a start; doubled with each end in a row.
const FIRST_RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Longest pause, so that a mended machine is used again within half a minute.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// What ran this long was well.
const WELL_DURATION: Duration = Duration::from_secs(60);
/// Longest start: a store of some size that has to be rebuilt first.
const START_TIMEOUT: Duration = Duration::from_secs(600);
/// After a signal to end: components and connections get their time, then it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(25);
/// Tells the process below to end with this one.
const BOUND: &str = "CORACLE_SUPERVISED";

/// Exit codes: that of the process below where it was told to end, or ended before it was ready for the first time; 128
/// and the signal's number where a signal ended it then; 1 where it cannot be run at all.
pub fn command(args: &SuperviseArgs) -> ExitCode {
    if !matches!(args.command.first().and_then(|verb| verb.to_str()), Some("server" | "agent")) {
        return crate::process::fail(
            "supervise: only server and agent are run, such as: coracle supervise -- server",
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.and_then(|runtime| runtime.block_on(run(args)));
    done.unwrap_or_else(|error| crate::process::fail(&format!("supervise: {error}")))
}

/// What a process that runs under [`command`] does first: it ends with it, however that ends.
pub fn bind_to_parent() {
    if std::env::var_os(BOUND).is_some() {
        // What is acknowledged survives it, and two servers never run side by side.
        let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    }
}

/// A directory with the socket, gone with the value.
struct Door {
    directory: PathBuf,
    socket: UnixDatagram,
}

impl Door {
    fn open() -> io::Result<Self> {
        let directory = std::env::temp_dir().join(format!("coracle-supervise-{}", uuid::Uuid::new_v4()));
        std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
        let socket = UnixDatagram::bind(directory.join("notify"))?;
        Ok(Self { directory, socket })
    }

    fn path(&self) -> PathBuf {
        self.directory.join("notify")
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Left behind at worst: an empty socket that only we can open.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The file with the process id, gone with the value.
struct PidFile<'a>(Option<&'a Path>);

impl PidFile<'_> {
    fn write(&self, pid: u32) -> io::Result<()> {
        let Some(path) = self.0 else { return Ok(()) };
        let new = path.with_extension("new");
        std::fs::write(&new, format!("{pid}\n"))?;
        std::fs::rename(new, path)
    }
}

impl Drop for PidFile<'_> {
    fn drop(&mut self) {
        let _ = self.0.map(std::fs::remove_file);
    }
}

struct Told {
    terminate: Signals,
    interrupt: Signals,
    others: [(Signals, Signal); 3],
}

impl Told {
    fn listen() -> io::Result<Self> {
        let other = |kind, number| Ok::<_, io::Error>((signal(kind)?, number));
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            others: [
                other(SignalKind::hangup(), Signal::SIGHUP)?,
                other(SignalKind::user_defined1(), Signal::SIGUSR1)?,
                other(SignalKind::user_defined2(), Signal::SIGUSR2)?,
            ],
        })
    }

    async fn next(&mut self) -> Signal {
        let [(first, one), (second, two), (third, three)] = &mut self.others;
        tokio::select! {
            _ = self.terminate.recv() => Signal::SIGTERM,
            _ = self.interrupt.recv() => Signal::SIGINT,
            _ = first.recv() => *one,
            _ = second.recv() => *two,
            _ = third.recv() => *three,
        }
    }
}

/// How one run ended.
struct Ended {
    status: ExitStatus,
    ready: bool,
    told: bool,
}

async fn run(args: &SuperviseArgs) -> io::Result<ExitCode> {
    let (door, mut told) = (Door::open()?, Told::listen()?);
    let pid_file = PidFile(args.pid_file.as_deref());
    let (mut pause, mut was_ready) = (FIRST_RETRY_INTERVAL, false);
    loop {
        let began = Instant::now();
        let mut child = start(&args.command, &door.path(), args.watchdog.0)?;
        pid_file.write(child.id().unwrap_or_default())?;
        let ended = follow(&mut child, &door.socket, &mut told, args.watchdog.0).await?;
        was_ready |= ended.ready;
        if ended.told || !was_ready {
            return Ok(code(ended.status));
        }
        if began.elapsed() >= WELL_DURATION {
            pause = FIRST_RETRY_INTERVAL;
        }
        eprintln!("coracle supervise: it ended with {}, starting it again in {pause:?}", ended.status);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = until_ending(&mut told) => return Ok(code(ended.status)),
        }
        pause = (pause * 2).min(MAX_RETRY_INTERVAL);
    }
}

async fn until_ending(told: &mut Told) {
    while !matches!(told.next().await, Signal::SIGTERM | Signal::SIGINT) {}
}

fn start(command: &[OsString], socket: &Path, watchdog: Duration) -> io::Result<Child> {
    let mut child = Command::new("/proc/self/exe");
    child.args(command).env(SOCKET, socket).env_remove(WHO).env(BOUND, "1").kill_on_drop(true);
    if watchdog.is_zero() {
        child.env_remove(PATIENCE);
    } else {
        child.env(PATIENCE, watchdog.as_micros().to_string());
    }
    child.spawn()
}

/// Sees one run to its end.
async fn follow(
    child: &mut Child,
    socket: &UnixDatagram,
    told: &mut Told,
    watchdog: Duration,
) -> io::Result<Ended> {
    let (mut ready, mut ending) = (false, false);
    let mut until = Some(Instant::now() + START_TIMEOUT);
    let mut buffer = [0; 256];
    loop {
        let silence = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            status = child.wait() => return Ok(Ended { status: status?, ready, told: ending }),
            length = socket.recv(&mut buffer) => {
                let said = String::from_utf8_lossy(&buffer[..length?]).into_owned();
                ready |= said.lines().any(|line| line == "READY=1");
                if ready && !ending {
                    until = (!watchdog.is_zero()).then(|| Instant::now() + watchdog);
                }
            }
            signal = told.next() => {
                if matches!(signal, Signal::SIGTERM | Signal::SIGINT) {
                    ending = true;
                    until = Some(Instant::now() + END_TIMEOUT);
                }
                send(child, signal);
            }
            () = silence => {
                eprintln!("coracle supervise: no sign of life, killing it");
                send(child, Signal::SIGKILL);
                until = None;
            }
        }
    }
}

fn send(child: &Child, signal: Signal) {
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
        // It may have ended meanwhile.
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|number| 128 + number)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
