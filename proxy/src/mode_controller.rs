//! Keeps one mode in force over both families: brings plans in, changes modes, and mends what others break.
//!
//! A change of mode writes the new mode's rules first and takes the old ones away after that: at no time is there no rule,
//! and connections go on by what the kernel remembers of them. Where the new mode fails, the old one stays.

use crate::backend::{Backend, BackendError, Harm, Mode};
use crate::conntrack::{self, Conntrack};
use crate::family::Family;
use crate::notices::Told;
use crate::plan::Plan;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Makes the backend of a mode and a family.
pub type Make = Box<dyn Fn(Mode, Family) -> Box<dyn Backend> + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum ModeError {
    #[error("mode {mode}, {}", family.name())]
    Begin {
        mode: Mode,
        family: Family,
        #[source]
        source: BackendError,
    },
    #[error("{} rules of mode {mode}", family.name())]
    Sync {
        mode: Mode,
        family: Family,
        #[source]
        source: BackendError,
    },
}

type Backends = BTreeMap<Family, Box<dyn Backend>>;

/// How long each family took.
pub type Times = BTreeMap<Family, Duration>;

pub struct ModeController {
    make: Make,
    conntrack: Box<dyn Conntrack>,
    mode: Option<Mode>,
    backends: Backends,
    in_force: BTreeMap<Family, Plan>,
    /// Backends of modes that are over, whose rules could not be taken away yet.
    leftovers: Vec<Box<dyn Backend>>,
    told_of_leftovers: bool,
}

impl ModeController {
    pub fn new(make: Make, conntrack: Box<dyn Conntrack>) -> Self {
        Self {
            make,
            conntrack,
            mode: None,
            backends: BTreeMap::new(),
            in_force: BTreeMap::new(),
            leftovers: Vec::new(),
            told_of_leftovers: false,
        }
    }

    /// The mode in force; `None` before the first plan.
    pub fn mode(&self) -> Option<Mode> {
        self.mode
    }

    /// Rules in force, by family and table.
    pub fn rules(&self) -> Vec<(Family, &'static str, usize)> {
        let mut all = Vec::new();
        for (family, backend) in &self.backends {
            all.extend(backend.rules().into_iter().map(|(table, count)| (*family, table, count)));
        }
        all
    }

    pub fn needs_looks(&self) -> bool {
        self.backends.values().any(|backend| backend.needs_looks())
    }

    /// Brings the plans into force in a mode. A family that the cluster does not use is left alone until it does.
    ///
    /// # Errors
    /// [`ModeError::Begin`]: another mode was asked for, and could not begin; the one before is still in force.
    /// [`ModeError::Sync`]: the rules in force may be older than the plans; the next call writes them all.
    pub async fn put(&mut self, mode: Mode, plans: &[Plan]) -> Result<Times, ModeError> {
        let times = if self.mode == Some(mode) {
            self.sync(mode, plans).await?
        } else {
            self.change(mode, plans).await?
        };
        self.forget(plans).await;
        for plan in plans.iter().filter(|plan| self.backends.contains_key(&plan.family)) {
            self.in_force.insert(plan.family, plan.clone());
        }
        self.take_leftovers_away().await;
        Ok(times)
    }

    async fn sync(&mut self, mode: Mode, plans: &[Plan]) -> Result<Times, ModeError> {
        let mut times = Times::new();
        for plan in plans {
            let (family, began) = (plan.family, Instant::now());
            if let Some(backend) = self.backends.get_mut(&family) {
                let synced = backend.sync(plan).await;
                synced.map_err(|source| ModeError::Sync { mode, family, source })?;
            } else if plan.is_used() {
                let backend = self.begun(mode, plan).await;
                let backend = backend.map_err(|source| ModeError::Begin { mode, family, source })?;
                self.backends.insert(family, backend);
            } else {
                continue;
            }
            times.insert(family, began.elapsed());
        }
        Ok(times)
    }

    async fn begun(&self, mode: Mode, plan: &Plan) -> Result<Box<dyn Backend>, BackendError> {
        let mut backend = (self.make)(mode, plan.family);
        let begun = match backend.adopt().await {
            Ok(()) => backend.sync(plan).await,
            failed => failed,
        };
        match begun {
            Ok(()) => Ok(backend),
            Err(error) => {
                // What was written of it may keep the mode that stays from working.
                if let Err(left) = backend.clean_up().await {
                    tracing::debug!(%mode, error = %left, "rules of a mode that could not begin stay");
                }
                Err(error)
            }
        }
    }

