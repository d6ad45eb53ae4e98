//! Brings the table into the kernel with `nft -f -`: what changed, in steps that no packet can fall between.

use super::TABLE;
use super::base::{self, family_word};
use super::entries::{Entries, Entry, Name, Thing, of_service};
use super::steps::Steps;
use crate::backend::{Backend, BackendError, Harm};
use crate::command::{self, CommandError, Own};
use crate::family::Family;
use crate::notices::Notice;
use crate::plan::{Plan, changed};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};

/// The kernel's side of one family.
pub struct Nftables {
    family: Family,
    own: Own,
    table: &'static str,
    written: Option<Written>,
}

struct Written {
    plan: Plan,
    all: Entries,
}

impl Nftables {
    pub fn new(family: Family, own: Own) -> Self {
        Self::of_table(TABLE, family, own)
    }

    /// For another mode that needs a table of its own.
    pub fn of_table(table: &'static str, family: Family, own: Own) -> Self {
        Self { family, own, table, written: None }
    }

    async fn run(&self, script: &str) -> Result<(), CommandError> {
        self.own.done("nft", &["-f", "-"], Some(script)).await.map(drop)
    }

    /// Everything, in the place of whatever the table holds: one transaction, so that no packet meets half of it. Who
    /// keeps an endpoint by affinity may be given another one.
    async fn write_anew(&mut self, plan: &Plan) -> Result<(), BackendError> {
        let mut all = Entries::default();
        for ports in plan.services.values() {
            add(&mut all, of_service(ports, self.family, &plan.settings));
        }
        let (ip, table) = (family_word(self.family), self.table);
        let mut script =
            format!("add table {ip} {table}\ndelete table {ip} {table}\nadd table {ip} {table}\n");
        script.push_str(&base::script(table, self.family, &plan.settings));
        script.push_str(&Steps::between(table, self.family, &Entries::default(), &all).at_once());
        self.written = None;
        self.run(&script).await?;
        self.written = Some(Written { plan: plan.clone(), all });
        Ok(())
    }
}

fn add(all: &mut Entries, more: Entries) {
    for (entry, count) in more.entries {
        *all.entries.entry(entry).or_default() += count;
    }
    for (name, (thing, count)) in more.things {
        all.things.entry(name).or_insert((thing, 0)).1 += count;
    }
}

/// What one Service's change leads to: entries and things that nobody needs any more, and new ones.
#[derive(Default)]
struct Difference {
    entries: BTreeMap<Entry, isize>,
    things: BTreeMap<String, (Thing, isize)>,
}

impl Difference {
    fn count(&mut self, entries: Entries, sign: isize) {
        for (entry, count) in entries.entries {
            *self.entries.entry(entry).or_default() += sign * isize::try_from(count).unwrap_or(0);
        }
        for (name, (thing, count)) in entries.things {
            self.things.entry(name).or_insert((thing, 0)).1 += sign * isize::try_from(count).unwrap_or(0);
        }
    }

    /// Changes the counts, and gives what was there of them and what is.
    fn apply(self, all: &mut Entries) -> (Entries, Entries) {
        let (mut was, mut is) = (Entries::default(), Entries::default());
        let touched: BTreeSet<(Name, String)> =
            self.entries.keys().map(|entry| (entry.map.clone(), entry.key.clone())).collect();
        let of_touched = |all: &Entries| -> BTreeMap<Entry, usize> {
            touched
                .iter()
                .filter_map(|(map, key)| all.first(map, key))
                .map(|entry| (entry.clone(), 1))
                .collect()
        };
        was.entries = of_touched(all);
        for (entry, by) in self.entries {
            let now = all.entries.get(&entry).copied().unwrap_or(0).saturating_add_signed(by);
            if now > 0 {
                all.entries.insert(entry, now);
            } else {
                all.entries.remove(&entry);
            }
        }
        is.entries = of_touched(all);
        for (name, (thing, by)) in self.things {
            let before = all.things.get(&name).map_or(0, |(_, count)| *count);
            let now = before.saturating_add_signed(by);
            if before > 0 {
                was.things.insert(name.clone(), (thing.clone(), before));
            }
            if now > 0 {
                is.things.insert(name.clone(), (thing.clone(), now));
                all.things.insert(name, (thing, now));
            } else {
                all.things.remove(&name);
            }
        }
        (was, is)
    }
}

#[async_trait]
impl Backend for Nftables {
    /// The first sync writes everything in one transaction, whatever is there.
    async fn adopt(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    async fn sync(&mut self, plan: &Plan) -> Result<(), BackendError> {
        let Some(mut written) = self.written.take().filter(|w| w.plan.settings == plan.settings) else {
            return self.write_anew(plan).await;
        };
        let mut difference = Difference::default();
        for (_, before, now) in changed(&written.plan.services, &plan.services) {
            let settings = &plan.settings;
            difference.count(before.map(|p| of_service(p, self.family, settings)).unwrap_or_default(), -1);
            difference.count(now.map(|p| of_service(p, self.family, settings)).unwrap_or_default(), 1);
        }
        let (was, is) = difference.apply(&mut written.all);
        for step in Steps::between(self.table, self.family, &was, &is).each() {
            self.run(step).await?;
        }
        written.plan = plan.clone();
        self.written = Some(written);
        Ok(())
    }

    fn harm(&self, notice: &Notice) -> Harm {
        let ours = notice.family == self.family && notice.table == self.table;
        if ours && self.written.is_some() { Harm::Done } else { Harm::None }
    }

    async fn is_intact(&mut self) -> Result<bool, BackendError> {
        let Some(written) = &self.written else { return Ok(true) };
        let (ip, table) = (family_word(self.family), self.table);
        let listed = self.own.run("nft", &["-t", "list", "table", ip, table], None).await?;
        if !listed.status.success() {
            return Ok(false);
        }
        let text = String::from_utf8_lossy(&listed.stdout);
        let named: BTreeSet<&str> = text.lines().filter_map(|line| line.trim().split(' ').nth(1)).collect();
        let has_things = written.all.things.keys().all(|name| named.contains(name.as_str()));
        Ok(has_things && named.contains("nat-prerouting") && named.contains("filter-forward"))
    }

    async fn repair(&mut self) -> Result<(), BackendError> {
        match self.written.as_ref().map(|written| written.plan.clone()) {
            Some(plan) => self.write_anew(&plan).await,
            None => Ok(()),
        }
    }

    async fn clean_up(&mut self) -> Result<(), BackendError> {
        self.written = None;
        // Without the program nobody has written anything.
        if !command::exists("nft") {
            return Ok(());
        }
        let (ip, table) = (family_word(self.family), self.table);
        let listed = self.own.run("nft", &["list", "tables", ip], None).await?;
        let text = String::from_utf8_lossy(&listed.stdout);
        if text.lines().any(|line| line == format!("table {ip} {table}")) {
            self.run(&format!("delete table {ip} {table}\n")).await?;
        }
        Ok(())
    }

    fn rules(&self) -> Vec<(&'static str, usize)> {
        let count = |written: &Written| written.all.entries.len() + written.all.things.len();
        self.written.iter().map(|written| (self.table, count(written))).collect()
    }
}
