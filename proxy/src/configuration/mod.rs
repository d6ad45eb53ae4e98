//! What the proxy shall do: KubeProxyConfiguration, checked. Every field works or is refused by its name, and all mistakes
//! are told at once.

pub mod document;
mod flags;
pub mod source;

pub use flags::Flags;

use crate::backend::Mode;
use crate::balancing;
use crate::family::Family;
use crate::plan::{DEFAULT_MARK, LocalDetector};
use document::{API_VERSION, Document, KIND, Period};
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Upstream's ports.
const HEALTH_PORT: u16 = 10_256;
const METRICS_PORT: u16 = 10_249;
/// Changes that come this close together are written at once, unless `minSyncPeriod` says otherwise.
pub const GATHER: Duration = Duration::from_millis(20);
/// How often a kernel that tells nothing of changed rules is looked at, unless `syncPeriod` says otherwise; upstream's.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// What the kernel takes for the balancer's timeouts: 31 bits of its ticks, a thousand a second.
const MOST_SECONDS: u64 = 2_147_483;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DetectLocal {
    ClusterCidr,
    NodeCidr,
    BridgeInterface(String),
    InterfaceNamePrefix(String),
}

/// Where node ports answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePortAddresses {
    All,
    /// The node's own address in each family.
    Primary,
    Networks(Vec<IpNet>),
}

/// Limits and times of the kernel's table of connections; `None`: upstream's default, where it is above what is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConntrackSettings {
    pub max_per_core: Option<u32>,
    pub min: Option<u32>,
    pub tcp_established_timeout: Option<Duration>,
    pub tcp_close_wait_timeout: Option<Duration>,
    pub tcp_be_liberal: bool,
    pub udp_timeout: Option<Duration>,
    pub udp_stream_timeout: Option<Duration>,
}

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    pub mode: Mode,
    pub cluster_cidrs: Vec<IpNet>,
    pub detect_local: DetectLocal,
    pub bind_address: Option<IpAddr>,
    pub health_address: SocketAddr,
    pub metrics_address: SocketAddr,
    pub bind_address_hard_fail: bool,
    pub masquerade_all: bool,
    pub mark: u32,
    pub localhost_node_ports: bool,
    /// How often everything is looked at, whatever the kernel tells.
    pub sync_period: Option<Duration>,
    pub min_sync_period: Duration,
    pub node_port_addresses: NodePortAddresses,
    pub conntrack: ConntrackSettings,
    pub ipvs: balancing::Settings,
}

/// What is wrong with a document, each by the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Mistakes(pub Vec<String>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

/// What a configuration is read with.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub flags: Flags,
    pub node_name: String,
    /// The addresses of pods, where the document names none.
    pub cluster_cidr: Option<String>,
}

impl Configuration {
    /// Reads a document; an empty one is the defaults. Flags win over it.
    ///
    /// # Errors
    /// Every mistake, and every field that cannot be done.
    pub fn read(text: &str, given: &Given) -> Result<Self, Mistakes> {
        let document: Document = match text.trim() {
            "" => Document::default(),
            text => serde_saphyr::from_str(text).map_err(|e| Mistakes(vec![one_line(&e)]))?,
        };
        let mut check = Check { mistakes: Vec::new(), given };
        let configuration = check.configuration(given.flags.over(document));
        if check.mistakes.is_empty() { Ok(configuration) } else { Err(Mistakes(check.mistakes)) }
    }

    /// How a family's traffic of pods is known. `node_cidrs`: the node's own ranges.
    pub fn local_detector(&self, family: Family, node_cidrs: &[String]) -> LocalDetector {
        let first = |cidr: Option<String>| cidr.map_or(LocalDetector::None, LocalDetector::Cidr);
        match &self.detect_local {
            DetectLocal::ClusterCidr => first(self.cluster_cidr(family)),
            DetectLocal::NodeCidr => {
                first(node_cidrs.iter().find(|cidr| Family::of_network(cidr) == family).cloned())
            }
            DetectLocal::BridgeInterface(name) => LocalDetector::BridgeInterface(name.clone()),
            DetectLocal::InterfaceNamePrefix(prefix) => LocalDetector::InterfaceNamePrefix(prefix.clone()),
        }
    }

