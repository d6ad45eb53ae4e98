//! Encryption at rest: what the store holds of the resources that an EncryptionConfiguration names.
//!
//! ```text
//! registry, cache -> store::Encrypting -> Rules: which Chain is the resource's -> Chain: which provider, which key
//!                          |                                                        secretbox, aesgcm, aescbc, kms v2
//!                          v
//!                    sled or memory: sees encrypted values only
//! ```
//! The formats are upstream's: a value begins with `k8s:enc:<provider>:v1:<key>:` (`k8s:enc:kms:v2:<name>:`), and what
//! authenticates data is bound to the object's path. The first provider writes, all of them read. Values that another
//! provider or key than the first has written are stale: any write of the object replaces them, even one that changes
//! nothing, and [`rewrite`] goes through all of them by itself.
//!
//! See <https://kubernetes.io/docs/tasks/administer-cluster/encrypt-data/>.

mod chain;
mod cipher;
pub mod config;
pub mod kms;
pub mod made;
pub mod metrics;
pub mod reload;
pub mod rewrite;
mod rules;
#[cfg(test)]
mod tests;
mod validation;

pub use chain::{Chain, OpenError, Opened, SealError};
pub use config::{ConfigError, EncryptionConfiguration};
pub use rules::Rules;

/// What every encrypted value begins with; the JSON of an object never does.
pub const MARK: &[u8] = b"k8s:enc:";

/// The path of an object as upstream's API server stores it, which encrypted values are bound to.
///
/// `secrets./default/a` is `/registry/secrets/default/a`. Resources of a group have it in their path, as custom
/// resources do upstream.
pub fn path(key: &str) -> String {
    let Some((resource, rest)) = key.split_once('/') else { return format!("/registry/{key}") };
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    match group {
        "" => format!("/registry/{plural}/{rest}"),
        group => format!("/registry/{group}/{plural}/{rest}"),
    }
}
