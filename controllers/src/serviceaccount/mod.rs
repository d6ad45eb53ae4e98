//! What every namespace gets for its service accounts: the `default` account and the cluster's CA certificate; and
//! the tokens of Secrets that ask for one.
//!
//! <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/>

mod accounts;
mod cleaner;
mod published;
mod root_ca;
mod tokens;

use coracle_client::{Delta, ObjectKey};
use kube::Resource;

pub use accounts::run as run_accounts;
pub use cleaner::run as run_cleaner;
pub use published::RootCa;
pub use root_ca::run as run_root_ca;
pub use tokens::{LegacyTokens, run as run_tokens};

/// The key of the namespace that an object lives in.
fn namespace_of<K: Resource>(delta: &Delta<K>) -> Option<ObjectKey> {
    Some(ObjectKey::new("", delta.object()?.meta().namespace.clone()?))
}
