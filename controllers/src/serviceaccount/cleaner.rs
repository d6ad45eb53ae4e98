//! Tokens of Secrets that nobody has used for a year: marked invalid, and deleted after another year
//! (<https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#legacy-serviceaccount-token-cleaner>).
//!
//! Only those that the control plane once made by itself, which their account still names; those made by hand stay.

use super::tokens::{ACCOUNT_NAME, ACCOUNT_UID, TYPE};
use crate::clients::Clients;
use crate::common::code_of;
use coracle_api::well_known;
use coracle_client::informer::{api_for, deleting, uid_of};
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler, WorkQueue};
use jiff::civil::Date;
use jiff::{Timestamp, ToSpan};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const ACCOUNT: &str = "legacy-service-account-token-cleaner";
/// Upstream's `--legacy-service-account-token-clean-up-period`, in days.
const CLEAN_UP_DAYS: i64 = 365;
const CLEANUP_INTERVAL: Duration = Duration::from_secs(24 * 3600);
const LAST_USED: &str = well_known::LEGACY_TOKEN_LAST_USED;
const INVALID_SINCE: &str = well_known::LEGACY_TOKEN_INVALID_SINCE;
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";

struct Cleaner {
    client: kube::Client,
    accounts: Informer<ServiceAccount>,
    secrets: Informer<Secret>,
    /// As the controller manager: the cleaner's own account may not list pods, and shared copies of them say nothing of
    /// Secrets.
    pods: kube::Client,
}

/// All Secrets are looked at together, once a day.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct All;

impl std::fmt::Display for All {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("secrets")
    }
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let only = &format!("type={TYPE}");
    let accounts = clients.informers.of::<ServiceAccount>();
    let secrets = clients.informers.selected::<Secret>(only, stop.clone());
    let reconciler = Cleaner {
        client: clients.client(ACCOUNT),
        accounts: accounts.clone(),
        secrets: secrets.clone(),
        pods: clients.own(),
    };
    let queue = WorkQueue::new();
    queue.add(All);
    let controller = Controller::with_queue(reconciler, queue);
    controller.reads(&accounts).reads(&secrets).run(stop).await;
}

impl Reconciler for Cleaner {
    type Key = All;

    fn name(&self) -> &'static str {
        "legacy-service-account-token-cleaner"
    }

    async fn reconcile(&self, _: &All) -> Result<Action, ReconcileError> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "kube-system");
        let tracked = maps.get_opt(TRACKING).await?.and_then(|map| map.data?.get("since")?.parse().ok());
        let now = Timestamp::now();
        let Some(limit) = tracked.and_then(|since| limit(since, now)) else {
            return Ok(Action::RequeueAfter(CLEANUP_INTERVAL));
        };
        for secret in self.secrets.list() {
            let step = step(&secret, limit);
            if step == Step::Keep || !self.is_made(&secret) || self.is_mounted(&secret).await? {
                continue;
            }
            self.take(&secret, step, now).await?;
        }
        Ok(Action::RequeueAfter(CLEANUP_INTERVAL))
    }
}

/// The day before which a token must have been used last; `None` while uses have not been noted for long enough. The
/// first whole day of notes is the one after they began.
fn limit(since: Date, now: Timestamp) -> Option<Date> {
    let limit = today(now).checked_sub(CLEAN_UP_DAYS.days()).ok()?;
    let known = since.checked_add(1.day()).ok()?;
    (known <= limit).then_some(limit)
}

fn today(now: Timestamp) -> Date {
    now.to_zoned(jiff::tz::TimeZone::UTC).date()
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Keep,
    Mark,
    Delete,
}

/// Decided from the Secret alone. A label that is no day keeps it, if it tells of a use, and is replaced, if it marks.
fn step(secret: &Secret, limit: Date) -> Step {
    let day = |label: &str| secret.labels().get(label).map(|text| text.parse::<Date>());
    let created = secret.metadata.creation_timestamp.as_ref().map(|t| today(t.0));
    let young = created.is_none_or(|day| day >= limit);
    let used = match day(LAST_USED) {
        None => false,
        Some(Ok(day)) => day >= limit,
        Some(Err(_)) => true,
    };
    if young || used || deleting(secret) {
        return Step::Keep;
    }
    match day(INVALID_SINCE) {
        Some(Ok(day)) if day < limit => Step::Delete,
        Some(Ok(_)) => Step::Keep,
        _ => Step::Mark,
    }
}

impl Cleaner {
    /// Whether its account names it, as upstream did for the tokens that it made.
    fn is_made(&self, secret: &Secret) -> bool {
        let (name, namespace) = (secret.name_any(), secret.namespace().unwrap_or_default());
        let Some(account) = secret.annotations().get(ACCOUNT_NAME) else { return false };
        let Some(account) = self.accounts.get(&namespace, account) else { return false };
        let uid = secret.annotations().get(ACCOUNT_UID);
        let named = account.secrets.iter().flatten().any(|r| r.name.as_deref() == Some(&name));
        named && uid.is_none_or(|uid| uid.is_empty() || *uid == uid_of(account.as_ref()))
    }

