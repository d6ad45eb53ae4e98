//! Security contexts, the container's before the pod's.

use crate::cri::api;
use crate::pod_facts::userns::Users;
use k8s_openapi::api::core::v1::{
    Container, Pod, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext,
};
use std::path::PathBuf;

/// Hidden from unprivileged containers; the runtimes' common list.
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/interrupts",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

pub fn int64(value: Option<i64>) -> Option<api::Int64Value> {
    value.map(|value| api::Int64Value { value })
}

/// Which namespaces of the node or of the pod a container shares. `target` is the container whose processes an
/// ephemeral container sees, `users` are the pod's own.
pub fn namespaces(spec: &PodSpec, target: Option<&str>, users: Option<Users>) -> api::NamespaceOption {
    use api::NamespaceMode::{Container as Own, Node, Pod, Target};
    let node = |wanted: Option<bool>| if wanted == Some(true) { Node } else { Pod };
    let pid = match (spec.host_pid, spec.share_process_namespace, target) {
        (Some(true), _, _) => Node,
        (_, Some(true), _) => Pod,
        (_, _, Some(_)) => Target,
        _ => Own,
    };
    api::NamespaceOption {
        network: node(spec.host_network) as i32,
        pid: pid as i32,
        ipc: node(spec.host_ipc) as i32,
        target_id: target.unwrap_or_default().to_owned(),
        userns_options: users.map(Users::namespace),
    }
}

/// What the node adds to every container's confinement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// The kubelet's directory, below which local seccomp profiles lie.
    pub root: PathBuf,
    /// Containers without a seccomp profile get the runtime's.
    pub seccomp_default: bool,
    /// Files of this machine's that are hidden with the common ones: how hot its processors are tells what others compute.
    pub masked: Vec<String>,
}

fn profile(wanted: Option<&SeccompProfile>, node: &Confinement) -> api::SecurityProfile {
    use api::security_profile::ProfileType;
    let (kind, localhost_ref) = match wanted.map(|p| (p.type_.as_str(), p)) {
        Some(("RuntimeDefault", _)) => (ProfileType::RuntimeDefault, String::new()),
        Some(("Localhost", p)) => {
            let path = node.root.join("seccomp").join(p.localhost_profile.as_deref().unwrap_or_default());
            (ProfileType::Localhost, path.display().to_string())
        }
        None if node.seccomp_default => (ProfileType::RuntimeDefault, String::new()),
        _ => (ProfileType::Unconfined, String::new()),
    };
    api::SecurityProfile { profile_type: kind as i32, localhost_ref }
}

fn unconfined() -> api::SecurityProfile {
    use api::security_profile::ProfileType;
    api::SecurityProfile { profile_type: ProfileType::Unconfined as i32, localhost_ref: String::new() }
}

/// fsGroup and supplementalGroups.
fn groups(context: &PodSecurityContext) -> Vec<i64> {
    context.fs_group.into_iter().chain(context.supplemental_groups.iter().flatten().copied()).collect()
}

fn groups_policy(context: &PodSecurityContext) -> i32 {
    match context.supplemental_groups_policy.as_deref() {
        Some("Strict") => api::SupplementalGroupsPolicy::Strict as i32,
        _ => api::SupplementalGroupsPolicy::Merge as i32,
    }
}

pub fn sandbox(spec: &PodSpec, users: Option<Users>, node: &Confinement) -> api::LinuxSandboxSecurityContext {
    let context = spec.security_context.clone().unwrap_or_default();
    let privileged = |c: &Container| c.security_context.as_ref().and_then(|s| s.privileged) == Some(true);
    api::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(spec, None, users)),
        run_as_user: int64(context.run_as_user),
        run_as_group: int64(context.run_as_group.filter(|_| context.run_as_user.is_some())),
        supplemental_groups: groups(&context),
        supplemental_groups_policy: groups_policy(&context),
        privileged: spec.containers.iter().chain(spec.init_containers.iter().flatten()).any(privileged),
        seccomp: Some(profile(context.seccomp_profile.as_ref(), node)),
        ..api::LinuxSandboxSecurityContext::default()
    }
}

