//! Whoever watches over the process from outside, by systemd's protocol: see sd_notify(3), and `sd_watchdog_enabled(3)`.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Where the watcher listens.
pub const SOCKET: &str = "NOTIFY_SOCKET";
/// How long it waits for a sign of life, in microseconds.
pub const PATIENCE: &str = "WATCHDOG_USEC";
/// Whose signs it waits for.
pub const WHO: &str = "WATCHDOG_PID";

/// Tells the watcher; nobody is told where there is none.
pub struct Watcher {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Whether it starts another process when this one ends or falls silent.
    restarts: bool,
}

impl Watcher {
    pub fn of_environment() -> Self {
        let socket = address().and_then(|to| Some((UnixDatagram::unbound().ok()?, to)));
        let ours = std::env::var(WHO).map_or(true, |pid| pid == std::process::id().to_string());
        let waits = std::env::var(PATIENCE).is_ok_and(|limit| limit.parse::<u64>().is_ok_and(|us| us > 0));
        Self { restarts: socket.is_some() && ours && waits, socket }
    }

    pub fn restarts(&self) -> bool {
        self.restarts
    }

    pub fn ready(&self) {
        self.tell("READY=1");
    }

    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// A sign of life.
    pub fn alive(&self) {
        if self.restarts {
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&self, what: &str) {
        if let Some((socket, to)) = &self.socket {
            // Whoever does not listen learns nothing; there is nobody else to tell.
            let _ = socket.send_to_addr(what.as_bytes(), to);
        }
    }
}

fn address() -> Option<SocketAddr> {
    let path = std::env::var_os(SOCKET).filter(|path| !path.is_empty())?;
    parse(path.as_bytes()).ok()
}

/// A path, or with `@` an abstract name.
fn parse(path: &[u8]) -> io::Result<SocketAddr> {
    match path.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_sockets_are_reached() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("@coracle-test-{}", uuid::Uuid::new_v4());
        let listeners = [
            (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
            (UnixDatagram::bind_addr(&parse(name.as_bytes()).unwrap()).unwrap(), name),
        ];
        for (listener, at) in listeners {
            let to = parse(at.as_bytes()).unwrap();
            let watcher = Watcher {
                socket: Some((UnixDatagram::unbound().unwrap(), to)),
                restarts: at.starts_with('@'),
            };
            watcher.ready();
            watcher.alive();
            watcher.stopping();
            let expected: &[&str] = if watcher.restarts() {
                &["READY=1", "WATCHDOG=1", "STOPPING=1"]
            } else {
                &["READY=1", "STOPPING=1"]
            };
            for text in expected {
                let mut buffer = [0; 64];
                let length = listener.recv(&mut buffer).unwrap();
                assert_eq!(&buffer[..length], text.as_bytes());
            }
        }
    }
}
