//! Service-account tokens: issuing and checking, as
//! <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/> describes them. ES256.

use super::claims::{Claims, Legacy, Private, Reference};
use super::legacy::LegacyUse;
use super::signature;
use super::token_cache::{TokenCache, key};
use super::{ISSUER, TokenUser, bootstrap_token};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use coracle_api::identity::{CREDENTIAL_ID, NODE_NAME, service_account_groups, service_account_name};
use coracle_api::well_known;
use coracle_api::{Object, UserInfo};
use coracle_pki::ServiceAccountKey;
use coracle_requests::ObjectReader;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// Issuer of tokens in Secrets, as upstream's.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// Upstream's `ExpirationExtensionSeconds`: what tokens of pods live, although they say to be renewed after an hour.
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;
/// Upstream's `WarnOnlyBoundTokenExpirationSeconds`: the lifetime that marks the token of a pod's projected volume.
const POD_TOKEN_SECONDS: i64 = 60 * 60 + 7;
/// Difference between clocks that a token survives, as go-jose's default.
const LEEWAY_SECONDS: i64 = 60;
/// A bound object counts as gone so long after its deletionTimestamp, as upstream.
const DELETION_LEEWAY_SECONDS: i64 = 60;
/// Longer ones are refused unread. Upstream's are around 1.2 KB.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// Label of a Secret whose token nobody used for so long that it was given up
/// (<https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#legacy-serviceaccount-token-cleaner>).
const INVALID_SINCE: &str = well_known::LEGACY_TOKEN_INVALID_SINCE;

/// The object whose end is the end of the token.
#[derive(Clone, Debug, Default)]
pub struct Bound {
    pub pod: Option<Reference>,
    pub secret: Option<Reference>,
    /// The bound node, or the node that the bound pod runs on.
    pub node: Option<Reference>,
}

/// What to put into a new token.
pub struct IssueRequest<'a> {
    pub namespace: &'a str,
    pub service_account: Reference,
    /// Empty: the API itself.
    pub audiences: Vec<String>,
    pub expiration_seconds: i64,
    pub bound: Bound,
}

#[derive(Clone, Debug)]
pub struct Issued {
    pub token: String,
    /// For the client; a pod's token in truth lives longer.
    pub expires: Timestamp,
    pub audiences: Vec<String>,
    pub jti: String,
}

/// Whose tokens they are and whom they are for.
#[derive(Clone, Debug)]
pub struct Issuing {
    /// `--service-account-issuer`: the first issues, all are believed.
    pub issuers: Vec<String>,
    /// `--api-audiences`: what a token must be for to be good here. Empty: the issuers.
    pub audiences: Vec<String>,
    /// `--service-account-jwks-uri`: where the public key is found.
    pub jwks_uri: String,
    /// `--service-account-max-token-expiration`; 0: no bound but [`crate::reviews`]'s.
    pub max_seconds: i64,
    /// `--service-account-extend-token-expiration`: whether pods' tokens live for a year, for clients that do not read
    /// them again.
    pub extend: bool,
}

impl Default for Issuing {
    fn default() -> Self {
        Self {
            issuers: vec![ISSUER.to_owned()],
            audiences: Vec::new(),
            jwks_uri: format!("{ISSUER}/openid/v1/jwks"),
            max_seconds: 0,
            extend: true,
        }
    }
}

/// Signs and checks with the one key of the cluster.
pub struct ServiceAccountTokens {
    issuing: Issuing,
    /// In the place of the one in `issuing`.
    jwks_uri: RwLock<String>,
    encoding: EncodingKey,
    decoding: DecodingKey,
    kid: String,
    point: Vec<u8>,
    /// Who wants to know of uses of Secrets' tokens.
    uses: OnceLock<UnboundedSender<LegacyUse>>,
    /// What tokens say whose signature was found good. Nothing else is remembered: times, audiences and objects are
    /// judged on every use.
    signed: TokenCache<Arc<Claims>>,
}

impl ServiceAccountTokens {
    pub fn new(key: &ServiceAccountKey) -> Self {
        Self::with(key, Issuing::default())
    }