    async fn change(&mut self, mode: Mode, plans: &[Plan]) -> Result<Times, ModeError> {
        let mut times = Times::new();
        let mut begun = Backends::new();
        // One family is always there, so that a mode that does not work is found out at once.
        let used = plans.iter().filter(|plan| plan.is_used() || plan.family == Family::V4);
        for plan in used {
            let start = Instant::now();
            match self.begun(mode, plan).await {
                Ok(backend) => {
                    begun.insert(plan.family, backend);
                    times.insert(plan.family, start.elapsed());
                }
                Err(source) => {
                    for backend in begun.values_mut() {
                        if let Err(left) = backend.clean_up().await {
                            tracing::debug!(%mode, error = %left, "rules of a mode that could not begin stay");
                        }
                    }
                    return Err(ModeError::Begin { mode, family: plan.family, source });
                }
            }
        }
        let over = std::mem::replace(&mut self.backends, begun);
        if self.mode.is_none() {
            // Whatever an earlier run of this process wrote in other modes.
            let others = Mode::ALL.into_iter().filter(|other| *other != mode);
            let families = || Family::ALL.into_iter().filter(|family| family.is_there());
            let others = others.flat_map(|other| families().map(move |family| (other, family)));
            let others: Vec<_> = others.map(|(other, family)| (self.make)(other, family)).collect();
            self.leftovers.extend(others);
        }
        self.leftovers.extend(over.into_values());
        self.mode = Some(mode);
        Ok(times)
    }

    async fn take_leftovers_away(&mut self) {
        let mut left = Vec::new();
        for mut backend in std::mem::take(&mut self.leftovers) {
            if let Err(error) = backend.clean_up().await {
                let why = coracle_api::error::chain(&error);
                // The same again is no news.
                if !std::mem::replace(&mut self.told_of_leftovers, true) {
                    tracing::warn!(
                        why,
                        "rules of another mode could not be taken away, trying again with each change"
                    );
                }
                left.push(backend);
            }
        }
        self.told_of_leftovers &= !left.is_empty();
        self.leftovers = left;
    }

    async fn forget(&mut self, plans: &[Plan]) {
        let stale = |plan: &Plan| match self.in_force.get(&plan.family) {
            Some(before) => conntrack::stale(before, plan),
            None => conntrack::stale(&Plan::empty(plan.family), plan),
        };
        let stale: BTreeSet<_> = plans.iter().flat_map(stale).collect();
        if stale.is_empty() {
            return;
        }
        if let Err(error) = self.conntrack.forget(&stale).await {
            let why = coracle_api::error::chain(&error);
            tracing::warn!(why, "old UDP flows may live on");
        }
    }

    /// Mends what somebody broke. Says whether anything was.
    ///
    /// # Errors
    /// It could not be mended, or not be looked at.
    pub async fn mend(&mut self, told: &Told) -> Result<bool, ModeError> {
        let Some(mode) = self.mode else { return Ok(false) };
        let mut mended = false;
        for (family, backend) in &mut self.backends {
            let harm = match told {
                Told::Lost => Harm::Perhaps,
                Told::Changed(notices) => {
                    notices.iter().map(|notice| backend.harm(notice)).max().unwrap_or(Harm::None)
                }
            };
            let repaired = async {
                if harm == Harm::None || (harm == Harm::Perhaps && backend.is_intact().await?) {
                    return Ok(false);
                }
                backend.repair().await?;
                Ok(true)
            };
            let family = *family;
            mended |= repaired.await.map_err(|source| ModeError::Sync { mode, family, source })?;
            if *told == Told::Lost {
                backend.tend().await.map_err(|source| ModeError::Sync { mode, family, source })?;
            }
        }
        Ok(mended)
    }
}

