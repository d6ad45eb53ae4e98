//! Word of changes below the directory.

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use tokio::net::unix::pipe;

/// Room for some events; what they say is not read.
const EVENTS: usize = 4096;

/// What the kernel tells of; an inotify descriptor is read like a pipe. What it cannot tell is found at the next look.
pub struct Watch(Option<pipe::Receiver>);

impl Watch {
    /// Of these folders. Must be called inside the tokio runtime.
    pub fn of(folders: &[PathBuf]) -> Self {
        let made = make(folders);
        if let Err(error) = &made {
            tracing::warn!(%error, "changes of manifests are not told, looking at them by the clock");
        }
        Self(made.ok())
    }

    /// Returns when something changed; never where changes are not told. Cancel-safe.
    pub async fn changed(&self) {
        let Some(inotify) = &self.0 else { return std::future::pending().await };
        loop {
            if inotify.readable().await.is_err() {
                return std::future::pending().await;
            }
            match inotify.try_read(&mut [0; EVENTS]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return std::future::pending().await,
                Ok(_) => return,
            }
        }
    }
}

fn make(folders: &[PathBuf]) -> io::Result<pipe::Receiver> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let changes = AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_ATTRIB
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_MOVED_FROM
        | AddWatchFlags::IN_DELETE;
    folders.iter().try_for_each(|folder: &PathBuf| add(&inotify, folder, changes))?;
    pipe::Receiver::from_owned_fd_unchecked(OwnedFd::from(inotify))
}

fn add(inotify: &Inotify, folder: &Path, changes: AddWatchFlags) -> io::Result<()> {
    match inotify.add_watch(folder, changes) {
        // Gone again; its parent tells.
        Ok(_) | Err(nix::errno::Errno::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
