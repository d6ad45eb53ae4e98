//! Kernel settings (sysctl) that Services need.

use crate::configuration::ConntrackSettings;
use crate::family::Family;
use crate::model::ServicePort;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Upstream's defaults.
const MAX_PER_CORE: u32 = 32_768;
const MIN: u32 = 131_072;
const TCP_ESTABLISHED: Duration = Duration::from_secs(24 * 60 * 60);
const TCP_CLOSE_WAIT: Duration = Duration::from_secs(60 * 60);

/// Node ports answer on 127.0.0.1 only where the kernel lets such packets through a network device. Whoever is next to
/// this machine on a network could then send to its loopback, but for a rule of KUBE-FIREWALL: it is never set before
/// that rule is in force, and not at all while there is no node port.
const ROUTE_LOCALNET: &str = "net/ipv4/conf/all/route_localnet";

/// ARP is answered, and sent, only with the addresses of the interface that it passes (Documentation/networking/ip-sysctl).
const STRICT_ARP: [(&str, &str); 2] =
    [("net/ipv4/conf/all/arp_ignore", "1"), ("net/ipv4/conf/all/arp_announce", "2")];

/// What the kernel's balancer needs: connections are tracked, so that they can be masqueraded, and end with their endpoint.
const IPVS: [&str; 3] =
    ["net/ipv4/vs/conntrack", "net/ipv4/vs/expire_nodest_conn", "net/ipv4/vs/expire_quiescent_template"];

/// The settings below a folder: `/proc/sys`.
pub struct Kernel {
    root: PathBuf,
    /// Whether [`ROUTE_LOCALNET`] is ours to take back.
    opened_localnet: bool,
    /// What [`STRICT_ARP`] was before it was set.
    loose_arp: Option<[String; 2]>,
}

impl Default for Kernel {
    fn default() -> Self {
        Self::below(Path::new("/proc/sys"))
    }
}

const FORWARD_V6: &str = "net/ipv6/conf/all/forwarding";

impl Kernel {
    pub fn below(root: &Path) -> Self {
        Self { root: root.to_owned(), opened_localnet: false, loose_arp: None }
    }

    async fn get(&self, name: &str) -> Option<String> {
        let text = tokio::fs::read_to_string(self.root.join(name)).await.ok()?;
        Some(text.trim().to_owned())
    }

    async fn set(&self, name: &str, value: &str) {
        if self.get(name).await.as_deref() == Some(value) {
            return;
        }
        if let Err(error) = tokio::fs::write(self.root.join(name), value).await {
            tracing::warn!(setting = name, value, %error, "kernel setting not written");
        }
    }

    /// Packets of pods are forwarded only where the kernel is told so.
    pub async fn forward(&self, family: Family) {
        match family {
            Family::V4 => self.set("net/ipv4/ip_forward", "1").await,
            Family::V6 => {
                if self.get(FORWARD_V6).await.as_deref() != Some("1") {
                    self.keep_router_advertisements().await;
                }
                self.set(FORWARD_V6, "1").await;
            }
        }
    }

    /// A machine that forwards no longer listens to routers, and would lose the address and the default route that it has
    /// of one, unless its interfaces say that they listen all the same (`accept_ra` 2,
    /// <https://docs.kernel.org/networking/ip-sysctl.html>).
    async fn keep_router_advertisements(&self) {
        let Ok(mut interfaces) = tokio::fs::read_dir(self.root.join("net/ipv6/conf")).await else { return };
        while let Ok(Some(interface)) = interfaces.next_entry().await {
            let name = interface.file_name();
            let setting = format!("net/ipv6/conf/{}/accept_ra", name.to_string_lossy());
            if self.get(&setting).await.as_deref() == Some("1") {
                self.set(&setting, "2").await;
            }
        }
    }

    /// A setting that somebody else made is left as it is. Call when the rules are in force.
    pub async fn set_localnet(&mut self, needed: bool) {
        if needed == self.opened_localnet {
            return;
        }
        let is_set = self.get(ROUTE_LOCALNET).await.as_deref() == Some("1");
        if needed && !is_set {
            self.set(ROUTE_LOCALNET, "1").await;
            self.opened_localnet = true;
        } else if !needed {
            self.set(ROUTE_LOCALNET, "0").await;
            self.opened_localnet = false;
        }
    }

    pub async fn set_ipvs(&self) {
        for name in IPVS {
            self.set(name, "1").await;
        }
    }

    /// What was there before comes back when it is no longer wanted, by whoever set it.
    pub async fn set_strict_arp(&mut self, strict: bool) {
        match (strict, self.loose_arp.take()) {
            (true, None) => {
                let mut before = [String::new(), String::new()];
                for (was, (name, value)) in before.iter_mut().zip(STRICT_ARP) {
                    *was = self.get(name).await.unwrap_or_default();
                    self.set(name, value).await;
                }
                self.loose_arp = Some(before);
            }
            (false, Some(before)) => {
                for (was, (name, _)) in before.iter().zip(STRICT_ARP).filter(|(was, _)| !was.is_empty()) {
                    self.set(name, was).await;
                }
            }
            (_, before) => self.loose_arp = before,
        }
    }

