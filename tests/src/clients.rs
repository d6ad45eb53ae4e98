//! Clients that nobody here wrote. `scripts/prepare` puts them into `~/.cache/coracle`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where `scripts/prepare` keeps what only tests use.
fn cache() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    base.expect("HOME is set").join("coracle")
}

#[track_caller]
fn found(path: PathBuf) -> PathBuf {
    assert!(path.exists(), "{} is missing: run scripts/prepare", path.display());
    path
}

#[track_caller]
fn on_path(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs = std::env::split_paths(&path);
    let program = dirs.find_map(|dir| Some(dir.join(name)).filter(|file| file.is_file()));
    program.unwrap_or_else(|| panic!("{name} is not on the PATH: run scripts/prepare"))
}

/// The kubectl that a user here has.
pub fn kubectl() -> PathBuf {
    on_path("kubectl")
}

/// kubectl 1.37.
pub fn newer_kubectl() -> PathBuf {
    found(cache().join("kubectl-1.37/kubectl"))
}

/// helm 4.
pub fn helm() -> PathBuf {
    found(cache().join("kubectl-1.37/helm"))
}

/// A Python that has the package `kubernetes`.
pub fn python() -> PathBuf {
    found(cache().join("python/bin/python"))
}

pub fn node() -> PathBuf {
    on_path("node")
}

/// The folder `node_modules` that has `@kubernetes/client-node`.
pub fn node_modules() -> PathBuf {
    found(cache().join("javascript/node_modules/@kubernetes/client-node"));
    cache().join("javascript/node_modules")
}

/// Definitions of custom resources as others publish them: a folder for each package.
pub fn definitions() -> PathBuf {
    found(cache().join("definitions/made-from"));
    cache().join("definitions")
}

/// `1.32` of a kubectl that says `v1.32.4-dispatcher`.
pub fn version_of(kubectl: &Path) -> String {
    let output = Command::new(kubectl).args(["version", "--client", "-o", "json"]).output();
    let text = String::from_utf8_lossy(&output.expect("kubectl runs").stdout).into_owned();
    let json: serde_json::Value = serde_json::from_str(&text).expect("kubectl's version is JSON");
    let version = json["clientVersion"]["gitVersion"].as_str().unwrap_or_default().to_owned();
    let mut parts = version.trim_start_matches('v').split('.');
    format!("{}.{}", parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}
