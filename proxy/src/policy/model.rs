//! What all kinds of policies are made of: peers, ports, and the administrators' policies in one form, whichever API they
//! were written for.

use coracle_client::ObjectKey;
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};

/// Where an administrator's policy stands: before NetworkPolicies, or behind them for pods that none selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    Admin,
    Baseline,
}

/// What becomes of a packet that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It passes this direction, whatever comes behind. `Accept` in newer versions.
    Allow,
    Deny,
    /// The next tier decides.
    Pass,
}

/// The three kinds of administrators' policies, all of the group `policy.networking.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdminKind {
    Admin,
    Baseline,
    Cluster,
}

pub const GROUP: &str = "policy.networking.k8s.io";

impl AdminKind {
    pub const ALL: [Self; 3] = [Self::Admin, Self::Baseline, Self::Cluster];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Admin => "AdminNetworkPolicy",
            Self::Baseline => "BaselineAdminNetworkPolicy",
            Self::Cluster => "ClusterNetworkPolicy",
        }
    }

    pub const fn plural(self) -> &'static str {
        match self {
            Self::Admin => "adminnetworkpolicies",
            Self::Baseline => "baselineadminnetworkpolicies",
            Self::Cluster => "clusternetworkpolicies",
        }
    }

    /// The versions that are understood, the best first.
    pub const fn versions(self) -> &'static [&'static str] {
        match self {
            Self::Admin | Self::Baseline => &["v1alpha1"],
            Self::Cluster => &["v1beta1", "v1alpha2"],
        }
    }
}

/// An administrator's policy as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct AdminPolicy {
    pub kind: AdminKind,
    /// `policy.networking.k8s.io/v1alpha1`
    pub api_version: String,
    pub key: ObjectKey,
    pub uid: String,
    pub generation: i64,
    pub tier: Tier,
    /// 0 to 1000, the lowest first. Behind all of them is what has none.
    pub priority: i32,
    pub subject: Chosen,
    pub ingress: Vec<AdminRule>,
    pub egress: Vec<AdminRule>,
    /// What is not done as it is written, in words for people.
    pub unsupported: Vec<String>,
    /// The condition `Accepted` as its status has it.
    pub accepted: Option<Condition>,
}

/// Pods of namespaces.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    pub namespaces: LabelSelector,
    /// `None`: all.
    pub pods: Option<LabelSelector>,
}

/// Peers and ports are alternatives among themselves; without ports, all traffic is meant.
#[derive(Clone, Debug, PartialEq)]
pub struct AdminRule {
    pub action: Action,
    pub peers: Peers,
    pub ports: Vec<PortMatch>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Peers {
    /// Whoever there is.
    Everybody,
    These(Vec<Peer>),
}

/// The other end of a packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Peer {
    Pods {
        /// The only namespace; `None`: those of the selector.
        scope: Option<String>,
        namespaces: Option<LabelSelector>,
        pods: Option<LabelSelector>,
    },
    /// By the addresses in their status.
    Nodes(LabelSelector),
    Networks {
        nets: Vec<IpNet>,
        except: Vec<IpNet>,
    },
}

/// Traffic by its destination's port. Protocols are nft's words: `tcp`, `udp`, `sctp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortMatch {
    Protocol(String),
    /// First and last.
    Range(String, u16, u16),
    /// A name of pods' ports, of one protocol or of any.
    Named(String, Option<String>),
}

impl AdminPolicy {
    /// By what policies are ordered. Where upstream leaves it open, for those of one priority, names decide.
    pub fn order(&self) -> (Tier, i32, AdminKind, &str) {
        (self.tier, self.priority, self.kind, &self.key.name)
    }
}
