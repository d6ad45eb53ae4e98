//! What settings of all commands have in common.

use std::path::{Path, PathBuf};

pub const DEFAULT_DATA_DIR: &str = "/var/lib/coracle";
pub const DEFAULT_RUNTIME_ENDPOINT: &str = "unix:///run/containerd/containerd.sock";
const DEFAULT_KUBECONFIG: &str = "/etc/coracle/admin.conf";

/// Where the administrator's kubeconfig is, unless somebody asked for another place.
pub fn admin_conf(data_dir: &Path) -> PathBuf {
    if data_dir == Path::new(DEFAULT_DATA_DIR) {
        DEFAULT_KUBECONFIG.into()
    } else {
        data_dir.join("admin.conf")
    }
}

/// A struct whose fields are all options: of each the first one's, or where that is missing the second one's.
macro_rules! first_of {
    ($first:ident, $second:ident: $($field:ident),*) => {
        Self { $($field: $first.$field.or($second.$field)),* }
    };
}
pub(crate) use first_of;

pub fn or_note<T>(result: Result<T, String>, mistakes: &mut Vec<String>) -> Option<T> {
    result.map_err(|mistake| mistakes.push(mistake)).ok()
}

/// The node's name as the kubelet makes it of the host's: lower case, a valid DNS subdomain.
pub fn node_name(asked: Option<String>, mistakes: &mut Vec<String>) -> String {
    let name = asked.unwrap_or_else(|| {
        nix::unistd::gethostname().ok().and_then(|n| n.into_string().ok()).unwrap_or_default().to_lowercase()
    });
    let good = |part: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        edge(part.chars().next())
            && edge(part.chars().last())
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    if name.is_empty() || name.len() > 253 || !name.split('.').all(good) {
        mistakes.push(format!("node-name: \"{name}\" is no lowercase RFC 1123 subdomain"));
    }
    name
}
