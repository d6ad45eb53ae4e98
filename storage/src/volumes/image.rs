//! Volumes whose size holds: a file system (ext4) of its own in a file `<volume>.img` beside the volume's directory.
//!
//! The file's blocks are taken when it is made, so a volume that was made has its room. It is mounted by a loop device, with
//! the tools of util-linux and e2fsprogs.

use super::{Mounter, VolumeError};
use crate::beneath::Dir;
use nix::errno::Errno;
use nix::fcntl::posix_fallocate;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The smallest that mkfs.ext4 gives a journal, which is what survives a power cut.
const SMALLEST: u64 = 8 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Mount(#[from] VolumeError),
    #[error("{tool} is not installed on this node, which volumes with a limited size need")]
    NoTool { tool: &'static str },
    #[error("a file system of type {kind:?} cannot be made on an empty device")]
    Format { kind: String },
    #[error("{tool} failed: {said}")]
    Tool { tool: &'static str, said: String },
    #[error("a volume with a limited size has at least {SMALLEST} bytes")]
    TooSmall,
}

fn image_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".img");
    path.with_file_name(name)
}

/// The name until it is whole.
fn fresh_of(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".new-");
    name.push(path.file_name().unwrap_or_default());
    name.push(".img");
    path.with_file_name(name)
}

fn at(path: &Path) -> impl Fn(io::Error) -> ImageError {
    let path = path.to_owned();
    move |source| ImageError::Io { path: path.clone(), source }
}

/// Makes the volume and lets `fill` put there what it shall have; one that is there is mounted again.
pub fn make<E: From<ImageError>>(
    path: &Path,
    bytes: u64,
    host: &dyn Mounter,
    fill: impl FnOnce(&Dir) -> Result<(), E>,
) -> Result<(), E> {
    let (image, fresh) = (image_of(path), fresh_of(path));
    if image.try_exists().map_err(at(&image))? {
        return Ok(mount(path, host)?);
    }
    if bytes < SMALLEST {
        return Err(ImageError::TooSmall.into());
    }
    let made = (|| {
        discard(path, host)?;
        allocate(&fresh, bytes)?;
        run("mkfs.ext4", &["-q", "-F", "-m", "0", "-E", "nodiscard"], &[&fresh])?;
        fs::create_dir(path).map_err(at(path))?;
        host.mount_image(&fresh, path)?;
        Ok::<_, ImageError>(())
    })();
    let whole = made.map_err(E::from).and_then(|()| {
        // People expect a new volume to be empty; fsck makes it anew where it is needed.
        fs::remove_dir(path.join("lost+found")).map_err(at(path))?;
        let dir = Dir::open(path).map_err(at(path))?;
        fill(&dir)?;
        Ok(fs::rename(&fresh, &image).map_err(at(&image))?)
    });
    // Half a volume is none, and keeps no room.
    whole.inspect_err(|_| drop(discard(path, host)))
}

