//! Follows Services, endpoints, the node and the configuration, and keeps what they ask for in force.

mod condition;
mod ports;
mod sync;
mod telling;
mod unheld;

use crate::backend::{Backend, Mode};
use crate::checks::Checks;
use crate::command::Own;
use crate::configuration::source::{self, Said, Source};
use crate::configuration::{CHECK_INTERVAL, Configuration, Flags, Given};
use crate::conntrack::Program;
use crate::health::LastSync;
use crate::iptables::Iptables;
use crate::ipvs::Ipvs;
use crate::kernel::Kernel;
use crate::metrics::{Metric, Metrics, Shown};
use crate::mode_controller::{self, Make, ModeController, ModeError};
use crate::model;
use crate::nftables::Nftables;
use crate::notices::{self, Told};
use crate::plan::ServicePlanner;
use crate::userspace::{Relays, Userspace};
use condition::{Condition, Refusal};
use coracle_api::error::chain;
use coracle_client::beat::{self, Patience};
use coracle_client::{Context, Informer, ObjectKey};
use coracle_listen::zpages;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use parking_lot::Mutex;
use ports::Ports;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use telling::{Teller, Triggers};
use tokio::sync::{Notify, mpsc, watch};

/// Pauses after a failure, doubled each time: the first is short because another writer may have held the lock.
const FIRST_RETRY_INTERVAL: Duration = Duration::from_millis(500);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Default)]
pub struct Config {
    pub node_name: String,
    /// This machine's own addresses, for `nodePortAddresses: [primary]`.
    pub node_ips: Vec<IpAddr>,
    /// The addresses of pods, where the configuration does not name them.
    pub cluster_cidr: Option<String>,
    /// Whether traffic of pods to anybody but pods leaves under the node's address: where the pod network's own plugin
    /// does not see to it. One rule for all, where the plugin would run iptables several times at each pod's start.
    pub masquerade_pods: bool,
    /// Whether nobody keeps NetworkPolicies here: what an earlier process wrote for them goes, because it would keep
    /// traffic from pods that it does not know.
    pub forget_policies: bool,
    pub source: Source,
    pub flags: Flags,
    /// Who writes the node's condition, where somebody may.
    pub as_node: AsNode,
    /// What the keeping of NetworkPolicies counts, for the page that shows the proxy's own.
    pub policy_metrics: Arc<crate::policy::metrics::Metrics>,
    /// What `/statusz` and `/flagz` tell.
    pub program: Arc<zpages::Program>,
}

/// A client that acts as the node.
#[derive(Clone, Default)]
pub struct AsNode(pub Option<kube::Client>);

impl std::fmt::Debug for AsNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AsNode").field(&self.0.is_some()).finish()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what} port {address}")]
    Bind {
        what: &'static str,
        address: std::net::SocketAddr,
        #[source]
        source: std::io::Error,
    },
}

/// The real backends.
fn real(own: Own, relays: Relays) -> Make {
    Box::new(move |mode, family| -> Box<dyn Backend> {
        match mode {
            Mode::Iptables => Box::new(Iptables::new(family, own.clone())),
            Mode::Nftables => Box::new(Nftables::new(family, own.clone())),
            Mode::Ipvs => Box::new(Ipvs::new(family, own.clone())),
            Mode::Userspace => Box::new(Userspace::new(family, own.clone(), relays.clone())),
        }
    })
}

/// Takes away everything that the proxy ever wrote into the kernel, in whatever mode; for `coracle reset`.
///
/// # Errors
/// What could not be taken away, one a line.
pub async fn clean_up() -> Result<(), String> {
    mode_controller::clean_up_all(&real(Own::default(), Relays::default())).await
}

/// Proxies until the context is stopped. The rules stay when it ends, so that traffic goes on over a restart.
///
/// # Errors
/// A port cannot be had, and the configuration (`bindAddressHardFail`) wants it to be the end.
pub async fn run(context: Context, config: Config) -> Result<(), Error> {
    let (services, slices) = (context.informers.of::<Service>(), context.informers.of::<EndpointSlice>());
    let stop = context.stop.clone();
    let ready = async {
        tokio::join!(services.synced(), slices.synced());
        source::follow(&context, config.source.clone(), stop.clone()).await
    };
    let Some(said) = stop.run_until_cancelled(ready).await else { return Ok(()) };
    if config.forget_policies
        && let Err(error) = crate::policy::clean_up().await
    {
        tracing::warn!(why = chain(&error), "the table of NetworkPolicies of an earlier process stays");
    }
    let node_name = config.node_name.clone();
    let proxy = Proxy::new(&context, config, said);
    let mode = proxy.mode.subscribe();
    let work = async {
        tokio::select! {
            ended = Box::pin(proxy.follow()) => ended,
            // Its sender is the proxy's.
            () = async { unheld::run(&context, &node_name, mode).await; std::future::pending().await } => Ok(()),
        }
    };
    stop.run_until_cancelled(work).await.unwrap_or(Ok(()))
}

