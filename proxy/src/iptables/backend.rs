//! Brings rules into the kernel with `iptables-restore --noflush`: one transaction for what changed, nothing of others'
//! rules touched.

use super::jumps;
use super::rules::{self, is_dynamic};
use super::written::{Step, TABLES, Written};
use crate::backend::{Backend, BackendError, Harm};
use crate::command::{self, CommandError, Own};
use crate::family::Family;
use crate::notices::Notice;
use crate::plan::Plan;
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};

/// A chain by which people and tools tell that a proxy works here; kube-proxy's.
const CANARY: &str = "KUBE-PROXY-CANARY";

/// Programs of one family.
struct Programs {
    iptables: &'static str,
    save: &'static str,
    restore: &'static str,
}

const fn programs(family: Family) -> Programs {
    match family {
        Family::V4 => Programs { iptables: "iptables", save: "iptables-save", restore: "iptables-restore" },
        Family::V6 => {
            Programs { iptables: "ip6tables", save: "ip6tables-save", restore: "ip6tables-restore" }
        }
    }
}

/// The kernel's side of one family.
pub struct Iptables {
    family: Family,
    own: Own,
    written: Option<Written>,
    /// Chains that an earlier run left, by table in the order of [`TABLES`].
    known: [BTreeSet<String>; 2],
    is_legacy: bool,
    is_adopted: bool,
}

impl Iptables {
    pub fn new(family: Family, own: Own) -> Self {
        Self { family, own, written: None, known: Default::default(), is_legacy: false, is_adopted: false }
    }

    async fn saved(&self, table: &str) -> Result<String, CommandError> {
        self.own.done(programs(self.family).save, &["-t", table], None).await
    }

    async fn restore(&self, text: &str) -> Result<(), CommandError> {
        let args = ["--noflush", "-w", "5"];
        self.own.done(programs(self.family).restore, &args, Some(text)).await.map(drop)
    }

    async fn write(&mut self, step: &Step) -> Result<(), CommandError> {
        let text: String = (0..2).map(|at| step.input(at)).collect();
        if text.is_empty() { Ok(()) } else { self.restore(&text).await }
    }

    /// What brings the plan into force, and what is in force then.
    fn next(&mut self, plan: &Plan) -> (Step, Written) {
        match self.written.take() {
            Some(mut written) if written.plan.settings == plan.settings => (written.advance(plan), written),
            before => {
                let mut written = Written::new(plan);
                let step = match before {
                    Some(before) => written.step_from(&before.whole),
                    None => written.step_from_unknown(&std::mem::take(&mut self.known)),
                };
                written.plan = plan.clone();
                (step, written)
            }
        }
    }

    /// Leads the kernel's chains to ours, where they do not lead there; harmless when they do.
    async fn hook(&self) -> Result<(), CommandError> {
        for table in TABLES {
            let saved = self.saved(table).await?;
            let missing = jumps::missing(table, &saved);
            if missing.is_empty() {
                continue;
            }
            let lines: String = missing.iter().map(|(chain, rule)| format!("-I {chain} {rule}\n")).collect();
            self.restore(&format!("*{table}\n{lines}COMMIT\n")).await?;
        }
        // Fails when the canary is there already, which is fine.
        self.own
            .run(programs(self.family).iptables, &["-w", "5", "-t", "mangle", "-N", CANARY], None)
            .await?;
        Ok(())
    }

    fn chains(&self, table: &str) -> Option<&BTreeMap<String, String>> {
        let whole = &self.written.as_ref()?.whole;
        TABLES.iter().position(|of| *of == table).map(|at| whole.chains(at))
    }
}

/// How many rules each chain has, of a table as it was saved.
fn counted(saved: &str) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for line in saved.lines() {
        if let Some(chain) = line.strip_prefix(':') {
            counts.entry(chain.split(' ').next().unwrap_or_default()).or_default();
        } else if let Some(rule) = line.strip_prefix("-A ") {
            *counts.entry(rule.split(' ').next().unwrap_or_default()).or_default() += 1;
        }
    }
    counts
}

