//! Reading again everything that is kept, so that damage is told and mended before anybody needs what was damaged.

use super::repair;
use super::report::IncidentKind;
use super::tree::{self, TreeError};
use super::{recover, segment};
use crate::StoreError;
use std::path::Path;

/// What was found to be damaged.
#[derive(Default)]
pub(super) struct Damage {
    pub parts: Vec<(IncidentKind, String)>,
}

/// Reads the checkpoint, the snapshot and every finished segment, until it is to stop. Runs while nobody checkpoints, and
/// beside commits.
pub(super) fn run(dir: &Path, stop: impl Fn() -> bool) -> Damage {
    let mut found = Damage::default();
    let path = dir.join(recover::TREE);
    if path.join("db").exists() {
        match tree::verify(&path, &stop) {
            Ok(()) => {}
            Err(TreeError::Stopped) => return found,
            Err(error) => {
                found
                    .parts
                    .push((IncidentKind::CheckpointDamaged, format!("sled: {}", recover::chain(&error))));
            }
        }
    }
    if !stop() {
        let snapshot = repair::snapshot_part(dir);
        if let Err(why) = snapshot.state {
            found.parts.push((IncidentKind::SnapshotDamaged, format!("{}: {why}", snapshot.name)));
        }
    }
    match found.journal(dir, stop) {
        Ok(()) => {}
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "the journal cannot be verified")
        }
    }
    found
}

impl Damage {
    fn journal(&mut self, dir: &Path, stop: impl Fn() -> bool) -> Result<(), StoreError> {
        let segments = segment::list(dir)?;
        let finished = segments.windows(2).filter(|pair| pair[1].head.is_some());
        for pair in finished.take_while(|_| !stop()) {
            let part = repair::segment_part(&pair[0], Some(&pair[1]))?;
            if let Err(why) = part.state {
                self.parts.push((IncidentKind::JournalDamaged, format!("{}: {why}", part.name)));
            }
        }
        Ok(())
    }
}
