//! One container of a pod.

use super::{env, resources, security};
use crate::cri::api;
use crate::pod::labels;
use crate::pod::userns::Users;
use k8s_openapi::api::core::v1::{Container, Pod};

pub struct ContainerInput<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub attempt: u32,
    /// The image as the runtime knows it.
    pub image: &'a str,
    pub env: Vec<(String, String)>,
    pub mounts: Vec<api::Mount>,
    /// Volumes of mode Block.
    pub devices: Vec<api::Device>,
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
    api::ContainerConfig {
        metadata: Some(api::ContainerMetadata { name: container.name.clone(), attempt }),
        image: Some(api::ImageSpec {
            image: input.image.to_owned(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..api::ImageSpec::default()
        }),
        command,
        args,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        labels: labels::container_labels(pod, container),
        annotations: labels::container_annotations(pod, container, attempt),
        log_path: format!("{}/{attempt}.log", container.name),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        mounts: input.mounts,
        devices: input.devices,
        linux: Some(api::LinuxContainerConfig {
            resources: Some(resources::linux(pod, container, input.node)),
            security_context: Some(security::container(
                &spec,
                container,
                (input.target, input.users),
                input.confinement,
            )),
        }),
        envs: env.into_iter().map(|(key, value)| api::KeyValue { key, value }).collect(),
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
            image: "sha256:1",
            env: vec![("A".to_owned(), "1".to_owned())],
            mounts: Vec::new(),
            devices: Vec::new(),
            target: None,
            users: None,
            node: resources::NodeResources::default(),
            confinement: &security::Confinement::default(),
        });
        assert_eq!(config.command, ["echo", "1"]);
        assert_eq!(config.args, ["$(A)"]);
        assert_eq!(config.log_path, "c/3.log");
        assert!(config.tty);
        assert_eq!(config.annotations[labels::RESTART_COUNT], "3");
        assert_eq!(config.image.unwrap().user_specified_image, "busybox");
    }
}
