//! Brings virtual servers, addresses and packet rules into the kernel, in an order in which each is there before it is
//! needed.

use super::interface::Interface;
use super::link::{Link, LinkError};
use super::packets::{self, TABLE};
use super::servers::{Key, Leaving, Servers, Step, steps};
use super::wanted::{Sets, Wanted, keys_in};
use crate::backend::{Backend, BackendError, Harm};
use crate::command::{self, CommandError, Own};
use crate::family::Family;
use crate::kernel::Kernel;
use crate::nftables::family_word;
use crate::notices::Notice;
use crate::plan::{Plan, Settings};
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An endpoint that nobody wants any more keeps its connections so long at most; upstream's first bound. What is still
/// open then is cut.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// One family's part of the balancer.
pub struct Ipvs {
    family: Family,
    own: Own,
    interface: Interface,
    kernel: Kernel,
    link: Option<Link>,
    in_force: Option<InForce>,
    /// What the table of packet rules holds.
    packets: Option<(Arc<Settings>, Sets)>,
    /// For a table that somebody broke, or that the last call did not finish.
    plan: Option<Plan>,
    scheduler: Option<String>,
}

struct InForce {
    servers: Servers,
    addresses: BTreeSet<IpAddr>,
    /// This machine's addresses as node ports were given to them.
    nodes: BTreeSet<IpAddr>,
}

impl From<LinkError> for BackendError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::NoFamily => Self::Refused(
                "the kernel has no IPVS: its module ip_vs is neither loaded nor can it be".to_owned(),
            ),
            other => Self::Balancer(Box::new(other)),
        }
    }
}

impl Ipvs {
    pub fn new(family: Family, own: Own) -> Self {
        Self {
            family,
            interface: Interface::new(family, own.clone()),
            own,
            kernel: Kernel::default(),
            link: None,
            in_force: None,
            packets: None,
            plan: None,
            scheduler: None,
        }
    }

    /// Opens the line to the balancer, whose module is loaded where it is not yet.
    async fn open(&mut self) -> Result<(), BackendError> {
        if self.link.is_some() {
            return Ok(());
        }
        let link = match Link::open() {
            Err(LinkError::NoFamily) => {
                // Where there is no such program or module, the next look says so.
                let tried = self.own.run("modprobe", &["--quiet", "ip_vs"], None).await;
                if let Err(error) = tried {
                    tracing::debug!(%error, "the module ip_vs is not loaded");
                }
                Link::open()?
            }
            opened => opened?,
        };
        self.link = Some(link);
        Ok(())
    }

    fn linked(&self) -> Result<&Link, BackendError> {
        self.link.as_ref().ok_or_else(|| LinkError::NoFamily.into())
    }

    async fn configure(&mut self, settings: &super::Settings) -> Result<(), BackendError> {
        self.kernel.set_ipvs().await;
        if self.family == Family::V4 {
            self.kernel.set_strict_arp(settings.strict_arp).await;
        }
        let link = self.linked()?;
        if self.scheduler.as_ref() != Some(&settings.scheduler) {
            let scheduler = &settings.scheduler;
            link.try_scheduler(scheduler).map_err(|error| match error.is_unknown() {
                true => BackendError::Refused(format!(
                    "ipvs.scheduler: this kernel has no \"{scheduler}\" (module ip_vs_{scheduler})"
                )),
                false => error.into(),
            })?;
        }
        link.set_timeouts(settings.timeouts)?;
        self.scheduler = Some(settings.scheduler.clone());
        Ok(())
    }

    /// What is there of ours, and of `wanted`.
    async fn look(&self, wanted: &Servers) -> Result<(Servers, BTreeSet<IpAddr>), BackendError> {
        let addresses = self.interface.addresses().await?;
        let recorded = self.recorded().await?;
        let mut servers = self.linked()?.servers(self.family)?;
        servers.retain(|key, _| {
            recorded.contains(key) || addresses.contains(&key.ip) || wanted.contains_key(key)
        });
        Ok((servers, addresses))
    }

