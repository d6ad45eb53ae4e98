//! A pod's resolver: its dnsPolicy, the cluster's DNS and its dnsConfig.

use crate::cri::api;
use k8s_openapi::api::core::v1::Pod;
use std::net::IpAddr;

/// resolv.conf(5), the three parts that pods inherit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvConf {
    pub servers: Vec<String>,
    pub searches: Vec<String>,
    pub options: Vec<String>,
}

impl ResolvConf {
    pub fn parse(text: &str) -> Self {
        let mut parsed = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => parsed.servers.extend(words.next().map(str::to_owned)),
                // The last search line counts.
                Some("search") => parsed.searches = words.map(|s| trim_dot(s).to_owned()).collect(),
                Some("options") => parsed.options = words.map(str::to_owned).collect(),
                _ => {}
            }
        }
        parsed
    }
}

fn trim_dot(domain: &str) -> &str {
    if domain == "." { domain } else { domain.trim_end_matches('.') }
}

/// What the node offers.
pub struct NodeDns<'a> {
    pub cluster: &'a [IpAddr],
    pub domain: &'a str,
    pub host: &'a ResolvConf,
}

pub fn config(pod: &Pod, node: &NodeDns<'_>) -> api::DnsConfig {
    let spec = pod.spec.clone().unwrap_or_default();
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let host_network = spec.host_network == Some(true);
    let cluster = match policy {
        "ClusterFirstWithHostNet" => true,
        "ClusterFirst" => !host_network,
        _ => false,
    };
    let mut dns = if policy == "None" {
        api::DnsConfig::default()
    } else if cluster && !node.cluster.is_empty() {
        cluster_first(pod.metadata.namespace.as_deref().unwrap_or_default(), node)
    } else {
        let host = node.host.clone();
        api::DnsConfig { servers: host.servers, searches: host.searches, options: host.options }
    };
    if let Some(extra) = &spec.dns_config {
        push_new(&mut dns.servers, extra.nameservers.iter().flatten().cloned());
        push_new(&mut dns.searches, extra.searches.iter().flatten().cloned());
        for option in extra.options.iter().flatten() {
            let name = option.name.clone().unwrap_or_default();
            dns.options.retain(|o| o.split(':').next() != Some(name.as_str()));
            dns.options.push(match option.value.as_deref() {
                Some(value) if !value.is_empty() => format!("{name}:{value}"),
                _ => name,
            });
        }
    }
    dns
}

fn cluster_first(namespace: &str, node: &NodeDns<'_>) -> api::DnsConfig {
    let domain = node.domain;
    let mut searches = vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.to_owned()];
    push_new(&mut searches, node.host.searches.iter().filter(|s| *s != ".").cloned());
    api::DnsConfig {
        servers: node.cluster.iter().map(IpAddr::to_string).collect(),
        searches,
        options: vec!["ndots:5".to_owned()],
    }
}

fn push_new(list: &mut Vec<String>, more: impl Iterator<Item = String>) {
    for item in more {
        if !list.contains(&item) {
            list.push(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn dns(spec: Value) -> api::DnsConfig {
        let pod = json!({ "metadata": { "namespace": "n" }, "spec": spec });
        let host = ResolvConf::parse(
            "# x\nnameserver 192.0.2.53\nsearch example.com. .\noptions timeout:1 rotate\n",
        );
        let cluster = ["10.43.0.10".parse().unwrap()];
        let node = NodeDns { cluster: &cluster, domain: "cluster.local", host: &host };
        config(&serde_json::from_value(pod).unwrap(), &node)
    }

    #[test]
    fn policies() {
        let cluster = dns(json!({ "containers": [] }));
        assert_eq!(cluster.servers, ["10.43.0.10"]);
        assert_eq!(
            cluster.searches,
            ["n.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com"]
        );
        assert_eq!(cluster.options, ["ndots:5"]);
        let host = dns(json!({ "containers": [], "hostNetwork": true }));
        assert_eq!(
            (host.servers, host.options),
            (vec!["192.0.2.53".to_owned()], vec!["timeout:1".to_owned(), "rotate".to_owned()])
        );
        let both =
            dns(json!({ "containers": [], "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet" }));
        assert_eq!(both.servers, ["10.43.0.10"]);
        let none = dns(json!({ "containers": [], "dnsPolicy": "None", "dnsConfig": {
            "nameservers": ["192.0.2.1"], "searches": ["a.b"], "options": [{ "name": "ndots", "value": "2" }, { "name": "edns0" }] } }));
        assert_eq!((none.servers, none.searches), (vec!["192.0.2.1".to_owned()], vec!["a.b".to_owned()]));
        assert_eq!(none.options, ["ndots:2", "edns0"]);
        let merged =
            dns(json!({ "containers": [], "dnsConfig": { "options": [{ "name": "ndots", "value": "1" }] } }));
        assert_eq!(merged.options, ["ndots:1"]);
    }
}