/// Takes away what is not whole.
fn discard(path: &Path, host: &dyn Mounter) -> Result<(), ImageError> {
    if host.mounts()?.contains(path) {
        host.unmount(path)?;
    }
    gone(fs::remove_dir(path)).map_err(at(path))?;
    let fresh = fresh_of(path);
    gone(fs::remove_file(&fresh)).map_err(at(&fresh))
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Whether the volume is a file system of its own.
pub fn is_one(path: &Path) -> Result<bool, ImageError> {
    let image = image_of(path);
    image.try_exists().map_err(at(&image))
}

/// Mounts a volume that is a file system of its own; nothing is done for others.
pub fn mount_if_any(path: &Path, host: &dyn Mounter) -> Result<(), ImageError> {
    if is_one(path)? { mount(path, host) } else { Ok(()) }
}

/// Mounts the volume, which is there, where it is not yet.
pub fn mount(path: &Path, host: &dyn Mounter) -> Result<(), ImageError> {
    if host.mounts()?.contains(path) {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(at(path))?;
    Ok(host.mount_image(&image_of(path), path)?)
}

/// Makes the file and its file system larger, mounted as it is. One that is as large already is left so.
pub fn grow(path: &Path, bytes: u64, host: &dyn Mounter) -> Result<(), ImageError> {
    let image = image_of(path);
    mount(path, host)?;
    if fs::metadata(&image).map_err(at(&image))?.len() < bytes {
        allocate(&image, bytes)?;
    }
    // Also where the file grew and the process died then.
    let device = run("losetup", &["-n", "-O", "NAME", "-j"], &[&image])?;
    let device = Path::new(device.lines().next().unwrap_or_default().trim()).to_owned();
    run("losetup", &["-c"], &[&device])?;
    run("resize2fs", &[], &[&device]).map(drop)
}

/// Unmounts the volume and removes its file; the directory is left.
pub fn remove(path: &Path, host: &dyn Mounter) -> Result<(), ImageError> {
    let (image, fresh) = (image_of(path), fresh_of(path));
    if !image.try_exists().map_err(at(&image))? && !fresh.try_exists().map_err(at(&fresh))? {
        return Ok(());
    }
    if host.mounts()?.contains(path) {
        host.unmount(path)?;
    }
    gone(fs::remove_file(&fresh)).map_err(at(&fresh))?;
    gone(fs::remove_file(&image)).map_err(at(&image))
}

/// Gives the file all its blocks; one that got some of them only has the size that it had.
fn allocate(image: &Path, bytes: u64) -> Result<(), ImageError> {
    let failed = at(image);
    let file = File::options().create(true).truncate(false).write(true).open(image).map_err(&failed)?;
    let before = file.metadata().map_err(&failed)?.len();
    let size = i64::try_from(bytes).map_err(|_| failed(Errno::EFBIG.into()))?;
    match posix_fallocate(&file, 0, size) {
        Ok(()) => file.sync_all().map_err(&failed),
        Err(errno) => {
            file.set_len(before).map_err(&failed)?;
            // Larger than any file of this file system: it has no room for it either.
            let errno = if errno == Errno::EFBIG { Errno::ENOSPC } else { errno };
            Err(failed(errno.into()))
        }
    }
}

/// Where distributions put the tools; the process's own PATH says nothing of them.
const PLACES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

fn ran(tool: &'static str, words: &[&str], paths: &[&Path]) -> Result<Output, ImageError> {
    let found = PLACES.iter().map(|place| Path::new(place).join(tool)).find(|path| path.exists());
    let program = found.ok_or(ImageError::NoTool { tool })?;
    Command::new(&program).args(words).args(paths).output().map_err(at(&program))
}

/// What blkid says of a device with nothing on it that it knows.
const NOTHING: i32 = 2;

/// Mounts a block device, and makes a file system on it first where there is none; `kind` is ext4 where nobody says.
pub fn mount_device(
    device: &Path,
    kind: Option<&str>,
    options: &str,
    target: &Path,
) -> Result<(), ImageError> {
    let kind = kind.filter(|kind| !kind.is_empty()).unwrap_or("ext4");
    let looked = ran("blkid", &["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export"], &[device])?;
    let blank = looked.status.code() == Some(NOTHING);
    if !blank && !looked.status.success() {
        // Neither empty nor something that blkid knows: nobody's data is written over for that.
        let said = String::from_utf8_lossy(&looked.stderr).trim().to_owned();
        return Err(ImageError::Tool { tool: "blkid", said: format!("{}: {said}", looked.status) });
    }
    match kind {
        _ if !blank => {}
        "ext3" => drop(run("mkfs.ext3", &["-q", "-F", "-m", "0"], &[device])?),
        "ext4" => drop(run("mkfs.ext4", &["-q", "-F", "-m", "0"], &[device])?),
        "xfs" => drop(run("mkfs.xfs", &["-q"], &[device])?),
        "btrfs" => drop(run("mkfs.btrfs", &["-q"], &[device])?),
        other => return Err(ImageError::Format { kind: other.to_owned() }),
    }
    let options = if options.is_empty() { "defaults" } else { options };
    run("mount", &["-t", kind, "-o", options], &[device, target]).map(drop)
}

/// Runs a tool; what it says.
pub fn run(tool: &'static str, words: &[&str], paths: &[&Path]) -> Result<String, ImageError> {
    let ran = ran(tool, words, paths)?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
    Err(ImageError::Tool { tool, said: format!("{}: {said}", ran.status) })
}
