//! The flags of `coracle agent`, checked whole.

use crate::address::{Choice, NodeIps, follow};
use crate::args::AgentArgs;
use crate::config::Component;
use crate::join::{Pin, Token, server_url};
use crate::kubelet::{KubeletSettings, Said};
use crate::settings::{node_name, or_note};
use axum::http::Uri;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Clone, Debug)]
pub struct Agent {
    pub server: Uri,
    pub token: Option<Token>,
    /// Of the CA's public key; any one of them will do.
    pub pins: Vec<Pin>,
    pub data_dir: PathBuf,
    /// What was asked for, or the host's name.
    pub node_name: String,
    /// Whether somebody asked for that name.
    pub name_was_asked: bool,
    pub node_ip: IpAddr,
    /// Of the other family, where somebody gave one.
    pub second_ip: Option<IpAddr>,
    /// How these are chosen, and followed as they change; `None` where somebody says them.
    pub address_choice: Option<Choice>,
    pub disabled: BTreeSet<Component>,
    pub cni_conf_dir: PathBuf,
    pub kubelet: KubeletSettings,
}

impl Agent {
    /// All mistakes, one a line.
    pub fn load(args: AgentArgs) -> Result<Self, String> {
        let mut mistakes = Vec::new();
        let server = or_note(server_url("server", &args.server), &mut mistakes).unwrap_or_default();
        let token = args.token.filter(|token| !token.is_empty());
        let said = Said {
            kubelet: args.kubelet,
            eviction: args.eviction,
            streaming_idle: args.streaming_connection_idle_timeout.map(|time| time.0),
            runtime_endpoint: args.container_runtime_endpoint,
            config: args.kubelet_files.kubelet_config.as_deref(),
            config_dir: args.kubelet_files.kubelet_config_dir.as_deref(),
            ..Said::default()
        };
        let kubelet = KubeletSettings::read(said, &mut mistakes);
        let address_choice = args.node_ip.is_none().then(|| address_choice(&server));
        let node_ips = args.node_ip.unwrap_or_else(|| address_choice.clone().unwrap_or_default().now());
        kubelet.refuse_foreign_certificates(&mut mistakes);
        let agent = Self {
            server,
            token: token.and_then(|token| or_note(Token::parse(&token), &mut mistakes)),
            pins: args
                .discovery_token_ca_cert_hash
                .iter()
                .filter_map(|pin| or_note(Pin::parse(pin), &mut mistakes))
                .collect(),
            data_dir: args.data_dir,
            name_was_asked: args.node_name.is_some(),
            node_name: node_name(args.node_name, &mut mistakes),
            node_ip: node_ips.first,
            second_ip: node_ips.second,
            address_choice,
            disabled: args
                .disable
                .iter()
                .filter_map(|name| or_note(component(name), &mut mistakes))
                .collect(),
            cni_conf_dir: args.cni_conf_dir,
            kubelet,
        };
        if mistakes.is_empty() { Ok(agent) } else { Err(mistakes.join("\n")) }
    }

    pub fn node_ips(&self) -> NodeIps {
        NodeIps { first: self.node_ip, second: self.second_ip }
    }

    /// The same of a node that has these addresses.
    pub fn at(&self, ips: NodeIps) -> Self {
        Self { node_ip: ips.first, second_ip: ips.second, ..self.clone() }
    }

    /// Waits until the machine has other addresses; for ever where somebody says them.
    pub async fn moved(&self) -> NodeIps {
        match &self.address_choice {
            Some(choice) => follow::changed(choice, self.node_ips()).await,
            None => std::future::pending().await,
        }
    }

    /// Under the name that it joined as.
    pub fn named(self, name: &str) -> Self {
        Self { node_name: name.to_owned(), ..self }
    }

    pub fn runs(&self, component: Component) -> bool {
        !self.disabled.contains(&component)
    }
}

/// Of the family in which the server is reached, where its address says one: what ranges the cluster has is not known yet.
fn address_choice(server: &Uri) -> Choice {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    Choice { families: vec![host.parse::<std::net::Ipv6Addr>().is_ok()], ..Choice::default() }
}

fn component(name: &str) -> Result<Component, String> {
    match Component::parse(name) {
        Ok(component @ (Component::Proxy | Component::Network | Component::Dns | Component::ShownPods)) => {
            Ok(component)
        }
        _ => Err(format!(
            "disable: \"{name}\" is not among an agent's components, known are proxy, network, dns, \
             component-pods"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::EvictionArgs;

    fn args(server: &str) -> AgentArgs {
        AgentArgs { server: server.to_owned(), node_name: Some("n2".to_owned()), ..AgentArgs::default() }
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let bad = AgentArgs {
            token: Some("abc".to_owned()),
            discovery_token_ca_cert_hash: vec!["md5:00".to_owned()],
            disable: vec!["scheduler".to_owned()],
            eviction: EvictionArgs {
                eviction_hard: Some(vec!["nodefs.free<1".to_owned()]),
                ..EvictionArgs::default()
            },
            ..args("http://192.0.2.1:6443")
        };
        let text = Agent::load(bad).expect_err("five mistakes");
        for word in ["http://192.0.2.1", "token: ", "md5:00", "scheduler", "nodefs.free"] {
            assert!(text.contains(word), "{word} is missing from {text}");
        }
        assert!(!text.contains("abc"), "no part of a token goes into a log: {text}");
    }

    #[test]
    fn a_server_is_a_url_without_a_path() {
        let agent = Agent::load(args("https://192.0.2.1:6443/")).expect("valid");
        assert_eq!(agent.server.to_string(), "https://192.0.2.1:6443/");
        assert!(agent.runs(Component::Proxy) && agent.token.is_none());
        assert!(Agent::load(args("https://192.0.2.1:6443/api")).is_err());
    }
}
