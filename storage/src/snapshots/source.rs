//! The claim that a snapshot is taken of, which stays while that lasts.

use coracle_client::ReconcileError;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

/// Upstream's finalizer.
const HELD: &str = "snapshot.storage.kubernetes.io/pvc-as-source-protection";

fn is_held(claim: &PersistentVolumeClaim) -> bool {
    claim.finalizers().iter().any(|finalizer| finalizer == HELD)
}

/// Keeps the claim, unless it goes already.
pub async fn hold(client: &kube::Client, namespace: &str, name: &str) -> Result<(), ReconcileError> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let Some(claim) = api.get_opt(name).await? else { return Ok(()) };
    if is_held(&claim) || claim.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let mut finalizers = claim.finalizers().to_vec();
    finalizers.push(HELD.to_owned());
    write(client, &claim, finalizers).await
}

/// `known` is the claim as it was last seen.
pub async fn let_go(
    client: &kube::Client,
    known: Option<&PersistentVolumeClaim>,
) -> Result<(), ReconcileError> {
    let Some(claim) = known.filter(|claim| is_held(claim)) else { return Ok(()) };
    let rest = claim.finalizers().iter().filter(|finalizer| *finalizer != HELD);
    write(client, claim, rest.cloned().collect()).await
}

async fn write(
    client: &kube::Client,
    claim: &PersistentVolumeClaim,
    finalizers: Vec<String>,
) -> Result<(), ReconcileError> {
    let api: Api<PersistentVolumeClaim> =
        Api::namespaced(client.clone(), &claim.namespace().unwrap_or_default());
    let version = claim.resource_version();
    let patch = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": version } });
    match api.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        written => Ok(written.map(drop)?),
    }
}