pub fn container(
    spec: &PodSpec,
    container: &Container,
    image: &api::Image,
    (target, users): (Option<&str>, Option<Users>),
    node: &Confinement,
) -> api::LinuxContainerSecurityContext {
    let pod = spec.security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let privileged = own.privileged == Some(true);
    let unmasked = privileged || own.proc_mount.as_deref() == Some("Unmasked");
    let paths =
        |list: &[&str]| if unmasked { Vec::new() } else { list.iter().map(|p| (*p).to_owned()).collect() };
    let seccomp = match privileged {
        true => unconfined(),
        false => profile(own.seccomp_profile.as_ref().or(pod.seccomp_profile.as_ref()), node),
    };
    let (apparmor, apparmor_profile) = apparmor(&own, &pod);
    // Runtimes want to know whose group it is: the image's user where the spec names none, which is root where nobody does.
    let of_image = image.uid.as_ref().map(|uid| uid.value).or(image.username.is_empty().then_some(0));
    let user = own.run_as_user.or(pod.run_as_user).or(of_image);
    #[allow(deprecated, reason = "what runtimes before containerd 1.7 read")]
    api::LinuxContainerSecurityContext {
        capabilities: capabilities(&own),
        privileged,
        namespace_options: Some(namespaces(spec, target, users)),
        selinux_options: selinux(&own, &pod),
        run_as_user: int64(user),
        run_as_username: if user.is_none() { image.username.clone() } else { String::new() },
        run_as_group: int64(own.run_as_group.or(pod.run_as_group)),
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: groups(&pod),
        supplemental_groups_policy: groups_policy(&pod),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: [paths(&MASKED), if unmasked { Vec::new() } else { node.masked.clone() }].concat(),
        readonly_paths: paths(&READ_ONLY),
        seccomp: Some(seccomp),
        apparmor,
        apparmor_profile,
        ..api::LinuxContainerSecurityContext::default()
    }
}

/// The container's AppArmor profile before the pod's, in the form of today and in the one that older runtimes read.
/// Without one the runtime's default holds.
fn apparmor(own: &SecurityContext, pod: &PodSecurityContext) -> (Option<api::SecurityProfile>, String) {
    use api::security_profile::ProfileType;
    let Some(profile) = own.app_armor_profile.as_ref().or(pod.app_armor_profile.as_ref()) else {
        return (None, String::new());
    };
    let name = profile.localhost_profile.clone().unwrap_or_default();
    let (kind, localhost_ref, old) = match profile.type_.as_str() {
        "RuntimeDefault" => (ProfileType::RuntimeDefault, String::new(), "runtime/default".to_owned()),
        "Localhost" => (ProfileType::Localhost, name.clone(), format!("localhost/{name}")),
        _ => (ProfileType::Unconfined, String::new(), "unconfined".to_owned()),
    };
    (Some(api::SecurityProfile { profile_type: kind as i32, localhost_ref }), old)
}

fn capabilities(own: &SecurityContext) -> Option<api::Capability> {
    own.capabilities.clone().map(|c| api::Capability {
        add_capabilities: c.add.unwrap_or_default(),
        drop_capabilities: c.drop.unwrap_or_default(),
        add_ambient_capabilities: Vec::new(),
    })
}

fn selinux(own: &SecurityContext, pod: &PodSecurityContext) -> Option<api::SeLinuxOption> {
    own.se_linux_options.clone().or(pod.se_linux_options.clone()).map(|o| api::SeLinuxOption {
        user: o.user.unwrap_or_default(),
        role: o.role.unwrap_or_default(),
        r#type: o.type_.unwrap_or_default(),
        level: o.level.unwrap_or_default(),
    })
}

