//! One container of a pod.

use super::{env, resources, security};
use crate::cri::api;
use crate::pod_facts::labels;
use crate::pod_facts::userns::Users;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::BTreeSet;

/// What the node has given the container of its devices, CPUs and memory.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The container's own variables win over these.
    pub env: Vec<(String, String)>,
    pub mounts: Vec<api::Mount>,
    pub devices: Vec<api::Device>,
    pub annotations: Vec<(String, String)>,
    /// Names of devices that the runtime looks up (CDI).
    pub cdi_devices: Vec<String>,
    /// Lists as the kernel takes them; empty: all.
    pub cpus: String,
    pub memory_nodes: String,
}

pub struct ContainerInput<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub attempt: u32,
    /// The image as the runtime knows it.
    pub image: &'a api::Image,
    pub env: Vec<(String, String)>,
    pub mounts: Vec<api::Mount>,
    /// Volumes of mode Block.
    pub devices: Vec<api::Device>,
    /// Names of devices that the runtime looks up (CDI).
    pub cdi_devices: Vec<String>,
    pub given: Given,
    /// The runtime's id of the container that an ephemeral one looks at.
    pub target: Option<&'a str>,
    /// The pod's own, where it has such.
    pub users: Option<Users>,
    pub node: resources::NodeResources,
    pub confinement: &'a security::Confinement,
}

pub fn config(input: ContainerInput<'_>) -> api::ContainerConfig {
    let ContainerInput { pod, container, attempt, env, .. } = input;
    let spec = pod.spec.clone().unwrap_or_default();
    let lookup = |name: &str| env.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let expand = |words: &Option<Vec<String>>| -> Vec<String> {
        words.iter().flatten().map(|word| env::expand(word, lookup)).collect()
    };
    let (command, args) = (expand(&container.command), expand(&container.args));
    let given = input.given;
    let linux = api::LinuxContainerResources {
        cpuset_cpus: given.cpus,
        cpuset_mems: given.memory_nodes,
        ..resources::linux(pod, container, input.node)
    };
    let cdi_devices: BTreeSet<String> = input.cdi_devices.into_iter().chain(given.cdi_devices).collect();
    let annotations =
        given.annotations.into_iter().chain(labels::container_annotations(pod, container, attempt));
    let of_devices = given.env.into_iter().filter(|(name, _)| lookup(name).is_none()).collect::<Vec<_>>();
    api::ContainerConfig {
        metadata: Some(api::ContainerMetadata { name: container.name.clone(), attempt }),
        image: Some(api::ImageSpec {
            image: input.image.id.clone(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..api::ImageSpec::default()
        }),
        command,
        args,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        labels: labels::container_labels(pod, container),
        annotations: annotations.collect(),
        log_path: format!("{}/{attempt}.log", container.name),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        mounts: input.mounts.into_iter().chain(given.mounts).collect(),
        devices: input.devices.into_iter().chain(given.devices).collect(),
        cdi_devices: cdi_devices.into_iter().map(|name| api::CdiDevice { name }).collect(),
        linux: Some(api::LinuxContainerConfig {
            resources: Some(linux),
            security_context: Some(security::container(
                &spec,
                container,
                input.image,
                (input.target, input.users),
                input.confinement,
            )),
        }),
        envs: of_devices.into_iter().chain(env).map(|(key, value)| api::KeyValue { key, value }).collect(),
        ..api::ContainerConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn commands_expand_the_environment() {
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "uid": "u" }, "spec": { "containers": [
            { "name": "c", "image": "busybox", "command": ["echo", "$(A)"], "args": ["$$(A)"], "tty": true }] } }))
        .unwrap();
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let config = config(ContainerInput {
            pod: &pod,
            container,
            attempt: 3,
            image: &api::Image { id: "sha256:1".to_owned(), ..api::Image::default() },
            env: vec![("A".to_owned(), "1".to_owned())],
            mounts: Vec::new(),
            devices: Vec::new(),
            cdi_devices: vec!["x/y=1".to_owned()],
            given: Given {
                env: vec![("A".to_owned(), "2".to_owned()), ("B".to_owned(), "3".to_owned())],
                annotations: vec![(labels::RESTART_COUNT.to_owned(), "9".to_owned())],
                cdi_devices: vec!["x/y=1".to_owned(), "x/y=2".to_owned()],
                cpus: "1-2".to_owned(),
                ..Given::default()
            },
            target: None,
            users: None,
            node: resources::NodeResources::default(),
            confinement: &security::Confinement::default(),
        });
        assert_eq!(config.command, ["echo", "1"]);
        assert_eq!(config.args, ["$(A)"]);
        assert_eq!(config.log_path, "c/3.log");
        assert!(config.tty);
        let envs: Vec<_> = config.envs.iter().map(|env| (env.key.as_str(), env.value.as_str())).collect();
        assert_eq!(envs, [("B", "3"), ("A", "1")], "its own variables win");
        assert_eq!(config.cdi_devices.len(), 2);
        assert_eq!(config.linux.as_ref().unwrap().resources.as_ref().unwrap().cpuset_cpus, "1-2");
        assert_eq!(config.annotations[labels::RESTART_COUNT], "3");
        assert_eq!(config.image.unwrap().user_specified_image, "busybox");
    }
}
