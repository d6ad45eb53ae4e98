//! The CNI configuration of the pod network: point-to-point links, whose range of addresses is the node's own.

use super::kernel::Wrapping;
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

/// Gives the network these ranges, one of each family at most; nothing is written where it has them already, or where
/// somebody else configured it.
pub fn ensure(config: &Config, ranges: &[String], wrapping: Wrapping) -> Result<(), Error> {
    let path = config.cni_conf_dir.join(FILE);
    let failed = |source| Error::Configuration { path: path.clone(), source };
    let before = match std::fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    let Some(text) = wanted(before.as_deref(), config, ranges, wrapping) else { return Ok(()) };
    std::fs::create_dir_all(&config.cni_conf_dir).map_err(failed)?;
    // The runtime watches the directory, and must not read half a file.
    let new = config.cni_conf_dir.join(".10-coracle.new");
    write_private(&new, &text).and_then(|()| std::fs::rename(&new, &path)).map_err(failed)?;
    tracing::info!(path = %path.display(), ranges = ranges.join(","), "pod network configured");
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

/// The file's new content, if it is to change. A present one keeps everything but the ranges, and the default route of a
/// family that is new to it.
fn wanted(before: Option<&str>, config: &Config, ranges: &[String], wrapping: Wrapping) -> Option<String> {
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
    let had = network.clone();
    let plugin = network.pointer_mut("/plugins/0")?;
    // Without a subnet it is nothing that this knows.
    plugin.pointer("/ipam/ranges/0/0/subnet")?;
    set_ranges(plugin.pointer_mut("/ipam")?, ranges);
    set_mtu(plugin, wrapping);
    if network == had && before.is_some() {
        return None;
    }
    Some(format!("{network:#}\n"))
}

/// Links of new pods take no packet that would not go to another node whole. What people wrote stays.
fn set_mtu(plugin: &mut Value, wrapping: Wrapping) {
    let Some(plugin) = plugin.as_object_mut() else { return };
    match wrapping {
        Wrapping::Mtu(mtu) => {
            plugin.entry("mtu").or_insert_with(|| mtu.into());
        }
        Wrapping::Ended(mtu) if plugin.get("mtu").is_some_and(|had| *had == mtu) => {
            plugin.remove("mtu");
        }
        Wrapping::Ended(_) | Wrapping::None => {}
    }
}

/// What people wrote beside the subnet of a family stays. A pod gets an address of each set of ranges, in their order.
fn set_ranges(ipam: &mut Value, ranges: &[String]) {
    let is_six = |text: &str| text.contains(':');
    let sets = ipam["ranges"].as_array().cloned().unwrap_or_default();
    let subnet = |set: &Value| set[0]["subnet"].as_str().unwrap_or_default().to_owned();
    let set = |range: &String| {
        let before = sets.iter().find(|set| !subnet(set).is_empty() && is_six(&subnet(set)) == is_six(range));
        let mut set = before.cloned().unwrap_or_else(|| json!([{}]));
        set[0]["subnet"] = range.as_str().into();
        set
    };
    ipam["ranges"] = ranges.iter().map(set).collect();
    let mut routes = ipam["routes"].as_array().cloned().unwrap_or_default();
    let everywhere: Vec<&str> =
        ranges.iter().map(|range| if is_six(range) { "::/0" } else { "0.0.0.0/0" }).collect();
    let leads_nowhere =
        |to: &Value| matches!(to.as_str(), Some(to @ ("::/0" | "0.0.0.0/0")) if !everywhere.contains(&to));
    routes.retain(|route| !leads_nowhere(&route["dst"]));
    for everywhere in &everywhere {
        let of_family =
            |route: &Value| route["dst"].as_str().is_some_and(|to| is_six(to) == is_six(everywhere));
        if !routes.iter().any(of_family) {
            routes.push(json!({ "dst": everywhere }));
        }
    }
    ipam["routes"] = routes.into();
}

fn template(config: &Config) -> Value {
    let mut ipam = json!({
        "type": "host-local", "ranges": [[{ "subnet": "" }]], "routes": [],
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
            cluster_cidrs: vec!["10.42.0.0/16".parse().expect("a range")],
            service_cidrs: Vec::new(),
            kept: Vec::new(),
            resolv_conf: "/nowhere".into(),
            cni_conf_dir: dir.to_owned(),
            addresses_dir,
            create,
            policy_metrics: std::sync::Arc::default(),
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
        ensure(&config, &["10.42.7.0/24".to_owned()], Wrapping::None).expect("written");
        assert_eq!(read()["plugins"][0]["ipam"]["ranges"][0][0]["subnet"], "10.42.7.0/24");
        assert_eq!(read()["plugins"][0]["ipam"]["dataDir"], "/data/cni");
        let mode = std::fs::metadata(dir.path().join(FILE)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "routes to pods are nobody else's to change or read");
        let mut edited = read();
        edited["plugins"][0]["mtu"] = 1400.into();
        std::fs::write(dir.path().join(FILE), edited.to_string()).expect("written");
        ensure(&config, &["10.42.8.0/24".to_owned()], Wrapping::None).expect("written");
        assert_eq!(read()["plugins"][0]["ipam"]["ranges"][0][0]["subnet"], "10.42.8.0/24");
        assert_eq!(read()["plugins"][0]["mtu"], 1400, "what people changed stays");
        assert!(
            wanted(Some(&read().to_string()), &config, &["10.42.8.0/24".to_owned()], Wrapping::None)
                .is_none()
        );
    }

    #[test]
    fn somebody_elses_network_is_left_alone() {
        let dir = tempfile::tempdir().expect("temporary directory");
        assert!(is_ours(dir.path(), true) && !is_ours(dir.path(), false));
        let range = ["10.42.7.0/24".to_owned()];
        ensure(&config(dir.path(), false), &range, Wrapping::None).expect("nothing to do");
        std::fs::write(dir.path().join("05-cilium.conflist"), "{}").expect("written");
        assert!(!is_ours(dir.path(), true));
        ensure(&config(dir.path(), true), &range, Wrapping::None).expect("nothing to do");
        assert!(!dir.path().join(FILE).exists());
    }

    #[test]
    fn a_second_family_gets_a_range_and_a_way_out() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let config = config(dir.path(), true);
        let words = |all: &[&str]| all.iter().map(|range| (*range).to_owned()).collect::<Vec<_>>();
        let of = |before: Option<&str>, ranges: &[&str]| -> Value {
            let text = wanted(before, &config, &words(ranges), Wrapping::None).expect("a change");
            serde_json::from_str::<Value>(&text).expect("JSON")["plugins"][0]["ipam"].clone()
        };
        let single = wanted(None, &config, &words(&["10.42.7.0/24"]), Wrapping::None).expect("a file");
        let edited = single
            .replace(r#""subnet": "10.42.7.0/24""#, r#""subnet": "10.42.7.0/24", "rangeStart": "10.42.7.9""#);
        let both = of(Some(&edited), &["fd42:0:0:7::/64", "10.42.7.0/24"]);
        let v4 = json!([{ "subnet": "10.42.7.0/24", "rangeStart": "10.42.7.9" }]);
        assert_eq!(both["ranges"], json!([[{ "subnet": "fd42:0:0:7::/64" }], v4]));
        assert_eq!(both["routes"], json!([{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }]));
        let six = of(Some(&single), &["fd42::/64"]);
        assert_eq!(
            (&six["ranges"], &six["routes"]),
            (&json!([[{ "subnet": "fd42::/64" }]]), &json!([{ "dst": "::/0" }]))
        );
    }

    #[test]
    fn links_are_as_wide_as_what_wraps_their_packets() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (config, range) = (config(dir.path(), true), ["10.42.7.0/24".to_owned()]);
        let next = |before: Option<&str>, wrapping| wanted(before, &config, &range, wrapping);
        let plain = next(None, Wrapping::None).expect("a file");
        let narrow = next(Some(&plain), Wrapping::Mtu(1450)).expect("a change");
        let read: Value = serde_json::from_str(&narrow).expect("JSON");
        assert_eq!(read["plugins"][0]["mtu"], 1450);
        assert_eq!(next(Some(&narrow), Wrapping::Mtu(1450)), None);
        assert_eq!(next(Some(&narrow), Wrapping::Mtu(1430)), None, "somebody may have written it");
        assert_eq!(next(Some(&narrow), Wrapping::Ended(1450)).as_ref(), Some(&plain));
        assert_eq!(next(Some(&narrow), Wrapping::Ended(1400)), None);
    }
}