/// Refuses to run as root what must not: `Err` is upstream's text. The image's user counts when the spec names none.
pub fn check_non_root(pod: &Pod, container: &Container, image: Option<&api::Image>) -> Result<(), String> {
    let context = pod.spec.as_ref().and_then(|s| s.security_context.clone()).unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    if own.run_as_non_root.or(context.run_as_non_root) != Some(true) {
        return Ok(());
    }
    let meta = &pod.metadata;
    let part = |value: &Option<String>| value.clone().unwrap_or_default();
    let pod_name = format!("{}_{}({})", part(&meta.name), part(&meta.namespace), part(&meta.uid));
    let whom = format!("(pod: \"{pod_name}\", container: {})", container.name);
    if let Some(user) = own.run_as_user.or(context.run_as_user) {
        return if user == 0 {
            Err(format!("container's runAsUser breaks non-root policy {whom}"))
        } else {
            Ok(())
        };
    }
    let uid = image.and_then(|i| i.uid.as_ref()).map(|v| v.value);
    let name = image.map(|i| i.username.as_str()).unwrap_or_default();
    match uid {
        Some(0) => Err(format!("container has runAsNonRoot and image will run as root {whom}")),
        Some(_) => Ok(()),
        None if !name.is_empty() => Err(format!(
            "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root {whom}"
        )),
        None => Err(format!("container has runAsNonRoot and image will run as root {whom}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(context: Value, own: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "n", "uid": "u" }, "spec": {
            "securityContext": context, "containers": [{ "name": "c", "securityContext": own }] } }))
        .unwrap()
    }

    fn built(pod: &Pod) -> api::LinuxContainerSecurityContext {
        let spec = pod.spec.as_ref().unwrap();
        let masked = vec!["/sys/devices/system/cpu/cpu0/thermal_throttle".to_owned()];
        let node = Confinement { root: "/k".into(), seccomp_default: true, masked };
        container(spec, &spec.containers[0], &api::Image::default(), (None, None), &node)
    }

    #[test]
    fn the_container_overrides_the_pod() {
        let context = json!({ "runAsUser": 1, "fsGroup": 5, "supplementalGroups": [6],
            "seccompProfile": { "type": "Localhost", "localhostProfile": "x.json" } });
        let pod = pod(context, json!({ "runAsUser": 2, "allowPrivilegeEscalation": false }));
        let security = built(&pod);
        assert_eq!(security.run_as_user.unwrap().value, 2);
        assert_eq!(security.supplemental_groups, [5, 6]);
        assert!(security.no_new_privs && !security.masked_paths.is_empty());
        assert_eq!(security.seccomp.unwrap().localhost_ref, "/k/seccomp/x.json");
    }

    #[test]
    fn a_group_alone_goes_with_the_images_user() {
        let pod = pod(json!({ "runAsGroup": 7 }), json!({}));
        let spec = pod.spec.as_ref().unwrap();
        let user = |uid: Option<i64>, username: &str| {
            let image =
                api::Image { uid: int64(uid), username: username.to_owned(), ..api::Image::default() };
            let made = container(spec, &spec.containers[0], &image, (None, None), &Confinement::default());
            assert_eq!(made.run_as_group.unwrap().value, 7);
            (made.run_as_user.map(|user| user.value), made.run_as_username)
        };
        assert_eq!(user(Some(5), ""), (Some(5), String::new()));
        assert_eq!(user(None, "www"), (None, "www".to_owned()));
        assert_eq!(user(None, ""), (Some(0), String::new()));
    }

    #[test]
    fn privileged_containers_see_everything() {
        let security = built(&pod(json!({}), json!({ "privileged": true })));
        assert!(
            security.privileged && security.masked_paths.is_empty() && security.readonly_paths.is_empty()
        );
        assert_eq!(security.seccomp, Some(unconfined()));
    }

    #[test]
    fn what_tells_of_other_tenants_is_hidden() {
        let masked = built(&pod(json!({}), json!({}))).masked_paths;
        for path in ["/proc/interrupts", "/sys/devices/system/cpu/cpu0/thermal_throttle", "/proc/kcore"] {
            assert!(masked.iter().any(|p| p == path), "{path}");
        }
    }

    #[test]
    fn without_a_profile_the_runtimes_default_holds_where_the_node_says_so() {
        use api::security_profile::ProfileType;
        let kind = |context: Value, own: Value| built(&pod(context, own)).seccomp.unwrap().profile_type;
        let unconfined = json!({ "seccompProfile": { "type": "Unconfined" } });
        assert_eq!(kind(json!({}), json!({})), ProfileType::RuntimeDefault as i32);
        assert_eq!(kind(unconfined.clone(), json!({})), ProfileType::Unconfined as i32);
        assert_eq!(kind(json!({}), unconfined), ProfileType::Unconfined as i32);
        let free: PodSpec = serde_json::from_value(json!({ "containers": [{ "name": "c" }] })).unwrap();
        let image = api::Image::default();
        let off = container(&free, &free.containers[0], &image, (None, None), &Confinement::default());
        assert_eq!(off.seccomp.unwrap().profile_type, ProfileType::Unconfined as i32);
    }

    #[test]
    fn root_is_refused_where_it_must_be() {
        let check = |context: Value, uid: Option<i64>, name: &str| {
            let pod = pod(context, json!({}));
            let image = api::Image { uid: int64(uid), username: name.to_owned(), ..api::Image::default() };
            check_non_root(&pod, &pod.spec.as_ref().unwrap().containers[0], Some(&image))
        };
        assert!(check(json!({}), Some(0), "").is_ok());
        assert!(check(json!({ "runAsNonRoot": true }), Some(7), "").is_ok());
        assert!(check(json!({ "runAsNonRoot": true, "runAsUser": 7 }), Some(0), "").is_ok());
        let error = check(json!({ "runAsNonRoot": true }), Some(0), "").unwrap_err();
        assert_eq!(
            error,
            "container has runAsNonRoot and image will run as root (pod: \"p_n(u)\", container: c)"
        );
        assert!(
            check(json!({ "runAsNonRoot": true }), None, "www")
                .unwrap_err()
                .contains("non-numeric user (www)")
        );
    }
}
