//! What happens to a store in a round. After it the store is started once more and judged.

use crate::Error;
use crate::disk::{Failing, Plan, Request, What};
use crate::life::{Life, Started};
use nix::errno::Errno;
use rand::Rng;
use std::time::Duration;

const JOURNAL: &[&str] = &["store/journal-", "store/spare-"];
const CHECKPOINT: &[&str] = &["store/sled", "store/history-", "store/snapshot"];
const ALL: &[&str] = &[];
/// Longer than it takes to write some segments.
const WRITING: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Moment,
    Segment,
    Checkpoint,
    FirstStart,
    Kill,
    KillThenCut,
    Recovery,
    RecoveryTwice,
    Failing,
    Full,
}

impl Kind {
    /// As often as each of them is taken; half of the lives begin with a cut in the first start.
    pub const ALL: [(Self, u32); 10] = [
        (Self::Moment, 15),
        (Self::Segment, 20),
        (Self::Checkpoint, 12),
        (Self::FirstStart, 0),
        (Self::Kill, 7),
        (Self::KillThenCut, 12),
        (Self::Recovery, 8),
        (Self::RecoveryTwice, 6),
        (Self::Failing, 8),
        (Self::Full, 2),
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Moment => "cut at a moment",
            Self::Segment => "cut at a segment's first flushes",
            Self::Checkpoint => "cut while a checkpoint runs",
            Self::FirstStart => "cut in the very first start",
            Self::Kill => "kill -9",
            Self::KillThenCut => "kill -9, start, cut soon after",
            Self::Recovery => "cut in recovery",
            Self::RecoveryTwice => "cut in recovery's recovery",
            Self::Failing => "EIO from write or flush",
            Self::Full => "disk full, then cut",
        }
    }

    /// Makes it happen; how long the start after it took, `None` if there was none.
    pub fn run(self, life: &mut Life<'_>) -> Result<Option<Duration>, Error> {
        life.vary();
        if self == Self::FirstStart {
            cut_in_start(life, 250)?;
        } else if !life.is_running() && life.open()?.is_none() {
            return Ok(None);
        }
        match self {
            Self::FirstStart => {}
            Self::Moment => cut_at(life, |life| some(life, What::Change, ALL, 5000))?,
            Self::Segment => cut_at(life, segment)?,
            Self::Checkpoint => cut_at(life, |life| some(life, What::Change, CHECKPOINT, 400))?,
            Self::Kill => kill(life)?,
            Self::KillThenCut => {
                kill(life)?;
                if life.open()?.is_none() {
                    return Ok(None);
                }
                cut_soon(life)?;
            }
            Self::Recovery => {
                cut_at(life, |life| some(life, What::Change, ALL, 2000))?;
                cut_in_start(life, 600)?;
            }
            Self::RecoveryTwice => {
                cut_at(life, segment)?;
                for _ in 0..life.rng.random_range(2..4) {
                    cut_in_start(life, 300)?;
                }
            }
            Self::Failing => failing(life)?,
            Self::Full => full(life)?,
        }
        if !life.oracle.faults.is_empty() {
            return Ok(None);
        }
        life.open()
    }
}

/// A plan at a random one of the first `most` requests, the early ones as likely as the late ones.
fn some(life: &mut Life<'_>, what: What, paths: &'static [&'static str], most: u64) -> Plan {
    let below = most >> life.rng.random_range(0..8);
    Plan::new(what, paths, life.rng.random_range(0..below.max(2)))
}

/// One of the first flushes of one of the next segments.
fn segment(life: &mut Life<'_>) -> Plan {
    // Groups of some pages, and soon a full segment.
    let mut one = |of: &[u64]| of[life.rng.random_range(0..of.len())];
    let (writers, longest, flush) = (one(&[8, 64, 64]), one(&[2000, 20_000]), one(&[0, 200, 1000]));
    life.write(writers, longest, flush);
    let skip = [0, 0, 0, 1, 2][life.rng.random_range(0..5)];
    let count = [0, 0, 0, 1, 1, 2][life.rng.random_range(0..6)];
    Plan::new(What::Begin { skip }, JOURNAL, count).after(life.rng.random_bool(0.2))
}

fn cut_at(life: &mut Life<'_>, plan: impl FnOnce(&mut Life<'_>) -> Plan) -> Result<(), Error> {
    let plan = plan(life);
    life.plan(plan);
    life.go();
    life.until_stopped(WRITING)?;
    life.cut()
}

/// In half of the cases exactly between a write of the journal and its flush.
fn kill(life: &mut Life<'_>) -> Result<(), Error> {
    let plan = match life.rng.random_bool(0.5) {
        true => some(life, What::Flush, JOURNAL, 1000),
        false => some(life, What::Change, ALL, 3000),
    };
    life.plan(plan);
    life.go();
    life.until_stopped(WRITING)?;
    life.kill()
}

/// Before, or shortly after, the first write.
fn cut_soon(life: &mut Life<'_>) -> Result<(), Error> {
    if life.rng.random_bool(0.3) {
        return life.cut();
    }
    cut_at(life, |life| Plan::new(What::Change, ALL, life.rng.random_range(0..20)))
}

/// Starts a child and cuts at a random one of its first requests, reading ones included, even when it is up by then.
fn cut_in_start(life: &mut Life<'_>, most: u64) -> Result<(), Error> {
    let plan = some(life, What::Any, ALL, most);
    life.plan(plan);
    match life.start()? {
        Started::Stopped => {}
        Started::Checked => {
            life.go();
            life.until_stopped(WRITING)?;
        }
        Started::Not(text) => {
            life.oracle.faults.push(crate::oracle::Fault { what: crate::oracle::What::NotStarted, text });
            return Ok(());
        }
    }
    life.cut()
}

fn failing(life: &mut Life<'_>) -> Result<(), Error> {
    let request = if life.rng.random() { Request::Flush } else { Request::Write };
    let paths = if life.rng.random_bool(0.7) { JOURNAL } else { CHECKPOINT };
    let (skip, times) = (life.rng.random_range(0..100), life.rng.random_range(1..4));
    let failing = Failing { request, paths, skip, times, errno: Errno::EIO };
    life.mounted.shared.disk.lock().failing.push(failing);
    let plan = Plan::new(What::Change, ALL, life.rng.random_range(20..2000));
    life.plan(plan);
    life.go();
    life.until_stopped(WRITING / 2)?;
    match life.rng.random_range(0..3) {
        0 => life.kill(),
        _ => life.cut(),
    }
}

/// The disk gets full while writers write; on half of them there is room again a moment later.
fn full(life: &mut Life<'_>) -> Result<(), Error> {
    life.go();
    life.hear_for(Duration::from_millis(100))?;
    let free = life.rng.random_range(0..3000);
    life.mounted.shared.disk.lock().fill(free);
    life.hear_for(Duration::from_millis(700))?;
    if life.rng.random() {
        life.mounted.shared.disk.lock().limit = None;
        life.hear_for(Duration::from_millis(2300))?;
    }
    life.cut()
}
