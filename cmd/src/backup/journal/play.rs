//! From a backup to any moment after it.

use super::{Piece, Summary, pieces, read, summary, time};
use crate::backup::contents::Manifest;
use crate::backup::file::explain;
use crate::backup::key::Key;
use crate::backup::{automatic, keeping, read as backups};
use coracle_api::error::chain;
use coracle_apiserver::store::sled::{Playback, StoredCommit};
use jiff::Timestamp;
use std::io;
use std::path::{Path, PathBuf};

/// As of when the state is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Revision(u64),
    Time(Timestamp),
    /// The newest commit that was archived.
    Latest,
}

impl Target {
    /// Whether this commit comes later.
    fn is_before(self, commit: &StoredCommit) -> bool {
        match self {
            Self::Revision(revision) => commit.revision.0 > revision,
            Self::Time(at) => time(commit) > at,
            Self::Latest => false,
        }
    }

    /// Whether a backup is not later than that.
    fn can_begin_with(self, backup: &Manifest) -> bool {
        match self {
            Self::Revision(revision) => backup.revision <= revision,
            Self::Time(at) => backup.created <= at,
            Self::Latest => true,
        }
    }
}

/// The newest backup of a directory from which the target can be reached.
pub fn choose(directory: &Path, key: Option<&Key>, target: Target) -> Result<PathBuf, String> {
    let names = automatic::names(directory).map_err(|error| explain(directory, &error))?;
    let mut made: Vec<_> =
        names.iter().filter_map(|name| Some((keeping::made_at(name, None)?, directory.join(name)))).collect();
    made.sort();
    let mut nodes = Vec::new();
    let mut found = None;
    for (_, path) in made.into_iter().rev() {
        let manifest = backups::manifest_of(&path, key)
            .map_err(|error| format!("{}: {}", path.display(), chain(&error)))?;
        if !nodes.contains(&manifest.node_name) {
            nodes.push(manifest.node_name.clone());
        }
        if found.is_none() && target.can_begin_with(&manifest) {
            found = Some(path);
        }
    }
    if nodes.len() > 1 {
        return Err(format!(
            "{}: backups of several nodes lie there; name the file of one",
            directory.display()
        ));
    }
    found.ok_or_else(|| format!("{}: no backup there is old enough", directory.display()))
}

/// How far it came.
#[derive(Default)]
struct Walk {
    /// Everything up to here was played or is in the backup.
    at: u64,
    /// When the last commit was made.
    until: Option<Timestamp>,
    /// A commit after the target was met.
    passed: bool,
}

/// Plays what the files of `directory` hold after the backup, up to the target. Says when the last commit of it was made, if
/// there is one.
pub fn play(
    playback: &mut Playback,
    backup: &Manifest,
    directory: &Path,
    key: Option<&Key>,
    target: Target,
) -> Result<Option<Timestamp>, String> {
    if !target.can_begin_with(backup) {
        let (revision, created) = (backup.revision, backup.created);
        return Err(format!(
            "the backup is of revision {revision}, made at {created}, which is later; take an older one"
        ));
    }
    let found = pieces(directory, backup.node_name.as_deref()).map_err(|error| explain(directory, &error))?;
    if let Some(other) = found.iter().find(|piece| piece.node != found[0].node) {
        return Err(format!(
            "{}: journals of {} and {} lie there",
            directory.display(),
            found[0].node,
            other.node
        ));
    }
    let mut walk = Walk { at: backup.revision, ..Walk::default() };
    for piece in found.iter().filter(|piece| piece.upto > backup.revision) {
        if walk.passed || target == Target::Revision(walk.at) {
            break;
        }
        if is_of_another(&directory.join(&piece.name), backup, key)? {
            continue;
        }
        if piece.after > walk.at {
            return Err(reached(&walk, target, Some(piece)));
        }
        one(playback, &mut walk, piece, directory, key, target)?;
    }
    let is_reached = match target {
        Target::Latest => true,
        Target::Revision(revision) => walk.passed || revision <= walk.at,
        Target::Time(_) => walk.passed,
    };
    if is_reached { Ok(walk.until) } else { Err(reached(&walk, target, None)) }
}

/// Whether a file is of a cluster that the machine held before, or after.
fn is_of_another(path: &Path, backup: &Manifest, key: Option<&Key>) -> Result<bool, String> {
    let found = summary(path, key).map_err(|error| format!("{}: {}", path.display(), chain(&error)))?;
    Ok(found.cluster.zip(backup.cluster.as_ref()).is_some_and(|(of, wanted)| of != *wanted))
}

fn one(
    playback: &mut Playback,
    walk: &mut Walk,
    piece: &Piece,
    directory: &Path,
    key: Option<&Key>,
    target: Target,
) -> Result<(), String> {
    let path = directory.join(&piece.name);
    let each = |commit: StoredCommit| -> io::Result<()> {
        walk.passed |= target.is_before(&commit);
        if !walk.passed && commit.revision.0 > walk.at {
            walk.until = Some(time(&commit));
            playback.play(commit);
        }
        Ok(())
    };
    let summary = read(&path, key, each).map_err(|error| format!("{}: {}", path.display(), chain(&error)))?;
    let Summary { node_name, after, upto, .. } = summary;
    if (node_name, after, upto) != (piece.node.clone(), piece.after, piece.upto) {
        return Err(format!("{}: it has the name of another", path.display()));
    }
    walk.at = walk.at.max(piece.upto);
    Ok(())
}

/// Why the target was not reached.
fn reached(walk: &Walk, target: Target, next: Option<&Piece>) -> String {
    let wanted = match target {
        Target::Revision(revision) => format!("revision {revision}"),
        Target::Time(at) => at.to_string(),
        Target::Latest => "its end".to_owned(),
    };
    let until = walk.until.map_or(String::new(), |at| format!(", of {at}"));
    match next {
        Some(next) => format!(
            "the journal does not lead to {wanted}: what was committed after revision {}{until} and up to {} is not there",
            walk.at, next.after
        ),
        None => format!(
            "the journal ends with revision {}{until}, before {wanted}; --to-latest takes that",
            walk.at
        ),
    }
}
