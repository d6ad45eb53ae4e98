//! `/var/log/containers`: a link to each container's log, named as collectors of logs expect
//! (`<pod>_<namespace>_<container>-<id>.log`).

use coracle_storage::beneath::Dir;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes that a name may have on most file systems, less the ending; upstream cuts there too.
const MAX_NAME: usize = 255 - ".log".len();

/// What a container's link is called.
pub fn name(pod: &Pod, container: &str, id: &str) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let (pod, namespace) = (part(&pod.metadata.name), part(&pod.metadata.namespace));
    let mut name = format!("{pod}_{namespace}_{container}-{id}");
    name.truncate(MAX_NAME);
    name + ".log"
}

/// Makes the link, unless it is there.
pub fn link(links: &Path, name: &str, log: &Path) -> io::Result<()> {
    std::fs::create_dir_all(links)?;
    match Dir::open(links)?.link(log, name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Makes what is missing of those that are `wanted`, by their names, and removes those that lead to logs which are gone.
/// What is not a link to one of the kubelet's logs is somebody else's.
pub fn mend(links: &Path, logs: &Path, wanted: &BTreeMap<String, PathBuf>) -> io::Result<()> {
    for (name, log) in wanted {
        link(links, name, log)?;
    }
    let dir = match Dir::open(links) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    for entry in dir.entries()? {
        let name = entry?.file_name();
        let Ok(target) = dir.read_link(&name) else { continue };
        if target.starts_with(logs) && target.symlink_metadata().is_err() {
            dir.remove(&name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn links_come_and_go_with_their_logs_and_others_stay() {
        let root = tempfile::tempdir().unwrap();
        let (links, logs) = (root.path().join("containers"), root.path().join("pods"));
        let log = |name: &str| {
            let path = logs.join("default_p_u").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, name).unwrap();
            path
        };
        let (first, second) = (log("0.log"), log("1.log"));
        let wanted =
            BTreeMap::from([("a.log".to_owned(), first.clone()), ("b.log".to_owned(), second.clone())]);
        mend(&links, &logs, &wanted).unwrap();
        mend(&links, &logs, &wanted).unwrap();
        assert_eq!(fs::read_to_string(links.join("a.log")).unwrap(), "0.log");
        std::os::unix::fs::symlink(root.path().join("elsewhere"), links.join("foreign.log")).unwrap();
        fs::remove_file(&second).unwrap();
        mend(&links, &logs, &BTreeMap::from([("a.log".to_owned(), first)])).unwrap();
        let mut left: Vec<_> = fs::read_dir(&links).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a.log", "foreign.log"]);
    }

    #[test]
    fn names_are_upstreams() {
        let pod: Pod =
            serde_json::from_value(serde_json::json!({ "metadata": { "name": "web", "namespace": "shop" } }))
                .unwrap();
        assert_eq!(name(&pod, "main", "0123"), "web_shop_main-0123.log");
        assert_eq!(name(&pod, &"x".repeat(300), "0123").len(), 255);
    }
}
