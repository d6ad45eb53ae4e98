//! Which audiences a kubelet may ask tokens for: those that its pod mounts, and those that RBAC names
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction>).

use super::{strings, text};
use crate::authz::node::node_of;
use crate::authz::{Attributes, Authorizer, Decision};
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
    if mounts(request.read, pod, audience) || is_granted(request, audience) {
        return Ok(());
    }
    deny(&format!(
        "audience \"{audience}\" not found in pod spec volume, {} is not authorized to request tokens for this audience",
        request.user.name
    ))
}

fn is_granted(request: &Request<'_>, audience: &str) -> bool {
    let verb = "request-serviceaccounts-token-audience";
    let asked = Attributes {
        name: request.account,
        version: "*",
        ..Attributes::resource(request.user, verb, "", audience, request.namespace)
    };
    !audience.is_empty() && matches!(request.authorizer.authorize(&asked), Decision::Allow(_))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether a volume of the pod carries a token for the audience; the empty one is the API's.
fn mounts(read: &dyn ObjectReader, pod: &Object, audience: &str) -> bool {
    items(&pod["spec"]["volumes"]).iter().any(|volume| {
        let tokens = items(&volume["projected"]["sources"]).iter().map(|s| &s["serviceAccountToken"]);
        let mut tokens = tokens.filter(|t| t.is_object());
        tokens.any(|token| text(token, "audience") == audience)
            || driver(read, pod, volume).is_some_and(|driver| wants(read, &driver, audience))
    })
}

/// The CSI driver behind a volume, if there is one.
fn driver(read: &dyn ObjectReader, pod: &Object, volume: &Value) -> Option<String> {
    if let Some(driver) = volume["csi"]["driver"].as_str() {
        return Some(driver.to_owned());
    }
    let namespace = text(&pod["metadata"], "namespace");
    let claim = match volume["persistentVolumeClaim"]["claimName"].as_str() {
        Some(name) => name.to_owned(),
        None if volume["ephemeral"].is_object() => {
            format!("{}-{}", text(&pod["metadata"], "name"), text(volume, "name"))
        }
        None => return None,
    };
    let claim = read.get("persistentvolumeclaims.", namespace, &claim)?;
    let bound = read.get("persistentvolumes.", "", text(&claim["spec"], "volumeName"))?;
    bound["spec"]["csi"]["driver"].as_str().map(str::to_owned)
}

fn wants(read: &dyn ObjectReader, driver: &str, audience: &str) -> bool {
    let driver = read.get("csidrivers.storage.k8s.io", "", driver);
    driver.is_some_and(|d| {
        items(&d["spec"]["tokenRequests"]).iter().any(|request| text(request, "audience") == audience)
    })
}
