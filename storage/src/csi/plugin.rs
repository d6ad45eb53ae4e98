//! The volume plugin of all CSI drivers.

use super::messages::{NodeRpcType, VolumeCapability};
use super::source::{CsiData, CsiSource, check_lifecycle, pod_info};
use super::{Driver, Drivers, selinux};
use crate::volumes::{
    Mounted, Objects, Record, Request, Spec, TokenRequest, Usage, VolumeError, VolumePlugin, VolumesConfig,
    digest, give, make_dir_all,
};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::SecretReference;
use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

const NAME: &str = "kubernetes.io/csi";
/// Between publications for a driver that wants them again and again; upstream's kubelet looks at a pod's volumes as often.
const REPUBLISH_INTERVAL: Duration = Duration::from_secs(90);
/// How long a set-up waits for the controller to attach the volume before it is tried again later. Longer, and a pod that is
/// deleted meanwhile waits.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(15);
/// Between looks at an attachment, beside those that the Node's `volumesAttached` brings: for one that its status tells
/// nothing of.
const ATTACHMENT_INTERVAL: Duration = Duration::from_secs(5);
/// Seconds; upstream's for audiences that say nothing.
const TOKEN_SECONDS: i64 = 3600;

/// Volumes of CSI drivers.
pub struct Csi {
    config: VolumesConfig,
    drivers: Drivers,
    /// The unique names of what the Node says is attached to it.
    attached: watch::Receiver<BTreeSet<String>>,
    /// The label of containers' files, where the machine has SELinux.
    files: Option<selinux::Label>,
}

impl Csi {
    pub fn new(config: VolumesConfig, drivers: Drivers, attached: watch::Receiver<BTreeSet<String>>) -> Self {
        let files = selinux::of_files(&config.machine);
        Self { config, drivers, attached, files }
    }

    fn driver(&self, name: &str) -> Result<Arc<Driver>, VolumeError> {
        self.drivers.get(name).ok_or_else(|| VolumeError::UnknownDriver(name.to_owned()))
    }

    fn folder(&self) -> PathBuf {
        self.config.root.join("plugins/kubernetes.io/csi")
    }

    /// Upstream's layout: some drivers read the pod's UID off the path.
    fn places(&self, request: &Request<'_>, source: &CsiSource, staged: bool) -> (PathBuf, PathBuf) {
        let block = request.spec.is_block();
        let staging = if block {
            self.folder().join("volumeDevices/staging").join(&request.spec.name)
        } else {
            self.folder().join(&source.driver).join(digest(&source.handle)).join("globalmount")
        };
        let target = if block {
            self.folder().join("volumeDevices/publish").join(&request.spec.name).join(request.uid())
        } else {
            request.dir.join("mount")
        };
        (if staged { staging } else { PathBuf::new() }, target)
    }

    /// Waits until the volume is attached to this node; what the driver's controller said of that.
    async fn attachment(
        &self,
        objects: &dyn Objects,
        source: &CsiSource,
        volume: &str,
    ) -> Result<BTreeMap<String, String>, VolumeError> {
        let name = source.attachment_name(&self.config.node_name);
        let until = Instant::now() + ATTACH_TIMEOUT;
        let mut attached_to_node = self.attached.clone();
        loop {
            attached_to_node.mark_unchanged();
            let found = objects.attachment(&name).await?;
            let attached = found.filter(|a| a.metadata.deletion_timestamp.is_none());
            let status = attached.and_then(|attachment| attachment.status).filter(|status| status.attached);
            if let Some(status) = status {
                return Ok(status.attachment_metadata.unwrap_or_default());
            }
            if Instant::now() >= until {
                let node = self.config.node_name.clone();
                return Err(VolumeError::NotAttached { volume: volume.to_owned(), node });
            }
            let next = until.min(Instant::now() + ATTACHMENT_INTERVAL);
            // Either is good: the Node has changed, or it is time to look.
            let _ = tokio::time::timeout_at(next, attached_to_node.changed()).await;
        }
    }

    /// What both calls tell of the volume's use, and whether the driver takes the group.
    fn capability(
        &self,
        request: &Request<'_>,
        source: &CsiSource,
        driver: &Driver,
        object: Option<&CSIDriverSpec>,
    ) -> Result<(VolumeCapability, bool), VolumeError> {
        let group = request.fs_group().filter(|_| !request.spec.is_block() && source.takes_group(object));
        let delegated = driver.can(NodeRpcType::VolumeMountGroup);
        let mut source = source.clone();
        source.mount_options.extend(selinux::mount_option(request, object, self.files.as_ref())?);
        let capability = source.capability(request.spec.is_block(), driver, group.filter(|_| delegated));
        Ok((capability, group.is_some() && !delegated))
    }
}

