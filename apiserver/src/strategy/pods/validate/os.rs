//! Fields of one operating system do not stand in pods of the other (KEP-2802).

use super::super::super::value::*;
use serde_json::Value;

/// Of the pod's own security context and spec, what Windows has not.
const POD_LINUX: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
];

const CONTAINER_LINUX: [&str; 9] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
];

const WINDOWS: &str = "cannot be set for a windows pod";
const LINUX: &str = "windows options cannot be set for a linux pod";

pub fn all(spec: &Value, path: &Path, errors: &mut Errors) {
    match str_at(spec, "os.name") {
        "windows" => windows(spec, path, errors),
        "linux" => linux(spec, path, errors),
        _ => {}
    }
}

fn each_context<'a>(spec: &'a Value, path: &Path) -> Vec<(&'a Value, Path)> {
    let mut all = Vec::new();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (i, container) in list_at(spec, list).iter().enumerate() {
            all.push((at(container, "securityContext"), path.field(list).index(i).field("securityContext")));
        }
    }
    all
}

fn windows(spec: &Value, path: &Path, errors: &mut Errors) {
    let context = path.field("securityContext");
    for field in POD_LINUX {
        if has(at(spec, "securityContext"), field) {
            errors.forbidden(&context.field(field), WINDOWS);
        }
    }
    for field in ["hostUsers", "resources"] {
        if has(spec, field) {
            errors.forbidden(&path.field(field), WINDOWS);
        }
    }
    for field in ["hostPID", "hostIPC"] {
        if bool_at(spec, field) {
            errors.forbidden(&path.field(field), WINDOWS);
        }
    }
    if has(spec, "shareProcessNamespace") {
        errors.forbidden(&path.field("shareProcessNamespace"), WINDOWS);
    }
    for (context, here) in each_context(spec, path) {
        for field in CONTAINER_LINUX.iter().chain(&["runAsGroup"]) {
            if has(context, field) {
                errors.forbidden(&here.field(field), WINDOWS);
            }
        }
    }
}

fn linux(spec: &Value, path: &Path, errors: &mut Errors) {
    let own = (at(spec, "securityContext"), path.field("securityContext"));
    for (context, here) in std::iter::once(own).chain(each_context(spec, path)) {
        if has(context, "windowsOptions") {
            errors.forbidden(&here.field("windowsOptions"), LINUX);
        }
    }
}

/// Options of Windows containers themselves.
pub fn options(options: &Value, path: &Path, errors: &mut Errors) {
    /// Upstream's limits, in bytes: what Active Directory and Windows take.
    const GMSA_SPEC_MAX_BYTES: usize = 64 * 1024;
    const USER_MAX_BYTES: usize = 256 + 1 + 512;
    let name = str_at(options, "gmsaCredentialSpecName");
    if has(options, "gmsaCredentialSpecName") {
        super::super::super::rules::subdomain(name, &path.field("gmsaCredentialSpecName"), errors);
    }
    if has(options, "gmsaCredentialSpec") {
        let here = path.field("gmsaCredentialSpec");
        match str_at(options, "gmsaCredentialSpec") {
            "" => errors.invalid(&here, "", "gmsaCredentialSpec cannot be an empty string"),
            text if text.len() > GMSA_SPEC_MAX_BYTES => {
                let detail =
                    format!("gmsaCredentialSpec size must be under {} KiB", GMSA_SPEC_MAX_BYTES / 1024);
                errors.invalid(&here, text, &detail);
            }
            _ => {}
        }
    }
    if has(options, "runAsUserName") {
        let here = path.field("runAsUserName");
        let user = str_at(options, "runAsUserName");
        if user.is_empty() {
            errors.invalid(&here, "", "runAsUserName cannot be an empty string");
        } else if user.chars().any(char::is_control) {
            errors.invalid(&here, user, "runAsUserName cannot contain control characters");
        } else if user.len() > USER_MAX_BYTES {
            let detail = format!("runAsUserName length must be under {} characters", USER_MAX_BYTES + 1);
            errors.invalid(&here, user, &detail);
        } else if user.matches('\\').count() > 1 {
            errors.invalid(&here, user, "runAsUserName cannot contain more than one backslash");
        }
    }
}
