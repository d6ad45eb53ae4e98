//! The CNI configuration of the pod network: point-to-point links, whose range of addresses is the node's own.

use super::{Config, Error};
use serde_json::{Value, json};
use std::io;
use std::path::Path;

/// The same file that `scripts/up` writes.
const FILE: &str = "10-coracle.conflist";

/// Whether the pod network is ours to care for: our file is there, or nothing is and we may `create` it.
pub fn is_ours(cni_conf_dir: &Path, create: bool) -> bool {
    cni_conf_dir.join(FILE).exists() || (create && !has_another(cni_conf_dir))
}

fn has_another(dir: &Path) -> bool {
    let named = |path: &Path| {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        matches!(extension, "conf" | "conflist" | "json") && path.file_name().is_some_and(|n| n != FILE)
    };
    std::fs::read_dir(dir).is_ok_and(|entries| entries.flatten().any(|entry| named(&entry.path())))
}

/// Gives the network this range; nothing is written where it has it already, or where somebody else configured it.
pub fn ensure(config: &Config, range: &str) -> Result<(), Error> {
    let path = config.cni_conf_dir.join(FILE);
    let failed = |source| Error::Configuration { path: path.clone(), source };
    let before = match std::fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    let Some(text) = wanted(before.as_deref(), config, range) else { return Ok(()) };
    std::fs::create_dir_all(&config.cni_conf_dir).map_err(failed)?;
    // The runtime watches the directory, and must not read half a file.
    let new = config.cni_conf_dir.join(".10-coracle.new");
    write_private(&new, &text).and_then(|()| std::fs::rename(&new, &path)).map_err(failed)?;
    tracing::info!(path = %path.display(), range, "pod network configured");
    Ok(())
}

/// For its owner alone, whatever the umask and whatever a file of that name allowed before.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())
}

/// The file's new content, if it is to change. A present one keeps everything but the range.
fn wanted(before: Option<&str>, config: &Config, range: &str) -> Option<String> {
    let mut network = match before {
        Some(text) => match serde_json::from_str(text) {
            Ok(network) => network,
            Err(error) => {
                tracing::warn!(file = FILE, %error, "pod network configuration not understood, its range stays as it is");
                return None;
            }
        },
        None if is_ours(&config.cni_conf_dir, config.create) => template(config),
        None => return None,
    };
    let subnet = network.pointer_mut("/plugins/0/ipam/ranges/0/0/subnet")?;
    if *subnet == range {
        return None;
    }
    *subnet = range.into();
    Some(format!("{network:#}\n"))
}

fn template(config: &Config) -> Value {
    let mut ipam = json!({
        "type": "host-local", "ranges": [[{ "subnet": "" }]], "routes": [{ "dst": "0.0.0.0/0" }],
    });
    if let Some(dir) = &config.addresses_dir {
        ipam["dataDir"] = dir.to_string_lossy().into();
    }
    json!({
        "cniVersion": "0.4.0", "name": "coracle",
        "plugins": [
            { "type": "ptp", "ipMasq": false, "ipam": ipam },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn config(dir: &Path, create: bool) -> Config {
        let (node_name, addresses_dir) = ("n".to_owned(), Some("/data/cni".into()));
        Config {
            node_name,
            cluster_cidr: "10.42.0.0/16".parse().expect("a range"),
            service_cidr: None,
            kept: Vec::new(),
            resolv_conf: "/nowhere".into(),
            cni_conf_dir: dir.to_owned(),
            addresses_dir,
            create,
        }
    }

    #[test]
    fn the_range_follows_the_node() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let config = config(dir.path(), true);
        let read = || -> Value {
            let text = std::fs::read_to_string(dir.path().join(FILE)).expect("the file");
            serde_json::from_str(&text).expect("JSON")
        };
        ensure(&config, "10.42.7.0/24").expect("written");
        assert_eq!(read()["plugins"][0]["ipam"]["ranges"][0][0]["subnet"], "10.42.7.0/24");
        assert_eq!(read()["plugins"][0]["ipam"]["dataDir"], "/data/cni");
        let mode = std::fs::metadata(dir.path().join(FILE)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "routes to pods are nobody else's to change or read");
        let mut edited = read();
        edited["plugins"][0]["mtu"] = 1400.into();
        std::fs::write(dir.path().join(FILE), edited.to_string()).expect("written");
        ensure(&config, "10.42.8.0/24").expect("written");
        assert_eq!(read()["plugins"][0]["ipam"]["ranges"][0][0]["subnet"], "10.42.8.0/24");
        assert_eq!(read()["plugins"][0]["mtu"], 1400, "what people changed stays");
        assert!(wanted(Some(&read().to_string()), &config, "10.42.8.0/24").is_none());
    }

    #[test]
    fn somebody_elses_network_is_left_alone() {
        let dir = tempfile::tempdir().expect("temporary directory");
        assert!(is_ours(dir.path(), true) && !is_ours(dir.path(), false));
        ensure(&config(dir.path(), false), "10.42.7.0/24").expect("nothing to do");
        std::fs::write(dir.path().join("05-cilium.conflist"), "{}").expect("written");
        assert!(!is_ours(dir.path(), true));
        ensure(&config(dir.path(), true), "10.42.7.0/24").expect("nothing to do");
        assert!(!dir.path().join(FILE).exists());
    }
}
