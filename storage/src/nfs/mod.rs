//! The built-in provisioner of NFS: directories of one share, by upstream's rules for nfs-subdir-external-provisioner.
//!
//! It serves classes of that provisioner whose parameters name `server` and `path`.
//! <https://github.com/kubernetes-sigs/nfs-subdir-external-provisioner>

mod plan;

use crate::beneath::{Dir, remove_below};
use crate::csi_control::DataSource;
use crate::provision;
use crate::volumes::{Mounter, NfsMount, VolumeError, blocking, digest, make_dir_all};
use coracle_client::{
    Action, Context, Controller, Delta, Informer, ObjectKey, ReconcileError, Reconciler, Recorder,
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use plan::Ending;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where this machine mounts the shares, to make and to remove directories in them.
#[derive(Clone)]
pub struct NfsConfig {
    /// Absolute; created when the first share is mounted. `<data-dir>/nfs`.
    pub root: PathBuf,
    pub mounter: Arc<dyn Mounter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Claim(ObjectKey),
    Volume(String),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(key) => write!(f, "claim {key}"),
            Self::Volume(name) => write!(f, "volume {name}"),
        }
    }
}

const NAME: &str = "nfs-provisioner";

struct Nfs {
    client: kube::Client,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    recorder: Recorder,
    config: NfsConfig,
}

/// Runs the provisioner until `context.stop` is cancelled. `context.client` needs the rights of
/// `persistent-volume-binder`.
pub async fn run(context: Context, config: NfsConfig) {
    let informers = &context.informers;
    let reconciler = Nfs {
        recorder: Recorder::new(context.client.clone(), NAME, ""),
        client: context.client.clone(),
        claims: informers.of(),
        volumes: informers.of(),
        classes: informers.of(),
        config,
    };
    let (claims, volumes, classes) =
        (reconciler.claims.clone(), reconciler.volumes.clone(), reconciler.classes.clone());
    let of_class = {
        let (claims, volumes) = (claims.clone(), volumes.clone());
        move |delta: &Delta<StorageClass>| {
            // Classes that are nothing to this provisioner are nearly all.
            if delta.new.as_ref().and_then(|class| plan::share(class)).is_none() {
                return Vec::new();
            }
            let of_claims = claims.list().into_iter().map(|claim| Key::Claim(ObjectKey::of(claim.as_ref())));
            of_claims.chain(volumes.list().into_iter().map(|volume| Key::Volume(volume.name_any()))).collect()
        }
    };
    Controller::new(reconciler)
        .watch(&claims, |delta| delta.new.as_ref().map(|claim| Key::Claim(ObjectKey::of(claim.as_ref()))))
        .watch(&volumes, |delta| delta.new.as_ref().map(|volume| Key::Volume(volume.name_any())))
        .watch(&classes, of_class)
        .run(context.stop.clone())
        .await;
}

impl Reconciler for Nfs {
    type Key = Key;
    const PATIENCE: Option<coracle_client::beat::Patience> = None;

    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, ReconcileError> {
        match key {
            Key::Claim(key) => self.provision(key).await,
            Key::Volume(name) => self.end(name).await,
        }
    }
}

