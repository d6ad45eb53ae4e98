//! Conversion webhooks: objects of one version of a custom resource brought to another by somebody else's code.
//!
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#webhook-conversion>.
//! All objects of a list that need it go in one review. What comes back is believed in nothing but the payload: number,
//! order, kind, name, namespace and uid must be those that were sent, and of the metadata only labels and annotations are
//! taken over. There is no cache of answers: a webhook may convert otherwise from one moment to the next.

#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
mod metadata;
mod review;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use coracle_api::{ApiError, Object};
use coracle_requests::ObjectReader;
use coracle_requests::value::{at, str_at};
use coracle_webhook::{ANSWER_BYTES, Call, Client};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use review::Review;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Upstream's time for a conversion webhook, waiting for its turn included.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);
/// Calls of one webhook at a time. A webhook that asks this server for objects that it has to convert itself calls itself
/// again and again; here that ends, and no other resource notices.
const AT_ONCE: usize = 64;
/// How much larger than the question an answer may be.
const GROWTH: usize = 4;

/// The way to conversion webhooks; one for a server.
pub struct Converter {
    hooks: Client,
    /// By the text of `spec.conversion.webhook`.
    turns: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl Converter {
    pub fn new(read: Arc<dyn ObjectReader>) -> Self {
        Self { hooks: Client::new(read), turns: Mutex::default() }
    }

    /// One object in `api_version`. `webhook` is the definition's `spec.conversion.webhook`.
    ///
    /// # Errors
    /// Every failure of the webhook, in upstream's words, as 500 without a reason.
    pub async fn one(&self, webhook: &Value, object: Object, api_version: &str) -> Result<Object, ApiError> {
        if str_at(&object, "apiVersion") == api_version {
            return Ok(object);
        }
        let what = described(str_at(&object, "apiVersion"), str_at(&object, "kind"));
        let review = Review::new(vec![object], api_version, what, false);
        let mut converted = self.asking(webhook, &review).await.map_err(failed)?;
        converted.pop().ok_or_else(|| failed(format!("conversion webhook for {} failed", review.what)))
    }

    /// The items of a list in `api_version`, in their order; those that are in it already are left as they are.
    /// `list_kind` is what messages call the list.
    ///
    /// # Errors
    /// As [`one`](Self::one); one failure fails the whole list.
    pub async fn many(
        &self,
        webhook: &Value,
        objects: Vec<Object>,
        api_version: &str,
        list_kind: &str,
    ) -> Result<Vec<Object>, ApiError> {
        let foreign = |object: &Object| str_at(object, "apiVersion") != api_version;
        let sent: Vec<Object> = objects.iter().filter(|object| foreign(object)).cloned().collect();
        let Some(first) = sent.first() else { return Ok(objects) };
        let what = described(str_at(first, "apiVersion"), list_kind);
        let review = Review::new(sent, api_version, what, true);
        let mut converted = self.asking(webhook, &review).await.map_err(failed)?.into_iter();
        let next =
            |object: Object| if foreign(&object) { converted.next().unwrap_or(object) } else { object };
        Ok(objects.into_iter().map(next).collect())
    }

    /// On the heap, because every request to a custom resource has room for it, and few come here.
    fn asking<'a>(
        &'a self,
        webhook: &'a Value,
        review: &'a Review,
    ) -> BoxFuture<'a, Result<Vec<Object>, String>> {
        Box::pin(self.ask(webhook, review))
    }

    async fn ask(&self, webhook: &Value, review: &Review) -> Result<Vec<Object>, String> {
        let version = review::version(webhook)?;
        let begun = tokio::time::Instant::now();
        let turn = self.turn(webhook);
        let answer = tokio::time::timeout(WEBHOOK_TIMEOUT, async {
            let _permit = turn.acquire().await;
            let target = self.hooks.target(at(webhook, "clientConfig"))?;
            let body = Bytes::from(review.request(version).to_string());
            let most_bytes = ANSWER_BYTES.max(body.len().saturating_mul(GROWTH));
            let timeout = WEBHOOK_TIMEOUT.saturating_sub(begun.elapsed());
            Box::pin(self.hooks.post(&target, Call { timeout, most_bytes, body })).await
        });
        let answer = match answer.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(format!("conversion webhook for {} failed: {error}", review.what)),
            Err(_) => {
                let what = &review.what;
                return Err(format!("conversion webhook for {what} failed: context deadline exceeded"));
            }
        };
        review.accept(version, answer)
    }

    fn turn(&self, webhook: &Value) -> Arc<Semaphore> {
        let key = webhook.to_string();
        let mut turns = self.turns.lock();
        if let Some(known) = turns.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Semaphore::new(AT_ONCE));
        turns.insert(key, Arc::downgrade(&turn));
        turn
    }
}

fn failed(message: String) -> ApiError {
    ApiError::new(500, "", message)
}

/// `stable.example.com/v1, Kind=Widget`
fn described(api_version: &str, kind: &str) -> String {
    format!("{api_version}, Kind={kind}")
}
