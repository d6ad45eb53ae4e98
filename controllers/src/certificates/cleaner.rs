//! Deletes requests whose time is over.

use super::ACCOUNT;
use super::plan;
use crate::clients::Clients;
use crate::common::code_of;
use coracle_client::informer::deleting;
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, ResourceExt};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

struct Cleaner {
    client: kube::Client,
    requests: Informer<CertificateSigningRequest>,
}

pub(super) async fn run(clients: Clients, stop: CancellationToken) {
    let requests = clients.informers.of::<CertificateSigningRequest>();
    let reconciler = Cleaner { client: clients.client(ACCOUNT), requests: requests.clone() };
    Controller::new(reconciler).objects(&requests).run(stop).await;
}

impl Reconciler for Cleaner {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "certificatesigningrequest-cleaner"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(csr) = self.requests.get_key(key).filter(|c| !deleting(c.as_ref())) else {
            return Ok(Action::AwaitChange);
        };
        let Some(end) = plan::end_of(&csr) else { return Ok(Action::AwaitChange) };
        let left = end.duration_since(Timestamp::now());
        if let Ok(left) = Duration::try_from(left)
            && !left.is_zero()
        {
            return Ok(Action::RequeueAfter(left));
        }
        let same = Preconditions { uid: csr.uid(), resource_version: None };
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        match api.delete(&key.name, &DeleteParams::default().preconditions(same)).await {
            Err(error) if !matches!(code_of(&error), 404 | 409) => Err(error.into()),
            _ => Ok(Action::AwaitChange),
        }
    }
}