    /// At least one issuer must be named, or the default is.
    pub fn with(key: &ServiceAccountKey, issuing: Issuing) -> Self {
        let mut issuing = issuing;
        if issuing.issuers.is_empty() {
            issuing.issuers.push(ISSUER.to_owned());
        }
        if issuing.audiences.is_empty() {
            issuing.audiences.clone_from(&issuing.issuers);
        }
        Self {
            jwks_uri: RwLock::new(issuing.jwks_uri.clone()),
            issuing,
            encoding: EncodingKey::from_ec_der(key.private_pkcs8()),
            decoding: DecodingKey::from_ec_der(key.public_point()),
            kid: URL_SAFE_NO_PAD.encode(Sha256::digest(key.public_spki())),
            point: key.public_point().to_vec(),
            uses: OnceLock::new(),
            signed: TokenCache::new(None),
        }
    }

    /// Every accepted token of a Secret whose label is not of today; for one follower, `None` for a second.
    pub fn follow_legacy_uses(&self) -> Option<UnboundedReceiver<LegacyUse>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.uses.set(sender).ok().map(|()| receiver)
    }

    pub fn issuer(&self) -> &str {
        &self.issuing.issuers[0]
    }

    /// What a token must be for to be good for the API.
    pub fn api_audiences(&self) -> &[String] {
        &self.issuing.audiences
    }

    pub fn max_seconds(&self) -> i64 {
        self.issuing.max_seconds
    }

    pub(super) fn jwks_uri(&self) -> String {
        self.jwks_uri.read().clone()
    }

    /// The public key is found elsewhere now.
    pub fn move_jwks(&self, uri: String) {
        *self.jwks_uri.write() = uri;
    }

    pub(super) fn kid(&self) -> &str {
        &self.kid
    }

    /// Uncompressed: 0x04, then 32 bytes each of x and y.
    pub(super) fn point(&self) -> &[u8] {
        &self.point
    }

    fn sign(&self, claims: &Claims) -> Result<String, jsonwebtoken::errors::Error> {
        let mut header = Header::new(Algorithm::ES256);
        header.typ = None;
        header.kid = Some(self.kid.clone());
        signature::encode(&header, claims, &self.encoding)
    }

    /// A bound token. The caller has checked the request; see `access::token_request`.
    pub fn issue(
        &self,
        request: IssueRequest<'_>,
        now: Timestamp,
    ) -> Result<Issued, jsonwebtoken::errors::Error> {
        let own = &self.issuing.audiences;
        let audiences = if request.audiences.is_empty() { own.clone() } else { request.audiences };
        let now = now.as_second();
        let expires = now + request.expiration_seconds;
        let extend = self.issuing.extend
            && request.expiration_seconds == POD_TOKEN_SECONDS
            && request.bound.pod.is_some()
            && audiences == *own;
        let name = &request.service_account.name;
        let jti = uuid::Uuid::new_v4().to_string();
        let claims = Claims {
            aud: audiences.clone(),
            exp: Some(if extend { now + EXTENDED_SECONDS } else { expires }),
            iat: Some(now),
            iss: self.issuer().to_owned(),
            jti: Some(jti.clone()),
            nbf: Some(now),
            sub: service_account_name(request.namespace, name),
            private: Some(Private {
                namespace: request.namespace.to_owned(),
                node: request.bound.node,
                pod: request.bound.pod,
                secret: request.bound.secret,
                serviceaccount: request.service_account,
                warnafter: extend.then_some(expires),
            }),
            legacy: Legacy::default(),
        };
        let token = self.sign(&claims)?;
        let expires = Timestamp::from_second(expires).unwrap_or(Timestamp::MAX);
        Ok(Issued { token, expires, audiences, jti })
    }

    /// The token of a Secret of type `kubernetes.io/service-account-token`: without end, gone with its Secret.
    pub fn issue_legacy(
        &self,
        namespace: &str,
        service_account: &Reference,
        secret: &str,
    ) -> Result<String, jsonwebtoken::errors::Error> {
        let claims = Claims {
            iss: LEGACY_ISSUER.to_owned(),
            sub: service_account_name(namespace, &service_account.name),
            legacy: Legacy {
                namespace: Some(namespace.to_owned()),
                secret: Some(secret.to_owned()),
                name: Some(service_account.name.clone()),
                uid: Some(service_account.uid.clone()),
            },
            ..Claims::default()
        };
        self.sign(&claims)
    }

    /// The user of a token whose signature, times and audience are right and whose service account and bound objects
    /// still exist. `audiences` empty: the API itself.
    pub fn verify(
        &self,
        token: &str,
        audiences: &[String],
        read: &dyn ObjectReader,
        now: Timestamp,
    ) -> Result<TokenUser, String> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err("the token is too long".to_owned());
        }
        let claims = self.decode(token)?;
        let own = &self.issuing.audiences;
        let asked = if audiences.is_empty() { &own[..] } else { audiences };
        match claims.iss.as_str() {
            known if self.issuing.issuers.iter().any(|i| i == known) => bound_user(&claims, asked, read, now),
            LEGACY_ISSUER => {
                let (user, secret) = legacy_user(token, &claims, read, now)?;
                if let Some((uses, used)) = self.uses.get().zip(LegacyUse::of(&secret, now)) {
                    // A follower that has ended needs to know nothing more.
                    let _ = uses.send(used);
                }
                // Such tokens are for the API alone.
                let audiences: Vec<String> = asked.iter().filter(|a| own.contains(a)).cloned().collect();
                if audiences.is_empty() {
                    Err(audience_error(own, asked))
                } else {
                    Ok(TokenUser::new(user, audiences))
                }
            }
            other => Err(format!("unknown issuer {other:?}")),
        }
    }

    /// The objects whose end is the end of a token that was found good: resource, namespace and name.
    pub(super) fn stands_on(&self, token: &str) -> Vec<(&'static str, String, String)> {
        let Ok(claims) = self.decode(token) else { return Vec::new() };
        let Some(private) = &claims.private else { return claims.legacy.objects() };
        let namespace = &private.namespace;
        let of = |resource, namespace: &str, named: Option<&Reference>| {
            named.map(|one| (resource, namespace.to_owned(), one.name.clone()))
        };
        // As `bound_user` judges.
        let node = private.node.as_ref().filter(|_| private.pod.is_none());
        let objects = [
            of("serviceaccounts.", namespace, Some(&private.serviceaccount)),
            of("secrets.", namespace, private.secret.as_ref()),
            of("pods.", namespace, private.pod.as_ref()),
            of("nodes.", "", node),
        ];
        objects.into_iter().flatten().collect()
    }

    /// Whether the token says that it was made here; nothing is checked.
    pub(super) fn is_own(&self, token: &str) -> bool {
        let payload = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
        let claims = payload.and_then(|bytes| serde_json::from_slice::<Claims>(&bytes).ok());
        claims.is_some_and(|claims| claims.iss == LEGACY_ISSUER || self.issuing.issuers.contains(&claims.iss))
    }

    fn decode(&self, token: &str) -> Result<Arc<Claims>, String> {
        let key = key([token]);
        if let Some(known) = self.signed.get(&key) {
            return Ok(known);
        }
        // Times and audiences are judged by the caller's clock, below.
        let mut validation = Validation::new(Algorithm::ES256);
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        let data = signature::decode::<Claims>(token, &self.decoding, &validation);
        let claims = Arc::new(data.map_err(|e| e.to_string())?.claims);
        self.signed.put(key, claims.clone());
        Ok(claims)
    }
}