    pub fn cluster_cidr(&self, family: Family) -> Option<String> {
        let of_family = self.cluster_cidrs.iter().find(|cidr| Family::of(cidr.addr()) == family);
        of_family.map(|cidr| cidr.trunc().to_string())
    }

    /// The networks whose addresses node ports answer on, of one family; empty: all.
    pub fn node_port_networks(&self, family: Family, node_ips: &[IpAddr]) -> Vec<String> {
        let of_family = |ip: &&IpAddr| Family::of(**ip) == family;
        match &self.node_port_addresses {
            NodePortAddresses::All => Vec::new(),
            NodePortAddresses::Primary => {
                let own = self.bind_address.iter().chain(node_ips).find(of_family);
                own.map(|ip| format!("{ip}/{}", family.bits())).into_iter().collect()
            }
            NodePortAddresses::Networks(networks) => {
                let of_family = networks.iter().filter(|net| Family::of(net.addr()) == family);
                of_family.map(|net| net.trunc().to_string()).collect()
            }
        }
    }
}

/// A parser's error without the picture of the place.
fn one_line(error: &serde_saphyr::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().trim().to_owned()
}

/// What modes have in common, each in its own section.
struct OfMode {
    masquerade_all: bool,
    mark: u32,
    sync_period: Option<Duration>,
    min_sync_period: Duration,
}

struct Check<'a> {
    mistakes: Vec<String>,
    given: &'a Given,
}

