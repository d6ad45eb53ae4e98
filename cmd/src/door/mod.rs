//! The server's door for commands on its own machine: a socket in the data directory, whose owner alone may knock.
//!
//! It hands out what no user of the API may have, a cluster administrator included: the store as it lies on the disk, and the
//! keys of the authorities. So it is no path of the API: the directory and the socket are their owner's (0700, 0600), and
//! the kernel says who connects.

mod client;
mod frames;
mod serve;

pub use client::{KnockError, knock};
pub use serve::{Inside, open};

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The socket's name in the data directory.
const SOCKET: &str = "server.sock";

/// What a command may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A backup, not sealed.
    Backup,
}

impl Request {
    const ALL: [(&'static str, Self); 1] = [("backup", Self::Backup)];

    fn parse(line: &str) -> Option<Self> {
        Self::ALL.iter().find(|(word, _)| *word == line).map(|(_, request)| *request)
    }

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, request)| *request == self).map_or("", |(word, _)| *word)
    }
}

/// A socket's path has 107 bytes at most (unix(7)), a data directory's any number: it is named by a descriptor of the
/// directory, which has to stay open meanwhile.
fn short_path(data_dir: &Path) -> io::Result<(File, PathBuf)> {
    let dir = File::open(data_dir)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(SOCKET);
    Ok((dir, path))
}
