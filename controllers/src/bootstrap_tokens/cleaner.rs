//! Deletes tokens that have expired.

use super::ONLY_TOKENS;
use super::token::{end_of, is_token};
use crate::clients::Clients;
use crate::common::code_of;
use coracle_client::informer::{api_for, deleting};
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{DeleteParams, Preconditions};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const ACCOUNT: &str = "token-cleaner";

struct Cleaner {
    client: kube::Client,
    tokens: Informer<Secret>,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let tokens = clients.informers.selected::<Secret>(ONLY_TOKENS, stop.clone());
    let reconciler = Cleaner { client: clients.client(ACCOUNT), tokens: tokens.clone() };
    Controller::new(reconciler).objects(&tokens).run(stop).await;
}

impl Reconciler for Cleaner {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "token-cleaner-controller"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(secret) = self.tokens.get_key(key).filter(|s| is_token(s) && !deleting(s.as_ref())) else {
            return Ok(Action::AwaitChange);
        };
        let Some(end) = end_of(&secret) else { return Ok(Action::AwaitChange) };
        if let Ok(left) = Duration::try_from(end.duration_since(Timestamp::now()))
            && !left.is_zero()
        {
            return Ok(Action::RequeueAfter(left));
        }
        let same = Preconditions { uid: secret.uid(), resource_version: secret.resource_version() };
        let params = DeleteParams::default().preconditions(same);
        match api_for::<Secret>(&self.client, key).delete(&key.name, &params).await {
            // One that was changed meanwhile comes back here.
            Err(error) if !matches!(code_of(&error), 404 | 409) => Err(error.into()),
            _ => Ok(Action::AwaitChange),
        }
    }
}