    /// The virtual servers that our table says are ours.
    async fn recorded(&self) -> Result<BTreeSet<Key>, BackendError> {
        let listed = self.own.run("nft", &["list", "table", family_word(self.family), TABLE], None).await?;
        Ok(keys_in(&String::from_utf8_lossy(&listed.stdout)))
    }

    async fn nft(&self, script: &str) -> Result<(), CommandError> {
        if script.is_empty() {
            return Ok(());
        }
        self.own.done("nft", &["-f", "-"], Some(script)).await.map(drop)
    }

    async fn write_packets(&mut self, plan: &Plan, sets: &Sets) -> Result<(), BackendError> {
        let script = match self.packets.take() {
            Some((settings, was)) if settings == plan.settings => packets::step(self.family, &was, sets),
            _ => packets::whole(self.family, &plan.settings, sets),
        };
        self.nft(&script).await?;
        self.packets = Some((plan.settings.clone(), sets.clone()));
        Ok(())
    }

    fn take(&self, steps: &[Step]) -> Result<(), BackendError> {
        let link = self.linked()?;
        for step in steps {
            link.take(step)?;
        }
        Ok(())
    }

    /// Takes steps on to `after`. Anybody may write a slice with an address that the kernel takes for no endpoint (a
    /// broadcast address): that one is left out, and told of.
    fn take_on(&self, steps: &[Step], after: &mut Servers) -> Result<(), BackendError> {
        let link = self.linked()?;
        for step in steps {
            match (link.take(step), step) {
                (Err(error), Step::AddReal(key, at, _)) if error.is_invalid() => {
                    tracing::warn!(service = %key.ip, port = key.port, endpoint = %at, "the kernel takes no such endpoint");
                    after.get_mut(key).map(|server| server.reals.remove(at));
                }
                (taken, _) => taken?,
            }
        }
        Ok(())
    }

    /// Takes away the endpoints that nobody wants any more and that have no connection left.
    fn release(&mut self) -> Result<(), BackendError> {
        let Some(mut in_force) = self.in_force.take() else { return Ok(()) };
        let link = self.linked()?;
        for (key, server) in &mut in_force.servers {
            if server.reals.values().all(|real| real.leaving.is_none()) {
                continue;
            }
            let connections = link.connections(key)?;
            let is_over = |at: &SocketAddr, since: Instant| {
                connections.get(at).copied().unwrap_or(0) == 0 || since.elapsed() > DRAIN_TIMEOUT
            };
            let leaving = server.reals.iter().filter_map(|(at, real)| Some((*at, real.leaving?)));
            let over: Vec<_> = leaving.filter(|(at, since)| is_over(at, *since)).collect();
            for (at, _) in over {
                link.take(&Step::RemoveReal(*key, at))?;
                server.reals.remove(&at);
            }
        }
        self.in_force = Some(in_force);
        Ok(())
    }

    async fn has_table(&self) -> Result<bool, CommandError> {
        let ip = family_word(self.family);
        let listed = self.own.run("nft", &["list", "tables", ip], None).await?;
        let text = String::from_utf8_lossy(&listed.stdout);
        Ok(text.lines().any(|line| line == format!("table {ip} {TABLE}")))
    }

    async fn clean_up_servers(&mut self) -> Result<(), BackendError> {
        match self.open().await {
            // Without the module there are no virtual servers.
            Err(BackendError::Refused(_)) => return Ok(()),
            opened => opened?,
        }
        let (servers, _) = self.look(&Servers::new()).await?;
        let excluded = |key: &Key| self.plan.as_ref().is_some_and(|p| p.settings.ipvs.excludes(key.ip));
        let gone: Vec<Step> =
            servers.keys().filter(|key| !excluded(key)).map(|key| Step::Remove(*key)).collect();
        self.take(&gone)
    }
}

#[async_trait]
impl Backend for Ipvs {
    async fn adopt(&mut self) -> Result<(), BackendError> {
        self.open().await
    }

