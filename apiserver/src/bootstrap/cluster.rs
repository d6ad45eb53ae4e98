//! Namespaces, classes, and the Services and ConfigMaps of the control plane.

use super::{BootstrapConfig, ClusterDns, Keep, Wanted};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_api::Object;
use coracle_pki::kubeconfig::CLUSTER_NAME;
use serde_json::{Value, json};
use std::net::IpAddr;

/// Namespaces that always exist; all but the last two cannot be deleted (upstream's immortal namespaces are default,
/// kube-system and kube-public).
pub(crate) const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// The built-in storage class: a directory on the node.
pub const LOCAL_PATH_CLASS: &str = "local-path";
pub const LOCAL_PATH_PROVISIONER: &str = "coracle.io/local-path";

pub(super) fn objects(config: &BootstrapConfig) -> Vec<Wanted> {
    let mut all: Vec<Wanted> = NAMESPACES.iter().map(|name| namespace(name)).collect();
    all.push(service_cidr(config));
    all.extend(priority_classes());
    all.extend(config.local_path.then(storage_class));
    all.extend(api_service(config));
    all.push(extension_authentication(config));
    all.push(cluster_info(config));
    all.push(proxy_configuration(config));
    all.push(legacy_tracking());
    if let Some(cluster_dns) = &config.dns {
        all.extend(dns(cluster_dns));
    }
    all
}

fn wanted(resource: &'static str, object: Object) -> Wanted {
    Wanted { resource, object, keep: Keep::AsItIs }
}

fn namespace(name: &str) -> Wanted {
    let metadata = json!({ "name": name, "labels": { "kubernetes.io/metadata.name": name } });
    wanted("namespaces.", json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata }))
}

/// Values as upstream's `scheduling.SystemCriticalPriority` and 1000 above it.
fn priority_classes() -> [Wanted; 2] {
    let class = |name: &str, value: i64, description: &str| {
        wanted(
            "priorityclasses.scheduling.k8s.io",
            json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name },
                "value": value, "globalDefault": false, "description": description,
                "preemptionPolicy": "PreemptLowerPriority",
            }),
        )
    };
    [
        class("system-node-critical", 2_000_001_000, "For pods that their node cannot do without."),
        class("system-cluster-critical", 2_000_000_000, "For pods that the cluster cannot do without."),
    ]
}

/// The default class as it is made.
pub(super) fn storage_class() -> Wanted {
    wanted(
        "storageclasses.storage.k8s.io",
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {
                "name": LOCAL_PATH_CLASS,
                "annotations": { "storageclass.kubernetes.io/is-default-class": "true" },
            },
            "provisioner": LOCAL_PATH_PROVISIONER, "reclaimPolicy": "Delete",
            "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
        }),
    )
}

pub(super) const SERVICE_CIDRS: &str = "servicecidrs.networking.k8s.io";

/// The server's own range (KEP-1880). It begins ready, because the `kubernetes` Service needs an address of it before
/// there is any controller; a user who deletes it hands it to the controller.
pub(super) fn service_cidr(config: &BootstrapConfig) -> Wanted {
    let object = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": { "name": "kubernetes" },
        "spec": { "cidrs": config.service_cidr.split(',').collect::<Vec<_>>() },
    });
    Wanted { resource: SERVICE_CIDRS, object, keep: Keep::Ready }
}

fn family(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// The Service that pods find the API server by, with its endpoints in both forms.
fn api_service(config: &BootstrapConfig) -> Vec<Wanted> {
    let metadata = |labels: Value| json!({ "name": "kubernetes", "namespace": "default", "labels": labels });
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": metadata(json!({ "component": "apiserver", "provider": "kubernetes" })),
        "spec": {
            "type": "ClusterIP", "clusterIP": config.service_ip.to_string(),
            "clusterIPs": [config.service_ip.to_string()],
            "ipFamilies": [family(config.service_ip)], "ipFamilyPolicy": "SingleStack",
            "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": config.api_port }],
        },
    });
    let mut all = vec![wanted("services.", service)];
    let fits = |ip: &&IpAddr| !ip.is_loopback() && ip.is_ipv4() == config.service_ip.is_ipv4();
    let addresses: Vec<String> = config.api_addresses.iter().filter(fits).map(ToString::to_string).collect();
    if addresses.is_empty() {
        return all;
    }
    let port = json!({ "name": "https", "port": config.api_port, "protocol": "TCP" });
    let ips: Vec<Value> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": metadata(json!({ "endpointslice.kubernetes.io/skip-mirror": "true" })),
        "subsets": [{ "addresses": ips, "ports": [port.clone()] }],
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": metadata(json!({ "kubernetes.io/service-name": "kubernetes" })),
        "addressType": family(config.service_ip),
        "endpoints": [{ "addresses": addresses, "conditions": { "ready": true } }],
        "ports": [port],
    });
    all.push(Wanted { resource: "endpoints.", object: endpoints, keep: Keep::Fields(&["subsets"]) });
    let keep = Keep::Fields(&["endpoints", "ports"]);
    all.push(Wanted { resource: "endpointslices.discovery.k8s.io", object: slice, keep });
    all
}

