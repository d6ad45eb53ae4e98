//! Bootstrap tokens: `cluster-info` signed for each of them, and expired ones deleted
//! (<https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/>).

mod cleaner;
mod jws;
mod signer;
mod token;

pub use cleaner::run as run_cleaner;
pub use jws::detached as signature;
pub use signer::run as run_signer;

use coracle_api::well_known;
use k8s_openapi::api::core::v1::Secret;

/// Of the Secrets that carry tokens; those in kube-system count.
const TYPE: &str = well_known::BOOTSTRAP_TOKEN;
const NAMESPACE: &str = "kube-system";

/// The field selector of all tokens.
const ONLY_TOKENS: &str = "type=bootstrap.kubernetes.io/token";

/// An entry of the Secret as text, empty if it is absent.
fn text<'a>(secret: &'a Secret, key: &str) -> &'a str {
    let bytes = secret.data.as_ref().and_then(|d| d.get(key)).map(|b| b.0.as_slice()).unwrap_or_default();
    std::str::from_utf8(bytes).unwrap_or_default()
}