#[async_trait]
impl Backend for Iptables {
    async fn adopt(&mut self) -> Result<(), BackendError> {
        let version = self.own.done(programs(self.family).iptables, &["--version"], None).await?;
        self.is_legacy = !version.contains("nf_tables");
        for (at, table) in TABLES.iter().enumerate() {
            let saved = self.saved(table).await?;
            self.known[at] =
                counted(&saved).into_keys().filter(|c| is_dynamic(c)).map(str::to_owned).collect();
        }
        self.is_adopted = true;
        Ok(())
    }

    async fn sync(&mut self, plan: &Plan) -> Result<(), BackendError> {
        let first = self.written.is_none();
        if !self.is_adopted {
            self.adopt().await?;
        }
        // Until all is done nobody knows what is in force.
        self.is_adopted = false;
        let (step, written) = self.next(plan);
        self.write(&step).await?;
        if first {
            self.hook().await?;
        }
        self.written = Some(written);
        self.is_adopted = true;
        Ok(())
    }

    fn harm(&self, notice: &Notice) -> Harm {
        if notice.family != self.family {
            return Harm::None;
        }
        let Some(chains) = self.chains(&notice.table) else { return Harm::None };
        match &notice.chain {
            Some(chain) if chains.contains_key(chain) => Harm::Done,
            // One of the kernel's own chains, which may have lost its jump to ours.
            Some(_) if notice.removed => Harm::Perhaps,
            None if notice.removed => Harm::Done,
            _ => Harm::None,
        }
    }

    async fn is_intact(&mut self) -> Result<bool, BackendError> {
        for table in TABLES {
            let Some(chains) = self.chains(table) else { return Ok(true) };
            let saved = self.saved(table).await?;
            let counts = counted(&saved);
            let same = |(chain, rules): (&String, &String)| {
                counts.get(chain.as_str()) == Some(&rules.lines().count())
            };
            if !chains.iter().all(same) || !jumps::missing(table, &saved).is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn repair(&mut self) -> Result<(), BackendError> {
        let Some(written) = &self.written else { return Ok(()) };
        let step = written.step_from_unknown(&Default::default());
        self.write(&step).await?;
        Ok(self.hook().await?)
    }

    async fn clean_up(&mut self) -> Result<(), BackendError> {
        // Without the programs nobody has written anything.
        if !command::exists(programs(self.family).save) {
            return Ok(());
        }
        let fixed = rules::first(&Plan::empty(self.family));
        for (table, fixed) in TABLES.iter().zip([fixed.filter, fixed.nat]) {
            let saved = self.saved(table).await?;
            let there = counted(&saved);
            let ours = |chain: &&&str| is_dynamic(chain) || fixed.chains.contains_key(**chain);
            let chains: Vec<&&str> = there.keys().filter(ours).collect();
            if chains.is_empty() {
                continue;
            }
            let jumps: String =
                jumps::present(table, &saved).iter().map(|rule| format!("{rule}\n")).collect();
            let declare: String = chains.iter().map(|c| format!(":{c} - [0:0]\n")).collect();
            let remove: String = chains.iter().map(|c| format!("-X {c}\n")).collect();
            self.restore(&format!("*{table}\n{declare}{jumps}{remove}COMMIT\n")).await?;
        }
        // Fails where there is none.
        self.own
            .run(programs(self.family).iptables, &["-w", "5", "-t", "mangle", "-X", CANARY], None)
            .await?;
        self.written = None;
        self.known = Default::default();
        self.is_adopted = false;
        Ok(())
    }

    fn rules(&self) -> Vec<(&'static str, usize)> {
        let Some(written) = &self.written else { return Vec::new() };
        let count = |at| written.whole.chains(at).values().map(|rules| rules.lines().count()).sum();
        TABLES.into_iter().enumerate().map(|(at, table)| (table, count(at))).collect()
    }

    fn needs_looks(&self) -> bool {
        self.is_legacy
    }
}