/// Where aggregated API servers learn whom to trust.
fn extension_authentication(config: &BootstrapConfig) -> Wanted {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "extension-apiserver-authentication", "namespace": "kube-system" },
        "data": {
            "client-ca-file": config.ca_pem,
            "requestheader-allowed-names": json!(coracle_access::authn::PROXY_NAMES).to_string(),
            "requestheader-client-ca-file": config.front_proxy_ca_pem,
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]",
        },
    });
    Wanted { resource: "configmaps.", object, keep: Keep::Fields(&["data"]) }
}

/// Since when uses of Secrets' tokens are noted, which the cleaner of those that nobody uses must know.
fn legacy_tracking() -> Wanted {
    let today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "kube-apiserver-legacy-service-account-token-tracking", "namespace": "kube-system" },
        "data": { "since": today },
    });
    Wanted { resource: "configmaps.", object, keep: Keep::Day("since") }
}

/// The kubeconfig without a user that joining machines start from.
fn cluster_info(config: &BootstrapConfig) -> Wanted {
    let ca = STANDARD.encode(&config.ca_pem);
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: {CLUSTER_NAME}\n  cluster:\n    server: {}\n    \
         certificate-authority-data: {ca}\ncontexts: null\ncurrent-context: \"\"\npreferences: {{}}\nusers: null\n",
        Value::from(config.server_url.as_str())
    );
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "cluster-info", "namespace": "kube-public" },
        "data": { "kubeconfig": kubeconfig },
    });
    // The signatures beside it are the bootstrap signer's.
    Wanted { resource: "configmaps.", object, keep: Keep::Entry("kubeconfig") }
}

/// What the proxies of machines that join must know: upstream's configuration, where kubeadm keeps it.
fn proxy_configuration(config: &BootstrapConfig) -> Wanted {
    let text = proxy_document(&config.cluster_cidr);
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "kube-proxy", "namespace": "kube-system", "labels": { "app": "kube-proxy" } },
        // The document is anybody's to change; the range beside it is ours to say, for documents that do not.
        "data": { "config.conf": text, "clusterCIDR": config.cluster_cidr },
    });
    Wanted { resource: "configmaps.", object, keep: Keep::Range }
}

/// The document as it is made.
pub(super) fn proxy_document(cluster_cidr: &str) -> String {
    format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\nclusterCIDR: {cluster_cidr}\n"
    )
}

/// The Service without a selector (the DNS component writes its endpoints), the identity of that component and what it does.
fn dns(cluster_dns: &ClusterDns) -> [Wanted; 3] {
    let ip = cluster_dns.ip;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "coredns", "namespace": "kube-system" },
    });
    let port = |name: &str, protocol: &str| json!({ "name": name, "port": 53, "protocol": protocol, "targetPort": 53 });
    let labels = json!({
        "k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS",
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "kube-dns", "namespace": "kube-system", "labels": labels },
        "spec": {
            "type": "ClusterIP", "clusterIP": ip.to_string(), "clusterIPs": [ip.to_string()],
            "ipFamilies": [family(ip)], "ipFamilyPolicy": "SingleStack",
            "ports": [port("dns", "UDP"), port("dns-tcp", "TCP")],
        },
    });
    // Anybody's to change from then on.
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "coredns", "namespace": "kube-system" },
        "data": { "Corefile": cluster_dns.corefile },
    });
    [wanted("serviceaccounts.", account), wanted("configmaps.", map), wanted("services.", service)]
}
