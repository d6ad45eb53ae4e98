//! The server's door for commands on its own machine: a socket in the data directory, whose owner alone may knock.
//!
//! It hands out what no user of the API may have, a cluster administrator included: the store as it lies on the disk, and the
//! keys of the authorities. So it is no path of the API: the directory and the socket are their owner's (0700, 0600), and
//! the kernel says who connects.

mod client;
mod frames;

pub use client::{KnockError, knock};
pub use frames::FrameWriter;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The socket's name in the data directory.
pub const SOCKET: &str = "server.sock";

/// What a command may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A backup, not sealed.
    Backup,
    /// Every object as a line of JSON.
    Export,
    /// Likewise, and nothing is written from then on.
    Move,
    /// Writes are accepted again: the move came to nothing.
    Stay,
    /// A step in the replacement of the authorities; the answer is text.
    RotateCa(Step),
}

/// See `coracle cert rotate-ca`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Says how far it is.
    Show,
    /// New ones are trusted.
    Begin,
    /// New ones sign.
    Issue { anyway: bool },
    /// Old ones go.
    Finish { anyway: bool },
    /// New ones go.
    Abandon,
}

impl Request {
    const ALL: [(&'static str, Self); 11] = [
        ("backup", Self::Backup),
        ("export", Self::Export),
        ("move", Self::Move),
        ("stay", Self::Stay),
        ("rotate-ca show", Self::RotateCa(Step::Show)),
        ("rotate-ca begin", Self::RotateCa(Step::Begin)),
        ("rotate-ca issue", Self::RotateCa(Step::Issue { anyway: false })),
        ("rotate-ca issue anyway", Self::RotateCa(Step::Issue { anyway: true })),
        ("rotate-ca finish", Self::RotateCa(Step::Finish { anyway: false })),
        ("rotate-ca finish anyway", Self::RotateCa(Step::Finish { anyway: true })),
        ("rotate-ca abandon", Self::RotateCa(Step::Abandon)),
    ];

    pub fn parse(line: &str) -> Option<Self> {
        Self::ALL.iter().find(|(word, _)| *word == line).map(|(_, request)| *request)
    }

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, request)| *request == self).map_or("", |(word, _)| *word)
    }
}

/// A socket's path has 107 bytes at most (unix(7)), a data directory's any number: it is named by a descriptor of the
/// directory, which has to stay open meanwhile.
pub fn short_path(data_dir: &Path) -> io::Result<(File, PathBuf)> {
    let dir = File::open(data_dir)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(SOCKET);
    Ok((dir, path))
}
