//! Who a client is and what it may do. Both are asked of the API and remembered for a short time.

use super::error::HttpError;
use super::{Judge, access};
use crate::configuration::port::Access;
use coracle_api::certificate::Holder;
use coracle_api::identity::CREDENTIAL_ID;
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use kube::Api;
use kube::api::PostParams;
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use x509_parser::prelude::{FromDer, X509Certificate};

/// How often it is asked whether the client of a stream may still. All streams of one client share the answer.
const STREAMS_ASK_INTERVAL: Duration = Duration::from_secs(1);

/// The API server, as its certificate names it (upstream's). It ends the streams that it carries when their clients are
/// taken back, so nobody is asked about them again.
const API_SERVER: &str = "kube-apiserver-kubelet-client";

/// Answers kept of each kind. Some hundred bytes each; the oldest go when more are asked for.
const KEPT: usize = 512;

/// An authenticated user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// A client that may do what it asked for.
#[derive(Clone, Debug)]
pub(super) struct Admitted {
    by: By,
    verb: &'static str,
    subresource: &'static str,
}

/// What showed who it is.
#[derive(Clone, Debug)]
enum By {
    Certificate(User),
    Token(String),
    /// Nothing, where strangers are let in under a name.
    Nothing,
}

/// What a connection's client certificate says.
pub(super) enum Peer {
    NoCertificate,
    /// Judged when the connection came; `not_after` (Unix seconds) is looked at on every request, because connections
    /// outlive certificates.
    User {
        user: User,
        not_after: i64,
    },
    /// A certificate that is worth nothing.
    Refused(String),
}

/// Answers with an age.
struct Cache<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K: Hash + Eq, V: Clone> Cache<K, V> {
    fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    fn get(&self, key: &K) -> Option<V> {
        let cache = self.0.lock();
        cache.get(key).filter(|(until, _)| *until > Instant::now()).map(|(_, value)| value.clone())
    }

    fn put(&self, key: K, value: V, lasts: Duration) {
        let mut cache = self.0.lock();
        let now = Instant::now();
        if cache.len() >= KEPT {
            cache.retain(|_, (until, _)| *until > now);
        }
        if cache.len() >= KEPT {
            cache.clear();
        }
        cache.insert(key, (now + lasts, value));
    }
}

type Question = (User, &'static str, &'static str);

/// Admits requests.
pub(super) struct Gate {
    client: kube::Client,
    node_name: String,
    judge: Judge,
    settings: Access,
    /// By SHA-256, so that no token is kept.
    tokens: Cache<[u8; 32], Option<User>>,
    permissions: Cache<Question, bool>,
}

impl Gate {
    pub fn new(client: kube::Client, node_name: String, judge: Judge, settings: Access) -> Self {
        Self { client, node_name, judge, settings, tokens: Cache::new(), permissions: Cache::new() }
    }