    async fn sync(&mut self, plan: &Plan) -> Result<(), BackendError> {
        self.open().await?;
        self.configure(&plan.settings.ipvs).await?;
        self.interface.begin().await?;
        let nodes = self.interface.of_machine(&plan.settings.node_port_networks).await?;
        let wanted = Wanted::new(plan, &nodes);
        // Until all is done nobody knows what is in force.
        let (servers, addresses) = match self.in_force.take() {
            Some(before) => (before.servers, before.addresses),
            None => self.look(&wanted.servers).await?,
        };
        self.plan = Some(plan.clone());
        let ipvs = &plan.settings.ipvs;
        let mut steps = {
            let keeps = |key: &Key| ipvs.excludes(key.ip);
            let leaving = Leaving { drains: ipvs.can_drain(), keeps: &keeps, now: Instant::now() };
            steps(&servers, &wanted.servers, &leaving)
        };
        // The table is the record of what is ours: it names a server before there is one, and until it is gone.
        self.interface.change(addresses.difference(&wanted.addresses), std::iter::empty()).await?;
        self.take(&steps.removals)?;
        self.write_packets(plan, &wanted.sets).await?;
        self.take_on(&steps.changes, &mut steps.after)?;
        self.interface.change(std::iter::empty(), wanted.addresses.difference(&addresses)).await?;
        self.in_force = Some(InForce { servers: steps.after, addresses: wanted.addresses, nodes });
        Ok(())
    }

    fn harm(&self, notice: &Notice) -> Harm {
        let ours = notice.family == self.family && notice.table == TABLE;
        if ours && self.packets.is_some() { Harm::Done } else { Harm::None }
    }

    async fn is_intact(&mut self) -> Result<bool, BackendError> {
        let Some(in_force) = &self.in_force else { return Ok(true) };
        let there = self.linked()?.servers(self.family)?;
        let servers = in_force.servers.iter().all(|(key, server)| {
            there.get(key).is_some_and(|is| {
                let weights = |(at, real): (&SocketAddr, &super::servers::Real)| {
                    is.reals.get(at).map(|real| real.weight) == Some(real.weight)
                };
                is.choice == server.choice
                    && is.reals.len() == server.reals.len()
                    && server.reals.iter().all(weights)
            })
        });
        if !servers || !in_force.addresses.is_subset(&self.interface.addresses().await?) {
            return Ok(false);
        }
        let listed =
            self.own.run("nft", &["-t", "list", "table", family_word(self.family), TABLE], None).await?;
        let text = String::from_utf8_lossy(&listed.stdout);
        Ok(packets::CHAINS.iter().all(|(chain, _)| text.contains(&format!("chain {chain} {{"))))
    }

    async fn repair(&mut self) -> Result<(), BackendError> {
        let Some(plan) = self.plan.clone() else { return Ok(()) };
        (self.in_force, self.packets) = (None, None);
        self.sync(&plan).await
    }

    /// Endpoints on their way out go when their connections have ended, and node ports follow this machine's addresses.
    async fn tend(&mut self) -> Result<(), BackendError> {
        let Some((in_force, plan)) = self.in_force.as_ref().zip(self.plan.clone()) else { return Ok(()) };
        if self.interface.of_machine(&plan.settings.node_port_networks).await? != in_force.nodes {
            self.sync(&plan).await?;
        }
        self.release()
    }

    async fn clean_up(&mut self) -> Result<(), BackendError> {
        self.kernel.set_strict_arp(false).await;
        // Without the programs nobody has written anything; nor has anybody who left no trace.
        let has_table = command::exists("nft") && self.has_table().await?;
        if has_table || self.interface.is_there() {
            self.clean_up_servers().await?;
            self.interface.clean_up().await?;
        }
        if has_table {
            self.nft(&format!("delete table {} {TABLE}\n", family_word(self.family))).await?;
        }
        (self.in_force, self.packets, self.plan, self.scheduler) = (None, None, None, None);
        Ok(())
    }

    fn rules(&self) -> Vec<(&'static str, usize)> {
        let servers = self.in_force.as_ref().map(|i| i.servers.values().map(|s| 1 + s.reals.len()).sum());
        let elements = self.packets.as_ref().map(|(_, sets)| sets.values().map(BTreeSet::len).sum());
        [("ipvs", servers), (TABLE, elements)].into_iter().filter_map(|(of, n)| Some((of, n?))).collect()
    }

    fn needs_looks(&self) -> bool {
        true
    }
}
