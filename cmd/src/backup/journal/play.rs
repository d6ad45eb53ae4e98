//! From a backup to any moment after it.

use super::{Opened, Piece, open, pieces, time};
use crate::backup::ArchiveError;
use crate::backup::contents::Manifest;
use crate::backup::file::explain;
use crate::backup::key::Key;
use crate::backup::{automatic, keeping, read as backups};
use coracle_api::error::chain;
use coracle_apiserver::store::sled::{Playback, StoredCommit};
use jiff::Timestamp;
use std::collections::BTreeSet;
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
    let nodes: BTreeSet<&str> = names.iter().filter_map(|name| keeping::node_of(name)).collect();
    if nodes.len() > 1 {
        return Err(format!(
            "{}: backups of several nodes lie there; name the file of one",
            directory.display()
        ));
    }
    let mut unreadable = None;
    for (_, path) in made.into_iter().rev() {
        match backups::manifest_of(&path, key) {
            Ok(manifest) if target.can_begin_with(&manifest) => return Ok(path),
            Ok(_) => {}
            Err(error) => unreadable = Some(format!("{}: {}", path.display(), chain(&error))),
        }
    }
    Err(unreadable.unwrap_or_else(|| format!("{}: no backup there is old enough", directory.display())))
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
    /// And after it one from before the target: the clock was set back.
    ambiguous: bool,
    /// A file was played.
    begun: bool,
}

impl Walk {
    fn has_reached(&self, target: Target) -> bool {
        match target {
            Target::Latest => true,
            Target::Revision(revision) => self.passed || revision <= self.at,
            Target::Time(_) => self.passed,
        }
    }
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
    let found = of_one_node(directory, backup)?;
    let mut walk = Walk { at: backup.revision, ..Walk::default() };
    for piece in found.iter().filter(|piece| piece.upto > backup.revision) {
        let is_earlier = matches!(target, Target::Time(at) if piece.until.as_second() < at.as_second());
        if walk.passed && !is_earlier || target == Target::Revision(walk.at) {
            continue;
        }
        let path = directory.join(&piece.name);
        let unusable = |error| format!("{}: {}", path.display(), chain(&error));
        let opened = open(&path, key).map_err(unusable)?;
        // Of a cluster that the machine held before, or after.
        if backup.cluster.is_some() && opened.summary.cluster != backup.cluster {
            continue;
        }
        if walk.passed {
            walk.ambiguous = true;
            break;
        }
        if piece.after > walk.at {
            return Err(reached(&walk, target, Some(piece)));
        }
        if walk.begun && piece.after < walk.at {
            return Err(format!(
                "{}: {} is of another past than the files before it",
                directory.display(),
                piece.name
            ));
        }
        check(&opened, piece, backup).map_err(|why| format!("{}: {why}", path.display()))?;
        one(playback, &mut walk, opened, target).map_err(unusable)?;
        walk.begun = true;
    }
    if walk.ambiguous {
        let at = playback.revision().0;
        return Err(format!(
            "the clock was set back: there are commits of before that time after revision {at}; say --to-revision"
        ));
    }
    if walk.has_reached(target) { Ok(walk.until) } else { Err(reached(&walk, target, None)) }
}

/// The journal's files of the backup's node; of whichever node they are if the backup names none.
fn of_one_node(directory: &Path, backup: &Manifest) -> Result<Vec<Piece>, String> {
    let found = pieces(directory, backup.node_name.as_deref()).map_err(|error| explain(directory, &error))?;
    match found.iter().find(|piece| piece.node != found[0].node) {
        Some(other) => {
            let (directory, one) = (directory.display(), &found[0].node);
            Err(format!("{directory}: journals of {one} and {} lie there", other.node))
        }
        None => Ok(found),
    }
}

/// Whether it is what its name says, and its values are opened by what the backup holds.
fn check(opened: &Opened, piece: &Piece, backup: &Manifest) -> Result<(), String> {
    let found = &opened.summary;
    if (&found.node_name, found.after, found.upto) != (&piece.node, piece.after, piece.upto) {
        return Err("it has the name of another".to_owned());
    }
    if found.sealing != backup.sealing {
        return Err(format!(
            "values are encrypted by another configuration than the backup's from there on; restore a moment before revision {}, or take a backup that was made after the change",
            found.after
        ));
    }
    Ok(())
}

