//! What the server does beside the cluster's own names: a Corefile as CoreDNS has it, of which every part works or is refused
//! by its name.

pub mod corefile;
mod plugins;
pub mod source;

use corefile::ServerBlock;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// What is not taken in, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Of the Corefile, from 1.
    pub line: usize,
    pub why: String,
}

impl Mistake {
    pub fn new(line: usize, why: impl Into<String>) -> Self {
        Self { line, why: why.into() }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

/// Whether names of pods by their addresses are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodNames {
    Disabled,
    /// Every address that has the form of one is taken for a pod's.
    Insecure,
}

/// `kubernetes`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Seconds that answers may be kept.
    pub ttl: u32,
    pub pods: PodNames,
    /// Whether addresses are turned into names.
    pub reverse: bool,
    /// Names below these that the cluster does not know are asked of the plugins behind.
    pub fallthrough: Vec<String>,
}

/// `hosts`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// By name, in lower case without the final dot.
    pub addresses: BTreeMap<String, Vec<IpAddr>>,
    pub ttl: u32,
    /// `None`: names that are not here are not asked of anybody.
    pub fallthrough: Option<Vec<String>>,
    pub reverse: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upstream {
    ResolvConf(PathBuf),
    Address(SocketAddr),
}

/// In which order the servers of `forward` are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    #[default]
    Random,
    RoundRobin,
    Sequential,
}

/// `forward`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Names that are asked for, by a suffix; empty for all.
    pub from: String,
    pub upstreams: Vec<Upstream>,
    /// Suffixes of names that are not.
    pub except: Vec<String>,
    pub policy: Policy,
    pub force_tcp: bool,
    /// Questions at once; `None` for no limit but the server's own.
    pub max_concurrent: Option<usize>,
}

/// What a cache keeps of one kind of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Answers.
    pub capacity: usize,
    pub longest: Duration,
    pub shortest: Duration,
}

/// When an answer that is too old is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refresh {
    /// At once; it is asked for anew behind that.
    Immediate,
    /// Where nobody answers in its stead.
    Verify,
}

/// `cache`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    pub success: Option<Kept>,
    pub denial: Option<Kept>,
    pub failure: Duration,
    /// How old answers may be that are given beyond their time.
    pub stale: Option<(Duration, Refresh)>,
}

/// What is done for the names below one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// In lower case, without the final dot; empty for all names.
    pub zone: String,
    pub cluster: Option<Cluster>,
    pub hosts: Option<Hosts>,
    pub forward: Option<Forward>,
    pub cache: Option<CacheSettings>,
    /// Failures are logged.
    pub errors: bool,
    /// Every question is logged.
    pub log: bool,
    /// The order of a Service's addresses changes from answer to answer.
    pub rotate: bool,
}

/// A whole Corefile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    pub views: Vec<View>,
    /// Where metrics are served: the port at the server's own address, or a whole one.
    pub metrics: Option<Listen>,
    pub health: Option<Listen>,
    pub ready: Option<Listen>,
}

/// An address, or only a port where the address is the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    pub ip: Option<IpAddr>,
    pub port: u16,
}

/// What the cluster says, whatever the Corefile does.
#[derive(Clone, Debug)]
pub struct Given {
    /// `cluster.local`
    pub domain: String,
}

impl Configuration {
    /// # Errors
    /// All that is not taken in, in the order of its lines.
    pub fn read(text: &str, given: &Given) -> Result<Self, Vec<Mistake>> {
        let blocks = corefile::parse(text).map_err(|mistake| vec![mistake])?;
        let (mut configuration, mut mistakes) = (Self::default(), Vec::new());
        for block in &blocks {
            configuration.take_in(block, given, &mut mistakes);
        }
        if blocks.is_empty() {
            mistakes.push(Mistake::new(1, "there is no server block"));
        }
        mistakes.sort_by_key(|mistake| mistake.line);
        if mistakes.is_empty() { Ok(configuration) } else { Err(mistakes) }
    }

    fn take_in(&mut self, block: &ServerBlock, given: &Given, mistakes: &mut Vec<Mistake>) {
        let mut view = View::default();
        for directive in &block.directives {
            if let Err(more) = plugins::apply(self, &mut view, directive, given) {
                mistakes.extend(more);
            }
        }
        for key in &block.keys {
            match zones_of_key(key) {
                Ok(zones) => {
                    for zone in zones {
                        if self.views.iter().any(|view| view.zone == zone) {
                            mistakes
                                .push(Mistake::new(block.line, format!("{key}: there are two blocks of it")));
                        }
                        self.views.push(View { zone, ..view.clone() });
                    }
                }
                Err(why) => mistakes.push(Mistake::new(block.line, format!("{key}: {why}"))),
            }
        }
    }
}

/// A name as it is compared: lower case, without the final dot. The root is empty.
pub fn normal(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Whether `name` is `zone` or below it; both [`normal`].
pub fn is_below(name: &str, zone: &str) -> bool {
    zone.is_empty() || name.strip_suffix(zone).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The zones that a key names: a name, or the addresses of a network, with the port of DNS or none.
fn zones_of_key(key: &str) -> Result<Vec<String>, String> {
    let key = match key.split_once("://") {
        None => key,
        Some(("dns", rest)) => rest,
        Some((scheme, _)) => return Err(format!("the server speaks DNS only, not {scheme}")),
    };
    let (name, port) = match key.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => (name, port),
        _ => (key, "53"),
    };
    if port != "53" {
        return Err("the server has one port, 53".to_owned());
    }
    zones_of(name)
}

/// The zones that a word names.
pub fn zones_of(name: &str) -> Result<Vec<String>, String> {
    match name.parse::<IpNet>() {
        Ok(network) => Ok(vec![reverse_zone(&network).ok_or("a prefix of whole labels is needed")?]),
        Err(_) if name.contains(['/', '*', '{', '}']) => Err("is no name".to_owned()),
        Err(_) => Ok(vec![normal(name)]),
    }
}

/// `10.in-addr.arpa` of `10.0.0.0/8`.
fn reverse_zone(network: &IpNet) -> Option<String> {
    let length = usize::from(network.prefix_len());
    let (labels, suffix): (Vec<String>, _) = match network.network() {
        IpAddr::V4(ip) if length.is_multiple_of(8) => {
            (ip.octets()[..length / 8].iter().map(u8::to_string).collect(), "in-addr.arpa")
        }
        IpAddr::V6(ip) if length.is_multiple_of(4) => {
            let nibbles = ip.octets().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
            (nibbles.take(length / 4).map(|nibble| format!("{nibble:x}")).collect(), "ip6.arpa")
        }
        _ => return None,
    };
    let labels = labels.into_iter().rev().chain([suffix.to_owned()]);
    Some(labels.collect::<Vec<_>>().join("."))
}

#[cfg(test)]
mod tests;
