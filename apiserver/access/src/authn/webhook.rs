//! Tokens that a webhook knows
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#webhook-token-authentication>).

use super::TokenUser;
use super::token_cache::{TokenCache, key};
use coracle_api::UserInfo;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::iter::once;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Attempts for one review, the pause after the first, and by how much it grows: upstream's.
const ATTEMPTS: u32 = 5;
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);
const GROWTH: f64 = 1.5;
const JITTER: f64 = 0.2;

/// Upstream's `--authentication-token-webhook-cache-ttl`.
pub const DEFAULT_TTL: Duration = Duration::from_secs(120);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ReviewError {
    pub message: String,
    /// Whether the same question may be answered in a moment.
    pub again: bool,
}

/// Whoever is asked. Bounds the time of one attempt itself.
pub trait Reviewer: Send + Sync + 'static {
    /// Posts a `TokenReview` in JSON; what comes back is one with a status.
    fn review(&self, review: Vec<u8>) -> BoxFuture<'_, Result<Vec<u8>, ReviewError>>;
}

/// `--authentication-token-webhook-version`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    V1,
    #[default]
    V1Beta1,
}

impl Version {
    /// `v1` or `v1beta1`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "authentication.k8s.io/v1",
            Self::V1Beta1 => "authentication.k8s.io/v1beta1",
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "apiVersion", default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    status: Status,
}

/// What the webhook said of a token.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    authenticated: bool,
    user: User,
    audiences: Vec<String>,
    error: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// One per server. Answers are remembered for its `ttl`, refusals too, failures never.
pub struct TokenWebhook {
    reviewer: Box<dyn Reviewer>,
    version: Version,
    answers: TokenCache<Arc<Status>>,
}

impl TokenWebhook {
    pub fn new(reviewer: impl Reviewer, version: Version, ttl: Duration) -> Self {
        Self { reviewer: Box::new(reviewer), version, answers: TokenCache::new(Some(ttl)) }
    }

    /// The user of a token that is for one of the `asked` audiences; `None` for a token that the webhook does not know.
    /// A webhook that says nothing of audiences speaks for the API's `own`.
    ///
    /// # Errors
    /// The webhook cannot be reached, or its answer not be read: nobody is let in for that.
    pub(super) async fn authenticate(
        &self,
        token: &str,
        asked: &[String],
        own: &[String],
    ) -> Result<Option<TokenUser>, String> {
        let key = key(once(token).chain(asked.iter().map(String::as_str)));
        let status = match self.answers.get(&key) {
            Some(known) => known,
            None => {
                let status = Arc::new(self.ask(token, asked).await?);
                self.answers.put(key, status.clone());
                status
            }
        };
        if !status.authenticated {
            return match status.error.as_str() {
                "" => Ok(None),
                why => Err(why.to_owned()),
            };
        }
        let of = if status.audiences.is_empty() { own } else { &status.audiences };
        let audiences: Vec<String> = asked.iter().filter(|a| of.contains(a)).cloned().collect();
        if audiences.is_empty() {
            return Ok(None);
        }
        let User { username, uid, groups, extra } = status.user.clone();
        Ok(Some(TokenUser::new(UserInfo { name: username, uid, groups, extra }, audiences)))
    }

    async fn ask(&self, token: &str, audiences: &[String]) -> Result<Status, String> {
        let review = json!({
            "apiVersion": self.version.api_version(), "kind": "TokenReview",
            "metadata": { "creationTimestamp": null }, "spec": { "token": token, "audiences": audiences },
        });
        let review = review.to_string().into_bytes();
        let mut pause = FIRST_RETRY_DELAY;
        let mut attempt = 1;
        loop {
            match self.reviewer.review(review.clone()).await {
                Ok(answer) => return self.read(&answer),
                Err(error) if error.again && attempt < ATTEMPTS => {
                    sleep(pause.mul_f64(1.0 + rand::random::<f64>() * JITTER)).await;
                    pause = pause.mul_f64(GROWTH);
                    attempt += 1;
                }
                Err(error) => {
                    tracing::error!(error = error.message, "asking the token webhook");
                    return Err(format!("token webhook: {error}"));
                }
            }
        }
    }

    fn read(&self, answer: &[u8]) -> Result<Status, String> {
        let wrong = |why: &dyn std::fmt::Display| format!("the token webhook's answer cannot be read: {why}");
        // Through a tree, so that null stands for what is not there.
        let mut answer: Value = serde_json::from_slice(answer).map_err(|e| wrong(&e))?;
        without_nulls(&mut answer);
        let answer: Answer = serde_json::from_value(answer).map_err(|e| wrong(&e))?;
        if answer.kind != "TokenReview" || answer.api_version != self.version.api_version() {
            return Err(wrong(&format_args!(
                "expected a {} TokenReview, got {:?} {:?}",
                self.version.api_version(),
                answer.api_version,
                answer.kind
            )));
        }
        if answer.status.authenticated && answer.status.user.username.is_empty() {
            return Err(wrong(&"it names no user"));
        }
        Ok(answer.status)
    }
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

#[cfg(test)]
#[path = "webhook_tests.rs"]
mod tests;
