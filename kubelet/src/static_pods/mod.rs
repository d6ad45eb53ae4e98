//! Static pods: manifests in a directory, in one file or on a web server, run without the API server and shown to it as mirror pods
//! (https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/).

pub mod url;

use crate::configuration::config::Config;
use crate::pod_facts::labels::{CONFIG_HASH, CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE, FILE, HTTP};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, ResourceExt};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use tokio::net::unix::pipe;

/// Bytes for the events of one wake-up; one event takes at most 272 (inotify(7)).
const EVENTS: usize = 4096;

/// Tells of changes in the directory. What it cannot tell is found at the next look.
/// An inotify descriptor is read like a pipe.
pub struct Watch(Option<pipe::Receiver>);

impl Watch {
    /// Of the directory of static pods, or of the one that their single file lies in. Must be called inside the tokio
    /// runtime.
    pub fn new(config: &Config) -> Self {
        let path = config.static_pods_dir();
        let dir = path.parent().filter(|_| path.is_file()).unwrap_or(&path);
        Self::on(dir, "static pods")
    }

    /// Makes the directory where it is missing; `what` lies in it. Must be called inside the tokio runtime.
    pub fn on(dir: &Path, what: &'static str) -> Self {
        let watch = || -> std::io::Result<pipe::Receiver> {
            fs::create_dir_all(dir)?;
            let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
            let changes = AddWatchFlags::IN_CLOSE_WRITE
                | AddWatchFlags::IN_CREATE
                | AddWatchFlags::IN_MOVED_TO
                | AddWatchFlags::IN_MOVED_FROM
                | AddWatchFlags::IN_DELETE;
            inotify.add_watch(dir, changes)?;
            pipe::Receiver::from_owned_fd_unchecked(OwnedFd::from(inotify))
        };
        let made = watch();
        if let Err(error) = &made {
            tracing::warn!(path = %dir.display(), %error, "changes of {what} are not told");
        }
        Self(made.ok())
    }

    /// Returns when something changed; never where changes are not told. Cancel-safe.
    pub async fn changed(&self) {
        let Some(inotify) = &self.0 else { return std::future::pending().await };
        loop {
            if inotify.readable().await.is_err() {
                return std::future::pending().await;
            }
            match inotify.try_read(&mut [0; EVENTS]) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return std::future::pending().await,
                Ok(_) => return,
            }
        }
    }
}

/// Where a pod comes from is what the kubelet knows, never what the API server's object says: whoever may write
/// annotations could make their pod a static one, which is critical and has no uid at the API server.
pub fn came_from_api(pod: &mut Pod) {
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.remove(CONFIG_SOURCE);
    }
}

/// The pods of all manifests that can be read; others are reported and left out. Names starting with a dot are
/// editors' files.
pub fn read(config: &Config) -> Vec<Pod> {
    let place = config.static_pods_dir();
    let entries = fs::read_dir(&place).into_iter().flatten().flatten();
    let shown = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let all: Vec<PathBuf> =
        if place.is_file() { vec![place] } else { shown.map(|entry| entry.path()).collect() };
    let mut pods = Vec::new();
    for path in all.into_iter().filter(|path| path.is_file()) {
        let read = fs::read(&path).map_err(|e| e.to_string());
        match read.and_then(|bytes| manifests(&path.to_string_lossy(), &bytes, FILE, config)) {
            Ok(found) => pods.extend(found),
            Err(error) => tracing::error!(path = %path.display(), %error, "static pod manifest not usable"),
        }
    }
    pods
}

/// The pods of a document: one, or those of a list. `place` is a path or a URL.
fn manifests(place: &str, bytes: &[u8], source: &str, config: &Config) -> Result<Vec<Pod>, String> {
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
    // Through JSON's tree, which every other path decodes too: a second decoder for all of Pod would be megabytes.
    let document: Value = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    let pod = |index: usize, manifest: &Value| {
        let place = if index == 0 { place.to_owned() } else { format!("{place}#{index}") };
        parse(&place, bytes, manifest, source, config)
    };
    match (document["kind"].as_str(), document["items"].as_array()) {
        (Some("PodList" | "List"), Some(items)) => {
            items.iter().enumerate().map(|(at, item)| pod(at, item)).collect()
        }
        _ => Ok(vec![pod(0, &document)?]),
    }
}

