//! `seLinuxMount` of a CSIDriver: volumes are mounted with the label of their pod (`-o context=`) instead of being relabelled
//! file by file. <https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#efficient-selinux-volume-relabeling>
//!
//! As upstream with its gates of 1.36 it is done for volumes of the mode ReadWriteOncePod alone, and on a node without
//! SELinux never: there no file system knows the option.

use crate::volumes::{Request, VolumeError};
use k8s_openapi::api::core::v1::{Container, Pod, SELinuxOptions};
use k8s_openapi::api::storage::v1::CSIDriverSpec;
use std::fs;
use std::path::Path;

/// A label: user, role, type and level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label([String; 4]);

impl Label {
    /// The level has colons of its own.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().splitn(4, ':').map(str::to_owned);
        let mut next = || parts.next().filter(|part| !part.is_empty());
        Some(Self([next()?, next()?, next()?, next()?]))
    }
}

/// The label that files of containers have on this machine; `None` where it has no SELinux.
pub fn of_files(root: &Path) -> Option<Label> {
    if !root.join("sys/fs/selinux/enforce").exists() {
        return None;
    }
    let kind = read(root, "etc/selinux/config", "SELINUXTYPE").unwrap_or_else(|| "targeted".to_owned());
    Label::parse(&read(root, &format!("etc/selinux/{kind}/contexts/lxc_contexts"), "file")?)
}

/// The value of a line `key = "value"`.
fn read(root: &Path, path: &str, wanted: &str) -> Option<String> {
    let text = fs::read_to_string(root.join(path)).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once('='));
    let value = lines.find(|(key, _)| key.trim() == wanted)?.1.trim().trim_matches('"');
    (!value.is_empty()).then(|| value.to_owned())
}

/// The mount option for a volume, where its pod has a label and the driver takes it.
///
/// # Errors
/// Containers of one pod cannot see one mount with different labels.
pub fn mount_option(
    request: &Request<'_>,
    driver: Option<&CSIDriverSpec>,
    files: Option<&Label>,
) -> Result<Option<String>, VolumeError> {
    let takes = driver.and_then(|driver| driver.se_linux_mount) == Some(true);
    let modes = request.spec.persistent().and_then(|volume| volume.access_modes.as_deref());
    let alone = modes.is_some_and(|modes| modes == ["ReadWriteOncePod"]);
    let (Some(files), true) = (files, takes && alone && !request.spec.is_block()) else { return Ok(None) };
    let label = label_of(request.pod, &request.volume.name, files)?;
    label.map(option).transpose()
}

/// In quotes, because levels have commas. A quote of the pod's own would end them, and begin options that nobody allowed.
fn option(Label(parts): Label) -> Result<String, VolumeError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.:,-".contains(c);
    match parts.iter().find(|part| !part.chars().all(plain)) {
        None => Ok(format!("context=\"{}\"", parts.join(":"))),
        Some(part) => Err(VolumeError::Invalid(format!(
            "{part:?} is no part of an SELinux label: letters, digits and _.:,- are"
        ))),
    }
}

/// The one label that the containers which mount the volume have for their files.
fn label_of(pod: &Pod, volume: &str, files: &Label) -> Result<Option<Label>, VolumeError> {
    let spec = pod.spec.clone().unwrap_or_default();
    let whole = spec.security_context.unwrap_or_default();
    let mounts = |container: &&Container| {
        let mut all = container.volume_mounts.iter().flatten();
        all.any(|mount| mount.name == volume)
    };
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let mut labels = containers.filter(mounts).map(|container| {
        let own = container.security_context.as_ref().and_then(|context| context.se_linux_options.as_ref());
        own.or(whole.se_linux_options.as_ref()).and_then(|options| label(options, files))
    });
    let Some(first) = labels.next() else { return Ok(None) };
    match labels.find(|label| *label != first) {
        // Who wants every file relabelled has no mount option, and as upstream no two labels either.
        None if whole.se_linux_change_policy.as_deref() == Some("Recursive") => Ok(None),
        None => Ok(first),
        Some(other) => {
            let shown = |label: Option<Label>| label.map(|Label(parts)| parts.join(":")).unwrap_or_default();
            Err(VolumeError::Invalid(format!(
                "volume {volume} is used with two different SELinux contexts in the same pod: {:?}, {:?}",
                shown(first),
                shown(other)
            )))
        }
    }
}

