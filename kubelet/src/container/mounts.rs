//! What is mounted into a container.

use super::env;
use crate::cri::api;
use coracle_storage::beneath::Dir;
use coracle_storage::volumes::{Mounted, SubPath, Volumes};
use k8s_openapi::api::core::v1::{Container, VolumeDevice, VolumeMount};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The pod's volumes as they stand on the node.
pub struct PodVolumes<'a> {
    pub volumes: &'a Volumes,
    pub uid: &'a str,
    pub mounted: &'a BTreeMap<String, Mounted>,
    /// Volumes that are images, by name: what the pod calls the image, and its id.
    pub images: &'a BTreeMap<String, (String, String)>,
    /// Whether the runtime can make read-only what lies below a read-only mount.
    pub recursive: bool,
}

/// Whether a mount is to be read-only all the way down (KEP-3857). `Err` is upstream's text: what must be cannot be.
pub fn is_recursive(mount: &VolumeMount, able: bool) -> Result<bool, String> {
    let whole = |why: &str| {
        Err(format!("volume {:?} requested recursive read-only mode, but it is {why}", mount.name))
    };
    let propagation = mount.mount_propagation.as_deref().filter(|way| *way != "None");
    match (mount.recursive_read_only.as_deref(), propagation) {
        (None | Some("Disabled"), _) => Ok(false),
        _ if mount.read_only != Some(true) => whole("not read-only"),
        (_, Some(way)) => whole(&format!("not compatible with propagation {way:?}")),
        (Some("Enabled"), None) if !able => whole("not supported by the runtime"),
        _ => Ok(able),
    }
}

fn mount(container_path: impl Into<String>, host_path: &Path) -> api::Mount {
    api::Mount {
        container_path: container_path.into(),
        host_path: host_path.display().to_string(),
        ..api::Mount::default()
    }
}

/// The container's `volumeMounts`; `env` expands `subPathExpr`. `Err` is for CreateContainerConfigError.
pub fn of_volumes(
    pod: &PodVolumes<'_>,
    container: &Container,
    env: &[(String, String)],
) -> Result<Vec<api::Mount>, String> {
    let mounts = container.volume_mounts.iter().flatten().enumerate();
    mounts.map(|(index, wanted)| of_volume(pod, container, env, index, wanted)).collect()
}

/// The container's `volumeDevices`. `Err` is for CreateContainerConfigError.
pub fn devices(pod: &PodVolumes<'_>, container: &Container) -> Result<Vec<api::Device>, String> {
    let wanted = container.volume_devices.iter().flatten();
    let device = |wanted: &VolumeDevice| {
        let volume = pod.mounted.get(&wanted.name).filter(|volume| volume.block).ok_or_else(|| {
            format!("cannot find volume {:?} to pass into container {:?}", wanted.name, container.name)
        })?;
        Ok(api::Device {
            container_path: wanted.device_path.clone(),
            host_path: volume.path.display().to_string(),
            // Read, write and make; a read-only volume is read alone.
            permissions: if volume.read_only { "r" } else { "mrw" }.to_owned(),
        })
    };
    wanted.map(device).collect()
}

fn of_volume(
    pod: &PodVolumes<'_>,
    container: &Container,
    env: &[(String, String)],
    index: usize,
    wanted: &VolumeMount,
) -> Result<api::Mount, String> {
    let volume_image = pod.images.get(&wanted.name);
    let volume = pod.mounted.get(&wanted.name).ok_or_else(|| {
        format!("cannot find volume {:?} to mount into container {:?}", wanted.name, container.name)
    });
    let lookup = |name: &str| env.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let sub_path = match (wanted.sub_path.as_deref(), wanted.sub_path_expr.as_deref()) {
        (Some(path), _) if !path.is_empty() => Some(path.to_owned()),
        (_, Some(expression)) if !expression.is_empty() => Some(expanded(expression, lookup)?),
        _ => None,
    };
    if let Some(image) = volume_image {
        return of_image(image, wanted, sub_path.as_deref());
    }
    let volume = volume?;
    let host_path = match &sub_path {
        None => volume.path.clone(),
        Some(sub_path) => {
            let request = SubPath {
                volume: &wanted.name,
                root: &volume.path,
                sub_path,
                container: &container.name,
                mount: index,
            };
            let text = "failed to prepare subPath for volumeMount";
            pod.volumes
                .sub_path(pod.uid, &request)
                .map_err(|e| format!("{text} {:?} of container {:?}: {e}", wanted.name, container.name))?
        }
    };
    let propagation = match wanted.mount_propagation.as_deref() {
        Some("HostToContainer") => api::MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => api::MountPropagation::PropagationBidirectional,
        _ => api::MountPropagation::PropagationPrivate,
    };
    let readonly = wanted.read_only == Some(true) || volume.read_only;
    let recursive = is_recursive(wanted, pod.recursive)
        .map_err(|e| format!("failed to resolve recursive read-only mode: {e}"))?;
    let absolute = Path::new("/").join(&wanted.mount_path);
    Ok(api::Mount {
        readonly,
        propagation: propagation as i32,
        recursive_read_only: recursive,
        ..mount(absolute.display().to_string(), &host_path)
    })
}