/// The UID is made of the node, the place and what is there, so that a changed manifest is another pod.
fn parse(place: &str, bytes: &[u8], manifest: &Value, source: &str, config: &Config) -> Result<Pod, String> {
    let mut pod: Pod = serde_json::from_str(&manifest.to_string()).map_err(|e| e.to_string())?;
    let name = pod.metadata.name.clone().filter(|n| !n.is_empty()).ok_or("metadata.name is required")?;
    let spec = pod.spec.as_mut().ok_or("spec is required")?;
    if spec.containers.is_empty() {
        return Err("spec.containers is required".to_owned());
    }
    let mut hash = Sha256::new();
    for part in [config.node_name.as_bytes(), place.as_bytes(), bytes] {
        hash.update(part);
        hash.update([0]);
    }
    let uid = coracle_api::hex::text(&hash.finalize()[..16]);
    spec.node_name = Some(config.node_name.clone());
    spec.tolerations.get_or_insert_default().push(Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    });
    let meta = &mut pod.metadata;
    meta.name = Some(format!("{name}-{}", config.node_name));
    meta.namespace = Some(meta.namespace.clone().unwrap_or_else(|| "default".to_owned()));
    meta.uid = Some(uid.clone());
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(CONFIG_SOURCE.to_owned(), source.to_owned());
    annotations.insert(CONFIG_HASH.to_owned(), uid);
    annotations.insert(CONFIG_SEEN.to_owned(), Timestamp::now().to_string());
    pod.status = None;
    Ok(pod)
}

/// The object that shows a static pod, owned by its node.
pub async fn mirror(client: &kube::Client, pod: &Pod) -> Result<Pod, kube::Error> {
    let node = pod.spec.as_ref().and_then(|s| s.node_name.clone()).unwrap_or_default();
    let nodes: Api<Node> = Api::all(client.clone());
    let owner = nodes.get(&node).await?;
    let mut mirror = pod.clone();
    mirror.status = None;
    let meta = &mut mirror.metadata;
    meta.uid = None;
    let hash = meta.annotations.as_ref().and_then(|a| a.get(CONFIG_HASH).cloned()).unwrap_or_default();
    meta.annotations.get_or_insert_default().insert(CONFIG_MIRROR.to_owned(), hash);
    meta.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node,
        uid: owner.uid().unwrap_or_default(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
    Ok(mirror)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_facts::labels::{is_mirror, is_static};
    use std::path::Path;
    use std::time::Duration;

    #[tokio::test]
    async fn a_change_of_the_directory_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new("n1", "192.0.2.1".parse().unwrap());
        config.static_pods.path = Some(dir.path().join("new"));
        let watch = Watch::new(&config);
        for change in
            [|file: &Path| fs::write(file, "x").unwrap(), |file: &Path| fs::remove_file(file).unwrap()]
        {
            change(&dir.path().join("new/web.yaml"));
            tokio::time::timeout(Duration::from_secs(20), watch.changed()).await.expect("a change is told");
        }
    }

    #[test]
    fn a_pod_of_the_api_is_no_static_one_whatever_it_says() {
        use crate::pod_facts::critical::{is_critical, is_node_critical};
        let pod = serde_json::json!({ "metadata": { "name": "p", "annotations":
            { "kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "x", "mine": "kept" } },
            "spec": { "containers": [], "priorityClassName": "system-node-critical" } });
        let mut pod: Pod = serde_json::from_value(pod).unwrap();
        came_from_api(&mut pod);
        assert!(!is_static(&pod) && !is_critical(&pod) && !is_node_critical(&pod));
        assert_eq!(pod.annotations()["mine"], "kept");
        let shown = crate::pod_facts::labels::sandbox_annotations(&pod);
        assert_eq!(shown["kubernetes.io/config.source"], "api");
    }

    #[test]
    fn a_manifest_becomes_a_pod_of_this_node() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new("n1", "192.0.2.1".parse().unwrap());
        config.static_pods.path = Some(dir.path().to_owned());
        let manifest = "kind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}\n";
        fs::write(dir.path().join("web.yaml"), manifest).unwrap();
        fs::write(dir.path().join("bad.yaml"), "metadata: {name: x}\n").unwrap();
        fs::write(dir.path().join(".web.yaml.swp"), manifest).unwrap();
        let pods = read(&config);
        assert_eq!(pods.len(), 1);
        assert_eq!(
            (pods[0].name_any().as_str(), pods[0].namespace().as_deref()),
            ("web-n1", Some("default"))
        );
        assert!(is_static(&pods[0]) && !is_mirror(&pods[0]));
        let before = pods[0].uid();
        fs::write(dir.path().join("web.yaml"), manifest.replace("image: i", "image: j")).unwrap();
        assert_ne!(read(&config)[0].uid(), before);
        config.static_pods.path = Some(dir.path().join("web.yaml"));
        assert_eq!(read(&config).len(), 1, "the path may be a single manifest's");
    }
}
