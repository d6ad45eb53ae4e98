//! The sandbox: the pod's namespaces, name, DNS and host ports.

use super::{dns, hosts, security};
use crate::cri::api;
use crate::pod_facts::labels;
use crate::pod_facts::sysctls::dotted;
use crate::pod_facts::userns::Users;
use k8s_openapi::api::core::v1::{ContainerPort, Pod};
use std::path::{Path, PathBuf};

/// What of the node goes into a sandbox.
pub struct SandboxInput<'a> {
    pub pod: &'a Pod,
    pub attempt: u32,
    pub dns: dns::NodeDns<'a>,
    pub log_dir: &'a Path,
    /// As the runtime wants to be told it.
    pub cgroup_parent: String,
    pub confinement: &'a security::Confinement,
    /// Of a pod that is to have its own.
    pub users: Option<Users>,
}

/// `<log_dir>/<namespace>_<name>_<uid>`.
pub fn log_directory(log_dir: &Path, pod: &Pod) -> PathBuf {
    let meta = &pod.metadata;
    let part = |value: &Option<String>| value.clone().unwrap_or_default();
    log_dir.join(format!("{}_{}_{}", part(&meta.namespace), part(&meta.name), part(&meta.uid)))
}

pub fn config(input: &SandboxInput<'_>) -> Result<api::PodSandboxConfig, String> {
    let pod = input.pod;
    let spec = pod.spec.as_ref().ok_or("pod without spec")?;
    let meta = &pod.metadata;
    let host_network = spec.host_network == Some(true);
    let hostname = if host_network { String::new() } else { hosts::kernel_hostname(pod, input.dns.domain)? };
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let ports =
        containers.flat_map(|c| c.ports.iter().flatten()).filter(|p| p.host_port.is_some_and(|p| p > 0));
    let sysctls = spec.security_context.iter().flat_map(|c| c.sysctls.iter().flatten());
    if spec.host_users == Some(false) && input.users.is_none() {
        return Err("hostUsers is false, and the pod has no users of its own".to_owned());
    }
    Ok(api::PodSandboxConfig {
        metadata: Some(api::PodSandboxMetadata {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            attempt: input.attempt,
        }),
        hostname,
        log_directory: log_directory(input.log_dir, pod).display().to_string(),
        dns_config: Some(dns::config(pod, &input.dns)),
        port_mappings: if host_network { Vec::new() } else { ports.map(port_mapping).collect() },
        labels: labels::sandbox_labels(pod),
        annotations: labels::sandbox_annotations(pod),
        linux: Some(api::LinuxPodSandboxConfig {
            cgroup_parent: input.cgroup_parent.clone(),
            security_context: Some(security::sandbox(spec, input.users, input.confinement)),
            sysctls: sysctls.map(|s| (dotted(&s.name), s.value.clone())).collect(),
            overhead: None,
            resources: None,
        }),
        windows: None,
    })
}

fn port_mapping(port: &ContainerPort) -> api::PortMapping {
    let protocol = match port.protocol.as_deref() {
        Some("UDP") => api::Protocol::Udp,
        Some("SCTP") => api::Protocol::Sctp,
        _ => api::Protocol::Tcp,
    };
    api::PortMapping {
        protocol: protocol as i32,
        container_port: port.container_port,
        host_port: port.host_port.unwrap_or(0),
        host_ip: port.host_ip.clone().unwrap_or_default(),
    }
}
