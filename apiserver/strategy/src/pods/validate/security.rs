//! Security contexts of pods and containers.

use super::super::super::rules::{self, internal};
use super::super::super::value::*;
use super::os;
use coracle_api::{FieldError, Origin};
use serde_json::Value;

const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
/// The longest path that Linux takes, without its terminating zero.
const PROFILE_MAX_BYTES: usize = 4095;
const MAX_ID: i64 = i32::MAX as i64;
const ID_RANGE: &str = "must be between 0 and 2147483647, inclusive";
/// How volumes get their SELinux labels: by mount options (`MountOption`) only with the gate SELinuxMount, which is off in 1.36.
const LABELLING: &str = "seLinuxChangePolicy";

pub fn pod(context: &Value, path: &Path, errors: &mut Errors) {
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(at(context, field), &path.field(field), errors);
    }
    for (i, group) in list_at(context, "supplementalGroups").iter().enumerate() {
        id(group, &path.field("supplementalGroups").index(i), errors);
    }
    rules::one_of_if_set(context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], path, errors);
    errors.with_origin(&Origin::VolumeLabelling, |errors| {
        rules::one_of_if_there(context, LABELLING, &["Recursive"], path, errors);
    });
    rules::one_of_if_set(context, "supplementalGroupsPolicy", &["Merge", "Strict"], path, errors);
    let mut seen = std::collections::HashSet::new();
    for (i, sysctl) in list_at(context, "sysctls").iter().enumerate() {
        let here = path.field("sysctls").index(i).field("name");
        match str_at(sysctl, "name") {
            "" => errors.required(&here, ""),
            name if !is_sysctl(name) => {
                let detail = format!("must have at most 253 characters and match regex {SYSCTL_REGEX}");
                errors.invalid(&here, name, &detail);
            }
            name if !seen.insert(name) => errors.duplicate(&here, name),
            _ => {}
        }
    }
    profiles(context, path, errors);
}

/// What ends the refusal of a kernel setting that a pod would have for its host too.
const SHARED: [&str; 2] =
    ["may not be specified when 'hostNetwork' is true", "may not be specified when 'hostIPC' is true"];

/// Kernel settings of namespaces that the pod shares with its host. `spec` is the pod's, at `path`.
pub fn shared_sysctls(spec: &Value, path: &Path, errors: &mut Errors) {
    let here = path.field("securityContext").field("sysctls");
    for (i, sysctl) in list_at(spec, "securityContext.sysctls").iter().enumerate() {
        let name = str_at(sysctl, "name");
        for (field, detail) in ["hostNetwork", "hostIPC"].into_iter().zip(SHARED) {
            if bool_at(spec, field) && namespace_of(name) == Some(field) {
                errors.with_origin(&Origin::SharedSysctl, |errors| {
                    errors.invalid(&here.index(i).field("name"), name, detail);
                });
            }
        }
    }
}

/// On update: what of the new object is wrong is forgiven where the old one had it too.
pub fn forgive_contexts(errors: &mut Vec<FieldError>, new: &Value, old: &Value) {
    if errors.is_empty() {
        return;
    }
    if shares(old) {
        errors.retain(|error| error.origin != Some(Origin::SharedSysctl));
    }
    if labels_by_mount(new) && labels_by_mount(old) {
        errors.retain(|error| error.origin != Some(Origin::VolumeLabelling));
    }
}

/// Whether the value is or holds such a context.
fn labels_by_mount(value: &Value) -> bool {
    value[LABELLING] == "MountOption"
        || value.as_object().is_some_and(|fields| fields.values().any(labels_by_mount))
}

/// Whether the value is or holds the spec of a pod with such settings.
fn shares(value: &Value) -> bool {
    let mut found = Vec::new();
    find_shared(value, &mut found);
    !found.is_empty()
}

/// What is said of such settings in whatever spec of a pod the value is or holds, with paths that begin at the spec.
fn find_shared(value: &Value, found: &mut Vec<FieldError>) {
    shared_sysctls(value, &Path::root("spec"), &mut Errors(found));
    value
        .as_object()
        .into_iter()
        .flat_map(|fields| fields.values())
        .for_each(|value| find_shared(value, found));
}

/// The field by which a pod shares the namespace of a setting; where slashes part its name, dots stand for slashes.
fn namespace_of(name: &str) -> Option<&'static str> {
    let slashes = name.find(['.', '/']).is_some_and(|at| name.as_bytes()[at] == b'/');
    let name = if slashes { name.replace('.', "\0").replace('/', ".") } else { name.to_owned() };
    let ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."];
    if name.starts_with("net.") {
        return Some("hostNetwork");
    }
    (name == "kernel.sem" || ipc.iter().any(|prefix| name.starts_with(prefix))).then_some("hostIPC")
}

const SYSCTL_REGEX: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

fn is_sysctl(name: &str) -> bool {
    let part = |part: &str| {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = part.as_bytes();
        bytes.first().is_some_and(|b| plain(*b))
            && bytes.last().is_some_and(|b| plain(*b))
            && bytes.iter().all(|b| plain(*b) || b"-_".contains(b))
    };
    name.len() <= 253 && name.split(['.', '/']).all(part)
}

