//! Fields of one operating system do not stand in pods of the other (KEP-2802).

use super::super::super::value::*;
use serde_json::Value;

/// Of the pod's own security context and spec, what Windows has not.
const POD_LINUX: [&str; 11] = [
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
    "seLinuxChangePolicy",
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
    host_processes(spec, path, errors);
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

/// Either all containers of a pod are processes of their host, or none is.
fn host_processes(spec: &Value, path: &Path, errors: &mut Errors) {
    let wish = |context: &Value| at(context, "windowsOptions.hostProcess").as_bool();
    let own = wish(at(spec, "securityContext"));
    let contexts = each_context(spec, path);
    let mut count = 0;
    for (context, here) in &contexts {
        let theirs = wish(context);
        if let (Some(own), Some(theirs)) = (own, theirs)
            && own != theirs
        {
            let detail = format!("pod hostProcess value must be identical if both are specified, was {own}");
            errors.invalid(&here.field("windowsOptions").field("hostProcess"), theirs, &detail);
        }
        count += usize::from(theirs.or(own) == Some(true));
    }
    if count == 0 {
        return;
    }
    if count != contexts.len() {
        let detail =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(path, "", detail);
    }
    if !bool_at(spec, "hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(&path.field("hostNetwork"), false, detail);
    }
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
        } else if user.matches('\\').count() > 1 {
            errors.invalid(&here, user, "runAsUserName cannot contain more than one backslash");
        } else {
            mistakes_of_user(user).into_iter().for_each(|detail| errors.invalid(&here, user, &detail));
        }
    }
}

/// `DOMAIN\\user` or `user`, as Active Directory names them.
fn mistakes_of_user(name: &str) -> Vec<String> {
    const DOMAIN_LIMIT: usize = 256;
    const USER_MAX_BYTES: usize = 104;
    let (domain, user) = name.split_once('\\').map_or((None, name), |(domain, user)| (Some(domain), user));
    let mut found = Vec::new();
    let mut say = |wrong: bool, detail: String| {
        if wrong {
            found.push(format!("runAsUserName's {detail}"));
        }
    };
    if let Some(domain) = domain {
        let net_bios = (1..=15).contains(&domain.chars().count())
            && !domain.starts_with('.')
            && !domain.contains(|c| "\\/:*?\"<>|".contains(c));
        let dns = coracle_api::validation::dns1123_subdomain(&domain.to_ascii_lowercase()).is_empty();
        say(domain.len() >= DOMAIN_LIMIT, format!("Domain length must be under {DOMAIN_LIMIT} characters"));
        say(!net_bios && !dns, "Domain doesn't match the NetBios nor the DNS format".to_owned());
    }
    say(user.is_empty(), "User cannot be empty".to_owned());
    let detail = format!("User length must not be longer than {USER_MAX_BYTES} characters");
    say(user.len() > USER_MAX_BYTES, detail);
    let blank = !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' '));
    say(blank, "User cannot contain only periods or spaces".to_owned());
    let odd = user.contains(|c| "\"/\\:;|=,+*?<>@[]".contains(c));
    say(odd, "User cannot contain the following characters: \"/\\:;|=,+*?<>@[]".to_owned());
    found
}