impl Nfs {
    async fn provision(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(claim) = self.claims.get_key(key) else { return Ok(Action::AwaitChange) };
        let class = self.classes.get("", crate::facts::class_of(&claim));
        let Some((class, share)) = class.and_then(|class| plan::share(&class).map(|share| (class, share)))
        else {
            return Ok(Action::AwaitChange);
        };
        let known = self.volumes.get("", &provision::volume_name(&claim)).is_some();
        if known || !plan::is_due(&claim, &class) {
            return Ok(Action::AwaitChange);
        }
        if DataSource::of(&claim) == DataSource::Populator {
            let message = "Assuming an external populator will provision the volume";
            self.recorder.normal(claim.as_ref(), "Provisioning", message);
            return Ok(Action::AwaitChange);
        }
        let failed = |why: &str| {
            let message =
                format!("failed to provision volume with StorageClass \"{}\": {why}", class.name_any());
            self.recorder.warning(claim.as_ref(), "ProvisioningFailed", message.clone());
            message
        };
        let planned = match provision::refusal(&claim) {
            Some(why) => Err(why.to_owned()),
            None if DataSource::of(&claim) != DataSource::Empty => {
                Err("a volume cannot be made from a data source".to_owned())
            }
            None => plan::directory(&claim, &class),
        };
        let directory = match planned {
            Ok(directory) => directory,
            Err(why) => {
                failed(&why);
                return Ok(Action::AwaitChange);
            }
        };
        let message = format!("External provisioner is provisioning volume for claim \"{key}\"");
        self.recorder.normal(claim.as_ref(), "Provisioning", message);
        let made = self.in_share(&share, {
            let directory = directory.clone();
            // Open to every user, as upstream: the server squashes whom it likes.
            move |root| Dir::open(root)?.make_dir_all(&directory, 0o777).map(drop)
        });
        made.await.map_err(|error| ReconcileError::Other(failed(&error.to_string())))?;
        let volume = plan::volume(&claim, &class, &share, &directory);
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        match api.create(&PostParams::default(), &volume).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(ReconcileError::Other(failed(&error.to_string()))),
            Ok(_) => {
                let message = format!("Successfully provisioned volume {}", volume.name_any());
                self.recorder.normal(claim.as_ref(), "ProvisioningSucceeded", message);
            }
        }
        Ok(Action::AwaitChange)
    }

    async fn end(&self, name: &str) -> Result<Action, ReconcileError> {
        let Some(volume) = self.volumes.get("", name) else { return Ok(Action::AwaitChange) };
        let class = self.classes.get("", crate::facts::class_of_volume(&volume));
        let Some((class, share)) = class.and_then(|class| plan::share(&class).map(|share| (class, share)))
        else {
            return Ok(Action::AwaitChange);
        };
        let done = match plan::ending(&volume, &class, &share) {
            Ending::NotYet => return Ok(Action::AwaitChange),
            Ending::LetGo => Ok(()),
            Ending::Delete(path) => {
                self.in_share(&share, move |root| remove_below(root, &root.join(path))).await
            }
            Ending::Archive { from, to } => {
                self.in_share(&share, move |root| archive(root, &from, &to)).await
            }
        };
        if let Err(error) = done {
            let message = error.to_string();
            self.recorder.warning(volume.as_ref(), "VolumeFailedDelete", message.clone());
            return Err(ReconcileError::Other(message));
        }
        provision::delete(&self.client, &volume).await?;
        provision::drop_finalizer(&self.client, name).await
    }

    /// Does file work in the share, which is mounted where it is not yet.
    async fn in_share(
        &self,
        share: &NfsMount,
        work: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
    ) -> Result<(), VolumeError> {
        let (host, share) = (self.config.mounter.clone(), share.clone());
        let place = self.config.root.join(digest(&share.share()));
        blocking(move || {
            make_dir_all(&place, 0o700)?;
            if !host.mounts()?.contains(&place) {
                host.mount_nfs(&share, &place)?;
            }
            work(&place).map_err(|error| VolumeError::io("work in", &place, error))
        })
        .await
    }
}

/// Gives a directory the name of an archive. One that is gone already has been archived, or never was.
fn archive(root: &Path, from: &Path, to: &Path) -> io::Result<()> {
    let share = Dir::open(root)?;
    match share.node(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => drop(found?),
    }
    // An older archive of the name is nobody's to overwrite.
    let mut name = to.to_owned();
    for number in 1_u32.. {
        match share.node(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            found => drop(found?),
        }
        name = PathBuf::from(format!("{}-{number}", to.display()));
    }
    share.rename_from(from, &name)
}
