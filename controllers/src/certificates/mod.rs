//! Certificate requests: the kubelets' own are approved, those for Kubernetes' signers signed, old ones deleted.
//!
//! <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/>

mod approver;
mod cleaner;
mod hosts;
mod plan;
mod request;
mod signer;
#[cfg(test)]
mod tests;

pub use hosts::{OwnNames, Reserved};

use crate::clients::Clients;
use crate::common::code_of;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The signer whose certificates kubelets' ports serve under.
pub const KUBELET_SERVING: &str = plan::KUBELET_SERVING;

/// The service account of all three, as upstream's.
const ACCOUNT: &str = "certificate-controller";

/// Signs certificate requests; whoever holds the cluster's authorities implements it.
pub trait CertificateSigner: Send + Sync {
    /// A certificate (PEM) by the authority of `signer_name`, one of Kubernetes' own signers, with the request's subject,
    /// key and names, for `usages` in upstream's names and `life` from now on.
    fn sign(
        &self,
        signer_name: &str,
        request_pem: &[u8],
        usages: &[&str],
        life: Duration,
    ) -> Result<String, String>;
}

/// Approves what kubelets ask for themselves, but nothing that is `reserved`, until `stop` is cancelled.
pub async fn run_approver(clients: Clients, reserved: Reserved, stop: CancellationToken) {
    approver::run(clients, reserved, stop).await;
}

/// Signs approved requests to Kubernetes' own signers, until `stop` is cancelled.
pub async fn run_signer(clients: Clients, signer: Arc<dyn CertificateSigner>, stop: CancellationToken) {
    signer::run(clients, signer, stop).await;
}

/// Deletes requests that nobody needs any more, until `stop` is cancelled.
pub async fn run_cleaner(clients: Clients, stop: CancellationToken) {
    cleaner::run(clients, stop).await;
}

/// Whether the failure is worth a retry: a request that is gone or was decided meanwhile is not.
fn outdated(error: &kube::Error) -> bool {
    matches!(code_of(error), 404 | 409)
}

fn is_issued(csr: &CertificateSigningRequest) -> bool {
    csr.status.as_ref().and_then(|s| s.certificate.as_ref()).is_some_and(|c| !c.0.is_empty())
}

/// Whether a condition of this type is there and true.
fn has(csr: &CertificateSigningRequest, kind: &str) -> bool {
    let conditions = csr.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|c| c.type_ == kind && c.status == "True")
}
