//! Damage to a store that is stopped: bytes that are not what was written.

use crate::Error;
use crate::disk::{Content, Image, PAGE, small};
use crate::life::{Life, Started};
use crate::oracle::{Fault, Oracle, What};
use rand::Rng;
use rand::rngs::SmallRng;
use std::fmt;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// How long writers write before the store is stopped: enough for some checkpoints and snapshots of the small limits.
const WRITING: Duration = Duration::from_millis(900);
/// How long they write into a store that was damaged.
const GOING_ON: Duration = Duration::from_millis(100);
const COMMAND: &str = "coracle db repair --accept-loss-after ";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Journal,
    Snapshot,
    Sled,
    History,
}

impl Target {
    /// As often as each of them is hit.
    const ALL: [(Self, u32); 4] =
        [(Self::Journal, 6), (Self::Snapshot, 2), (Self::Sled, 3), (Self::History, 1)];

    fn paths(self) -> &'static str {
        match self {
            Self::Journal => "store/journal-",
            Self::Snapshot => "store/snapshot",
            Self::Sled => "store/sled/",
            Self::History => "store/history-",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    Bit,
    ZeroedPage,
    Truncation,
    Garbage,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Nothing is lost, and the store says nothing.
    Harmless,
    /// Nothing is lost, and the store says what it found.
    Repaired,
    /// Something is lost, and the store says so.
    Told,
    /// The store refuses to start, and the command that it names makes it start.
    Refused,
    /// It refuses, and nothing was lost that the repair could not keep.
    RefusedForNothing,
    Failed,
}

pub struct Case {
    pub target: Target,
    pub outcome: Outcome,
    pub what: String,
    pub faults: Vec<Fault>,
}

/// Stops a store that was written to: cleanly, with its process, or with the power.
pub fn stop(life: &mut Life<'_>) -> Result<bool, Error> {
    life.task.busy = life.rng.random_bool(0.8);
    if life.open()?.is_none() {
        return Ok(false);
    }
    life.go();
    life.hear_for(WRITING)?;
    match life.rng.random_range(0..3) {
        0 => life.close()?,
        1 => life.kill()?,
        _ => life.cut()?,
    }
    Ok(life.oracle.faults.is_empty())
}

/// Damages a copy of a stopped store, and starts it.
pub fn one(life: &mut Life<'_>, image: &Image, oracle: &Oracle) -> Result<Case, Error> {
    let mut damaged = image.clone();
    let (target, what) = damage(&mut damaged, &mut life.rng);
    life.oracle = oracle.clone();
    life.load(damaged);
    let outcome = judge(life)?;
    let faults = std::mem::take(&mut life.oracle.faults);
    Ok(Case { target, outcome, what, faults })
}

fn judge(life: &mut Life<'_>) -> Result<Outcome, Error> {
    match life.start()? {
        Started::Checked => {
            let told = life.oracle.incidents.iter().any(|incident| !incident.starts_with("ReadOnly"));
            let bad = |fault: &Fault| !told || !matches!(fault.what, What::Lost | What::Gap);
            if life.oracle.faults.iter().any(bad) {
                return Ok(Outcome::Failed);
            }
            if !life.oracle.faults.is_empty() {
                return Ok(Outcome::Told);
            }
            let outcome = if told { Outcome::Repaired } else { Outcome::Harmless };
            if life.rng.random_bool(0.2) { go_on(life, outcome) } else { Ok(outcome) }
        }
        Started::Not(why) => repair(life, why),
        Started::Stopped => Err("a plan came true that nobody made".into()),
    }
}

fn repair(life: &mut Life<'_>, why: String) -> Result<Outcome, Error> {
    let number = why.split(COMMAND).nth(1).and_then(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse::<u64>().ok()
    });
    let Some(after) = number else { return Ok(failed(life, why)) };
    life.kill()?;
    let found = life.image.clone();
    let out = Command::new(std::env::current_exe()?)
        .arg("repair")
        .arg(&life.task.dir)
        .arg(after.to_string())
        .output()?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let revision = said.trim().strip_prefix("repaired ").and_then(|rest| rest.parse::<u64>().ok());
    let Some(revision) = revision.filter(|revision| *revision >= after) else {
        return Ok(failed(life, format!("{why}; the repair says {}", String::from_utf8_lossy(&out.stderr))));
    };
    let lost = life.oracle.rewind(revision);
    if life.open()?.is_none() || !life.oracle.faults.is_empty() {
        return Ok(Outcome::Failed);
    }
    let outcome = go_on(life, if lost { Outcome::Refused } else { Outcome::RefusedForNothing })?;
    life.image = found;
    Ok(outcome)
}