impl Check<'_> {
    fn mistake(&mut self, field: &str, why: impl fmt::Display) {
        self.mistakes.push(format!("{field}: {why}"));
    }

    /// Refuses a field that is set to something.
    fn refuse(&mut self, is_set: bool, field: &str, why: &str) {
        if is_set {
            self.mistake(field, why);
        }
    }

    fn configuration(&mut self, document: Document) -> Configuration {
        self.refuse_what_is_not_done(&document);
        let mode = self.mode(document.mode.as_deref());
        let of_mode = self.of_mode(mode, &document);
        let cluster_cidrs = self.cluster_cidrs(document.cluster_cidr.as_deref());
        Configuration {
            mode,
            detect_local: self.detect_local(document.detect_local_mode.as_deref(), document.detect_local),
            cluster_cidrs,
            bind_address: self.address("bindAddress", document.bind_address.as_deref()),
            health_address: self.socket(
                "healthzBindAddress",
                document.healthz_bind_address,
                Ipv4Addr::UNSPECIFIED,
                HEALTH_PORT,
            ),
            metrics_address: self.socket(
                "metricsBindAddress",
                document.metrics_bind_address,
                Ipv4Addr::LOCALHOST,
                METRICS_PORT,
            ),
            bind_address_hard_fail: document.bind_address_hard_fail.unwrap_or(false),
            masquerade_all: of_mode.masquerade_all,
            mark: of_mode.mark,
            localhost_node_ports: document.iptables.and_then(|i| i.localhost_node_ports).unwrap_or(true),
            sync_period: of_mode.sync_period,
            min_sync_period: of_mode.min_sync_period,
            node_port_addresses: self.node_port_addresses(document.node_port_addresses.unwrap_or_default()),
            conntrack: conntrack(document.conntrack.unwrap_or_default()),
            ipvs: self.ipvs(document.ipvs.unwrap_or_default()),
        }
    }

    /// What each mode has in a section of its own. The userspace mode goes by that of iptables, as upstream's did.
    fn of_mode(&mut self, mode: Mode, document: &Document) -> OfMode {
        let iptables = document.iptables.clone().unwrap_or_default();
        let nftables = document.nftables.clone().unwrap_or_default();
        let of_ipvs = document.ipvs.clone().unwrap_or_default();
        let of_mode = match mode {
            Mode::Nftables => (
                "nftables",
                nftables.masquerade_bit,
                nftables.masquerade_all,
                nftables.sync_period,
                nftables.min_sync_period,
            ),
            // Masquerading is told under iptables for this mode too, as upstream has it.
            Mode::Ipvs => (
                "ipvs",
                iptables.masquerade_bit,
                iptables.masquerade_all,
                of_ipvs.sync_period,
                of_ipvs.min_sync_period,
            ),
            _ => (
                "iptables",
                iptables.masquerade_bit,
                iptables.masquerade_all,
                iptables.sync_period,
                iptables.min_sync_period,
            ),
        };
        let (section, bit, masquerade_all, sync_period, min_sync_period) = of_mode;
        // The other section is checked all the same, so that a later change of mode finds it in order.
        for (section, bit) in [("iptables", iptables.masquerade_bit), ("nftables", nftables.masquerade_bit)] {
            self.refuse(
                bit.is_some_and(|bit| !(0..32).contains(&bit)),
                &format!("{section}.masqueradeBit"),
                "must be from 0 to 31",
            );
        }
        let zero_is_none = |period: Option<Period>| period.map(|p| p.0).filter(|p| !p.is_zero());
        let sync_period = zero_is_none(sync_period);
        let min_sync_period = zero_is_none(min_sync_period).unwrap_or(GATHER);
        if sync_period.is_some_and(|period| period < min_sync_period) {
            self.mistake(&format!("{section}.minSyncPeriod"), "must not be above syncPeriod");
        }
        OfMode {
            masquerade_all: masquerade_all.unwrap_or(false),
            mark: bit.and_then(|bit| 1_u32.checked_shl(u32::try_from(bit).ok()?)).unwrap_or(DEFAULT_MARK),
            sync_period,
            min_sync_period,
        }
    }

    fn refuse_what_is_not_done(&mut self, document: &Document) {
        let set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let other = document.api_version.as_deref().is_some_and(|version| version != API_VERSION);
        self.refuse(other, "apiVersion", &format!("must be {API_VERSION}"));
        self.refuse(
            document.kind.as_deref().is_some_and(|kind| kind != KIND),
            "kind",
            &format!("must be {KIND}"),
        );
        for gate in document.feature_gates.iter().flatten().map(|(gate, _)| gate.clone()).collect::<Vec<_>>()
        {
            self.mistake(&format!("featureGates.{gate}"), "this proxy has no feature gates");
        }
        self.refuse_connection(document);
        self.refuse_logging(document);
        let host = document.hostname_override.as_deref().unwrap_or_default();
        let named = !host.is_empty() && host != self.given.node_name;
        self.refuse(
            named,
            "hostnameOverride",
            "a running proxy keeps its node; --node-name chooses it at the start",
        );
        self.refuse(document.enable_profiling == Some(true), "enableProfiling", "this proxy has no profiles");
        self.refuse(
            set(&document.show_hidden_metrics_for_version),
            "showHiddenMetricsForVersion",
            "no metric is hidden",
        );
        self.refuse(
            document.oom_score_adj.is_some(),
            "oomScoreAdj",
            "it is for whoever starts the process to set",
        );
        self.refuse(set(&document.port_range), "portRange", "upstream's proxy has not used it since 1.26");
        let period = document.config_sync_period.map(|p| p.0);
        let usual = period.is_none_or(|p| p.is_zero() || p == Duration::from_secs(900));
        self.refuse(!usual, "configSyncPeriod", "Services are watched, and never read anew by the clock");
        let windows = document.winkernel.as_ref().is_some_and(|w| {
            set(&w.network_name)
                || set(&w.source_vip)
                || set(&w.root_hns_endpoint_name)
                || w.enable_dsr == Some(true)
                || w.forward_health_check_vip == Some(true)
        });
        self.refuse(windows, "winkernel", "this is no Windows");
        self.refuse(
            document.windows_run_as_service == Some(true),
            "windowsRunAsService",
            "this is no Windows",
        );
    }

    fn refuse_connection(&mut self, document: &Document) {
        let connection = document.client_connection.clone().unwrap_or_default();
        let set = |text: Option<String>| text.is_some_and(|text| !text.is_empty());
        let fields = [
            (set(connection.kubeconfig), "kubeconfig"),
            (set(connection.accept_content_types), "acceptContentTypes"),
            (set(connection.content_type), "contentType"),
            (connection.qps.is_some_and(|qps| qps != 0.0), "qps"),
            (connection.burst.is_some_and(|burst| burst != 0), "burst"),
        ];
        for (is_set, field) in fields {
            let why = "the connection is made before this is read; --kubeconfig chooses it";
            self.refuse(is_set, &format!("clientConnection.{field}"), why);
        }
    }

    fn refuse_logging(&mut self, document: &Document) {
        let logging = document.logging.clone().unwrap_or_default();
        let format = logging.format.is_some_and(|format| !matches!(format.as_str(), "" | "text"));
        self.refuse(format, "logging.format", "only text is written");
        let verbose = logging.verbosity.is_some_and(|level| level != 0);
        self.refuse(verbose, "logging.verbosity", "the flag -v of the process chooses it");
        self.refuse(
            logging.vmodule.is_some_and(|v| !v.is_empty()),
            "logging.vmodule",
            "there is one level for all",
        );
    }

    fn mode(&mut self, mode: Option<&str>) -> Mode {
        match mode.unwrap_or_default() {
            "" | "iptables" => return Mode::Iptables,
            "nftables" => return Mode::Nftables,
            "userspace" => return Mode::Userspace,
            "ipvs" => return Mode::Ipvs,
            "kernelspace" => self.mistake("mode", "\"kernelspace\" is for Windows"),
            other => {
                self.mistake("mode", format!("\"{other}\" is none of iptables, nftables, ipvs, userspace"))
            }
        }
        Mode::Iptables
    }

    fn ipvs(&mut self, document: document::Ipvs) -> balancing::Settings {
        let scheduler = document.scheduler.filter(|name| !name.is_empty()).unwrap_or_else(|| "rr".to_owned());
        if !balancing::SCHEDULERS.contains(&scheduler.as_str()) {
            let known = balancing::SCHEDULERS.join(", ");
            self.mistake("ipvs.scheduler", format!("\"{scheduler}\" is none of {known}"));
        }
        let mut exclude_cidrs = Vec::new();
        for (at, text) in document.exclude_cidrs.unwrap_or_default().iter().enumerate() {
            match text.parse() {
                Ok(cidr) => exclude_cidrs.push(cidr),
                Err(_) => self.mistake(&format!("ipvs.excludeCIDRs[{at}]"), format!("\"{text}\" is no CIDR")),
            }
        }
        let timeouts = [
            ("tcpTimeout", document.tcp_timeout),
            ("tcpFinTimeout", document.tcp_fin_timeout),
            ("udpTimeout", document.udp_timeout),
        ];
        let timeouts = timeouts.map(|(name, period)| {
            let time = period.map_or(Duration::ZERO, |period| period.0);
            let fits = time.is_zero() || (1..=MOST_SECONDS).contains(&time.as_secs());
            self.refuse(!fits, &format!("ipvs.{name}"), &format!("must be from 1s to {MOST_SECONDS}s"));
            time
        });
        balancing::Settings {
            scheduler,
            exclude_cidrs,
            strict_arp: document.strict_arp.unwrap_or(false),
            timeouts,
        }
    }

    /// One network a family, comma between.
    fn cluster_cidrs(&mut self, text: Option<&str>) -> Vec<IpNet> {
        let text =
            text.filter(|text| !text.is_empty()).or(self.given.cluster_cidr.as_deref()).unwrap_or_default();
        let mut cidrs = Vec::<IpNet>::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.parse::<IpNet>() {
                Ok(cidr) if cidrs.iter().any(|other| Family::of(other.addr()) == Family::of(cidr.addr())) => {
                    self.mistake("clusterCIDR", format!("\"{text}\" has two networks of one family"));
                }
                Ok(cidr) => cidrs.push(cidr),
                Err(_) => self.mistake("clusterCIDR", format!("\"{part}\" is no CIDR such as 10.42.0.0/16")),
            }
        }
        cidrs
    }

    fn detect_local(&mut self, mode: Option<&str>, names: Option<document::DetectLocal>) -> DetectLocal {
        let names = names.unwrap_or_default();
        let mut name = |name: Option<String>, field: &str| {
            let name = name.unwrap_or_default();
            if !is_interface(&name) {
                self.mistake(field, format!("\"{name}\" is no name of an interface"));
            }
            name
        };
        match mode.unwrap_or_default() {
            "" | "ClusterCIDR" => DetectLocal::ClusterCidr,
            "NodeCIDR" => DetectLocal::NodeCidr,
            "BridgeInterface" => {
                DetectLocal::BridgeInterface(name(names.bridge_interface, "detectLocal.bridgeInterface"))
            }
            "InterfaceNamePrefix" => DetectLocal::InterfaceNamePrefix(name(
                names.interface_name_prefix,
                "detectLocal.interfaceNamePrefix",
            )),
            other => {
                let known = "ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix";
                self.mistake("detectLocalMode", format!("\"{other}\" is none of {known}"));
                DetectLocal::ClusterCidr
            }
        }
    }

    fn node_port_addresses(&mut self, addresses: Vec<String>) -> NodePortAddresses {
        if addresses == ["primary"] {
            return NodePortAddresses::Primary;
        }
        let mut networks = Vec::new();
        for (at, text) in addresses.iter().enumerate() {
            match text.parse() {
                Ok(network) => networks.push(network),
                Err(_) => self.mistake(
                    &format!("nodePortAddresses[{at}]"),
                    format!("\"{text}\" is no CIDR, nor the one word \"primary\""),
                ),
            }
        }
        if networks.is_empty() { NodePortAddresses::All } else { NodePortAddresses::Networks(networks) }
    }

    fn address(&mut self, field: &str, text: Option<&str>) -> Option<IpAddr> {
        let text = text.filter(|text| !text.is_empty())?;
        let read = text.parse::<IpAddr>();
        if read.is_err() {
            self.mistake(field, format!("\"{text}\" is no address"));
        }
        read.ok().filter(|ip| !ip.is_unspecified())
    }

    /// An address, with or without a port.
    fn socket(&mut self, field: &str, text: Option<String>, default: Ipv4Addr, port: u16) -> SocketAddr {
        let text = text.unwrap_or_default();
        if text.is_empty() {
            return SocketAddr::new(default.into(), port);
        }
        let bare = text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, port));
        bare.or_else(|| text.parse().ok()).unwrap_or_else(|| {
            self.mistake(field, format!("\"{text}\" is no address with a port such as 0.0.0.0:{port}"));
            SocketAddr::new(default.into(), port)
        })
    }
}

/// As the kernel allows names (IFNAMSIZ), without what rules would read as their own words.
fn is_interface(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    (1..16).contains(&name.len()) && name.chars().all(is_plain)
}

fn conntrack(document: document::Conntrack) -> ConntrackSettings {
    let time = |period: Option<Period>| period.map(|p| p.0);
    ConntrackSettings {
        max_per_core: document.max_per_core,
        min: document.min,
        tcp_established_timeout: time(document.tcp_established_timeout),
        tcp_close_wait_timeout: time(document.tcp_close_wait_timeout),
        tcp_be_liberal: document.tcp_be_liberal.unwrap_or(false),
        udp_timeout: time(document.udp_timeout),
        udp_stream_timeout: time(document.udp_stream_timeout),
    }
}

#[cfg(test)]
mod tests;
