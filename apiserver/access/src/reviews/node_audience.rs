//! Which audiences a kubelet may ask tokens for: those that its pod mounts, and those that RBAC names
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction>).

use super::{strings, text};
use crate::authz::node::node_of;
use crate::authz::{Attributes, Authorizer, Decision};
use coracle_api::go::quoted;
use coracle_api::{ApiError, Object, UserInfo};
use coracle_requests::ObjectReader;
use serde_json::Value;

pub(super) struct Request<'a> {
    pub user: &'a UserInfo,
    pub authorizer: &'a dyn Authorizer,
    pub read: &'a dyn ObjectReader,
    pub namespace: &'a str,
    pub account: &'a str,
    pub audiences: &'a Value,
}

/// `pod` is the one that the token will be bound to. Users that are no nodes pass.
pub(super) fn check(request: &Request<'_>, pod: &Object) -> Result<(), ApiError> {
    if node_of(request.user).is_none() {
        return Ok(());
    }
    let deny = |why: &str| Err(ApiError::forbidden("", "serviceaccounts", request.account, why));
    let audiences = strings(request.audiences);
    let audience = match audiences.as_slice() {
        [] => "",
        [one] => one,
        _ => return deny("node may only request 0 or 1 audiences"),
    };
    match references(request.read, pod, audience) {
        Ok(true) => return Ok(()),
        Ok(false) if is_granted(request, audience) => return Ok(()),
        Ok(false) => {}
        Err(why) => return deny(&format!("error validating audience {}: {why}", quoted(audience))),
    }
    deny(&format!(
        "audience {} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        quoted(audience),
        request.user.name
    ))
}

fn is_granted(request: &Request<'_>, audience: &str) -> bool {
    let verb = "request-serviceaccounts-token-audience";
    let asked = Attributes {
        name: request.account,
        version: "v1",
        ..Attributes::resource(request.user, verb, "", audience, request.namespace)
    };
    matches!(request.authorizer.authorize(&asked), Decision::Allow(_))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether a volume of the pod carries a token for the audience; the empty one is the API's.
///
/// # Errors
/// All objects behind the volumes that are not there, if none of the others wants the audience.
fn references(read: &dyn ObjectReader, pod: &Object, audience: &str) -> Result<bool, String> {
    let mut errors = Vec::new();
    for volume in items(&pod["spec"]["volumes"]) {
        if is_projected(volume, audience) {
            return Ok(true);
        }
        let wanted = match driver(read, pod, volume) {
            Ok(Some(driver)) => wants(read, &driver, audience),
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        match wanted {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) if errors.contains(&error) => {}
            Err(error) => errors.push(error),
        }
    }
    match errors.as_slice() {
        [] => Ok(false),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

fn is_projected(volume: &Value, audience: &str) -> bool {
    let tokens = items(&volume["projected"]["sources"]).iter().map(|s| &s["serviceAccountToken"]);
    let mut tokens = tokens.filter(|t| t.is_object());
    tokens.any(|token| text(token, "audience") == audience)
}

/// The CSI driver behind a volume, if there is one.
fn driver(read: &dyn ObjectReader, pod: &Object, volume: &Value) -> Result<Option<String>, String> {
    if let Some(driver) = driver_of(volume) {
        return Ok(Some(driver));
    }
    let namespace = text(&pod["metadata"], "namespace");
    let claim = match volume["persistentVolumeClaim"]["claimName"].as_str() {
        Some(name) => name.to_owned(),
        None if volume["ephemeral"].is_object() => {
            format!("{}-{}", text(&pod["metadata"], "name"), text(volume, "name"))
        }
        None => return Ok(None),
    };
    let there = |resource: &str, namespace: &str, name: &str| {
        let object = read.get(&format!("{resource}s."), namespace, name);
        object.ok_or_else(|| format!("{resource} {} not found", quoted(name)))
    };
    let claim = there("persistentvolumeclaim", namespace, &claim)?;
    let bound = there("persistentvolume", "", text(&claim["spec"], "volumeName"))?;
    Ok(driver_of(&bound["spec"]))
}

/// The driver of a volume's source, in a pod or a PersistentVolume: drivers stand in for the older kinds
/// (<https://kubernetes.io/docs/concepts/storage/volumes/#csi-migration>).
fn driver_of(source: &Value) -> Option<String> {
    const MIGRATED: [(&str, &str); 7] = [
        ("awsElasticBlockStore", "ebs.csi.aws.com"),
        ("azureDisk", "disk.csi.azure.com"),
        ("azureFile", "file.csi.azure.com"),
        ("cinder", "cinder.csi.openstack.org"),
        ("gcePersistentDisk", "pd.csi.storage.gke.io"),
        ("portworxVolume", "pxd.portworx.com"),
        ("vsphereVolume", "csi.vsphere.vmware.com"),
    ];
    if let Some(driver) = source["csi"]["driver"].as_str() {
        return Some(driver.to_owned());
    }
    let migrated = MIGRATED.iter().find(|(kind, _)| source[*kind].is_object());
    migrated.map(|(_, driver)| (*driver).to_owned())
}

fn wants(read: &dyn ObjectReader, driver: &str, audience: &str) -> Result<bool, String> {
    let found = read.get("csidrivers.storage.k8s.io", "", driver);
    let found = found.ok_or_else(|| format!("csidriver.storage.k8s.io {} not found", quoted(driver)))?;
    Ok(items(&found["spec"]["tokenRequests"]).iter().any(|request| text(request, "audience") == audience))
}