fn failed(life: &mut Life<'_>, text: String) -> Outcome {
    life.oracle.faults.push(Fault { what: What::NotStarted, text });
    Outcome::Failed
}

/// What was damaged takes writes, and keeps them.
fn go_on(life: &mut Life<'_>, outcome: Outcome) -> Result<Outcome, Error> {
    let found = life.image.clone();
    life.go();
    life.hear_for(GOING_ON)?;
    life.cut()?;
    let well = life.oracle.faults.is_empty() && life.open()?.is_some() && life.oracle.faults.is_empty();
    life.close()?;
    life.image = found;
    Ok(if well { outcome } else { Outcome::Failed })
}

/// The command behind `coracle db repair --accept-loss-after`, in a process of its own as a user runs it.
pub fn run_repair(arguments: &[String]) -> Result<ExitCode, Error> {
    let [dir, after] = arguments else { return Err("repair: DIR and a revision".into()) };
    let after = coracle_apiserver::store::Revision(after.parse()?);
    if !coracle_apiserver::store::sled::check(dir)?.is_damaged() {
        return Err("the check finds nothing damaged".into());
    }
    let repaired = coracle_apiserver::store::sled::repair(dir, after)?;
    println!("repaired {}", repaired.revision.0);
    Ok(ExitCode::SUCCESS)
}

// ---- what is damaged

/// Damages one file of the store; says which, and how.
fn damage(image: &mut Image, rng: &mut SmallRng) -> (Target, String) {
    loop {
        let target = target(rng);
        let files = image.files(|path| path.starts_with(target.paths()));
        let Some(path) = files.get(rng.random_range(0..files.len().max(1))) else { continue };
        let Some(content) = image.0.get_mut(path).and_then(Option::as_mut) else { continue };
        let how = [How::Bit, How::ZeroedPage, How::Truncation, How::Garbage][rng.random_range(0..4)];
        let at = place(content, target == Target::Journal && rng.random_bool(0.5), rng);
        apply(content, how, at, rng);
        return (target, format!("{how:?} at {at} of {path}"));
    }
}

fn target(rng: &mut SmallRng) -> Target {
    let mut at = rng.random_range(0..Target::ALL.iter().map(|(_, weight)| weight).sum());
    for (target, weight) in Target::ALL {
        if at < weight {
            return target;
        }
        at -= weight;
    }
    Target::Journal
}

/// An offset where something was written; `late`: among the last that was.
fn place(content: &Content, late: bool, rng: &mut SmallRng) -> u64 {
    let written = content.pages.iter().filter(|(_, page)| page.iter().any(|byte| *byte != 0));
    let pages: Vec<u64> = written.map(|(number, _)| *number).collect();
    let Some(last) = pages.last() else { return 0 };
    let page = if late { *last } else { pages[rng.random_range(0..pages.len())] };
    let used = content.page(page).iter().rposition(|byte| *byte != 0).unwrap_or(0);
    let first = if late { used.saturating_sub(300) } else { 0 };
    page * PAGE as u64 + rng.random_range(first..=used) as u64
}

fn apply(content: &mut Content, how: How, at: u64, rng: &mut SmallRng) {
    let begin = at / PAGE as u64 * PAGE as u64;
    let new = match how {
        How::Truncation => return content.shrink(at),
        How::Bit => {
            (at, vec![content.read(at, 1).first().map_or(1, |byte| byte ^ (1 << rng.random_range(0..8)))])
        }
        How::ZeroedPage => (begin, vec![0; PAGE]),
        How::Garbage => (begin, (0..PAGE * rng.random_range(1..4)).map(|_| rng.random()).collect()),
    };
    let len = small(content.size.saturating_sub(new.0)).min(new.1.len());
    content.pages.extend(content.with(new.0, &new.1[..len]).unwrap_or_default());
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Harmless => "nothing lost, nothing said",
            Self::Repaired => "nothing lost, told",
            Self::Told => "lost, told",
            Self::Refused => "refused, repaired by the command",
            Self::RefusedForNothing => "refused, though nothing was lost",
            Self::Failed => "in silence, or not repaired",
        })
    }
}
