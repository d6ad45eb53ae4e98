//! `persistentVolumeClaim` and `ephemeral`: the volume that a claim is bound to.

use super::{Mounted, Request, VolumeError, VolumePlugin, host_path, ownership};
use async_trait::async_trait;
use coracle_api::storage::ephemeral_claim;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Volume};
use std::path::PathBuf;

pub struct Claim;

#[async_trait]
impl VolumePlugin for Claim {
    fn name(&self) -> &'static str {
        "kubernetes.io/local-volume"
    }

    fn supports(&self, volume: &Volume) -> bool {
        volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()
    }

    async fn set_up(&self, request: &Request<'_>) -> Result<Mounted, VolumeError> {
        let name = claim_name(request);
        let namespace = request.namespace();
        let failed = |message: String| VolumeError::Claim {
            namespace: namespace.to_owned(),
            claim: name.clone(),
            message,
        };
        let claim = request.objects.claim(namespace, &name).await?;
        if request.volume.ephemeral.is_some() && !owned_by_pod(&claim, request) {
            return Err(failed("PVC was not created for the pod".to_owned()));
        }
        let volume_name = bound_volume(&claim).map_err(failed)?;
        let volume = request.objects.volume(volume_name).await?;
        check_binding(&claim, &volume).map_err(failed)?;
        let asked = request.volume.persistent_volume_claim.as_ref().and_then(|s| s.read_only);
        let mounted = mount(request, &volume).await?.ok_or_else(|| {
            failed(format!("persistent volume {volume_name:?} is of a kind that this node cannot mount"))
        })?;
        Ok(Mounted { read_only: asked.unwrap_or(false), ..mounted })
    }
}

fn claim_name(request: &Request<'_>) -> String {
    match &request.volume.persistent_volume_claim {
        Some(source) => source.claim_name.clone(),
        // The claim that the ephemeral volume controller makes.
        None => {
            ephemeral_claim(request.pod.metadata.name.as_deref().unwrap_or_default(), &request.volume.name)
        }
    }
}

fn owned_by_pod(claim: &PersistentVolumeClaim, request: &Request<'_>) -> bool {
    let uid = request.pod.metadata.uid.as_deref().unwrap_or_default();
    claim.metadata.owner_references.iter().flatten().any(|o| o.controller == Some(true) && o.uid == uid)
}

fn bound_volume(claim: &PersistentVolumeClaim) -> Result<&str, String> {
    if claim.metadata.deletion_timestamp.is_some() {
        return Err("PVC is being deleted".to_owned());
    }
    let bound = claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
    let name = claim.spec.as_ref().and_then(|s| s.volume_name.as_deref()).filter(|n| !n.is_empty());
    name.filter(|_| bound).ok_or_else(|| "PVC is not bound".to_owned())
}

fn check_binding(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<(), String> {
    let reference = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref());
    if reference.is_some_and(|r| r.uid == claim.metadata.uid) {
        return Ok(());
    }
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    Err(format!("PV {name:?} is not bound to the claim"))
}

/// `None` for sources that no plugin here can mount.
async fn mount(request: &Request<'_>, volume: &PersistentVolume) -> Result<Option<Mounted>, VolumeError> {
    let Some(spec) = &volume.spec else { return Ok(None) };
    if spec.volume_mode.as_deref() == Some("Block") {
        return Ok(None);
    }
    if let Some(source) = &spec.host_path {
        host_path::check(source)?;
        return Ok(Some(Mounted::at(&source.path)));
    }
    let Some(source) = &spec.local else { return Ok(None) };
    let path = PathBuf::from(&source.path);
    if !path.is_dir() {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(VolumeError::io("open local volume", &path, missing));
    }
    // Later its containers run, and what they have made of it since is theirs.
    if request.first {
        give(request, path.clone()).await?;
    }
    Ok(Some(Mounted::at(path)))
}

/// Gives the volume to the pod's group. It may have millions of files.
async fn give(request: &Request<'_>, path: PathBuf) -> Result<(), VolumeError> {
    let security = request.pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let policy = security.and_then(|c| c.fs_group_change_policy.as_deref());
    let (group, on_root_mismatch) = (request.group(), policy == Some("OnRootMismatch"));
    let of = path.clone();
    let work = tokio::task::spawn_blocking(move || ownership::apply(&path, group, on_root_mismatch));
    work.await.unwrap_or_else(|error| Err(VolumeError::io("set ownership of", &of, error.into())))
}
