//! One issuer and its tokens.

use super::keys::{Keys, Unverified};
use super::mapping::Claims;
use super::source::Source;
use super::validation::Compiled;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use coracle_api::UserInfo;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, Header};
use serde_json::Value;
use std::sync::Arc;

/// Difference between clocks at the beginning of a token's time, as upstream's library; there is none at its end.
const LEEWAY_SECONDS: i64 = 60;

/// Google's tokens may name their issuer without its scheme
/// (<https://openid.net/specs/openid-connect-core-1_0.html#GoogleIss>).
const GOOGLE: (&str, &str) = ("accounts.google.com", "https://accounts.google.com");

pub(super) struct Issuer {
    pub compiled: Compiled,
    pub source: Arc<Source>,
    pub algorithms: Vec<Algorithm>,
}

/// The issuer that a token names; nothing is checked.
pub(super) fn claimed(token: &str) -> Option<String> {
    let mut parts = token.split('.');
    let (_, payload, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
    issuer_of(&claims).map(str::to_owned)
}

fn issuer_of(claims: &Claims) -> Option<&str> {
    let issuer = claims.get("iss")?.as_str()?;
    Some(if issuer == GOOGLE.0 { GOOGLE.1 } else { issuer })
}

impl Issuer {
    /// The user, and the second since 1970 from which the token is good no more.
    pub async fn authenticate(&self, token: &str, now: Timestamp) -> Result<(UserInfo, i64), String> {
        let header = jsonwebtoken::decode_header(token).map_err(|e| format!("malformed token: {e}"))?;
        if !self.algorithms.contains(&header.alg) {
            return Err(format!("id token signed with unsupported algorithm {:?}", header.alg));
        }
        if header.crit.is_some() || header.enc.is_some() || header.zip.is_some() {
            return Err("the token's header asks for what is not understood here".to_owned());
        }
        let claims = self.verified(token, &header).await?;
        let until = self.judge(&claims, now)?;
        Ok((self.compiled.mapping.user(&claims)?, until))
    }

    /// The claims, once the signature is found good.
    async fn verified(&self, token: &str, header: &Header) -> Result<Claims, String> {
        let keys =
            self.source.keys().ok_or("authenticator not initialized: the issuer was not reached yet")?;
        let known = match keys.verify(token, header) {
            Ok(claims) => return Ok(claims),
            Err(Unverified::Bad(why)) => return Err(why),
            Err(Unverified::NoKey) => keys,
        };
        let newer = self.source.newer(&known).await.filter(|keys: &Arc<Keys>| !Arc::ptr_eq(keys, &known));
        let unknown = || "no key of the issuer has signed the token".to_owned();
        newer.ok_or_else(unknown)?.verify(token, header).map_err(|error| match error {
            Unverified::NoKey => unknown(),
            Unverified::Bad(why) => why,
        })
    }

    /// Issuer, audience and times.
    fn judge(&self, claims: &Claims, now: Timestamp) -> Result<i64, String> {
        let issuer = &self.compiled.issuer;
        if issuer_of(claims) != Some(&issuer.url) {
            return Err(format!("id token issued by a different provider, expected {:?}", issuer.url));
        }
        let said: Vec<&str> = match claims.get("aud") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !issuer.audiences.iter().any(|audience| said.contains(&audience.as_str())) {
            return Err(format!("expected audience in {:?} got {said:?}", issuer.audiences));
        }
        let until = seconds(claims, "exp")?.ok_or("the token has no end")?;
        let now = now.as_second();
        if now >= until {
            return Err("token is expired".to_owned());
        }
        match seconds(claims, "nbf")? {
            Some(from) if now + LEEWAY_SECONDS < from => {
                Err("current time before the nbf (not before) time".to_owned())
            }
            _ => Ok(until),
        }
    }
}

/// A time, which may have a fraction (RFC 7519).
fn seconds(claims: &Claims, claim: &str) -> Result<Option<i64>, String> {
    let Some(value) = claims.get(claim).filter(|value| !value.is_null()) else { return Ok(None) };
    #[allow(
        clippy::cast_possible_truncation,
        reason = "casts of floats saturate; the fraction is not wanted"
    )]
    let whole = value.as_i64().or_else(|| value.as_f64().map(|time| time as i64));
    whole.map(Some).ok_or_else(|| format!("the claim {claim} is no time"))
}
