//! `coracle restore`. A stop in the middle leaves a directory that no server starts on, and that the next restore finishes.
//!
//! ```text
//! checked whole -> "moving NAME" -> what is there moves to NAME -> "writing" -> written and synced -> the marker goes
//! ```

use super::contents::{DATA, Manifest, OUTSIDE, STORE};
use super::journal::{Target, choose, play};
use super::key::Key;
use super::{described, file::explain, key, read};
use crate::args::RestoreArgs;
use coracle_api::error::chain;
use coracle_apiserver::store::sled::{self, Playback};
use jiff::Timestamp;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// There while a restore is under way.
const MARKER: &str = "restore-unfinished";
const WRITING: &str = "writing";
const MOVING: &str = "moving ";
const ASIDE: &str = "before-restore-";
/// Where copies of configuration from outside of the directory are put, by their paths.
const CONFIGURATION: &str = "restored-configuration";
/// The state: what a restore writes, and what has to make room for it. Volumes and the kubelet's pods are none of it.
const STATE: [&str; 8] = [
    "db",
    "pki",
    "static-pods",
    "manifests",
    "manifests-applied.json",
    "kubelet-config.yaml",
    "admin.conf",
    CONFIGURATION,
];
/// Revisions that a server hands out in a second at most: several times what one was seen to do.
const REVISIONS_A_SECOND: u64 = 10_000;
/// Of a backup of this moment.
const LEAST_AHEAD: u64 = 1_000_000;
/// Taken where the clock says that the backup is not made yet: ten years.
const UNKNOWN_AGE: u64 = 10 * 365 * 24 * 3600;

/// A directory with half a state is no server's.
pub fn refuse_unfinished(data_dir: &Path) -> Result<(), String> {
    let marker = data_dir.join(MARKER);
    if !marker.exists() {
        return Ok(());
    }
    Err(format!("{}: a restore was interrupted here; run `coracle restore` again", marker.display()))
}

pub fn run(args: &RestoreArgs) -> Result<String, String> {
    let key = key(args.key_file.as_deref())?;
    let file = source(args, key.as_ref())?;
    let unusable = |error| format!("{}: {}", file.display(), chain(&error));
    let found = read::examine(&file, key.as_ref()).map_err(unusable)?;
    let moment =
        target(args).map(|target| play_to(args, &file, key.as_ref(), &found.manifest, target)).transpose()?;
    let dir = &args.data_dir;
    let failed = |error: io::Error| explain(dir, &error);
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    let _lock = lock(dir)?;
    let aside = make_room(dir, args.replace)?;
    let played = moment.as_ref().map(Moment::described);
    let revision = extract(dir, &file, key.as_ref(), &found.manifest, moment)?;
    sync_below(dir).map_err(failed)?;
    std::fs::remove_file(dir.join(MARKER)).and_then(|()| sync(dir)).map_err(failed)?;
    let mut text =
        format!("{}: {}; revisions go on at {revision}", dir.display(), described(&found.manifest));
    if let Some(played) = played {
        text += &format!("\nplayed on to {played}");
    }
    if let Some(aside) = aside {
        text += &format!("\nwhat was there before is in {}", aside.display());
    }
    if dir.join(CONFIGURATION).exists() {
        text += &format!("\nfiles from outside of it are in {}", dir.join(CONFIGURATION).display());
    }
    if let Some(node) = &found.manifest.node_name {
        text += &format!("\nit is of the node {node}");
    }
    Ok(text)
}

/// The backup that is asked for, which of a directory is the newest that can be.
fn source(args: &RestoreArgs, key: Option<&Key>) -> Result<PathBuf, String> {
    if !args.file.is_dir() {
        return Ok(args.file.clone());
    }
    choose(&args.file, key, target(args).unwrap_or(Target::Latest))
}