    /// Limits and times of the table of connections. What is asked for is set, 0 leaves the kernel's; what is not asked
    /// for is upstream's default, but never less than what is there: others of this machine may need it.
    pub async fn set_conntrack(&self, settings: &ConntrackSettings) {
        let cores = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
        let asked = settings.max_per_core.is_some() || settings.min.is_some();
        let per_core = settings.max_per_core.unwrap_or(MAX_PER_CORE);
        let max = match per_core {
            0 => 0,
            per_core => per_core.saturating_mul(cores).max(settings.min.unwrap_or(MIN)),
        };
        self.limit("net/netfilter/nf_conntrack_max", u64::from(max), asked).await;
        let times = [
            ("nf_conntrack_tcp_timeout_established", settings.tcp_established_timeout, TCP_ESTABLISHED),
            ("nf_conntrack_tcp_timeout_close_wait", settings.tcp_close_wait_timeout, TCP_CLOSE_WAIT),
            ("nf_conntrack_udp_timeout", settings.udp_timeout, Duration::ZERO),
            ("nf_conntrack_udp_timeout_stream", settings.udp_stream_timeout, Duration::ZERO),
        ];
        for (name, asked, default) in times {
            let time = asked.unwrap_or(default).as_secs();
            self.limit(&format!("net/netfilter/{name}"), time, asked.is_some()).await;
        }
        if settings.tcp_be_liberal {
            self.set("net/netfilter/nf_conntrack_tcp_be_liberal", "1").await;
        }
    }

    async fn limit(&self, name: &str, value: u64, asked: bool) {
        let present = self.get(name).await.and_then(|text| text.parse::<u64>().ok());
        if value == 0 || (!asked && present.is_none_or(|present| present >= value)) {
            return;
        }
        self.set(name, &value.to_string()).await;
    }
}

/// Whether packets to loopback must pass network devices.
pub fn needs_localnet<'a>(mut ports: impl Iterator<Item = &'a ServicePort>) -> bool {
    ports.any(|port| port.node_port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iptables::rules::tests::port;

    #[test]
    fn packets_to_loopback_pass_devices_only_for_node_ports() {
        let mut web = port(&[("10.42.0.2", true)]);
        assert!(!needs_localnet(std::iter::empty()) && !needs_localnet([&web].into_iter()));
        web.node_port = 30_053;
        assert!(needs_localnet([&web].into_iter()));
    }

    fn machine(settings: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("temporary directory");
        for (name, value) in settings {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, format!("{value}\n")).expect("written");
        }
        dir
    }

    #[tokio::test]
    async fn limits_of_connections_are_never_lowered_unasked() {
        let established = "net/netfilter/nf_conntrack_tcp_timeout_established";
        let udp = "net/netfilter/nf_conntrack_udp_timeout";
        let dir =
            machine(&[("net/netfilter/nf_conntrack_max", "999999999"), (established, "600"), (udp, "30")]);
        let kernel = Kernel::below(dir.path());
        let is = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("read").trim().to_owned();
        kernel.set_conntrack(&ConntrackSettings::default()).await;
        assert_eq!(is("net/netfilter/nf_conntrack_max"), "999999999");
        assert_eq!((is(established), is(udp)), ("86400".to_owned(), "30".to_owned()));
        let asked = ConntrackSettings {
            max_per_core: Some(1),
            min: Some(5000),
            tcp_established_timeout: Some(Duration::from_secs(60)),
            udp_timeout: Some(Duration::ZERO),
            ..ConntrackSettings::default()
        };
        kernel.set_conntrack(&asked).await;
        assert_eq!(is("net/netfilter/nf_conntrack_max"), "5000");
        assert_eq!((is(established), is(udp)), ("60".to_owned(), "30".to_owned()));
    }

    #[tokio::test]
    async fn who_forwards_still_listens_to_routers() {
        let setting = |interface: &str| format!("net/ipv6/conf/{interface}/accept_ra");
        let (eth0, eth1) = (setting("eth0"), setting("eth1"));
        let dir = machine(&[(FORWARD_V6, "0"), (eth0.as_str(), "1"), (eth1.as_str(), "0")]);
        let kernel = Kernel::below(dir.path());
        kernel.forward(Family::V6).await;
        assert_eq!(kernel.get(FORWARD_V6).await.as_deref(), Some("1"));
        assert_eq!(kernel.get(&eth0).await.as_deref(), Some("2"));
        assert_eq!(kernel.get(&eth1).await.as_deref(), Some("0"), "somebody said no");
        std::fs::write(dir.path().join(&eth0), "1\n").expect("somebody's");
        kernel.forward(Family::V6).await;
        assert_eq!(kernel.get(&eth0).await.as_deref(), Some("1"), "it forwarded already");
    }

    #[tokio::test]
    async fn arp_is_strict_only_while_it_is_asked_for() {
        let dir = machine(&STRICT_ARP.map(|(name, _)| (name, "0")));
        let is = || {
            STRICT_ARP.map(|(name, _)| {
                std::fs::read_to_string(dir.path().join(name)).expect("read").trim().to_owned()
            })
        };
        let mut kernel = Kernel::below(dir.path());
        for (strict, then) in
            [(true, ["1", "2"]), (true, ["1", "2"]), (false, ["0", "0"]), (false, ["0", "0"])]
        {
            kernel.set_strict_arp(strict).await;
            assert_eq!(is(), then);
        }
    }

    #[tokio::test]
    async fn localnet_is_taken_back_only_by_whoever_opened_it() {
        let dir = machine(&[(ROUTE_LOCALNET, "0")]);
        let is = || std::fs::read_to_string(dir.path().join(ROUTE_LOCALNET)).expect("read").trim().to_owned();
        let mut kernel = Kernel::below(dir.path());
        kernel.set_localnet(true).await;
        assert_eq!(is(), "1");
        kernel.set_localnet(false).await;
        assert_eq!(is(), "0");
        std::fs::write(dir.path().join(ROUTE_LOCALNET), "1\n").expect("somebody's");
        kernel.set_localnet(true).await;
        kernel.set_localnet(false).await;
        assert_eq!(is(), "1");
    }
}
