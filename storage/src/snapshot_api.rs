//! Reading of VolumeSnapshots, which are custom resources: a cluster has them where their definitions are installed.
//!
//! <https://kubernetes.io/docs/concepts/storage/volume-snapshots/>

use coracle_api::Quantity;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use serde_json::Value;

pub const GROUP: &str = "snapshot.storage.k8s.io";
pub const VERSION: &str = "v1";

/// A resource of the group.
pub fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

pub fn snapshots() -> ApiResource {
    resource("VolumeSnapshot", "volumesnapshots")
}

pub fn contents() -> ApiResource {
    resource("VolumeSnapshotContent", "volumesnapshotcontents")
}

/// A snapshot that volumes can be made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The driver's own name for it.
    pub handle: String,
    /// The smallest volume that holds it; 0 where nobody says.
    pub restore_bytes: i64,
    /// What a claim may not ask for something else than.
    pub volume_mode: Option<String>,
    /// The name of its content.
    pub content: String,
}

/// By which an administrator lets claims be of another mode than what they are made of.
pub const MODE_CHANGE: &str = "snapshot.storage.kubernetes.io/allow-volume-mode-change";

/// Looks a snapshot up; the inner error says why no volume can be made from it now.
pub async fn ready(
    client: &kube::Client,
    driver: &str,
    namespace: &str,
    name: &str,
) -> Result<Result<Ready, String>, kube::Error> {
    let all: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &snapshots());
    let snapshot = all.get(name).await?;
    let status = &snapshot.data["status"];
    if status["readyToUse"] != true || snapshot.metadata.deletion_timestamp.is_some() {
        return Ok(Err(format!("snapshot {name} is not Ready")));
    }
    let Some(content) = text(&status["boundVolumeSnapshotContentName"]) else {
        return Ok(Err(format!("snapshot {name} not bound")));
    };
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &contents());
    let content = all.get(content).await?;
    let reference = &content.data["spec"]["volumeSnapshotRef"];
    if reference["uid"].as_str() != snapshot.metadata.uid.as_deref() {
        return Ok(Err(format!("snapshot {name} and its content do not name each other")));
    }
    if content.data["spec"]["driver"] != driver {
        return Ok(Err(format!("snapshot {name} is of another driver than the claim's class")));
    }
    let may_change = content.metadata.annotations.as_ref().and_then(|a| a.get(MODE_CHANGE));
    let may_change = may_change.is_some_and(|may| may == "true");
    let volume_mode = text(&content.data["spec"]["sourceVolumeMode"]).filter(|_| !may_change);
    let restore_bytes =
        content.data["status"]["restoreSize"].as_i64().or_else(|| bytes(&status["restoreSize"]));
    Ok(match text(&content.data["status"]["snapshotHandle"]) {
        Some(handle) => Ok(Ready {
            handle: handle.to_owned(),
            restore_bytes: restore_bytes.unwrap_or(0),
            volume_mode: volume_mode.map(str::to_owned),
            content: content.metadata.name.clone().unwrap_or_default(),
        }),
        None => Err(format!("snapshot handle of {name} is not available")),
    })
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

fn bytes(value: &Value) -> Option<i64> {
    value.as_str()?.parse::<Quantity>().ok().map(Quantity::units)
}