/// Takes away everything that any mode ever wrote; the first failures of each are told.
///
/// # Errors
/// What could not be taken away, one a line.
pub async fn clean_up_all(make: &Make) -> Result<(), String> {
    let mut failures = Vec::new();
    for mode in Mode::ALL {
        for family in Family::ALL.into_iter().filter(|family| family.is_there()) {
            if let Err(error) = make(mode, family).clean_up().await {
                failures.push(format!("{mode}, {}: {}", family.name(), coracle_api::error::chain(&error)));
            }
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::CommandError;
    use crate::conntrack::Flow;
    use crate::notices::Notice;
    use async_trait::async_trait;
    use parking_lot::Mutex;
    use std::sync::Arc;

    /// A kernel: which rules of which modes are in force, and what it shall refuse.
    #[derive(Default)]
    struct Kernel {
        in_force: BTreeMap<(Mode, Family), usize>,
        refuses: BTreeSet<Mode>,
        stuck: bool,
        log: Vec<String>,
    }

    struct Fake {
        mode: Mode,
        family: Family,
        kernel: Arc<Mutex<Kernel>>,
        services: Option<usize>,
    }

    impl Fake {
        fn write(&self, services: usize) -> Result<(), BackendError> {
            let mut kernel = self.kernel.lock();
            if kernel.refuses.contains(&self.mode) {
                return Err(BackendError::Refused("no such mode".to_owned()));
            }
            kernel.log.push(format!("write {}", self.mode));
            kernel.in_force.insert((self.mode, self.family), services);
            Ok(())
        }
    }

    #[async_trait]
    impl Backend for Fake {
        async fn adopt(&mut self) -> Result<(), BackendError> {
            Ok(())
        }
        async fn sync(&mut self, plan: &Plan) -> Result<(), BackendError> {
            self.services = None;
            self.write(plan.services.len())?;
            self.services = Some(plan.services.len());
            Ok(())
        }
        fn harm(&self, notice: &Notice) -> Harm {
            match (notice.family == self.family, notice.table.as_str()) {
                (true, "ours") => Harm::Done,
                (true, "shared") => Harm::Perhaps,
                _ => Harm::None,
            }
        }
        async fn is_intact(&mut self) -> Result<bool, BackendError> {
            Ok(self.kernel.lock().in_force.get(&(self.mode, self.family)).copied() == self.services)
        }
        async fn repair(&mut self) -> Result<(), BackendError> {
            self.services.map_or(Ok(()), |services| self.write(services))
        }
        async fn clean_up(&mut self) -> Result<(), BackendError> {
            let mut kernel = self.kernel.lock();
            if kernel.stuck {
                return Err(BackendError::Refused("busy".to_owned()));
            }
            if kernel.in_force.remove(&(self.mode, self.family)).is_some() {
                kernel.log.push(format!("clean {}", self.mode));
            }
            Ok(())
        }
        fn rules(&self) -> Vec<(&'static str, usize)> {
            vec![("fake", self.services.unwrap_or(0))]
        }
    }

    struct NoConnections;

    #[async_trait]
    impl Conntrack for NoConnections {
        async fn forget(&mut self, _: &BTreeSet<Flow>) -> Result<(), CommandError> {
            Ok(())
        }
    }

    fn keeper() -> (ModeController, Arc<Mutex<Kernel>>) {
        let kernel = Arc::<Mutex<Kernel>>::default();
        let of_fakes = kernel.clone();
        let make = move |mode, family| -> Box<dyn Backend> {
            Box::new(Fake { mode, family, kernel: of_fakes.clone(), services: None })
        };
        (ModeController::new(Box::new(make), Box::new(NoConnections)), kernel)
    }

    fn plans() -> Vec<Plan> {
        Family::ALL.map(Plan::empty).to_vec()
    }

    fn in_force(kernel: &Mutex<Kernel>) -> Vec<Mode> {
        kernel.lock().in_force.keys().map(|(mode, _)| *mode).collect()
    }

    #[tokio::test]
    async fn a_change_of_mode_leaves_nothing_of_the_old_one_and_is_never_without_rules() {
        let (mut keeper, kernel) = keeper();
        kernel.lock().in_force.insert((Mode::Nftables, Family::V6), 9);
        keeper.put(Mode::Iptables, &plans()).await.expect("in force");
        assert_eq!(in_force(&kernel), [Mode::Iptables], "what an earlier run left is gone, IPv6 is not used");
        keeper.put(Mode::Nftables, &plans()).await.expect("in force");
        assert_eq!(in_force(&kernel), [Mode::Nftables]);
        let log = kernel.lock().log.join(", ");
        assert!(log.ends_with("write nftables, clean iptables"), "{log}");
    }

    #[tokio::test]
    async fn a_mode_that_cannot_begin_leaves_the_last_one_in_force() {
        let (mut keeper, kernel) = keeper();
        keeper.put(Mode::Iptables, &plans()).await.expect("in force");
        kernel.lock().refuses.insert(Mode::Nftables);
        let refused = keeper.put(Mode::Nftables, &plans()).await.expect_err("refused");
        assert!(matches!(refused, ModeError::Begin { mode: Mode::Nftables, .. }));
        assert_eq!((keeper.mode(), in_force(&kernel)), (Some(Mode::Iptables), vec![Mode::Iptables]));
        keeper.put(Mode::Iptables, &plans()).await.expect("goes on");
    }

    #[tokio::test]
    async fn leftovers_are_taken_away_once_that_works() {
        let (mut keeper, kernel) = keeper();
        keeper.put(Mode::Iptables, &plans()).await.expect("in force");
        kernel.lock().stuck = true;
        keeper.put(Mode::Nftables, &plans()).await.expect("in force");
        assert_eq!(in_force(&kernel), [Mode::Iptables, Mode::Nftables]);
        kernel.lock().stuck = false;
        keeper.put(Mode::Nftables, &plans()).await.expect("in force");
        assert_eq!(in_force(&kernel), [Mode::Nftables]);
    }

    #[tokio::test]
    async fn only_what_is_broken_is_mended() {
        let (mut keeper, kernel) = keeper();
        keeper.put(Mode::Iptables, &plans()).await.expect("in force");
        let told = |table: &str| {
            let table = table.to_owned();
            let notice = Notice { family: Family::V4, table, chain: None, removed: true };
            Told::Changed(BTreeSet::from([notice]))
        };
        assert!(!keeper.mend(&told("others")).await.expect("looked"));
        assert!(!keeper.mend(&told("shared")).await.expect("looked"), "it is intact");
        assert!(keeper.mend(&told("ours")).await.expect("mended"));
        kernel.lock().in_force.clear();
        assert!(keeper.mend(&Told::Lost).await.expect("mended"));
        assert_eq!(in_force(&kernel), [Mode::Iptables]);
    }
}
