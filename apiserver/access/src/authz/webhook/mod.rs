//! An authorizer outside of this process, asked with SubjectAccessReviews
//! (<https://kubernetes.io/docs/reference/access-authn-authz/webhook/>).

mod conditions;
mod metrics;
mod review;

#[cfg(test)]
mod tests;

pub use conditions::{Conditions, compile};
pub use review::{Review, Version};

use super::{Attributes, Decision, Verdict};
use coracle_webhook::CallError;
use coracle_webhook::kubeconfig::Remote;
use coracle_webhook::remembered::Remembered;
pub use metrics::Metrics;
use metrics::Outcome;
use review::Status;
use std::sync::Arc;
use std::time::Duration;

/// For one question with all its attempts, whatever the timeout of one is: as long as a request may take by default.
/// Without it, a webhook that answers 500 slowly would hold a request for minutes.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Answers of one webhook that are kept, as upstream.
const MOST_ANSWERS: usize = 8192;

/// How one webhook is asked.
pub struct Settings {
    /// As metrics call it.
    pub name: String,
    /// Of one attempt.
    pub timeout: Duration,
    /// The pause after a first attempt that failed.
    pub backoff: Duration,
    pub version: Version,
    /// How long answers are believed; zero for not at all.
    pub authorized_ttl: Duration,
    pub unauthorized_ttl: Duration,
    /// What counts when it cannot be asked, or its match conditions cannot be evaluated.
    pub denies_on_error: bool,
}

pub struct Webhook {
    settings: Settings,
    conditions: Conditions,
    remote: Remote,
    answers: Remembered<Status>,
    metrics: Arc<Metrics>,
}

impl Webhook {
    pub fn new(settings: Settings, conditions: Conditions, remote: Remote) -> Self {
        Self { settings, conditions, remote, answers: Remembered::new(MOST_ANSWERS), metrics: Arc::default() }
    }

    /// Counts with others of the server.
    #[must_use]
    pub fn counted_in(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics, ..self }
    }

    /// What is known without a call: what match conditions keep from the webhook, and what it has said before.
    ///
    /// # Errors
    /// What it must be asked.
    pub fn begin(&self, attributes: &Attributes<'_>) -> Result<Verdict, Review> {
        let review = Review::of(attributes);
        match self.conditions.want(&self.settings.name, review.spec(), &self.metrics) {
            Ok(true) => {}
            Ok(false) => return Ok(Decision::NoOpinion(String::new()).into()),
            Err(why) => return Ok(self.failed(why)),
        }
        match self.answers.get(review.key()) {
            Some(status) => Ok(status.verdict()),
            None => Err(review),
        }
    }

    /// Asks it, with upstream's repetitions, and remembers the answer.
    pub async fn ask(&self, review: Review) -> Verdict {
        let Settings { name, timeout, backoff, version, denies_on_error, .. } = &self.settings;
        let mut last = Outcome::Error;
        let watch = |answer: &Result<serde_json::Value, CallError>, took| {
            last = Outcome::of(answer);
            self.metrics.asked(name, last, took);
        };
        let posted = self.remote.post_repeatedly(*timeout, *backoff, review.body(*version), watch);
        let answer = match tokio::time::timeout(TOTAL_TIMEOUT, posted).await {
            Ok(Ok(answer)) => Status::read(&answer, *version),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("context deadline exceeded".to_owned()),
        };
        match answer {
            Ok(status) => {
                self.remember(&review, &status);
                status.verdict()
            }
            Err(why) => {
                tracing::error!(webhook = name, why, "an authorization webhook could not be asked");
                if !denies_on_error {
                    self.metrics.failed_open(name, last);
                }
                self.failed(why)
            }
        }
    }

    fn remember(&self, review: &Review, status: &Status) {
        let Settings { authorized_ttl, unauthorized_ttl, .. } = &self.settings;
        let time = if status.allowed { authorized_ttl } else { unauthorized_ttl };
        if !time.is_zero() && review.may_be_remembered() {
            self.answers.put(review.key(), status.clone(), *time);
        }
    }

    fn failed(&self, why: String) -> Verdict {
        let decision = match self.settings.denies_on_error {
            true => Decision::Deny(String::new()),
            false => Decision::NoOpinion(String::new()),
        };
        Verdict { decision, error: Some(why) }
    }
}