fn audience_error(have: &[String], asked: &[String]) -> String {
    let shown = |list: &[String]| list.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(" ");
    format!("token audiences [{}] is invalid for the target audiences [{}]", shown(have), shown(asked))
}

fn check_times(claims: &Claims, now: Timestamp) -> Result<(), String> {
    let now = now.as_second();
    match (claims.exp, claims.nbf) {
        (None, _) => Err("the token has no end".to_owned()),
        (Some(exp), _) if now > exp + LEEWAY_SECONDS => Err("service account token has expired".to_owned()),
        (_, Some(nbf)) if now + LEEWAY_SECONDS < nbf => Err("the token is not valid yet".to_owned()),
        _ => Ok(()),
    }
}

fn bound_user(
    claims: &Claims,
    asked: &[String],
    read: &dyn ObjectReader,
    now: Timestamp,
) -> Result<TokenUser, String> {
    check_times(claims, now)?;
    let audiences: Vec<String> = asked.iter().filter(|a| claims.aud.contains(a)).cloned().collect();
    if audiences.is_empty() {
        return Err(audience_error(&claims.aud, asked));
    }
    let private = claims.private.as_ref().ok_or("the token has no kubernetes.io claims")?;
    let namespace = private.namespace.as_str();
    let account = alive(read, "serviceaccounts.", namespace, &private.serviceaccount, now)?;
    let mut user = user_of(namespace, &account);
    let mut note = |key: &str, value: &str| {
        user.extra.insert(key.to_owned(), vec![value.to_owned()]);
    };
    if let Some(secret) = &private.secret {
        alive(read, "secrets.", namespace, secret, now)?;
    }
    if let Some(pod) = &private.pod {
        alive(read, "pods.", namespace, pod, now)?;
        note("authentication.kubernetes.io/pod-name", &pod.name);
        note("authentication.kubernetes.io/pod-uid", &pod.uid);
    }
    if let Some(node) = &private.node {
        // A pod's token outlives its node, as upstream: only a token bound to the node itself ends with it.
        if private.pod.is_none() {
            alive(read, "nodes.", "", node, now)?;
        }
        note(NODE_NAME, &node.name);
        if !node.uid.is_empty() {
            note("authentication.kubernetes.io/node-uid", &node.uid);
        }
    }
    if let Some(jti) = &claims.jti {
        note(CREDENTIAL_ID, &format!("JTI={jti}"));
    }
    let is_stale = private.warnafter.map(|until| now.as_second() > until);
    Ok(TokenUser { is_stale, ..TokenUser::new(user, audiences) })
}