/// The label of files for these options of a process: user and level are the process's, role and type are files' own.
/// Without a level the runtime draws one that nobody else knows, so there is none to mount with.
fn label(options: &SELinuxOptions, Label(files): &Label) -> Option<Label> {
    let given = |option: &Option<String>| option.clone().filter(|text| !text.is_empty());
    let level = given(&options.level)?;
    let user = given(&options.user).unwrap_or_else(|| files[0].clone());
    Some(Label([user, files[1].clone(), files[2].clone(), level]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const CONTEXTS: &str = "process = \"system_u:system_r:container_t:s0\"\nfile = \"system_u:object_r:container_file_t:s0\"\nro_file=\"system_u:object_r:container_ro_file_t:s0\"\n";

    #[test]
    fn a_machine_has_labels_only_with_selinux() {
        let policy = ("etc/selinux/mls/contexts/lxc_contexts", CONTEXTS);
        let config = ("etc/selinux/config", "SELINUX=enforcing\nSELINUXTYPE=mls\n");
        let on = ("sys/fs/selinux/enforce", "1");
        assert_eq!(of_files(machine(&[policy, config]).path()), None, "it is installed, and off");
        assert_eq!(of_files(machine(&[on]).path()), None, "nobody says which label files have");
        let label = of_files(machine(&[on, policy, config]).path()).unwrap();
        assert_eq!(label.0, ["system_u", "object_r", "container_file_t", "s0"]);
        let targeted = ("etc/selinux/targeted/contexts/lxc_contexts", CONTEXTS);
        assert!(of_files(machine(&[on, targeted]).path()).is_some());
    }

    fn said(pod: Value) -> Result<Option<String>, String> {
        let pod: Pod = serde_json::from_value(json!({ "spec": pod })).unwrap();
        let files = Label::parse("system_u:object_r:container_file_t:s0").unwrap();
        let label = label_of(&pod, "v", &files).map_err(|error| error.to_string());
        label.map(|label| label.map(|Label(parts)| parts.join(":")))
    }

    #[test]
    fn no_label_brings_mount_options() {
        let of = |level: &str, user: &str| {
            let options = serde_json::from_value(json!({ "level": level, "user": user })).unwrap();
            let files = Label::parse("system_u:object_r:container_file_t:s0").unwrap();
            option(label(&options, &files).unwrap()).map_err(|error| error.to_string())
        };
        let good = "context=\"a-b.c_u:object_r:container_file_t:s0-s15:c0.c1023,c7\"";
        assert_eq!(of("s0-s15:c0.c1023,c7", "a-b.c_u").unwrap(), good);
        for (level, user) in [("s0\",suid,dev,context=\"x", ""), ("s0 c1", ""), ("s0\n", ""), ("s0", "u,\\")]
        {
            let refused = of(level, user).unwrap_err();
            assert!(refused.contains("is no part of an SELinux label"), "{refused}");
        }
    }

    #[test]
    fn the_label_is_that_of_the_containers_that_mount_it() {
        let mounts = json!([{ "name": "v", "mountPath": "/v" }]);
        let container = |options: Value| json!({ "name": "c", "volumeMounts": mounts, "securityContext": { "seLinuxOptions": options } });
        let plain = json!({ "name": "c", "volumeMounts": mounts });
        let level = json!({ "level": "s0:c1,c2" });
        let expected = Ok(Some("system_u:object_r:container_file_t:s0:c1,c2".to_owned()));
        let whole = |more: Value| {
            let mut context = json!({ "seLinuxOptions": level });
            context.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({ "containers": [plain], "securityContext": context })
        };
        assert_eq!(said(whole(json!({}))), expected);
        assert_eq!(said(whole(json!({ "seLinuxChangePolicy": "MountOption" }))), expected);
        assert_eq!(said(whole(json!({ "seLinuxChangePolicy": "Recursive" }))), Ok(None));
        let full = json!({ "user": "u", "role": "r", "type": "container_t", "level": "s0:c1,c2" });
        let full = said(json!({ "containers": [container(full)] }));
        assert_eq!(
            full,
            Ok(Some("u:object_r:container_file_t:s0:c1,c2".to_owned())),
            "type and role are files'"
        );
        assert_eq!(said(json!({ "containers": [plain] })), Ok(None));
        assert_eq!(said(json!({ "containers": [container(json!({ "type": "spc_t" }))] })), Ok(None));
        let other = container(json!({ "level": "s0:c3,c4" }));
        let two = said(json!({ "containers": [container(level.clone()), other] })).unwrap_err();
        assert_eq!(
            two,
            "volume v is used with two different SELinux contexts in the same pod: \
             \"system_u:object_r:container_file_t:s0:c1,c2\", \"system_u:object_r:container_file_t:s0:c3,c4\""
        );
        let elsewhere =
            json!({ "name": "d", "securityContext": { "seLinuxOptions": { "level": "s0:c3,c4" } } });
        assert_eq!(
            said(json!({ "containers": [container(level), elsewhere] })),
            expected,
            "it does not mount it"
        );
    }
}
