//! Brings a rule set into the kernel with `iptables-restore --noflush`: one transaction a table, nothing of others'
//! rules touched.

use super::rules::{Networks, RuleSet, Table};
use std::collections::BTreeSet;
use std::process::{Output, Stdio};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("{program} could not be run")]
    Run {
        program: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error("{program} refused: {stderr}")]
    Refused { program: &'static str, stderr: String },
}

/// Where the kernel's own chains send packets to ours. `-I` puts them first, as kube-proxy does.
const JUMPS: &[(&str, &str, &str)] = &[
    ("nat", "PREROUTING", "-m comment --comment kubernetes-service-portals -j KUBE-SERVICES"),
    ("nat", "OUTPUT", "-m comment --comment kubernetes-service-portals -j KUBE-SERVICES"),
    ("nat", "POSTROUTING", "-m comment --comment kubernetes-postrouting-rules -j KUBE-POSTROUTING"),
    (
        "filter",
        "INPUT",
        "-m conntrack --ctstate NEW -m comment --comment kubernetes-externally-visible-service-portals -j KUBE-EXTERNAL-SERVICES",
    ),
    ("filter", "INPUT", "-m comment --comment kubernetes-health-check-service-ports -j KUBE-NODEPORTS"),
    ("filter", "INPUT", "-j KUBE-FIREWALL"),
    ("filter", "FORWARD", "-m comment --comment kubernetes-forwarding-rules -j KUBE-FORWARD"),
    (
        "filter",
        "FORWARD",
        "-m conntrack --ctstate NEW -m comment --comment kubernetes-service-portals -j KUBE-SERVICES",
    ),
    (
        "filter",
        "FORWARD",
        "-m conntrack --ctstate NEW -m comment --comment kubernetes-externally-visible-service-portals -j KUBE-EXTERNAL-SERVICES",
    ),
    (
        "filter",
        "OUTPUT",
        "-m conntrack --ctstate NEW -m comment --comment kubernetes-service-portals -j KUBE-SERVICES",
    ),
    ("filter", "OUTPUT", "-j KUBE-FIREWALL"),
    (
        "filter",
        "INPUT",
        "-m conntrack --ctstate NEW -m comment --comment kubernetes-load-balancer-firewall -j KUBE-PROXY-FIREWALL",
    ),
    (
        "filter",
        "FORWARD",
        "-m conntrack --ctstate NEW -m comment --comment kubernetes-load-balancer-firewall -j KUBE-PROXY-FIREWALL",
    ),
    (
        "filter",
        "OUTPUT",
        "-m conntrack --ctstate NEW -m comment --comment kubernetes-load-balancer-firewall -j KUBE-PROXY-FIREWALL",
    ),
];
/// Its absence says that somebody flushed the tables.
const CANARY: &str = "KUBE-PROXY-CANARY";

/// The kernel's side: remembers which chains are ours.
#[derive(Default)]
pub struct Iptables {
    nat_chains: BTreeSet<String>,
    filter_chains: BTreeSet<String>,
}

async fn run(program: &'static str, args: &[&str], input: Option<&str>) -> Result<Output, ApplyError> {
    let failed = |source| ApplyError::Run { program, source };
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut child = Command::new(program)
        .args(args)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    if let (Some(mut pipe), Some(text)) = (child.stdin.take(), input) {
        pipe.write_all(text.as_bytes()).await.map_err(failed)?;
    }
    child.wait_with_output().await.map_err(failed)
}

fn accepted(program: &'static str, output: &Output) -> Result<(), ApplyError> {
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(ApplyError::Refused { program, stderr })
}

/// Chains of a Service or endpoint, which come and go.
fn is_dynamic(chain: &str) -> bool {
    ["KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"].iter().any(|p| chain.starts_with(p))
}