pub fn container(context: &Value, own_users: bool, path: &Path, errors: &mut Errors) {
    for field in ["runAsUser", "runAsGroup"] {
        id(at(context, field), &path.field(field), errors);
    }
    rules::one_of_if_set(context, "procMount", &["Default", "Unmasked"], path, errors);
    if str_at(context, "procMount") == "Unmasked" && !own_users {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.invalid(&path.field("procMount"), "Unmasked", detail);
    }
    profiles(context, path, errors);
    if at(context, "allowPrivilegeEscalation") != &Value::Bool(false) {
        return;
    }
    let shown = || internal::shown(context, internal::SECURITY_CONTEXT);
    if bool_at(context, "privileged") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.invalid_as(path, &shown(), detail);
    }
    if strings_at(context, "capabilities.add").any(|c| c == "CAP_SYS_ADMIN") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        errors.invalid_as(path, &shown(), detail);
    }
}

fn id(value: &Value, path: &Path, errors: &mut Errors) {
    if let Some(id) = value.as_i64()
        && !(0..=MAX_ID).contains(&id)
    {
        errors.invalid(path, id, ID_RANGE);
    }
}

fn profiles(context: &Value, path: &Path, errors: &mut Errors) {
    os::options(at(context, "windowsOptions"), &path.field("windowsOptions"), errors);
    for (field, what) in [("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")] {
        let (profile, here) = (at(context, field), path.field(field));
        if profile.is_null() {
            continue;
        }
        match str_at(profile, "type") {
            "" => errors.required(&here.field("type"), &format!("type is required when {field} is set")),
            kind if !PROFILES.contains(&kind) => errors.not_supported(&here.field("type"), kind, &PROFILES),
            _ => {}
        }
        let local = str_at(profile, "type") == "Localhost";
        local_profile(profile, what, local, &here.field("localhostProfile"), errors);
    }
}

fn local_profile(profile: &Value, what: &str, is_local: bool, path: &Path, errors: &mut Errors) {
    let file = str_at(profile, "localhostProfile");
    if !is_local {
        if has(profile, "localhostProfile") {
            let detail = format!("can only be set when {what} type is Localhost");
            match what {
                "seccomp" => errors.invalid_as(path, &internal::shown(profile, internal::PROFILE), &detail),
                _ => errors.invalid(path, file, &detail),
            }
        }
    } else if !has(profile, "localhostProfile") || (file.is_empty() && what == "AppArmor") {
        errors.required(path, &format!("must be set when {what} type is Localhost"));
    } else if what == "seccomp" {
        super::volumes::relative(file, path, errors);
    } else if file.trim() != file {
        errors.invalid(path, file, "must not be padded with whitespace");
    } else if file.len() > PROFILE_MAX_BYTES {
        errors.too_long(path, PROFILE_MAX_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kernel_settings_of_shared_namespaces_are_refused_unless_they_were_there() {
        let spec = |fields: [&str; 2]| {
            let sysctls = ["net.a", "net/ipv4/b", "kernel.sem", "kernel.shm_x", "kernel.other"]
                .map(|name| json!({ "name": name, "value": "1" }));
            let mut spec = json!({ "securityContext": { "sysctls": sysctls } });
            fields.iter().for_each(|field| spec[*field] = true.into());
            spec
        };
        let told = |spec: &Value| {
            let mut errors = Vec::new();
            shared_sysctls(spec, &Path::root("spec"), &mut Errors(&mut errors));
            errors
        };
        assert!(told(&spec(["hostPID", "hostUsers"])).is_empty());
        let shared = spec(["hostNetwork", "hostIPC"]);
        let texts: Vec<String> = told(&shared).iter().map(ToString::to_string).collect();
        assert_eq!(
            texts[..2],
            ["net.a", "net/ipv4/b"].map(|name| {
                let at = usize::from(name.contains('/'));
                format!("spec.securityContext.sysctls[{at}].name: Invalid value: \"{name}\": {}", SHARED[0])
            })
        );
        assert!(texts[2..].iter().all(|text| text.ends_with(SHARED[1])) && texts.len() == 4, "{texts:?}");
        let mut errors = told(&shared);
        let new = json!({ "spec": { "template": { "spec": shared } } });
        let old = json!({ "spec": { "template": { "spec": spec(["hostPID", "hostUsers"]) } } });
        forgive_contexts(&mut errors, &new, &old);
        assert_eq!(errors.len(), 4);
        forgive_contexts(&mut errors, &new, &new);
        assert!(errors.is_empty());
    }

    #[test]
    fn volumes_are_labelled_by_mount_options_only_where_they_were() {
        let spec = json!({ "securityContext": { "seLinuxChangePolicy": "MountOption" } });
        let mut found = Vec::new();
        pod(&spec["securityContext"], &Path::root("spec").field("securityContext"), &mut Errors(&mut found));
        let refused = "spec.securityContext.seLinuxChangePolicy: Unsupported value: \"MountOption\": supported values: \
                       \"Recursive\"";
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), [refused]);
        let new = json!({ "spec": { "template": { "spec": spec } } });
        forgive_contexts(&mut found, &new, &json!({ "spec": { "template": { "spec": {} } } }));
        assert_eq!(found.len(), 1);
        forgive_contexts(&mut found, &new, &new);
        assert!(found.is_empty());
    }
}