/// The user, and the Secret.
fn legacy_user(
    token: &str,
    claims: &Claims,
    read: &dyn ObjectReader,
    now: Timestamp,
) -> Result<(UserInfo, Arc<Object>), String> {
    let legacy = &claims.legacy;
    let (Some(namespace), Some(secret_name), Some(name), Some(uid)) =
        (&legacy.namespace, &legacy.secret, &legacy.name, &legacy.uid)
    else {
        return Err("the token lacks claims".to_owned());
    };
    let secret = read.get("secrets.", namespace, secret_name);
    let secret = secret.ok_or(INVALIDATED)?;
    if is_gone(&secret, now) {
        return Err(INVALIDATED.to_owned());
    }
    if secret["metadata"]["labels"][INVALID_SINCE].as_str().is_some_and(|since| !since.is_empty()) {
        return Err("the token has been marked invalid because nobody used it".to_owned());
    }
    let stored = secret["data"]["token"].as_str().and_then(|t| STANDARD.decode(t).ok()).unwrap_or_default();
    if !std::str::from_utf8(&stored).is_ok_and(|stored| bootstrap_token::same(stored, token)) {
        return Err("the token is not its secret's".to_owned());
    }
    let reference = Reference { name: name.clone(), uid: uid.clone() };
    let account = alive(read, "serviceaccounts.", namespace, &reference, now)?;
    Ok((user_of(namespace, &account), secret))
}

/// The user that a service account is.
fn user_of(namespace: &str, account: &Object) -> UserInfo {
    let text = |field: &str| account["metadata"][field].as_str().unwrap_or_default();
    UserInfo {
        name: service_account_name(namespace, text("name")),
        uid: text("uid").to_owned(),
        groups: service_account_groups(namespace).into(),
        ..UserInfo::default()
    }
}

/// Whether the object counts as gone, because it was deleted so long ago.
fn is_gone(object: &Object, now: Timestamp) -> bool {
    let Some(deleted) = object["metadata"]["deletionTimestamp"].as_str() else { return false };
    let Ok(deleted) = deleted.parse::<Timestamp>() else { return true };
    now.as_second() > deleted.as_second() + DELETION_LEEWAY_SECONDS
}

/// What is told of a token whose bound object is gone, whichever it was.
const INVALIDATED: &str = "service account token has been invalidated";

/// The object that a token names, in upstream's order and words.
fn alive(
    read: &dyn ObjectReader,
    resource: &str,
    namespace: &str,
    wanted: &Reference,
    now: Timestamp,
) -> Result<Arc<Object>, String> {
    let is_account = resource == "serviceaccounts.";
    let name = &wanted.name;
    let object = read.get(resource, namespace, name).ok_or_else(|| match is_account {
        true => format!("serviceaccounts {name:?} not found"),
        false => INVALIDATED.to_owned(),
    })?;
    if is_gone(&object, now) {
        return Err(match is_account {
            true => format!("service account {namespace}/{name} has been deleted"),
            false => INVALIDATED.to_owned(),
        });
    }
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    if uid == wanted.uid {
        return Ok(object);
    }
    Err(match resource {
        "serviceaccounts." => format!("service account UID ({uid}) does not match claim ({})", wanted.uid),
        other => {
            let kind = other.trim_end_matches("s.");
            format!("{kind} UID ({uid}) does not match service account {kind} ref claim ({})", wanted.uid)
        }
    })
}