/// Declares every chain (which empties it), fills it, and removes those that are no longer wanted.
fn restore_input(name: &str, table: &Table, known: &BTreeSet<String>) -> String {
    let mut text = format!("*{name}\n");
    for chain in table.chains.union(known) {
        text.push_str(&format!(":{chain} - [0:0]\n"));
    }
    text.push_str(&table.rules);
    for chain in known.difference(&table.chains).filter(|c| is_dynamic(c)) {
        text.push_str(&format!("-X {chain}\n"));
    }
    text.push_str("COMMIT\n");
    text
}

impl Iptables {
    /// Learns which chains an earlier run left, so that they are used again or removed.
    pub async fn adopt() -> Result<Self, ApplyError> {
        let mut this = Self::default();
        for (table, chains) in [("nat", &mut this.nat_chains), ("filter", &mut this.filter_chains)] {
            let output = run("iptables-save", &["-t", table], None).await?;
            accepted("iptables-save", &output)?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let names = text.lines().filter_map(|l| l.strip_prefix(':')?.split(' ').next());
            chains.extend(names.filter(|c| is_dynamic(c)).map(str::to_owned));
        }
        Ok(this)
    }

    pub async fn apply(&mut self, set: &RuleSet) -> Result<(), ApplyError> {
        let text = restore_input("filter", &set.filter, &self.filter_chains)
            + &restore_input("nat", &set.nat, &self.nat_chains);
        let output = run("iptables-restore", &["--noflush", "-w", "5"], Some(&text)).await?;
        accepted("iptables-restore", &output)?;
        self.filter_chains = set.filter.chains.iter().filter(|c| is_dynamic(c)).cloned().collect();
        self.nat_chains = set.nat.chains.iter().filter(|c| is_dynamic(c)).cloned().collect();
        Ok(())
    }

    /// Hooks our chains into the kernel's; harmless when they are. Call after the first `apply`.
    pub async fn hook(&self) -> Result<(), ApplyError> {
        for (table, chain, rule) in JUMPS.iter().rev() {
            let rule: Vec<&str> = rule.split(' ').collect();
            let check = [&["-w", "5", "-t", table, "-C", chain], rule.as_slice()].concat();
            if !run("iptables", &check, None).await?.status.success() {
                let insert = [&["-w", "5", "-t", table, "-I", chain], rule.as_slice()].concat();
                accepted("iptables", &run("iptables", &insert, None).await?)?;
            }
        }
        // Fails when the canary is there already, which is fine.
        run("iptables", &["-w", "5", "-t", "mangle", "-N", CANARY], None).await?;
        Ok(())
    }

    /// Whether somebody flushed the tables since `hook`.
    pub async fn flushed(&self) -> Result<bool, ApplyError> {
        let output = run("iptables", &["-w", "5", "-t", "mangle", "-S", CANARY], None).await?;
        Ok(!output.status.success())
    }
}

/// Takes away everything that the proxy ever wrote; for `scripts/up --down`.
pub async fn clean_up() -> Result<(), ApplyError> {
    let adopted = Iptables::adopt().await?;
    for (table, chain, rule) in JUMPS {
        let rule: Vec<&str> = rule.split(' ').collect();
        let delete = [&["-w", "5", "-t", table, "-D", chain], rule.as_slice()].concat();
        while run("iptables", &delete, None).await?.status.success() {}
    }
    let fixed = super::rules::render(
        &[],
        Networks { cluster_cidr: "0.0.0.0/0", masquerade_pods: false, service_cidrs: &[] },
    );
    let tables =
        [("nat", &fixed.nat, &adopted.nat_chains), ("filter", &fixed.filter, &adopted.filter_chains)];
    for (name, table, known) in tables {
        let chains: BTreeSet<&String> = table.chains.union(known).collect();
        let declare: String = chains.iter().map(|c| format!(":{c} - [0:0]\n")).collect();
        let remove: String = chains.iter().map(|c| format!("-X {c}\n")).collect();
        let text = format!("*{name}\n{declare}{remove}COMMIT\n");
        let output = run("iptables-restore", &["--noflush", "-w", "5"], Some(&text)).await?;
        accepted("iptables-restore", &output)?;
    }
    run("iptables", &["-w", "5", "-t", "mangle", "-X", CANARY], None).await?;
    Ok(())
}
