//! The built-in provisioner `coracle.io/local-path`: a directory on the node that the claim's pod runs on. One runs
//! per node, makes that node's directories and removes them.

mod grow;
mod plan;

use crate::beneath::{Dir, remove_below};
use crate::facts::HOSTNAME;
use crate::provision;
use coracle_client::{
    Context, Controller, Delta, Informer, Next, ObjectKey, ReconcileError, Reconciler, Recorder,
};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use plan::Ending;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Where this node keeps its volumes.
#[derive(Clone, Debug)]
pub struct LocalPathConfig {
    pub node_name: String,
    /// Absolute; created when the first volume is made. `<data-dir>/local-path`.
    pub root: PathBuf,
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

struct LocalPath {
    client: kube::Client,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    nodes: Informer<Node>,
    recorder: Recorder,
    config: LocalPathConfig,
}

/// Runs one node's provisioner until `context.stop` is cancelled. `context.client` needs the rights of
/// `persistent-volume-binder`.
pub async fn run(context: Context, config: LocalPathConfig) {
    let component = format!("{}_{}", crate::facts::LOCAL_PATH, config.node_name);
    let informers = &context.informers;
    let reconciler = LocalPath {
        recorder: Recorder::new(context.client.clone(), &component, ""),
        client: context.client.clone(),
        claims: informers.of(),
        volumes: informers.of(),
        classes: informers.of(),
        nodes: informers.of(),
        config,
    };
    let (claims, volumes) = (reconciler.claims.clone(), reconciler.volumes.clone());
    let (classes, nodes) = (reconciler.classes.clone(), reconciler.nodes.clone());
    let of_class = {
        let claims = claims.clone();
        move |_: &Delta<StorageClass>| claims.list().iter().map(|c| claim_key(c)).collect::<Vec<_>>()
    };
    Controller::new(reconciler)
        .watch(&claims, |delta| delta.new.as_deref().map(claim_key))
        .watch(&volumes, |delta| delta.new.as_ref().map(|v| Key::Volume(v.name_any())))
        .watch(&classes, of_class)
        .reads(&nodes)
        .run(context.stop.clone())
        .await;
}

fn claim_key(claim: &PersistentVolumeClaim) -> Key {
    Key::Claim(ObjectKey::of(claim))
}

impl Reconciler for LocalPath {
    type Key = Key;

    fn name(&self) -> &'static str {
        crate::facts::LOCAL_PATH
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, ReconcileError> {
        match key {
            Key::Claim(key) => {
                self.grow(key).await?;
                self.provision(key).await
            }
            Key::Volume(name) => self.end(name).await,
        }
    }
}

impl LocalPath {
    /// The node's hostname label, which is its name unless somebody changed it.
    fn hostname(&self) -> String {
        let node = self.nodes.get("", &self.config.node_name);
        let label = node.and_then(|n| n.labels().get(HOSTNAME).cloned());
        label.unwrap_or_else(|| self.config.node_name.clone())
    }

    async fn provision(&self, key: &ObjectKey) -> Result<Next, ReconcileError> {
        let Some(claim) = self.claims.get_key(key) else { return Ok(Next::Done) };
        let class = self.classes.get("", crate::facts::class_of(&claim));
        if !plan::is_ours(&claim, class.as_deref(), &self.config.node_name) {
            return Ok(Next::Done);
        }
        let Some(class) = class.filter(|_| self.volumes.get("", &provision::volume_name(&claim)).is_none())
        else {
            return Ok(Next::Done);
        };
        let failed = |why: &str| {
            let message =
                format!("failed to provision volume with StorageClass \"{}\": {why}", class.name_any());
            self.recorder.warning(claim.as_ref(), "ProvisioningFailed", message.clone());
            ReconcileError::Other(message)
        };
        if let Some(why) = provision::refusal(&claim) {
            failed(why);
            return Ok(Next::Done);
        }
        let message = format!("External provisioner is provisioning volume for claim \"{key}\"");
        self.recorder.normal(claim.as_ref(), "Provisioning", message);
        let directory = plan::directory(&self.config.root, &claim);
        make_directory(&directory).await.map_err(|e| failed(&format!("{}: {e}", directory.display())))?;
        let volume = plan::volume(&claim, &class, &self.hostname(), &directory);
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        match api.create(&PostParams::default(), &volume).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(failed(&error.to_string())),
            Ok(_) => {
                let message = format!("Successfully provisioned volume {}", volume.name_any());
                self.recorder.normal(claim.as_ref(), "ProvisioningSucceeded", message);
                self.tell_no_limit(&claim);
            }
        }
        Ok(Next::Done)
    }

    async fn end(&self, name: &str) -> Result<Next, ReconcileError> {
        let Some(volume) = self.volumes.get("", name) else { return Ok(Next::Done) };
        match plan::ending(&volume, &self.hostname(), &self.config.root) {
            Ending::NotYet => return Ok(Next::Done),
            Ending::LetGo => {}
            Ending::Delete(path) => {
                if let Err(error) = remove_directory(&self.config.root, &path).await {
                    let message = format!("{}: {error}", path.display());
                    self.recorder.warning(volume.as_ref(), "VolumeFailedDelete", message.clone());
                    return Err(ReconcileError::Other(message));
                }
                provision::delete(&self.client, &volume).await?;
            }
        }
        provision::drop_finalizer(&self.client, name).await
    }
}

/// Open to every user: pods run as whoever they like, and only pods of the claim's namespace can mount it. The root
/// is closed to other users of the machine.
async fn make_directory(path: &Path) -> io::Result<()> {
    let path = path.to_owned();
    blocking(move || {
        let (Some(root), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if !root.try_exists()? {
            std::fs::create_dir_all(root)?;
            Dir::open(root)?.itself()?.chmod(0o711)?;
        }
        Dir::open(root)?.make_dir(name, 0o777)?.itself()?.chmod(0o777)
    })
    .await
}

/// Its pods may have nested what they liked, and linked to whatever they liked.
async fn remove_directory(root: &Path, path: &Path) -> io::Result<()> {
    let (root, path) = (root.to_owned(), path.to_owned());
    blocking(move || remove_below(&root, &path)).await
}

async fn blocking(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.into()))
}