fn data_of(record: &Record) -> Result<CsiData, VolumeError> {
    serde_json::from_value(record.data.clone()).map_err(VolumeError::Record)
}

/// By upstream's rule a driver that nobody has described wants to be attached.
fn needs_attachment(driver: Option<&CSIDriver>) -> bool {
    driver.is_none_or(|driver| driver.spec.attach_required.unwrap_or(true))
}

/// What a record is read for is the volume that it was made for.
fn wanted(request: &Request<'_>) -> Result<CsiSource, VolumeError> {
    CsiSource::of(request.spec, request.uid(), request.namespace())
        .ok_or_else(|| VolumeError::NoPlugin { kind: request.spec.kind() })
}

async fn secrets(
    objects: &dyn Objects,
    reference: Option<&SecretReference>,
) -> Result<BTreeMap<String, String>, VolumeError> {
    let Some(reference) = reference else { return Ok(BTreeMap::new()) };
    let (namespace, name) = (reference.namespace.as_deref(), reference.name.as_deref());
    let secret = objects.secret(namespace.unwrap_or_default(), name.unwrap_or_default()).await?;
    let entries = secret.data.iter().flatten();
    Ok(entries.map(|(key, value)| (key.clone(), String::from_utf8_lossy(&value.0).into_owned())).collect())
}

/// The tokens that a driver asks for, as the JSON that it gets, and when they are to be renewed.
async fn tokens(
    request: &Request<'_>,
    driver: &CSIDriverSpec,
) -> Result<Option<(String, Duration)>, VolumeError> {
    let mut all = serde_json::Map::new();
    let mut renew: Option<Duration> = None;
    for wanted in driver.token_requests.iter().flatten() {
        let account = request.pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        let token = request
            .objects
            .token(&TokenRequest {
                namespace: request.namespace().to_owned(),
                service_account: account.filter(|a| !a.is_empty()).unwrap_or_else(|| "default".to_owned()),
                audience: wanted.audience.clone(),
                expiration_seconds: wanted.expiration_seconds.unwrap_or(TOKEN_SECONDS),
                pod_name: request.pod.metadata.name.clone().unwrap_or_default(),
                pod_uid: request.uid().to_owned(),
            })
            .await?;
        let due = Duration::try_from(token.refresh_at.duration_since(request.now)).unwrap_or(Duration::ZERO);
        renew = Some(renew.map_or(due, |known| known.min(due)));
        let shown = json!({ "token": token.token, "expirationTimestamp": token.expires_at });
        all.insert(wanted.audience.clone(), shown);
    }
    Ok(renew.map(|due| (serde_json::Value::Object(all).to_string(), due)))
}

const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

