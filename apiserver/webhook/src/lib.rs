//! The client of webhooks: admission and conversion, over HTTPS, by service or by URL
//! (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#contacting-the-webhook>).
//!
//! A [`Target`] is made once from a `clientConfig` and keeps its connections; the time of a call is the webhook's own.
//! As upstream, connections to services speak HTTP/1.1, so that several replicas share the calls, and HTTP/2 is for
//! webhooks on this machine. Redirects are not followed.

mod answer;
mod error;
mod fetch;
pub mod kubeconfig;
mod pool;
pub mod remembered;
pub mod resolve;
mod target;

pub use error::{CallError, TransportError};
pub use fetch::{Answer, get, send};
pub use target::Target;

use bytes::Bytes;
use coracle_requests::ObjectReader;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Largest answer that is read, in bytes: a patch that carries a whole object of the largest size twice, in base64, and
/// its wrapping. What is larger would cost memory for something that cannot be stored.
pub const ANSWER_BYTES: usize = 10 * 1024 * 1024;

/// Targets that are remembered though nobody holds them; they are dropped together when there are more.
const MOST_TARGETS: usize = 256;

/// One for each purpose; what is equal in two configurations shares connections.
pub struct Client {
    read: Arc<dyn ObjectReader>,
    targets: Mutex<HashMap<String, Arc<Target>>>,
}

/// One call.
pub struct Call {
    /// For everything, the connection included.
    pub timeout: Duration,
    /// Largest answer in bytes.
    pub most_bytes: usize,
    /// JSON.
    pub body: Bytes,
}

impl Call {
    /// With the answer's size that admission allows.
    pub fn new(timeout: Duration, body: Bytes) -> Self {
        Self { timeout, most_bytes: ANSWER_BYTES, body }
    }
}

impl Client {
    pub fn new(read: Arc<dyn ObjectReader>) -> Self {
        Self { read, targets: Mutex::default() }
    }

    /// The target of a `clientConfig`: the same one, with its connections, for equal configurations.
    ///
    /// # Errors
    /// A configuration that names no target, or roots that cannot be read.
    pub fn target(&self, config: &Value) -> Result<Arc<Target>, CallError> {
        let key = config.to_string();
        let mut targets = self.targets.lock();
        if let Some(known) = targets.get(&key) {
            return Ok(known.clone());
        }
        let target = Arc::new(Target::new(config)?);
        if targets.len() >= MOST_TARGETS {
            targets.retain(|_, target| Arc::strong_count(target) > 1);
        }
        targets.insert(key, target.clone());
        Ok(target)
    }

    /// Posts JSON and reads JSON.
    ///
    /// # Errors
    /// Every failure, also an answer with another status than 2xx; [`CallError::code`] is what metrics count.
    pub async fn post(&self, target: &Target, call: Call) -> Result<Value, CallError> {
        target.post(&*self.read, call).await
    }

    /// As [`post`](Self::post), for those who keep no [`Target`]: that of an equal configuration is found again.
    ///
    /// # Errors
    /// As [`target`](Self::target) and [`post`](Self::post).
    pub async fn call(&self, config: &Value, timeout: Duration, body: &Value) -> Result<Value, CallError> {
        let target = self.target(config)?;
        self.post(&target, Call::new(timeout, Bytes::from(body.to_string()))).await
    }
}
