//! What a node does for its local-path volumes. All of it can be done again.

use super::users::{self, InUse};
use crate::beneath::{Dir, copy, remove_below};
use crate::place::{Place, PlaceError};
use crate::quota;
use crate::volumes::image::{self, ImageError};
use crate::volumes::{Mounter, VolumeError};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// One volume is one name below the node's root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", deny_unknown_fields)]
pub enum Job {
    /// Makes the volume, with what is in another one where `from` names it. With `bytes` it is a file system of that size,
    /// with `quota` a directory that takes no more bytes than that.
    Make {
        directory: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
        /// Asked for only of nodes that say that they have quotas.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quota: Option<u64>,
    },
    /// Makes a volume larger whose size holds.
    Grow {
        directory: String,
        bytes: u64,
    },
    Remove {
        directory: String,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    InUse(#[from] InUse),
    #[error(transparent)]
    Mount(#[from] VolumeError),
    #[error(transparent)]
    Image(#[from] ImageError),
}

impl JobError {
    /// Whether another node may have the room that this one has not.
    pub fn is_full(&self) -> bool {
        let full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
        match self {
            Self::Io { source, .. } | Self::Image(ImageError::Io { source, .. }) => full(source),
            _ => false,
        }
    }
}

/// Does it. Takes as long as the copying takes: not for an async thread.
pub fn perform(root: &Path, job: &Job, host: &dyn Mounter) -> Result<(), JobError> {
    match job {
        Job::Make { directory, from, bytes, quota } => {
            let place = Place::of(root, directory)?;
            let from = from.as_deref().map(|from| Place::of(root, from)).transpose()?;
            let size = Size { bytes: *bytes, quota: *quota };
            make(&place, size, host, |made| {
                fill(made, from.as_ref(), host)?;
                // Open to every user: pods run as whoever they like, and only pods of the claim's namespace can mount it.
                made.itself().and_then(|node| node.chmod(0o777)).map_err(at(&place.path))
            })
        }
        Job::Grow { directory, bytes } => grow(&Place::of(root, directory)?.path, *bytes, host),
        Job::Remove { directory } => {
            let place = Place::of(root, directory)?;
            unused(&place.path)?;
            remove(&place, host)
        }
    }
}

/// Takes away a volume that nobody has mounted, and what was begun in its place.
pub fn remove(place: &Place, host: &dyn Mounter) -> Result<(), JobError> {
    let Place { base, path } = place;
    image::remove(path, host)?;
    let fresh = fresh(path);
    let projects = quota::marks(host.projects(), [path.as_path(), &fresh]);
    // Its pods may have nested what they liked, and linked to whatever they liked.
    for path in [path, &fresh] {
        remove_below(base, path).map_err(at(path))?;
    }
    quota::release(host.projects(), base, &projects);
    Ok(())
}

/// Whoever asks, nothing is taken from under a container.
fn unused(path: &Path) -> Result<(), JobError> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(at(path)(error)),
        Ok(_) => Ok(InUse::by(&users::containers(path).map_err(at(path))?)?),
    }
}

/// How a volume is held to its size, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    pub bytes: Option<u64>,
    pub quota: Option<u64>,
}

/// Makes the volume with what `fill` puts there, unless it is there. It has its name when it is whole.
pub fn make(
    place: &Place,
    size: Size,
    host: &dyn Mounter,
    fill: impl FnOnce(&Dir) -> Result<(), JobError>,
) -> Result<(), JobError> {
    match size.bytes {
        Some(bytes) => {
            open_base(&place.base).map_err(at(&place.base))?;
            image::make(&place.path, bytes, host, fill)
        }
        None => make_directory(place, size.quota, host, fill),
    }
}

fn grow(path: &Path, bytes: u64, host: &dyn Mounter) -> Result<(), JobError> {
    if image::is_one(path)? {
        return Ok(image::grow(path, bytes, host)?);
    }
    Dir::open(path).and_then(|dir| quota::hold(host.projects(), &dir, bytes)).map_err(at(path))
}

pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> JobError {
    let path = path.to_owned();
    move |source| JobError::Io { path: path.clone(), source }
}

/// The root is closed to other users of the machine. Further places are made by whoever owns the machine, and never here:
/// one that is missing is a disk that is not mounted.
fn open_base(base: &Path) -> io::Result<Dir> {
    if !Place::is_further(base) && !base.try_exists()? {
        std::fs::create_dir_all(base)?;
        Dir::open(base)?.itself()?.chmod(0o711)?;
    }
    Dir::open(base)
}

/// The name until it is whole.
fn fresh(path: &Path) -> PathBuf {
    let mut fresh = std::ffi::OsString::from(".new-");
    fresh.push(path.file_name().unwrap_or_default());
    path.with_file_name(fresh)
}

fn make_directory(
    place: &Place,
    bytes: Option<u64>,
    host: &dyn Mounter,
    fill: impl FnOnce(&Dir) -> Result<(), JobError>,
) -> Result<(), JobError> {
    let failed = at(&place.path);
    let base = open_base(&place.base).map_err(&failed)?;
    let name = place.path.file_name().unwrap_or_default();
    if base.node(name).is_ok() {
        return Ok(());
    }
    let fresh = fresh(&place.path);
    let fresh = fresh.file_name().unwrap_or_default();
    base.remove(fresh).map_err(&failed)?;
    let made = base.make_dir(fresh, 0o777).map_err(&failed)?;
    if let Some(bytes) = bytes {
        quota::hold(host.projects(), &made, bytes).map_err(&failed)?;
    }
    fill(&made)?;
    base.rename(fresh, name).map_err(&failed)
}

fn fill(made: &Dir, from: Option<&Place>, host: &dyn Mounter) -> Result<(), JobError> {
    let Some(Place { path, .. }) = from else { return Ok(()) };
    image::mount_if_any(path, host)?;
    Dir::open(path).and_then(|source| copy(&source, made)).map_err(at(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes::LinuxMounter;
    use std::fs;
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    fn make(directory: &str, from: Option<&str>, bytes: Option<u64>) -> Job {
        Job::Make { directory: directory.to_owned(), from: from.map(str::to_owned), bytes, quota: None }
    }

    #[test]
    fn volumes_are_made_copied_and_removed_and_nothing_else_is() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        let run = |job: &Job| perform(&root, job, &LinuxMounter);
        run(&make("one", None, None)).unwrap();
        fs::write(root.join("one/file"), "gold").unwrap();
        // Half a copy of a process that died.
        fs::create_dir(root.join(".new-two")).unwrap();
        fs::write(root.join(".new-two/half"), "").unwrap();
        run(&make("two", Some("one"), None)).unwrap();
        assert_eq!(fs::read_to_string(root.join("two/file")).unwrap(), "gold");
        assert!(!root.join("two/half").exists());
        fs::write(root.join("two/more"), "").unwrap();
        run(&make("two", Some("one"), None)).unwrap();
        assert!(root.join("two/more").exists(), "what is there is left as it is");
        for name in ["..", "../one", "one/file", "", ".new-two", "/one"] {
            let job = Job::Remove { directory: name.to_owned() };
            assert!(matches!(run(&job), Err(JobError::Place(_))), "{name}");
        }
        run(&Job::Remove { directory: "one".to_owned() }).unwrap();
        run(&Job::Remove { directory: "one".to_owned() }).unwrap();
        assert!(!root.join("one").exists() && root.join("two").exists());
    }

    #[test]
    fn what_somebody_has_mounted_is_not_removed() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: mounting needs root");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        perform(&root, &make("one", None, None), &LinuxMounter).unwrap();
        fs::write(root.join("one/file"), "gold").unwrap();
        // In a view of its own, as a container's.
        let script = "mount --make-rprivate / && mount --bind \"$0\" /mnt && echo mounted && read -r _";
        let mut user = std::process::Command::new("unshare");
        let user = user.args(["--mount", "sh", "-c", script]).arg(root.join("one"));
        let mut user = user.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(user.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "mounted\n");
        let remove = Job::Remove { directory: "one".to_owned() };
        let refused = perform(&root, &remove, &LinuxMounter).unwrap_err();
        assert!(matches!(refused, JobError::InUse(_)), "{refused}");
        assert!(refused.to_string().ends_with(&user.id().to_string()), "{refused}");
        assert_eq!(fs::read_to_string(root.join("one/file")).unwrap(), "gold");
        drop(user.stdin.take());
        user.wait().unwrap();
        perform(&root, &remove, &LinuxMounter).unwrap();
        assert!(!root.join("one").exists());
    }

    /// The kernel lets nobody else resize a file system that is mounted.
    fn may_resize() -> bool {
        const CAP_SYS_RESOURCE: u32 = 24;
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap() & 1 << CAP_SYS_RESOURCE != 0
    }

    #[test]
    fn a_limited_volume_takes_no_more_than_its_size_and_grows() {
        if !nix::unistd::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            eprintln!("skipped: file systems in files need root and loop devices");
            return;
        }
        const MIB: u64 = 1 << 20;
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        let run = |job: &Job| perform(&root, job, &LinuxMounter);
        let write = |mib: u64| fs::write(root.join("one/f"), vec![1; usize::try_from(mib * MIB).unwrap()]);
        run(&make("one", None, Some(16 * MIB))).unwrap();
        assert_eq!(fs::read_dir(root.join("one")).unwrap().count(), 0, "an empty volume is empty");
        assert_eq!(write(32).unwrap_err().kind(), io::ErrorKind::StorageFull);
        fs::remove_file(root.join("one/f")).unwrap();
        let full = if may_resize() {
            run(&Job::Grow { directory: "one".to_owned(), bytes: 64 * MIB }).unwrap();
            32
        } else {
            eprintln!("growing is left out: it needs CAP_SYS_RESOURCE");
            12
        };
        write(full).unwrap();
        // As after a start of the machine.
        LinuxMounter.unmount(&root.join("one")).unwrap();
        run(&make("one", None, Some(64 * MIB))).unwrap();
        assert_eq!(fs::metadata(root.join("one/f")).unwrap().len(), full * MIB);
        let copied = make("two", Some("one"), Some(8 * MIB));
        assert!(run(&copied).unwrap_err().is_full(), "what does not fit is no copy");
        assert!(run(&make("huge", None, Some(1 << 50))).unwrap_err().is_full());
        for name in ["one", "two", "huge"] {
            run(&Job::Remove { directory: name.to_owned() }).unwrap();
        }
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0, "nothing is left behind");
    }
}
