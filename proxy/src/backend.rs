//! The port that every mode of the proxy fills: it brings plans into force and knows when they no longer are.

use crate::command::CommandError;
use crate::notices::Notice;
use crate::plan::Plan;
use async_trait::async_trait;
use std::fmt;

/// `mode` of KubeProxyConfiguration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    Iptables,
    Nftables,
    Ipvs,
    Userspace,
}

impl Mode {
    pub const ALL: [Self; 4] = [Self::Iptables, Self::Nftables, Self::Ipvs, Self::Userspace];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Nftables => "nftables",
            Self::Ipvs => "ipvs",
            Self::Userspace => "userspace",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error("packet rules")]
    Command(#[from] CommandError),
    #[error("the kernel's balancer")]
    Balancer(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It cannot be done here, by the reason; trying again is of no use.
    #[error("{0}")]
    Refused(String),
}

/// What a notice of the kernel means to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// It is about others' things.
    None,
    /// It is worth a look ([`Backend::is_intact`]).
    Perhaps,
    /// What the backend wrote has been changed.
    Done,
}

/// One mode over one family of addresses. Its user calls [`adopt`](Self::adopt) first and once, then the others in any
/// order, never two at a time. Nothing of what others put into the kernel is touched.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Learns what an earlier run of the same mode left, so that it is used again or removed by the next sync.
    async fn adopt(&mut self) -> Result<(), BackendError>;

    /// Brings the plan into force. What is in force already costs nothing. After an error the next call writes everything
    /// anew.
    async fn sync(&mut self, plan: &Plan) -> Result<(), BackendError>;

    /// What a notice means for what this backend wrote.
    fn harm(&self, notice: &Notice) -> Harm;

    /// Whether everything is in place that the last sync wrote. Reads only.
    async fn is_intact(&mut self) -> Result<bool, BackendError>;

    /// Writes everything that the last sync brought into force once more.
    async fn repair(&mut self) -> Result<(), BackendError>;

    /// Does what falls due with time. Called whenever everything is looked at by the clock.
    async fn tend(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Takes away all that the mode ever wrote, whoever wrote it; harmless where there is nothing.
    async fn clean_up(&mut self) -> Result<(), BackendError>;

    /// How many rules (entries of maps, relays) are in force, by table, for metrics.
    fn rules(&self) -> Vec<(&'static str, usize)>;

    /// Whether the kernel tells nothing of changes to what this backend writes, so that somebody must look.
    fn needs_looks(&self) -> bool {
        false
    }
}