struct Proxy {
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    nodes: Informer<Node>,
    ranges: Informer<ServiceCIDR>,
    config: Config,
    given: Given,
    said: watch::Receiver<Said>,
    /// The one that is wanted, or the last good one.
    configuration: Option<Configuration>,
    /// The one that was last in force.
    in_force: Option<Configuration>,
    /// Whether another one was asked for than is in force.
    is_bad: bool,
    teller: Teller,
    condition: Condition,
    notices: Option<mpsc::Receiver<Told>>,
    keeper: ModeController,
    planner: ServicePlanner,
    changed: Changed,
    kernel: Kernel,
    checks: Checks,
    last: LastSync,
    ports: Ports,
    mode: watch::Sender<&'static str>,
    metrics: Arc<Metrics>,
    triggers: Triggers,
}

/// The Services that changed, or whose slices did, since they were planned last. Cloning shares it.
#[derive(Clone, Default)]
struct Changed(Arc<Mutex<BTreeSet<ObjectKey>>>);

impl Changed {
    fn note(&self, keys: impl IntoIterator<Item = ObjectKey>) {
        self.0.lock().extend(keys);
    }

    fn take(&self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// What woke the proxy.
enum Woken {
    Changed,
    Configured,
    Told(Told),
    Time,
}

impl Proxy {
    fn new(context: &Context, config: Config, said: watch::Receiver<Said>) -> Self {
        let (own, relays) = (Own::default(), Relays::default());
        let metrics = Arc::<Metrics>::default();
        let (mode, shown_mode) = watch::channel("");
        let notices = notices::listen(own.clone());
        let notices = notices.inspect_err(|error| {
            tracing::info!(%error, "the kernel tells nothing of changed packet rules, looking at them by the clock");
        });
        let shown = Shown {
            metrics: metrics.clone(),
            policies: config.policy_metrics.clone(),
            mode: shown_mode,
            relays: relays.clone(),
            program: config.program.clone(),
        };
        Self {
            services: context.informers.of(),
            slices: context.informers.of(),
            nodes: context.informers.of(),
            ranges: context.informers.of(),
            given: Given {
                flags: config.flags.clone(),
                node_name: config.node_name.clone(),
                cluster_cidr: config.cluster_cidr.clone(),
            },
            teller: Teller::new(context, &config.node_name),
            condition: Condition::of(config.as_node.0.clone(), &context.informers.of(), &config.node_name),
            config,
            said,
            configuration: None,
            in_force: None,
            is_bad: false,
            notices: notices.ok(),
            keeper: ModeController::new(real(own.clone(), relays), Box::new(Program(own))),
            planner: ServicePlanner::default(),
            changed: Changed::default(),
            kernel: Kernel::default(),
            checks: Checks::default(),
            last: LastSync::default(),
            ports: Ports::new(shown),
            mode,
            metrics,
            triggers: Triggers::default(),
        }
    }

    async fn follow(mut self) -> Result<(), Error> {
        let wake = self.listen();
        let mut retry = FIRST_RETRY_INTERVAL;
        let mut due = self.configure().await?.then_some(Duration::ZERO);
        loop {
            let woken = match due {
                Some(pause) => {
                    tokio::time::sleep(pause).await;
                    Woken::Changed
                }
                None => self.wait(&wake).await,
            };
            due = match beat::working(Patience::Long, self.handle(woken)).await? {
                Ok(()) => {
                    retry = FIRST_RETRY_INTERVAL;
                    None
                }
                Err(error) => {
                    self.last.failed();
                    tracing::warn!(
                        why = chain(&error),
                        pause_ms = retry.as_millis(),
                        "Services are not brought into force, trying again"
                    );
                    let pause = retry;
                    retry = (retry * 2).min(MAX_RETRY_INTERVAL);
                    Some(pause)
                }
            };
        }
    }

    /// Wakes when anything changes that a plan is made of.
    fn listen(&self) -> Arc<Notify> {
        let notify = Arc::new(Notify::new());
        let (wake, metrics, changed) = (notify.clone(), self.metrics.clone(), self.changed.clone());
        self.services.on_change(move |delta| {
            metrics.add(Metric::ServiceChanges, &[], 1);
            changed.note(delta.object().map(|service| ObjectKey::of(service.as_ref())));
            wake.notify_one();
        });
        let (wake, metrics, changed) = (notify.clone(), self.metrics.clone(), self.changed.clone());
        let triggers = self.triggers.clone();
        self.slices.on_change(move |delta| {
            metrics.add(Metric::EndpointChanges, &[], 1);
            let both = [&delta.old, &delta.new].into_iter().flatten();
            changed.note(both.filter_map(|slice| model::service_of(slice)));
            triggers.note(delta);
            wake.notify_one();
        });
        let wake = notify.clone();
        self.ranges.on_change(move |_| wake.notify_one());
        let (wake, name) = (notify.clone(), self.config.node_name.clone());
        self.nodes.on_change(move |delta| {
            let of_old = delta.old.as_ref().map(|node| (zone(node).to_owned(), pod_cidrs(node)));
            let of_new = delta.new.as_ref().map(|node| (zone(node).to_owned(), pod_cidrs(node)));
            let own = delta.object().is_some_and(|node| node.metadata.name.as_ref() == Some(&name));
            if own && of_old != of_new {
                wake.notify_one();
            }
        });
        notify
    }

    async fn wait(&mut self, changed: &Notify) -> Woken {
        let asked = self.configuration.as_ref().and_then(|c| c.sync_period);
        let needed = (self.notices.is_none() || self.keeper.needs_looks()).then_some(CHECK_INTERVAL);
        let look = async {
            match asked.or(needed) {
                Some(period) => tokio::time::sleep(period).await,
                None => std::future::pending().await,
            }
        };
        let notices = &mut self.notices;
        let told = async {
            match notices {
                Some(notices) => notices.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed.notified() => Woken::Changed,
            Ok(()) = self.said.changed() => Woken::Configured,
            told = told => match told {
                Some(told) => Woken::Told(told),
                None => {
                    self.notices = None;
                    Woken::Time
                }
            },
            () = look => Woken::Time,
        }
    }

    async fn handle(&mut self, woken: Woken) -> Result<Result<(), ModeError>, Error> {
        match woken {
            Woken::Configured => {
                if self.configure().await? {
                    return Ok(self.sync().await);
                }
                Ok(Ok(()))
            }
            Woken::Changed => {
                let gather = self.configuration.as_ref().map_or(Duration::ZERO, |c| c.min_sync_period);
                tokio::time::sleep(gather).await;
                Ok(self.sync().await)
            }
            Woken::Told(told) => Ok(self.mend(told).await),
            Woken::Time => Ok(self.mend(Told::Lost).await),
        }
    }

    /// Takes in what the configuration says. Whether there is another one than before; one that cannot be read is told
    /// of, and the last good one stays.
    async fn configure(&mut self) -> Result<bool, Error> {
        let said = self.said.borrow_and_update().clone();
        self.given.cluster_cidr = self.config.cluster_cidr.clone().or_else(|| said.cluster_cidr());
        let read = match said.unreadable.clone() {
            Some(why) => Err(why),
            None => Configuration::read(&said.text, &self.given).map_err(|mistakes| mistakes.to_string()),
        };
        let configuration = match read {
            Ok(configuration) => {
                self.accepted();
                configuration
            }
            Err(why) => {
                self.refused("InvalidConfiguration", &why, &said);
                match self.configuration {
                    Some(_) => return Ok(false),
                    // Services must work whatever somebody wrote: by the flags, or at least as a cluster is made.
                    None => self.fallback(),
                }
            }
        };
        if self.configuration.as_ref() == Some(&configuration) {
            return Ok(false);
        }
        self.ports.open(&configuration, &self.last).await?;
        self.kernel.set_conntrack(&configuration.conntrack).await;
        self.configuration = Some(configuration);
        Ok(true)
    }

    fn fallback(&self) -> Configuration {
        Configuration::read("", &self.given)
            .or_else(|_| Configuration::read("", &Given { flags: Flags::default(), ..self.given.clone() }))
            .or_else(|_| Configuration::read("", &Given::default()))
            .unwrap_or_else(|_| unreachable!("an empty document is the defaults"))
    }

    fn refused(&mut self, reason: &'static str, why: &str, said: &Said) {
        self.is_bad = true;
        self.metrics.add(Metric::Refusals, &[], 1);
        tracing::warn!(why, "the proxy's configuration is not taken in, the last good one stays");
        self.last.refused(Some(why.to_owned()));
        self.teller.warn(reason, why, said);
        self.condition.say(&Refusal::Of(reason, why.to_owned()));
    }

    fn accepted(&mut self) {
        self.condition.say(&Refusal::None);
        if std::mem::take(&mut self.is_bad) {
            self.last.refused(None);
        }
    }
}

fn zone(node: &Node) -> &str {
    let labels = node.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get("topology.kubernetes.io/zone")).map_or("", String::as_str)
}

fn pod_cidrs(node: &Node) -> Vec<String> {
    node.spec.as_ref().and_then(|spec| spec.pod_cidrs.clone()).unwrap_or_default()
}
