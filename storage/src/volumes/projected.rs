//! `projected`: several sources in one directory, among them the service account's token.

use super::atomic_writer::{Payload, Projection};
use super::objects::{ObjectError, TokenRequest};
use super::{Mounted, Record, Request, Spec, VolumeError, VolumePlugin, downward_api, payload, secret};
use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, ServiceAccountTokenProjection, VolumeProjection};
use std::time::Duration;

pub struct Projected;

/// The API's default and minimum for `expirationSeconds`.
const DEFAULT_EXPIRATION_SECONDS: i64 = 3600;

#[async_trait]
impl VolumePlugin for Projected {
    fn name(&self) -> &'static str {
        "kubernetes.io/projected"
    }

    fn supports(&self, spec: &Spec) -> bool {
        spec.inline().is_some_and(|volume| volume.projected.is_some())
    }

    async fn publish(&self, request: &Request<'_>, _: Option<&Record>) -> Result<Mounted, VolumeError> {
        let source = request.volume.projected.clone().unwrap_or_default();
        let mut files = Payload::new();
        let mut refresh: Option<Timestamp> = None;
        for projection in source.sources.iter().flatten() {
            let (more, due) = project(request, projection, source.default_mode).await?;
            files.extend(more);
            refresh = refresh.into_iter().chain(due).min();
        }
        secret::in_memory(request, files).await?;
        let refresh_after =
            refresh.map(|at| Duration::try_from(at.duration_since(request.now)).unwrap_or(Duration::ZERO));
        Ok(Mounted { read_only: true, refresh_after, ..Mounted::at(&request.dir) })
    }
}

async fn project(
    request: &Request<'_>,
    source: &VolumeProjection,
    mode: Option<i32>,
) -> Result<(Payload, Option<Timestamp>), VolumeError> {
    let namespace = request.namespace();
    if let Some(source) = &source.config_map {
        let optional = source.optional.unwrap_or(false);
        let object = request.objects.config_map(namespace, &source.name).await;
        let files = match unless_optional(object, optional)? {
            Some(object) => payload::config_map(&object, source.items.as_deref(), mode, optional)?,
            None => Payload::new(),
        };
        return Ok((files, None));
    }
    if let Some(source) = &source.secret {
        let optional = source.optional.unwrap_or(false);
        let object = request.objects.secret(namespace, &source.name).await;
        let files = match unless_optional(object, optional)? {
            Some(object) => payload::secret(&object, source.items.as_deref(), mode, optional)?,
            None => Payload::new(),
        };
        return Ok((files, None));
    }
    if let Some(source) = &source.downward_api {
        let items = source.items.as_deref().unwrap_or_default();
        return Ok((downward_api::files(request, items, mode)?, None));
    }
    if let Some(source) = &source.service_account_token {
        return token(request, source, mode).await;
    }
    match gated(source) {
        Some(kind) => Err(VolumeError::Invalid(format!(
            "projected source {kind} cannot be shown: its feature gate is off, as it is by default in v1.36"
        ))),
        // What an API server has dropped shows nothing.
        None => Ok((Payload::new(), None)),
    }
}

/// A source that no API server of this version keeps; a pod from a file, or from another server, may have it.
fn gated(source: &VolumeProjection) -> Option<&'static str> {
    let trust = source.cluster_trust_bundle.as_ref().map(|_| "clusterTrustBundle");
    trust.or(source.pod_certificate.as_ref().map(|_| "podCertificate"))
}

fn unless_optional<T>(object: Result<T, ObjectError>, optional: bool) -> Result<Option<T>, ObjectError> {
    match object {
        Err(ObjectError::NotFound { .. }) if optional => Ok(None),
        other => other.map(Some),
    }
}

async fn token(
    request: &Request<'_>,
    source: &ServiceAccountTokenProjection,
    mode: Option<i32>,
) -> Result<(Payload, Option<Timestamp>), VolumeError> {
    let meta = &request.pod.metadata;
    let account = request.pod.spec.as_ref().and_then(|s| s.service_account_name.clone());
    let wanted = TokenRequest {
        namespace: request.namespace().to_owned(),
        service_account: account.filter(|a| !a.is_empty()).unwrap_or_else(|| "default".to_owned()),
        audience: source.audience.clone().unwrap_or_default(),
        expiration_seconds: source.expiration_seconds.unwrap_or(DEFAULT_EXPIRATION_SECONDS),
        pod_name: meta.name.clone().unwrap_or_default(),
        pod_uid: meta.uid.clone().unwrap_or_default(),
    };
    let token = request.objects.token(&wanted).await?;
    let (mode, owner) = who_reads(request.fs_group().is_some(), single_user(request.pod), mode);
    let file = Projection { data: token.token.into_bytes(), mode, owner };
    Ok((Payload::from([(source.path.clone(), file)]), Some(token.refresh_at)))
}

/// Of a token: with one user for all containers only that user, with fsGroup the group too (its bits come with the group);
/// without either everybody in the pod.
fn who_reads(has_group: bool, user: Option<u32>, mode: Option<i32>) -> (u32, Option<u32>) {
    if has_group || user.is_some() { (0o600, user) } else { (payload::mode_bits(None, mode), None) }
}

/// The user that all containers run as, when the spec says so for each of them.
fn single_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let default = spec.security_context.as_ref().and_then(|c| c.run_as_user);
    let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut users = all.map(|c| c.security_context.as_ref().and_then(|s| s.run_as_user).or(default));
    let first = users.next()??;
    users.all(|user| user == Some(first)).then(|| u32::try_from(first).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_whose_gate_is_off_are_told_from_those_that_were_dropped() {
        let of = |value: serde_json::Value| gated(&serde_json::from_value(value).unwrap());
        assert_eq!(of(serde_json::json!({})), None);
        let bundle = serde_json::json!({ "clusterTrustBundle": { "path": "p" } });
        assert_eq!(of(bundle), Some("clusterTrustBundle"));
        let certificate =
            serde_json::json!({ "podCertificate": { "signerName": "a/b", "keyType": "ED25519" } });
        assert_eq!(of(certificate), Some("podCertificate"));
    }

    #[test]
    fn a_token_is_its_readers() {
        assert_eq!(
            who_reads(true, Some(1000), Some(0o644)),
            (0o600, Some(1000)),
            "the user's and the group's"
        );
        assert_eq!(who_reads(true, None, Some(0o644)), (0o600, None));
        assert_eq!(who_reads(false, Some(1000), Some(0o644)), (0o600, Some(1000)));
        assert_eq!(who_reads(false, None, Some(0o444)), (0o444, None));
    }
}
