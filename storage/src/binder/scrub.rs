//! Emptying a volume in this process, where it reaches the data: then no pod is needed, and no image for it.

use super::Binder;
use super::reclaim::{FAILED_RECYCLE, LOOK_INTERVAL, RETRY_INTERVAL, Recycling, released_by};
use crate::NfsConfig;
use crate::beneath::{Dir, remove_below};
use crate::facts;
use crate::volumes::{NfsMount, VolumeError, digest, make_dir_all};
use coracle_client::{Action, ReconcileError};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The machine that the controllers run on, if it is a node.
#[derive(Clone)]
pub struct Here {
    pub node_name: String,
    /// How it mounts shares.
    pub nfs: NfsConfig,
}

/// Where a volume's data is.
#[derive(Debug, PartialEq)]
enum Place {
    /// A directory of this machine.
    Directory(PathBuf),
    Share(NfsMount),
}

/// What this machine reaches of the volume. Directories only of a cluster of one node: those of others have the same paths,
/// and the volume does not say whose it is.
fn reached(volume: &PersistentVolume, is_only_node: bool) -> Option<Place> {
    let spec = volume.spec.as_ref()?;
    if let Some(source) = &spec.nfs {
        return Some(Place::Share(NfsMount {
            server: source.server.clone(),
            path: source.path.clone(),
            options: spec.mount_options.clone().unwrap_or_default(),
            // As upstream's recycler: it writes whatever `readOnly` says.
            read_only: false,
        }));
    }
    let path = PathBuf::from(&spec.host_path.as_ref()?.path);
    // The root of a machine is nobody's volume.
    (is_only_node && path.is_absolute() && path.parent().is_some()).then_some(Place::Directory(path))
}

impl Binder {
    /// Empties the volume, if that can be done here: what is to be done next, else `None`.
    pub(super) async fn scrub(
        &self,
        volume: &Arc<PersistentVolume>,
    ) -> Result<Option<Action>, ReconcileError> {
        let Some(here) = &self.here else { return Ok(None) };
        let nodes = self.nodes.list();
        let is_only_node = nodes.len() == 1 && nodes[0].name_any() == here.node_name;
        let Some(place) = reached(volume, is_only_node) else { return Ok(None) };
        let (name, of) = (volume.name_any(), released_by(volume));
        let key = format!("{name}/{of:?}");
        let begun = self.removals.lock().remove(&key);
        let running = begun.unwrap_or_else(|| {
            let (host, uid) = (here.nfs.clone(), volume.uid().unwrap_or_default());
            tokio::task::spawn_blocking(move || empty(&host, &place, &uid))
        });
        if !running.is_finished() {
            self.removals.lock().insert(key, running);
            return Ok(Some(Action::RequeueAfter(LOOK_INTERVAL)));
        }
        if let Err(error) = running.await.map_err(io::Error::other).flatten() {
            let rest = Some(Instant::now() + RETRY_INTERVAL);
            self.recyclers.lock().insert(name, Recycling { of, pod: None, rest });
            let why = format!("Recycle failed: failed to recycle volume: {error}");
            self.fail(volume, FAILED_RECYCLE, &why).await?;
            return Ok(Some(Action::RequeueAfter(RETRY_INTERVAL)));
        }
        self.recorder.normal(volume.as_ref(), "VolumeRecycled", "Volume recycled");
        let by_hand = facts::annotation(volume.as_ref(), facts::BOUND_BY_CONTROLLER).is_none();
        let next = self.unbind(volume, by_hand).await?;
        self.forget(&name).await?;
        Ok(Some(next))
    }
}

/// Takes as long as there are files: not for an async thread.
fn empty(nfs: &NfsConfig, place: &Place, uid: &str) -> io::Result<()> {
    match place {
        Place::Directory(path) => empty_directory(path),
        Place::Share(share) => empty_share(nfs, share, uid).map_err(io::Error::other),
    }
}

/// A mount of its own, for as long as it takes. One that a process left when it was killed is used.
fn empty_share(nfs: &NfsConfig, share: &NfsMount, uid: &str) -> Result<(), VolumeError> {
    let place = nfs.root.join(format!("scrub-{}", digest(uid)));
    make_dir_all(&place, 0o700)?;
    if !nfs.mounter.mounts()?.contains(&place) {
        nfs.mounter.mount_nfs(share, &place)?;
    }
    let emptied = empty_directory(&place).map_err(|error| VolumeError::io("empty", &place, error));
    nfs.mounter.unmount(&place)?;
    emptied?;
    remove_below(&nfs.root, &place).map_err(|error| VolumeError::io("remove", &place, error))
}

/// Removes what is in a directory, which stays; no link is followed, and a mount is an error. One that is not there is empty.
fn empty_directory(path: &Path) -> io::Result<()> {
    let dir = match Dir::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    for entry in dir.entries()? {
        dir.remove(entry?.file_name())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn volume(spec: Value) -> PersistentVolume {
        serde_json::from_value(json!({ "metadata": { "name": "v" }, "spec": spec })).unwrap()
    }

    #[test]
    fn shares_are_reached_from_anywhere_and_directories_on_the_only_node() {
        let share = volume(
            json!({ "nfs": { "server": "s", "path": "/x", "readOnly": true }, "mountOptions": ["hard"] }),
        );
        let mount = NfsMount {
            server: "s".to_owned(),
            path: "/x".to_owned(),
            options: vec!["hard".to_owned()],
            read_only: false,
        };
        assert_eq!(reached(&share, false), Some(Place::Share(mount)));
        let directory = volume(json!({ "hostPath": { "path": "/data/a" } }));
        assert_eq!(reached(&directory, true), Some(Place::Directory("/data/a".into())));
        assert_eq!(reached(&directory, false), None);
        for path in ["/", "data"] {
            assert_eq!(reached(&volume(json!({ "hostPath": { "path": path } })), true), None, "{path}");
        }
        assert_eq!(reached(&volume(json!({ "csi": { "driver": "d", "volumeHandle": "h" } })), true), None);
    }

    #[test]
    fn a_directory_is_emptied_and_what_its_links_lead_to_is_left() {
        let place = tempfile::tempdir().unwrap();
        let (dir, elsewhere) = (place.path().join("volume"), place.path().join("elsewhere"));
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        std::fs::write(dir.join("a/b/file"), "x").unwrap();
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("file"), "gold").unwrap();
        std::os::unix::fs::symlink(&elsewhere, dir.join("link")).unwrap();
        for _ in 0..2 {
            empty_directory(&dir).unwrap();
            assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        }
        assert_eq!(std::fs::read_to_string(elsewhere.join("file")).unwrap(), "gold");
        empty_directory(&place.path().join("absent")).unwrap();
    }
}
