//! Signs what Kubernetes' own signers are asked for.

use super::plan;
use super::request::Wanted;
use super::{ACCOUNT, CertificateSigner, outdated};
use crate::clients::Clients;
use coracle_client::informer::deleting;
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::PostParams;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

struct Signer {
    client: kube::Client,
    requests: Informer<CertificateSigningRequest>,
    authority: Arc<dyn CertificateSigner>,
}

pub(super) async fn run(clients: Clients, authority: Arc<dyn CertificateSigner>, stop: CancellationToken) {
    let requests = clients.informers.of::<CertificateSigningRequest>();
    let reconciler = Signer { client: clients.client(ACCOUNT), requests: requests.clone(), authority };
    Controller::new(reconciler).objects(&requests).run(stop).await;
}

impl Reconciler for Signer {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "certificatesigningrequest-signing"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let waiting = |c: &Arc<CertificateSigningRequest>| !deleting(c.as_ref()) && plan::awaits_signature(c);
        let Some(csr) = self.requests.get_key(key).filter(waiting) else { return Ok(Action::AwaitChange) };
        let spec = &csr.spec;
        let usages = spec.usages.as_deref().unwrap_or_default();
        if !plan::is_ours(&spec.signer_name) {
            return Ok(Action::AwaitChange);
        }
        let wanted = Wanted::parse(&spec.request.0, usages);
        let mut done = CertificateSigningRequest::clone(&csr);
        let status = done.status.get_or_insert_default();
        match wanted.map_or_else(|why| Some(Err(why)), |wanted| plan::verdict(&spec.signer_name, &wanted)) {
            None => return Ok(Action::AwaitChange),
            Some(Err(why)) => status.conditions.get_or_insert_default().push(failed(why)),
            Some(Ok(())) => {
                let usages: Vec<&str> = usages.iter().map(String::as_str).collect();
                let life = plan::life(spec.expiration_seconds);
                let certificate = self.authority.sign(&spec.signer_name, &spec.request.0, &usages, life);
                let certificate = certificate.map_err(ReconcileError::Other)?;
                status.certificate = Some(ByteString(certificate.into_bytes()));
            }
        }
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        match api.replace_subresource("status", &key.name, &PostParams::default(), &done).await {
            Err(error) if !outdated(&error) => Err(error.into()),
            _ => Ok(Action::AwaitChange),
        }
    }
}

fn failed(why: String) -> CertificateSigningRequestCondition {
    CertificateSigningRequestCondition {
        type_: "Failed".to_owned(),
        status: "True".to_owned(),
        reason: Some("SignerValidationFailure".to_owned()),
        message: Some(why),
        last_update_time: Some(Time(Timestamp::now())),
        ..CertificateSigningRequestCondition::default()
    }
}
