//! Reading again everything that is kept, so that damage is told and mended before anybody needs what was damaged.

use super::repair;
use super::report::IncidentKind;
use super::{recover, segment, tree};
use std::path::Path;

/// What was found to be damaged.
#[derive(Default)]
pub(super) struct Damage {
    pub parts: Vec<(IncidentKind, String)>,
}

/// Reads the snapshot, the checkpoint and every finished segment. Runs while nobody checkpoints, and beside commits.
pub(super) fn run(dir: &Path) -> Damage {
    let mut found = Damage::default();
    let snapshot = repair::snapshot_part(dir);
    if let Err(why) = snapshot.state {
        found.parts.push((IncidentKind::SnapshotDamaged, format!("{}: {why}", snapshot.name)));
    }
    let path = dir.join(recover::TREE);
    if path.join("db").exists()
        && let Err(error) = tree::verify(&path)
    {
        found.parts.push((IncidentKind::CheckpointDamaged, format!("sled: {}", recover::chain(&error))));
    }
    found.journal(dir);
    found
}

impl Damage {
    fn journal(&mut self, dir: &Path) {
        let Ok(segments) = segment::list(dir) else { return };
        let finished = segments.windows(2).filter(|pair| pair[1].head.is_some());
        for pair in finished {
            match repair::segment_part(&pair[0], Some(&pair[1])) {
                Ok(part) => {
                    if let Err(why) = part.state {
                        self.parts.push((IncidentKind::JournalDamaged, format!("{}: {why}", part.name)));
                    }
                }
                Err(error) => self.parts.push((IncidentKind::JournalDamaged, recover::chain(&error))),
            }
        }
    }
}
