//! Clients that act as the controllers' own service accounts, by tokens that the API issues for them: what upstream's
//! controller manager does with `--use-service-account-credentials`.

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderValue, Request, Response, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use kube::client::Body;
use kube::config::AuthInfo;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tower::{BoxError, Service};

const NAMESPACE: &str = "kube-system";
/// Life of a token, as upstream's controller manager asks for. The API may give another; the token is asked for again
/// when four fifths of what it gave are over.
const LIFE_SECONDS: i64 = 3600;

/// Makes clients of service accounts in kube-system. Cloning is cheap.
#[derive(Clone)]
pub struct Accounts {
    /// Asks for tokens.
    own: kube::Client,
    /// Says nothing of who it is.
    bare: kube::Client,
}

impl Accounts {
    /// `config` leads to the API; `own` is a client of it with the rights of `system:kube-controller-manager`.
    pub fn new(config: &kube::Config, own: kube::Client) -> Result<Self, String> {
        let mut bare = config.clone();
        bare.auth_info = AuthInfo::default();
        let bare = kube::Client::try_from(bare).map_err(|e| coracle_api::error::chain(&e))?;
        Ok(Self { own, bare })
    }

    /// The client of the account of this name, which is made if it is missing. The first request asks for its token.
    pub fn client(&self, name: &str) -> kube::Client {
        let source = Source { own: self.own.clone(), name: name.to_owned(), token: Mutex::default() };
        kube::Client::new(AsAccount { bare: self.bare.clone(), source: Arc::new(source) }, "default")
    }
}

/// A token, and when the next one is asked for.
#[derive(Clone)]
struct Token {
    bearer: HeaderValue,
    until: Instant,
}

struct Source {
    own: kube::Client,
    name: String,
    token: Mutex<Option<Token>>,
}

impl Source {
    /// The token of now. Whoever comes while it is asked for waits for the same one.
    async fn bearer(&self) -> Result<HeaderValue, BoxError> {
        let mut token = self.token.lock().await;
        if let Some(token) = token.as_ref().filter(|token| Instant::now() < token.until) {
            return Ok(token.bearer.clone());
        }
        let new = self.request().await?;
        let bearer = new.bearer.clone();
        *token = Some(new);
        Ok(bearer)
    }

    /// The API does not believe this one any more.
    async fn forget(&self, bearer: &HeaderValue) {
        let mut token = self.token.lock().await;
        if token.as_ref().is_some_and(|token| token.bearer == *bearer) {
            *token = None;
        }
    }

    async fn request(&self) -> Result<Token, BoxError> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.own.clone(), NAMESPACE);
        let spec = TokenRequestSpec { expiration_seconds: Some(LIFE_SECONDS), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let asked = Instant::now();
        let params = PostParams::default();
        let ask = || accounts.create_token_request(&self.name, &params, &request);
        let issued = match ask().await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.make(&accounts).await?;
                ask().await?
            }
            issued => issued?,
        };
        let token = issued.status.and_then(|status| status.token).ok_or("the API issued no token")?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {token}"))?;
        bearer.set_sensitive(true);
        let life = issued
            .spec
            .and_then(|spec| spec.expiration_seconds)
            .and_then(|seconds| u64::try_from(seconds).ok());
        let life = Duration::from_secs(life.unwrap_or_default());
        tracing::debug!(account = self.name, life_s = life.as_secs(), "token issued");
        Ok(Token { bearer, until: asked + life * 4 / 5 })
    }

    async fn make(&self, accounts: &Api<ServiceAccount>) -> Result<(), kube::Error> {
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let account = ServiceAccount { metadata, ..ServiceAccount::default() };
        match accounts.create(&PostParams::default(), &account).await {
            // Somebody else was quicker.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            made => made.map(drop),
        }
    }
}

/// The service below a client: every request carries the account's token of then.
#[derive(Clone)]
struct AsAccount {
    bare: kube::Client,
    source: Arc<Source>,
}

impl Service<Request<Body>> for AsAccount {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Self { bare, source } = self.clone();
        Box::pin(async move {
            let bearer = source.bearer().await?;
            request.headers_mut().insert(AUTHORIZATION, bearer.clone());
            let answer = bare.send(request).await?;
            if answer.status() == StatusCode::UNAUTHORIZED {
                source.forget(&bearer).await;
            }
            Ok(answer)
        })
    }
}
