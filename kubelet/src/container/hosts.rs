//! A pod's name and its `/etc/hosts`.

use k8s_openapi::api::core::v1::{HostAlias, Pod};

/// Linux takes names of up to 64 bytes, DNS labels have 63.
const MAX_LABEL: usize = 63;

/// What `hostname` prints in the pod, and the domain that follows it in DNS (empty without a subdomain).
pub fn hostname(pod: &Pod, cluster_domain: &str) -> (String, String) {
    let spec = pod.spec.clone().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let set = spec.hostname.filter(|h| !h.is_empty());
    let short = match set {
        Some(hostname) => hostname,
        None => {
            let cut: String = name.chars().take(MAX_LABEL).collect();
            cut.trim_end_matches(['-', '.']).to_owned()
        }
    };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let domain = spec.subdomain.filter(|s| !s.is_empty());
    let domain = domain.map(|s| format!("{s}.{namespace}.svc.{cluster_domain}")).unwrap_or_default();
    match spec.hostname_override.filter(|h| !h.is_empty()) {
        Some(exact) => (exact, String::new()),
        None => (short, domain),
    }
}

/// The name for the kernel: the fully qualified one when the pod asks for it.
pub fn kernel_hostname(pod: &Pod, cluster_domain: &str) -> Result<String, String> {
    let (short, domain) = hostname(pod, cluster_domain);
    let full = pod.spec.as_ref().and_then(|s| s.set_hostname_as_fqdn).unwrap_or(false);
    if !full || domain.is_empty() {
        return Ok(short);
    }
    let name = format!("{short}.{domain}");
    if name.len() > 64 {
        let length = name.len();
        return Err(format!(
            "failed to construct FQDN from pod hostname and cluster domain, FQDN {name} is too long \
             (64 characters is the max, {length} characters requested)"
        ));
    }
    Ok(name)
}

/// The managed hosts file of a pod with a network of its own.
pub fn file(pod: &Pod, ips: &[String], cluster_domain: &str) -> String {
    let (short, domain) = hostname(pod, cluster_domain);
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n\
         127.0.0.1\tlocalhost\n\
         ::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\n\
         fe00::1\tip6-allnodes\n\
         fe00::2\tip6-allrouters\n",
    );
    for ip in ips {
        if domain.is_empty() {
            text.push_str(&format!("{ip}\t{short}\n"));
        } else {
            text.push_str(&format!("{ip}\t{short}.{domain}\t{short}\n"));
        }
    }
    text + &aliases(pod)
}

/// The hosts file of a pod on the node's network: the node's own and the aliases.
pub fn host_network_file(pod: &Pod, node: &str) -> String {
    format!("# Kubernetes-managed hosts file (host network).\n{node}{}", aliases(pod))
}

fn aliases(pod: &Pod) -> String {
    let aliases: &[HostAlias] = pod.spec.as_ref().and_then(|s| s.host_aliases.as_deref()).unwrap_or_default();
    if aliases.is_empty() {
        return String::new();
    }
    let lines = aliases
        .iter()
        .map(|a| format!("{}\t{}\n", a.ip, a.hostnames.as_deref().unwrap_or_default().join("\t")));
    "\n# Entries added by HostAliases.\n".to_owned() + &lines.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_and_aliases() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "web-0", "namespace": "n" },
            "spec": { "containers": [], "hostname": "web-0", "subdomain": "web", "setHostnameAsFQDN": true,
                "hostAliases": [{ "ip": "192.0.2.9", "hostnames": ["a", "b"] }] }
        }))
        .unwrap();
        assert_eq!(kernel_hostname(&pod, "cluster.local").unwrap(), "web-0.web.n.svc.cluster.local");
        let text = file(&pod, &["10.42.0.2".to_owned()], "cluster.local");
        assert!(text.contains("10.42.0.2\tweb-0.web.n.svc.cluster.local\tweb-0\n"), "{text}");
        assert!(text.ends_with("\n# Entries added by HostAliases.\n192.0.2.9\ta\tb\n"), "{text}");
        assert!(kernel_hostname(&pod, &"x".repeat(64)).is_err());
        let long: Pod =
            serde_json::from_value(json!({ "metadata": { "name": format!("{}-x", "a".repeat(62)) } }))
                .unwrap();
        assert_eq!(hostname(&long, "").0, "a".repeat(62));
    }
}
