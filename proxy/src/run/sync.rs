//! Brings what is planned into force, and keeps it there.

use super::{Proxy, pod_cidrs, zone};
use crate::backend::{BackendError, Mode};
use crate::family::Family;
use crate::kernel;
use crate::metrics::Metric;
use crate::mode_controller::{self, ModeError};
use crate::model::{self, NodeTopology};
use crate::notices::Told;
use crate::plan::{Plan, Settings};
use coracle_api::error::chain;
use coracle_api::well_known;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two repairs: somebody who writes against us all the time must not keep this machine busy.
const REPAIR_INTERVAL: Duration = Duration::from_millis(200);
/// Notices that come this close together are one.
const NOTICE_DEBOUNCE: Duration = Duration::from_millis(5);

impl Proxy {
    fn plans(&mut self) -> Vec<Plan> {
        let node = self.nodes.get("", &self.config.node_name);
        let here = NodeTopology { node: &self.config.node_name, zone: node.as_deref().map_or("", zone) };
        let changed = self.changed.take();
        let concerned = if self.planner.is_for(here) { changed } else { self.services.keys() };
        for key in concerned {
            let service = self.services.get_key(&key);
            let slices = self.slices.with_label(&key.namespace, well_known::SERVICE_NAME, &key.name);
            self.planner.take(key, service.as_deref(), &slices);
        }
        let of_family = self.planner.plans();
        let cidrs = node.as_deref().map(pod_cidrs).unwrap_or_default();
        let ranges = self.ranges.list();
        let plans = Family::ALL.into_iter().zip(of_family).map(|(family, services)| {
            let settings = self.settings(family, &cidrs, model::ranges(&ranges, family));
            Plan { family, services, settings: Arc::new(settings) }
        });
        plans.filter(|plan| plan.family.is_there()).collect()
    }

    fn settings(&self, family: Family, node_cidrs: &[String], service_cidrs: Vec<String>) -> Settings {
        let Some(configuration) = &self.configuration else { return Settings::default() };
        let pods = configuration.cluster_cidr(family).filter(|_| self.config.masquerade_pods);
        Settings {
            local: configuration.local_detector(family, node_cidrs),
            masquerade_pods: pods,
            service_cidrs,
            masquerade_all: configuration.masquerade_all,
            mark: configuration.mark,
            localhost_node_ports: configuration.localhost_node_ports,
            node_port_networks: configuration.node_port_networks(family, &self.config.node_ips),
            drop_invalid: !configuration.conntrack.tcp_be_liberal,
            ipvs: configuration.ipvs.clone(),
        }
    }

    /// Brings into force what there is now.
    ///
    /// # Errors
    /// What was in force before stays, as far as the kernel has it.
    pub(super) async fn sync(&mut self) -> Result<(), ModeError> {
        let Some(wanted) = self.configuration.as_ref().map(|c| c.mode) else { return Ok(()) };
        let plans = self.plans();
        let triggers = self.triggers.take();
        for plan in plans.iter().filter(|plan| plan.is_used()) {
            self.kernel.forward(plan.family).await;
        }
        let put = self.keeper.put(wanted, &plans).await;
        let times = match (put, self.keeper.mode()) {
            (Ok(times), _) => times,
            // The mode that is asked for does not work here: the one before goes on.
            (Err(ModeError::Begin { mode, family, source }), in_force) if in_force != Some(wanted) => {
                let error = ModeError::Begin { mode, family, source };
                let said = self.said.borrow().clone();
                self.refused("ModeRefused", &chain(&error), &said);
                let Some(before) = in_force else { return Err(error) };
                if let Some(configuration) = &mut self.configuration {
                    configuration.mode = before;
                }
                self.keeper.put(before, &plans).await?
            }
            // The mode goes on, by the settings it had.
            (Err(ModeError::Sync { mode, family, source: source @ BackendError::Refused(_) }), _)
                if self.in_force != self.configuration =>
            {
                let error = ModeError::Sync { mode, family, source };
                let said = self.said.borrow().clone();
                self.refused("ModeRefused", &chain(&error), &said);
                self.configuration.clone_from(&self.in_force);
                let plans = self.plans();
                self.keeper.put(mode, &plans).await?
            }
            (Err(error), _) => {
                self.count_failure(&error);
                return Err(error);
            }
        };
        self.in_force.clone_from(&self.configuration);
        self.tell_in_force(&plans, times, triggers).await;
        Ok(())
    }

    fn count_failure(&self, error: &ModeError) {
        let (ModeError::Begin { mode, family, .. } | ModeError::Sync { mode, family, .. }) = error;
        match mode {
            Mode::Iptables => self.metrics.add(Metric::IptablesFailures, &[family.name()], 1),
            Mode::Nftables => self.metrics.add(Metric::NftablesFailures, &[family.name()], 1),
            Mode::Ipvs | Mode::Userspace => {}
        }
    }

    /// Everything that follows from plans that are in force.
    async fn tell_in_force(
        &mut self,
        plans: &[Plan],
        times: mode_controller::Times,
        triggers: Vec<jiff::Timestamp>,
    ) {
        let mode = self.keeper.mode();
        self.last.now();
        self.mode.send_if_modified(|shown| {
            let now = mode.map_or("", Mode::name);
            std::mem::replace(shown, now) != now
        });
        let of_v4 = plans.iter().filter(|plan| plan.family == Family::V4);
        let opens = mode == Some(Mode::Iptables)
            && self.configuration.as_ref().is_some_and(|c| c.localhost_node_ports);
        self.kernel.set_localnet(opens && kernel::needs_localnet(of_v4.flat_map(Plan::ports))).await;
        self.checks.serve(self.planner.checks(), &self.last);
        let seconds = usize::try_from(jiff::Timestamp::now().as_second()).unwrap_or(0);
        for (family, time) in &times {
            self.metrics.observe(Metric::SyncDuration, &[family.name()], *time);
        }
        self.metrics
            .set_all(Metric::LastTimestamp, times.keys().map(|family| (vec![family.name()], seconds)));
        let rules = self.keeper.rules();
        let labelled = || rules.iter().map(|(family, table, count)| (vec![family.name(), *table], *count));
        self.metrics.set_all(Metric::Entries, labelled());
        let of_iptables = labelled().filter(|_| mode == Some(Mode::Iptables));
        self.metrics.set_all(Metric::RulesTotal, of_iptables);
        let now = jiff::Timestamp::now();
        for trigger in triggers {
            let since = now.duration_since(trigger).try_into().unwrap_or(Duration::ZERO);
            self.metrics.observe(Metric::ProgrammingDuration, &[], since);
        }
    }

    /// Writes again what somebody broke, at once.
    ///
    /// # Errors
    /// It could not be written.
    pub(super) async fn mend(&mut self, told: Told) -> Result<(), ModeError> {
        tokio::time::sleep(NOTICE_DEBOUNCE).await;
        let mut all = vec![told];
        if let Some(notices) = &mut self.notices {
            while let Ok(more) = notices.try_recv() {
                all.push(more);
            }
        }
        let began = Instant::now();
        for told in all {
            if self.keeper.mend(&told).await? {
                self.metrics.add(Metric::Repairs, &[], 1);
                self.last.now();
                let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                tracing::warn!(
                    took_ms,
                    "packet rules were changed by somebody else, and have been written again"
                );
                tokio::time::sleep(REPAIR_INTERVAL).await;
                break;
            }
        }
        Ok(())
    }
}
