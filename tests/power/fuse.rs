//! The kernel's side of the disk: FUSE, spoken directly over /dev/fuse.
//!
//! Every file is opened for direct I/O and no name or attribute may be kept, so that the kernel caches nothing and all that
//! is volatile is the disk's own. The layouts are those of the kernel's `include/uapi/linux/fuse.h`, protocol 7.31.

mod wire;

use crate::Error;
use crate::disk::{Disk, Luck, Stat};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use parking_lot::Mutex;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use wire::{Asked, Reply};

/// Requests that are worked on at once: those of the store's threads, while flushes take their time.
const SERVERS: usize = 4;

/// The disk, as whoever plans its end and whoever serves its requests share it.
#[derive(Debug)]
pub struct Shared {
    pub disk: Mutex<Disk>,
    luck: Mutex<Luck>,
    /// How long the device takes to flush.
    pub flush: Mutex<Duration>,
    released: Mutex<bool>,
}

impl Shared {
    /// Makes the plan come true now.
    pub fn stop(&self) {
        self.disk.lock().stopped = true;
    }

    /// Requests that came after the plan came true wait for this: whoever made them must be dying by then.
    pub fn release(&self) {
        *self.released.lock() = true;
    }

    /// From now on requests are answered again.
    pub fn renew(&self, luck: Luck) {
        *self.luck.lock() = luck;
        *self.released.lock() = false;
    }

    /// A request that met a stopped disk is answered only when nobody hears it any more.
    fn hold(&self) {
        while !*self.released.lock() {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// A mounted disk; dropping it takes the mount away.
pub struct Mounted {
    pub shared: Arc<Shared>,
    pub path: PathBuf,
}

impl Mounted {
    /// Mounts an empty disk in a mount namespace that only the caller and its later children live in: with the last of them
    /// it is gone, however they end.
    pub fn new(path: &Path) -> Result<Self, Error> {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS)?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("forgetful"), path, Some("fuse"), flags, Some(options.as_str()))?;
        let shared = Arc::new(Shared {
            disk: Mutex::default(),
            luck: Mutex::new(Luck::new(0)),
            flush: Mutex::default(),
            released: Mutex::default(),
        });
        shared.disk.lock().load(&crate::disk::Image::default());
        for _ in 0..SERVERS {
            let (device, shared) = (device.try_clone()?, shared.clone());
            std::thread::Builder::new().name("disk".into()).spawn(move || serve(device, &shared))?;
        }
        Ok(Self { shared, path: path.to_owned() })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.shared.stop();
        self.shared.release();
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
    }
}

fn serve(mut device: File, shared: &Shared) {
    let mut buffer = vec![0; wire::BUFFER];
    loop {
        let read = match device.read(&mut buffer) {
            Ok(read) => read,
            // Interrupted, or taken back by the kernel.
            Err(error) if is_passing(&error) => continue,
            // Unmounted.
            Err(_) => return,
        };
        let Some((unique, asked)) = wire::parse(&buffer[..read]) else { continue };
        let Some(reply) = answer(shared, asked) else { continue };
        // ENOENT: whoever asked is gone.
        let _ = device.write_all(&reply.encode(unique));
    }
}

fn is_passing(error: &std::io::Error) -> bool {
    let passing = [Errno::EINTR, Errno::ENOENT, Errno::EAGAIN];
    error.raw_os_error().is_some_and(|errno| passing.contains(&Errno::from_raw(errno)))
}

/// `None` where the kernel expects no answer.
fn answer(shared: &Shared, asked: Asked<'_>) -> Option<Reply> {
    let done = match asked {
        Asked::Forget => return None,
        Asked::Init => return Some(Reply::Init),
        Asked::Flush { node } => flush(shared, node).map(|()| Reply::Nothing),
        other => request(&mut shared.disk.lock(), other),
    };
    if done.is_err() && shared.disk.lock().stopped {
        shared.hold();
    }
    Some(done.unwrap_or_else(Reply::Error))
}

fn flush(shared: &Shared, node: u64) -> Result<(), Errno> {
    let begun = {
        let mut luck = shared.luck.lock();
        shared.disk.lock().begin_flush(node, &mut luck)?
    };
    let time = *shared.flush.lock();
    if !time.is_zero() {
        std::thread::sleep(time);
    }
    shared.disk.lock().end_flush(node, begun)
}

fn request(disk: &mut Disk, asked: Asked<'_>) -> Result<Reply, Errno> {
    let entry = |stat: Stat| Reply::Entry(stat);
    Ok(match asked {
        Asked::Lookup { dir, name } => entry(disk.lookup(dir, name)?),
        Asked::Stat { node } => Reply::Stat(disk.stat(node)?),
        Asked::Change { node, size } => {
            if let Some(size) = size {
                disk.truncate(node, size)?;
            }
            Reply::Stat(disk.stat(node)?)
        }
        Asked::MakeDir { dir, name } => entry(disk.mkdir(dir, name)?),
        Asked::Create { dir, name } => Reply::Created(disk.create(dir, name)?),
        Asked::Unlink { dir, name } => disk.unlink(dir, name).map(|()| Reply::Nothing)?,
        Asked::Rename { from, to } => disk.rename(from, to).map(|()| Reply::Nothing)?,
        Asked::Open { node } => disk.open(node).map(|()| Reply::Opened { direct: true })?,
        Asked::OpenDir { node } => disk.open(node).map(|()| Reply::Opened { direct: false })?,
        Asked::Read { node, offset, len } => Reply::Data(disk.read(node, offset, len)?),
        Asked::List { node, offset, len } => Reply::Data(wire::listing(&disk.list(node)?, offset, len)),
        Asked::Write { node, offset, data } => {
            disk.write(node, offset, data)?;
            Reply::Written(data.len() as u64)
        }
        Asked::Allocate { node, end, keep_size } => {
            disk.allocate(node, end, keep_size).map(|()| Reply::Nothing)?
        }
        Asked::SyncDir { node } => disk.sync_dir(node).map(|()| Reply::Nothing)?,
        Asked::Space => Reply::Space { free: disk.free() },
        Asked::Close => Reply::Nothing,
        Asked::Unknown | Asked::Forget | Asked::Init | Asked::Flush { .. } => return Err(Errno::ENOSYS),
    })
}