fn target(args: &RestoreArgs) -> Option<Target> {
    let of = [args.to_revision.map(Target::Revision), args.to_time.map(Target::Time)];
    of.into_iter().flatten().next().or_else(|| args.to_latest.then_some(Target::Latest))
}

/// A state after a backup.
struct Moment {
    state: Playback,
    /// When the last commit was made.
    at: Option<Timestamp>,
}

impl Moment {
    fn described(&self) -> String {
        let at = self.at.map_or(String::new(), |at| format!(", of {at}"));
        format!("revision {}{at}: {} objects", self.state.revision().0, self.state.objects())
    }
}

fn play_to(
    args: &RestoreArgs,
    file: &Path,
    key: Option<&Key>,
    manifest: &Manifest,
    target: Target,
) -> Result<Moment, String> {
    let unusable = |error| format!("{}: {}", file.display(), chain(&error));
    let mut archive = read::open(file, key, "reading").map_err(unusable)?;
    while archive.next().map_err(unusable)?.is_some_and(|head| head.name != STORE) {}
    let mut state = Playback::read(archive.part()).map_err(|error| explain(file, &error))?;
    let beside = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = args.journal_dir.as_deref().unwrap_or(beside);
    let at = play(&mut state, manifest, directory, key, target)?;
    Ok(Moment { state, at })
}

/// Keeps a server that runs on the directory, and another restore, away from it.
fn lock(dir: &Path) -> Result<File, String> {
    let held = |path: &Path| {
        let file = File::open(path).ok()?;
        Some(file.try_lock().map(|()| file).map_err(|_| {
            format!("{}: a server or another command has it open; stop it first", dir.display())
        }))
    };
    if let Some(held) = held(&dir.join("db/lock")) {
        // Moved aside with the store; the directory's own lock is the one that lasts.
        drop(held?);
    }
    held(dir).unwrap_or_else(|| Err(format!("{}: it cannot be opened", dir.display())))
}

/// Says where what was there is.
fn make_room(dir: &Path, replace: bool) -> Result<Option<PathBuf>, String> {
    let failed = |error: io::Error| explain(dir, &error);
    let marker = std::fs::read_to_string(dir.join(MARKER)).unwrap_or_default();
    if marker.trim() == WRITING {
        // Of the restore that was interrupted.
        STATE.iter().try_for_each(|name| remove(&dir.join(name))).map_err(failed)?;
        return Ok(None);
    }
    let begun = marker.trim().strip_prefix(MOVING);
    let name = begun.map_or_else(|| format!("{ASIDE}{}", Timestamp::now().as_millisecond()), str::to_owned);
    let occupied = occupants(dir).map_err(failed)?;
    if !occupied.is_empty() && begun.is_none() && !replace {
        let named = occupied.join(", ");
        return Err(format!(
            "{}: it is not empty ({named}); --replace moves the state in it aside",
            dir.display()
        ));
    }
    let state: Vec<&str> = STATE.into_iter().filter(|name| dir.join(name).exists()).collect();
    let aside = dir.join(&name);
    if begun.is_some() || !state.is_empty() {
        mark(dir, &format!("{MOVING}{name}")).map_err(failed)?;
        DirBuilder::new().recursive(true).mode(0o700).create(&aside).map_err(failed)?;
        let moved = state.iter().try_for_each(|name| std::fs::rename(dir.join(name), aside.join(name)));
        moved.and_then(|()| sync(&aside)).and_then(|()| sync(dir)).map_err(failed)?;
    }
    mark(dir, WRITING).map_err(failed)?;
    Ok(aside.exists().then_some(aside))
}