fn one(playback: &mut Playback, walk: &mut Walk, opened: Opened, target: Target) -> Result<(), ArchiveError> {
    let each = |commit: StoredCommit| -> io::Result<()> {
        let is_later = target.is_before(&commit);
        walk.ambiguous |= walk.passed && !is_later && matches!(target, Target::Time(_));
        walk.passed |= is_later;
        if !walk.passed && commit.revision.0 > walk.at {
            walk.until = Some(time(&commit));
            playback.play(commit);
        }
        Ok(())
    };
    let upto = opened.read(each)?.upto;
    walk.at = walk.at.max(upto);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::journal::{Summary, write};
    use coracle_apiserver::store::sled::Options;
    use coracle_apiserver::store::{Change, Commit, Revision, SledStore};

    /// A commit at so many seconds.
    fn commit(revision: u64, second: u64) -> StoredCommit {
        let change = Change {
            key: "a./n/1".into(),
            value: Some(revision.to_string().into_bytes().into()),
            created: Revision(1),
            previous: None,
        };
        let commit = Commit { revision: Revision(revision), changes: vec![change], durable: true };
        StoredCommit::of(&commit, second * 1000)
    }

    fn put(dir: &Path, after: u64, commits: &[StoredCommit], change: impl FnOnce(&mut Summary)) {
        let mut summary = Summary::of("box", Revision(after), commits).expect("some");
        (summary.cluster, summary.sealing) = (Some("c".to_owned()), Some("s".to_owned()));
        change(&mut summary);
        let file = std::fs::File::create(dir.join(summary.name())).expect("created");
        write(file, None, &summary, commits).expect("written");
    }

    /// Of a backup of an empty store, which is told to be of revision 10 and the 100th second.
    fn played(dir: &Path, target: Target) -> Result<u64, String> {
        let stored = tempfile::tempdir().expect("temporary directory");
        let store = SledStore::open(stored.path(), Options::default()).expect("a store");
        let mut picture = Vec::new();
        store.picture().write(&mut picture).expect("written");
        let mut playback = Playback::read(&picture[..]).expect("a picture");
        let manifest = Manifest {
            created: Timestamp::from_second(100).expect("a time"),
            coracle_version: String::new(),
            kubernetes_version: String::new(),
            node_name: Some("box".to_owned()),
            cluster: Some("c".to_owned()),
            sealing: Some("s".to_owned()),
            revision: 10,
            objects: 0,
            settings: Default::default(),
        };
        play(&mut playback, &manifest, dir, None, target)?;
        Ok(playback.revision().0)
    }

    fn at(second: i64) -> Target {
        Target::Time(Timestamp::from_second(second).expect("a time"))
    }

    #[test]
    fn a_moment_is_reached_over_files_that_follow_one_another() {
        let dir = tempfile::tempdir().expect("temporary directory");
        put(dir.path(), 8, &[commit(9, 90), commit(12, 120)], |_| ());
        put(dir.path(), 12, &[commit(13, 130), commit(17, 170)], |_| ());
        let other = |summary: &mut Summary| summary.cluster = Some("other".to_owned());
        put(dir.path(), 3, &[commit(14, 140)], other);
        put(dir.path(), 20, &[commit(25, 50)], other);
        for (target, revision) in [
            (Target::Revision(12), 12),
            (Target::Revision(15), 13),
            (Target::Revision(17), 17),
            (at(129), 12),
            (at(130), 13),
            (Target::Latest, 17),
        ] {
            assert_eq!(played(dir.path(), target), Ok(revision), "{target:?}");
        }
        let refused = |target| played(dir.path(), target).expect_err("it is not there");
        assert!(refused(Target::Revision(18)).contains("ends with revision 17, of 1970-01-01T00:02:50Z"));
        assert!(refused(at(171)).contains("--to-latest takes that"));
        assert!(refused(Target::Revision(9)).contains("take an older one"));
    }

    #[test]
    fn nothing_is_played_that_never_was() {
        let refused = |later: &dyn Fn(&Path), target| {
            let dir = tempfile::tempdir().expect("temporary directory");
            put(dir.path(), 8, &[commit(12, 120)], |_| ());
            later(dir.path());
            played(dir.path(), target).expect_err("it is refused")
        };
        let gap = refused(&|dir| put(dir, 13, &[commit(14, 140)], |_| ()), Target::Latest);
        assert!(
            gap.contains("committed after revision 12") && gap.contains("up to 13 is not there"),
            "{gap}"
        );
        let fork = refused(&|dir| put(dir, 11, &[commit(14, 140)], |_| ()), Target::Latest);
        assert!(fork.contains("is of another past"), "{fork}");
        let sealed = |dir: &Path| put(dir, 12, &[commit(14, 140)], |summary| summary.sealing = None);
        let sealed = refused(&sealed, Target::Latest);
        assert!(sealed.contains("encrypted by another configuration"), "{sealed}");
        let back = |dir: &Path| put(dir, 12, &[commit(13, 900), commit(14, 140)], |_| ());
        assert!(refused(&back, at(150)).contains("the clock was set back"));
        let renamed = |dir: &Path| {
            put(dir, 12, &[commit(14, 140)], |_| ());
            let name = |upto: u64| dir.join(format!("coracle-box-19700101T000220Z-12-{upto}.journal"));
            std::fs::rename(name(14), name(15)).expect("renamed");
        };
        assert!(refused(&renamed, Target::Latest).contains("the name of another"));
    }
}