/// A `subPathExpr` all of whose variables are set.
fn expanded<'e>(expression: &str, lookup: impl Fn(&str) -> Option<&'e str>) -> Result<String, String> {
    let missing = std::cell::RefCell::new(None);
    let text = env::expand(expression, |name| {
        let value = lookup(name);
        if value.is_none() {
            missing.borrow_mut().get_or_insert_with(|| name.to_owned());
        }
        value
    });
    match missing.into_inner() {
        Some(name) => Err(format!("missing value for {name:?}")),
        None => Ok(text),
    }
}

/// An image as a volume (KEP-4639): the runtime mounts it, always read-only.
fn of_image(
    (user_specified_image, image): &(String, String),
    wanted: &VolumeMount,
    sub_path: Option<&str>,
) -> Result<api::Mount, String> {
    if sub_path.is_some() {
        return Err(format!(
            "subPath of the image volume {:?} is not supported by this kubelet",
            wanted.name
        ));
    }
    let image = api::ImageSpec {
        image: image.clone(),
        user_specified_image: user_specified_image.clone(),
        ..api::ImageSpec::default()
    };
    let path = Path::new("/").join(&wanted.mount_path);
    Ok(api::Mount { image: Some(image), readonly: true, ..mount(path.display().to_string(), Path::new("")) })
}

/// The managed `/etc/hosts`, unless the container mounts one of its own.
pub fn etc_hosts(container: &Container, file: &Path) -> Option<api::Mount> {
    let own = container.volume_mounts.iter().flatten().any(|m| m.mount_path == "/etc/hosts");
    (!own).then(|| mount("/etc/hosts", file))
}

/// Makes the file for a container's last words and mounts it where the spec says.
pub fn termination_log(pod_dir: &Path, container: &Container, attempt: u32) -> io::Result<api::Mount> {
    let below = Path::new("containers").join(&container.name);
    let name = format!("termination-log.{attempt}");
    // Whoever the container runs as may write it.
    Dir::open(pod_dir)?.make_dir_all(&below, 0o750)?.overwrite(&name, b"", 0o666)?;
    let file = pod_dir.join(below).join(name);
    let path = container.termination_message_path.as_deref().filter(|p| !p.is_empty());
    Ok(mount(path.unwrap_or("/dev/termination-log"), &file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn recursive_read_only_is_done_or_refused() {
        let asked = |mut fields: Value, able: bool| {
            fields["name"] = json!("v");
            fields["mountPath"] = json!("/v");
            let mount: VolumeMount = serde_json::from_value(fields).unwrap();
            is_recursive(&mount, able)
        };
        let wish = |mode: &str| json!({ "readOnly": true, "recursiveReadOnly": mode });
        for able in [true, false] {
            assert_eq!(asked(json!({ "readOnly": true }), able), Ok(false));
            assert_eq!(asked(wish("Disabled"), able), Ok(false));
            assert_eq!(asked(wish("IfPossible"), able), Ok(able));
        }
        assert_eq!(asked(wish("Enabled"), true), Ok(true));
        let refused =
            |why: &str| Err(format!("volume \"v\" requested recursive read-only mode, but it is {why}"));
        assert_eq!(asked(wish("Enabled"), false), refused("not supported by the runtime"));
        assert_eq!(asked(json!({ "recursiveReadOnly": "Enabled" }), true), refused("not read-only"));
        let mut shared = wish("Enabled");
        shared["mountPropagation"] = json!("HostToContainer");
        assert_eq!(asked(shared, true), refused("not compatible with propagation \"HostToContainer\""));
    }
}
