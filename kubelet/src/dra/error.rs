//! Why a claim is not prepared, or not given back. Pods' events have these words; they are upstream's where it has some.

use coracle_storage::csi::CallError;

#[derive(Debug, thiserror::Error)]
pub enum DraError {
    #[error("{0}")]
    Reference(String),
    #[error("fetch ResourceClaim {name}: {message}")]
    Fetch { name: String, message: String },
    #[error("ResourceClaim {claim} was not created for pod {pod} (pod is not owner)")]
    NotOwner { claim: String, pod: String },
    #[error("pod {pod} ({pod_uid}) is not allowed to use ResourceClaim {claim} ({uid})")]
    NotReserved { pod: String, pod_uid: String, claim: String, uid: String },
    #[error("ResourceClaim {0}: not allocated")]
    NotAllocated(String),
    #[error("ResourceClaim {0}: not allocated for this node")]
    Elsewhere(String),
    #[error("DRA driver {0} is not registered")]
    NotRegistered(String),
    #[error(
        "old ResourceClaim with same name {name} and different UID {uid} still exists (previous pod force-deleted?!)"
    )]
    Another { name: String, uid: String },
    #[error("checkpoint ResourceClaim state: {0}")]
    Checkpoint(String),
    #[error("{method}: {error}")]
    Call { method: &'static str, error: CallError },
    #[error("{method} returned result for unknown claim UID {uid}")]
    Unasked { method: &'static str, uid: String },
    #[error("{method} failed for ResourceClaim {claim}: {message}")]
    Refused { method: &'static str, claim: String, message: String },
    #[error("{method} skipped {count} ResourceClaims")]
    Skipped { method: &'static str, count: usize },
    #[error("unable to get information for ResourceClaim {0}")]
    Unknown(String),
}