/// What keeps a directory from being empty.
fn occupants(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "lost+found" && !name.starts_with(MARKER) && !name.starts_with(ASIDE) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whole or as it was before.
fn mark(dir: &Path, text: &str) -> io::Result<()> {
    let new = dir.join(format!("{MARKER}.new"));
    std::fs::write(&new, text)?;
    File::open(&new)?.sync_all()?;
    std::fs::rename(new, dir.join(MARKER))?;
    sync(dir)
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn sync_below(dir: &Path) -> io::Result<()> {
    for name in STATE.iter().map(|name| dir.join(name)).filter(|path| path.is_dir()) {
        for entry in std::fs::read_dir(&name)? {
            let path = entry?.path();
            if path.is_dir() {
                sync(&path)?;
            }
        }
        sync(&name)?;
    }
    sync(dir)
}

/// Far enough that no revision that a client has seen since the backup comes again.
fn ahead(created: Timestamp, now: Timestamp) -> u64 {
    let age = u64::try_from(now.as_second() - created.as_second()).unwrap_or(UNKNOWN_AGE);
    LEAST_AHEAD + age.saturating_mul(REVISIONS_A_SECOND)
}

/// Returns the revision at which the store goes on.
fn extract(
    dir: &Path,
    file: &Path,
    key: Option<&Key>,
    manifest: &Manifest,
    mut moment: Option<Moment>,
) -> Result<u64, String> {
    let unusable = |error| format!("{}: {}", file.display(), chain(&error));
    let mut archive = read::open(file, key, "restoring").map_err(unusable)?;
    let mut revision = 0;
    while let Some(head) = archive.next().map_err(unusable)? {
        if head.name == STORE {
            let ahead = ahead(manifest.created, Timestamp::now());
            let db = dir.join("db");
            let restored = match moment.take() {
                Some(moment) => moment.state.write(db, ahead),
                None => sled::restore(archive.part(), db, ahead),
            };
            revision = restored.map_err(|error| chain(&error))?.0;
            continue;
        }
        let inside = head.name.strip_prefix(DATA).map(|name| dir.join(name));
        let outside = head.name.strip_prefix(OUTSIDE).map(|name| dir.join(CONFIGURATION).join(name));
        let Some(path) = inside.or(outside) else { continue };
        put(&path, head.mode, &mut archive.part()).map_err(|error| explain(&path, &error))?;
    }
    Ok(revision)
}

fn put(path: &Path, mode: u32, content: &mut impl io::Read) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode & 0o777).open(path)?;
    io::copy(content, &mut file)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_go_on_beyond_all_that_were_handed_out() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        assert_eq!(ahead(at(100), at(100)), 1_000_000);
        assert_eq!(ahead(at(100), at(160)), 1_600_000);
        assert_eq!(
            ahead(at(2_000_000_000), at(5)),
            1_000_000 + UNKNOWN_AGE * 10_000,
            "a clock at its beginning"
        );
    }

    #[test]
    fn a_restore_that_was_interrupted_is_finished_and_loses_nothing() {
        let world = tempfile::tempdir().expect("temporary directory");
        let dir = world.path();
        assert_eq!(make_room(dir, false), Ok(None));
        assert!(refuse_unfinished(dir).is_err(), "no server starts while it is written");
        std::fs::create_dir(dir.join("db")).expect("half a state");
        assert_eq!(make_room(dir, false), Ok(None));
        assert!(!dir.join("db").exists(), "what was half written goes");
        std::fs::remove_file(dir.join(MARKER)).expect("finished");
        std::fs::create_dir(dir.join("db")).expect("a state");
        std::fs::create_dir(dir.join("local-path")).expect("volumes");
        let refused = make_room(dir, false).expect_err("not empty");
        assert!(refused.contains("it is not empty (db, local-path); --replace"), "{refused}");
        assert!(refuse_unfinished(dir).is_ok() && dir.join("db").exists());
        // Stopped after the marker, before anything was moved.
        mark(dir, "moving before-restore-1").expect("marked");
        let aside = make_room(dir, false).expect("goes on").expect("there was a state");
        assert!(aside.join("db").exists() && aside.ends_with("before-restore-1"));
        assert!(dir.join("local-path").exists(), "volumes stay");
    }
}
