//! Whether a signer gave a certificate the duration that was asked for
//! (<https://github.com/kubernetes/enhancements/tree/master/keps/sig-auth/2784-csr-duration>).

use super::validate;
use crate::Issued;
use coracle_api::Object;
use coracle_pki::seconds_of_life;
use coracle_requests::value::*;

/// What a signer may set the beginning back by, in seconds: five minutes, upstream's.
const BACKDATED: i64 = 300;
/// And beyond that, one in so many of what was asked for.
const PART: i64 = 20;

/// Counts once: what has a certificate already is not issued again.
pub(super) fn issued(new: &Object, old: &Object) -> Option<Issued> {
    let wanted = i64_at(old, "spec.expirationSeconds")?;
    if validate::certificate(old).is_some() {
        return None;
    }
    let given = seconds_of_life(&validate::certificate(new)?);
    let honored = given.is_some_and(|given| (wanted - given).abs() < BACKDATED + wanted / PART);
    let name = str_at(old, "spec.signerName");
    let signer = if name.starts_with("kubernetes.io/") { name } else { "other" };
    Some(Issued { signer: signer.to_owned(), honored })
}