    /// Judges a client's certificate, once per connection.
    pub fn peer(&self, chain: &[CertificateDer<'_>]) -> Peer {
        let Some(own) = chain.first() else { return Peer::NoCertificate };
        if let Err(reason) = (self.judge)(chain) {
            return Peer::Refused(reason);
        }
        subject(own).unwrap_or_else(Peer::Refused)
    }

    /// 401 for who is not known, 403 for who may not. A bad certificate leaves the bearer token.
    pub async fn admit(&self, request: &Parts, peer: &Peer) -> Result<Admitted, HttpError> {
        let by = match peer {
            Peer::User { user, not_after } if Timestamp::now().as_second() <= *not_after => {
                By::Certificate(user.clone())
            }
            Peer::NoCertificate => self.bearer(&request.headers)?,
            Peer::User { .. } => {
                tracing::debug!("client certificate has expired");
                self.bearer(&request.headers)?
            }
            Peer::Refused(reason) => {
                tracing::debug!(reason, "client certificate refused");
                self.bearer(&request.headers)?
            }
        };
        let user = self.user(&by).await?.ok_or_else(unauthorized)?;
        let verb = access::verb(&request.method);
        let subresources = access::subresources(request.uri.path());
        for subresource in subresources {
            if self.allowed(&user, verb, subresource).await? {
                return Ok(Admitted { by, verb, subresource });
            }
        }
        let text = format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])",
            user.name,
            subresources.join(" ")
        );
        Err(HttpError::new(StatusCode::FORBIDDEN, text))
    }

    /// What a request without a good certificate shows. A bad token is no stranger.
    fn bearer(&self, headers: &HeaderMap) -> Result<By, HttpError> {
        match By::bearer(headers) {
            Some(token) if self.settings.tokens => Ok(token),
            None if self.settings.anonymous => Ok(By::Nothing),
            _ => Err(unauthorized()),
        }
    }

    /// Waits until the client may no more what it was admitted for. Nobody is refused because the API server could not
    /// be asked: what runs, runs on.
    pub async fn refused(self: Arc<Self>, admitted: Admitted) {
        let Admitted { by, verb, subresource } = admitted;
        if matches!(&by, By::Certificate(user) if user.name == API_SERVER) {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(STREAMS_ASK_INTERVAL).await;
            let may = match self.user(&by).await {
                Ok(Some(user)) => self.allowed(&user, verb, subresource).await,
                Ok(None) => return,
                Err(error) => Err(error),
            };
            match may {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => tracing::debug!(?error, "whether a stream may go on cannot be asked"),
            }
        }
    }

    /// The user; `None` for a token of nobody.
    async fn user(&self, by: &By) -> Result<Option<User>, HttpError> {
        let token = match by {
            By::Certificate(user) => return Ok(Some(user.clone())),
            By::Nothing => return Ok(Some(stranger())),
            By::Token(token) => token,
        };
        let key: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.tokens.get(&key) {
            return Ok(known);
        }
        let user = self.review(token).await?;
        self.tokens.put(key, user.clone(), {
            if user.is_some() { self.settings.token_lasts } else { self.settings.refusal_lasts }
        });
        Ok(user)
    }

    async fn review(&self, token: &str) -> Result<Option<User>, HttpError> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..Default::default() };
        let review = TokenReview { spec, ..Default::default() };
        let answer = Api::<TokenReview>::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await
            .map_err(|error| HttpError::internal(format!("token review: {error}")))?;
        let status = answer.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        Ok(user.map(|user| User {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }))
    }

    async fn allowed(
        &self,
        user: &User,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, HttpError> {
        if self.settings.always_allow {
            return Ok(true);
        }
        let question = (user.clone(), verb, subresource);
        if let Some(answer) = self.permissions.get(&question) {
            return Ok(answer);
        }
        let status = self.access(user, verb, subresource).await?;
        let allowed = status.allowed && status.denied != Some(true);
        let Access { permission_lasts, refusal_lasts, .. } = self.settings;
        self.permissions.put(question, allowed, if allowed { permission_lasts } else { refusal_lasts });
        Ok(allowed)
    }

    async fn access(
        &self,
        user: &User,
        verb: &str,
        subresource: &str,
    ) -> Result<SubjectAccessReviewStatus, HttpError> {
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            version: Some("v1".to_owned()),
            resource: Some("nodes".to_owned()),
            subresource: Some(subresource.to_owned()),
            name: Some(self.node_name.clone()),
            ..Default::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: Some(user.uid.clone()),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()),
            resource_attributes: Some(attributes),
            ..Default::default()
        };
        let review = SubjectAccessReview { spec, ..Default::default() };
        let answer = Api::<SubjectAccessReview>::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await
            .map_err(|error| HttpError::internal(format!("access review: {error}")))?;
        Ok(answer.status.unwrap_or_default())
    }
}

/// Who shows nothing, as the API server calls him.
fn stranger() -> User {
    User {
        name: "system:anonymous".to_owned(),
        groups: vec!["system:unauthenticated".to_owned()],
        ..User::default()
    }
}

fn unauthorized() -> HttpError {
    HttpError::new(StatusCode::UNAUTHORIZED, "Unauthorized")
}

impl By {
    /// The first `Authorization` header, as the API server reads it.
    fn bearer(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = text
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty());
        bearer.map(|(_, token)| Self::Token(token.trim().to_owned()))
    }
}

/// The user, as the API server reads a client certificate; the reason where it names nobody.
fn subject(own: &CertificateDer<'_>) -> Result<Peer, String> {
    let (_, certificate) = X509Certificate::from_der(own).map_err(|e| e.to_string())?;
    let holder = Holder::of_parsed(&certificate).map_err(|e| e.to_string())?;
    let name = holder.common_name().map_err(|e| e.to_string())?.to_owned();
    let mut groups = holder.organizations;
    groups.push("system:authenticated".to_owned());
    let hex = coracle_api::hex::text(&Sha256::digest(own));
    let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={hex}")])]);
    let user = User { name, uid: holder.uid, groups, extra };
    Ok(Peer::User { user, not_after: certificate.validity().not_after.timestamp() })
}
