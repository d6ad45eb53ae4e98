//! Rounds as a table.

use crate::damage::{Outcome, Target};
use crate::oracle::{Fault, What};
use crate::rounds::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Default)]
struct Row {
    rounds: u64,
    /// Rounds with a fault, by what was wrong; a round counts once in each column.
    faults: BTreeMap<What, u64>,
    /// Rounds after which the store told of something by itself.
    told: u64,
    recoveries: Vec<Duration>,
}

#[derive(Default)]
pub struct Table(BTreeMap<Kind, Row>);

const HEAD: &str = "| kind | rounds | lost | corrupt | not started | revisions back | gaps | told | ready again p50 / p95 / max, s |";

impl Table {
    pub fn add(&mut self, kind: Kind, faults: &[Fault], told: bool, recovery: Option<Duration>) {
        let row = self.0.entry(kind).or_default();
        row.rounds += 1;
        row.recoveries.extend(recovery);
        row.told += u64::from(told);
        let whats: BTreeSet<What> = faults.iter().map(|fault| fault.what).collect();
        whats.into_iter().for_each(|what| *row.faults.entry(what).or_default() += 1);
    }

    pub fn print(&self) {
        println!("{HEAD}\n|{}", "---|".repeat(9));
        let mut all = Row::default();
        for (kind, row) in &self.0 {
            row.print(kind.name());
            all.add(row);
        }
        all.print("all");
    }
}

impl Row {
    fn add(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.told += other.told;
        self.recoveries.extend(&other.recoveries);
        for (what, count) in &other.faults {
            *self.faults.entry(*what).or_default() += count;
        }
    }

    fn print(&self, name: &str) {
        let of = |what| self.faults.get(&what).copied().unwrap_or(0);
        let mut times = self.recoveries.clone();
        times.sort();
        let at = |percent: usize| {
            let index = (times.len() * percent / 100).min(times.len().saturating_sub(1));
            times.get(index).map_or(0.0, Duration::as_secs_f64)
        };
        println!(
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {:.2} / {:.2} / {:.2} |",
            self.rounds,
            of(What::Lost),
            of(What::Corrupt),
            of(What::NotStarted),
            of(What::Back),
            of(What::Gap),
            self.told,
            at(50),
            at(95),
            at(100)
        );
    }
}

/// Damages by what was hit and what came of it.
#[derive(Default)]
pub struct Damages(BTreeMap<(Target, Outcome), u64>);

impl Damages {
    pub fn add(&mut self, target: Target, outcome: Outcome) {
        *self.0.entry((target, outcome)).or_default() += 1;
    }

    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    pub fn print(&self) {
        println!("| damage to | outcome | cases |\n|---|---|---|");
        for ((target, outcome), count) in &self.0 {
            println!("| {target:?} | {outcome} | {count} |");
        }
        let failed = self.0.iter().filter(|((_, outcome), _)| *outcome == Outcome::Failed);
        println!(
            "| all | in silence, or not repaired | {} of {} |",
            failed.map(|(_, n)| n).sum::<u64>(),
            self.count()
        );
    }
}