#[async_trait]
impl VolumePlugin for Csi {
    fn name(&self) -> &'static str {
        NAME
    }

    fn supports(&self, spec: &Spec) -> bool {
        match spec.inline() {
            Some(volume) => volume.csi.is_some(),
            None => spec.persistent().is_some_and(|volume| volume.csi.is_some()),
        }
    }

    async fn prepare(&self, request: &Request<'_>) -> Result<Option<Record>, VolumeError> {
        let source = wanted(request)?;
        let driver = self.driver(&source.driver)?;
        let object = request.objects.csi_driver(&source.driver).await?;
        check_lifecycle(&source, object.as_ref())?;
        let attached = !source.ephemeral && needs_attachment(object.as_ref());
        let publish_context = if attached {
            self.attachment(request.objects, &source, &request.spec.name).await?
        } else {
            BTreeMap::new()
        };
        let staged = !source.ephemeral && driver.can(NodeRpcType::StageUnstageVolume);
        let (staging_path, target_path) = self.places(request, &source, staged);
        let republish = object.as_ref().and_then(|object| object.spec.requires_republish);
        let data = CsiData {
            driver: source.driver.clone(),
            handle: source.handle.clone(),
            staging_path,
            target_path: target_path.clone(),
            block: request.spec.is_block(),
            requires_republish: republish.unwrap_or(false),
            publish_context,
        };
        Ok(Some(Record {
            plugin: NAME.to_owned(),
            volume: String::new(),
            unique: source.unique_name(),
            staged,
            attached,
            path: target_path,
            claim: String::new(),
            data: serde_json::to_value(data).map_err(VolumeError::Record)?,
        }))
    }

    async fn stage(&self, request: &Request<'_>, record: &Record) -> Result<(), VolumeError> {
        let (source, data) = (wanted(request)?, data_of(record)?);
        let driver = self.driver(&data.driver)?;
        let object = request.objects.csi_driver(&data.driver).await?;
        let (capability, _) = self.capability(request, &source, &driver, object.as_ref().map(|o| &o.spec))?;
        let secrets = secrets(request.objects, source.stage_secret.as_ref()).await?;
        make_dir_all(&data.staging_path, 0o750)?;
        Ok(driver.stage(&source, &data, capability, secrets).await?)
    }

    async fn publish(&self, request: &Request<'_>, record: Option<&Record>) -> Result<Mounted, VolumeError> {
        let source = wanted(request)?;
        let data = data_of(record.ok_or_else(|| VolumeError::UnknownDriver(source.driver.clone()))?)?;
        let driver = self.driver(&data.driver)?;
        let object = request.objects.csi_driver(&data.driver).await?.map(|object| object.spec);
        let (capability, ours) = self.capability(request, &source, &driver, object.as_ref())?;
        let mut secrets = secrets(request.objects, source.publish_secret.as_ref()).await?;
        let mut context = source.attributes.clone();
        let mut refresh_after = data.requires_republish.then_some(REPUBLISH_INTERVAL);
        if let Some(object) = &object {
            if object.pod_info_on_mount == Some(true) {
                context.extend(pod_info(request, source.ephemeral));
            }
            if let Some((tokens, due)) = tokens(request, object).await? {
                let place = if object.service_account_token_in_secrets == Some(true) {
                    &mut secrets
                } else {
                    &mut context
                };
                place.insert(TOKENS.to_owned(), tokens);
                refresh_after = refresh_after.map(|after| after.min(due));
            }
        }
        make_dir_all(parent(&data.target_path), 0o750)?;
        driver.publish(&source, &data, capability, (secrets, context)).await?;
        if ours && request.first && !source.read_only {
            give(request, data.target_path.clone()).await?;
        }
        let read_only = source.read_only;
        Ok(Mounted { read_only, block: data.block, refresh_after, ..Mounted::at(&data.target_path) })
    }

    fn republishes(&self, record: &Record) -> bool {
        data_of(record).is_ok_and(|data| data.requires_republish)
    }

    async fn unpublish(&self, record: &Record) -> Result<(), VolumeError> {
        let data = data_of(record)?;
        self.driver(&data.driver)?.unpublish(&data).await?;
        if data.block {
            remove_left(&self.folder(), &data.target_path).await?;
        }
        Ok(())
    }

    async fn unstage(&self, record: &Record) -> Result<(), VolumeError> {
        let data = data_of(record)?;
        self.driver(&data.driver)?.unstage(&data).await?;
        remove_left(&self.folder(), &data.staging_path).await?;
        if data.block { Ok(()) } else { remove_left(&self.folder(), parent(&data.staging_path)).await }
    }

    async fn expand(
        &self,
        request: &Request<'_>,
        record: &Record,
        bytes: i64,
    ) -> Result<Option<i64>, VolumeError> {
        let (source, data) = (wanted(request)?, data_of(record)?);
        let driver = self.driver(&data.driver)?;
        if !driver.can(NodeRpcType::ExpandVolume) || source.read_only {
            return Ok(None);
        }
        let secrets = secrets(request.objects, source.expand_secret.as_ref()).await?;
        let capability = source.capability(data.block, &driver, None);
        Ok(Some(driver.expand(&data, capability, bytes, secrets).await?))
    }

    fn grows(&self, record: &Record) -> bool {
        let driver = data_of(record).ok().and_then(|data| self.drivers.get(&data.driver));
        driver.is_some_and(|driver| driver.can(NodeRpcType::ExpandVolume))
    }

    async fn usage(&self, record: &Record) -> Result<Option<Usage>, VolumeError> {
        let data = data_of(record)?;
        let driver = self.driver(&data.driver)?;
        if !driver.can(NodeRpcType::GetVolumeStats) {
            return Ok(None);
        }
        Ok(Some(driver.stats(&data).await?))
    }
}

/// Removes an empty directory or a file that the driver should have removed. One that is still mounted is an error, and so
/// is one that holds anything: what is in there is somebody's data.
async fn remove_left(root: &Path, path: &Path) -> Result<(), VolumeError> {
    let (root, path) = (root.to_owned(), path.to_owned());
    crate::volumes::blocking(move || {
        let removed = crate::beneath::remove_empty(&root, &path);
        removed.map_err(|error| VolumeError::io("remove", &path, error))
    })
    .await
}