    /// Whether some pod mounts or reads it. Asked once in years for each Secret.
    async fn is_mounted(&self, secret: &Secret) -> Result<bool, kube::Error> {
        let api: Api<Pod> = api_for(&self.pods, &ObjectKey::of(secret));
        let name = secret.name_any();
        Ok(api.list(&ListParams::default()).await?.items.iter().any(|pod| uses(pod, &name)))
    }

    async fn take(&self, secret: &Secret, step: Step, now: Timestamp) -> Result<(), ReconcileError> {
        let (name, key) = (secret.name_any(), ObjectKey::of(secret));
        let api: Api<Secret> = api_for(&self.client, &key);
        let done = if step == Step::Delete {
            tracing::info!(secret = %key, "deleting a token that nobody uses");
            let version =
                Preconditions { resource_version: secret.resource_version(), ..Preconditions::default() };
            api.delete(&name, &DeleteParams::default().preconditions(version)).await.map(|_| ())
        } else {
            tracing::info!(secret = %key, "marking a token that nobody uses as invalid");
            let labels = json!({ INVALID_SINCE: today(now).to_string() });
            let patch = json!({ "metadata": { "uid": secret.uid(), "labels": labels } });
            api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| ())
        };
        match done {
            // Gone or changed: the next day will tell.
            Err(error) if !matches!(code_of(&error), 404 | 409) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Whether the pod refers to the Secret, wherever a pod can.
fn uses(pod: &Pod, secret: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let is = |name: &str| name == secret;
    let pulls = spec.image_pull_secrets.iter().flatten().any(|r| is(&r.name));
    let volumes = spec.volumes.iter().flatten().any(|v| {
        let plain = v.secret.as_ref().and_then(|s| s.secret_name.as_deref()).is_some_and(is);
        let sources = v.projected.iter().flat_map(|p| p.sources.iter().flatten());
        plain || sources.into_iter().any(|s| s.secret.as_ref().is_some_and(|s| is(&s.name)))
    });
    let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let environment = all.into_iter().any(|c| {
        let whole = c.env_from.iter().flatten().any(|e| e.secret_ref.as_ref().is_some_and(|s| is(&s.name)));
        let keys = c.env.iter().flatten().filter_map(|e| e.value_from.as_ref()?.secret_key_ref.as_ref());
        whole || keys.into_iter().any(|key| is(&key.name))
    });
    pulls || volumes || environment
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(text: &str) -> Date {
        text.parse().unwrap()
    }

    fn secret(created: &str, labels: &[(&str, &str)]) -> Secret {
        let labels: serde_json::Map<_, _> = labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let metadata =
            json!({ "name": "t", "creationTimestamp": format!("{created}T10:00:00Z"), "labels": labels });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn nothing_is_done_before_uses_were_noted_for_a_year() {
        let now: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
        assert_eq!(limit(date("2025-05-31"), now), Some(date("2025-06-01")));
        assert_eq!(limit(date("2025-06-01"), now), None);
    }

    #[test]
    fn a_token_is_marked_and_then_deleted() {
        let limit = date("2025-06-01");
        for (created, labels, wanted) in [
            ("2020-01-01", &[][..], Step::Mark),
            ("2025-06-01", &[], Step::Keep),
            ("2020-01-01", &[(LAST_USED, "2025-05-31")], Step::Mark),
            ("2020-01-01", &[(LAST_USED, "2025-06-01")], Step::Keep),
            ("2020-01-01", &[(LAST_USED, "lately")], Step::Keep),
            ("2020-01-01", &[(INVALID_SINCE, "2025-06-01")], Step::Keep),
            ("2020-01-01", &[(INVALID_SINCE, "2025-05-31")], Step::Delete),
            ("2020-01-01", &[(INVALID_SINCE, "2025-05-31"), (LAST_USED, "2025-07-01")], Step::Keep),
            ("2020-01-01", &[(INVALID_SINCE, "then")], Step::Mark),
        ] {
            assert_eq!(step(&secret(created, labels), limit), wanted, "{created} {labels:?}");
        }
    }

    #[test]
    fn pods_use_secrets_in_many_ways() {
        let pod = |spec: serde_json::Value| -> Pod {
            let mut whole = json!({ "containers": [{ "name": "c" }] });
            whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            serde_json::from_value(json!({ "metadata": {}, "spec": whole })).unwrap()
        };
        for spec in [
            json!({ "imagePullSecrets": [{ "name": "t" }] }),
            json!({ "volumes": [{ "name": "v", "secret": { "secretName": "t" } }] }),
            json!({ "volumes": [{ "name": "v", "projected": { "sources": [{ "secret": { "name": "t" } }] } }] }),
            json!({ "initContainers": [{ "name": "i", "envFrom": [{ "secretRef": { "name": "t" } }] }] }),
            json!({ "containers": [{ "name": "c", "env": [{ "name": "E",
                "valueFrom": { "secretKeyRef": { "name": "t", "key": "k" } } }] }] }),
        ] {
            assert!(uses(&pod(spec.clone()), "t"), "{spec}");
            assert!(!uses(&pod(spec), "other"));
        }
    }
}
