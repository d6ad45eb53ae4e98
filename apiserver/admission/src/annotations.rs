//! Annotations for the audit event of a request: what admission has decided, and why.
//!
//! Whoever writes the audit log runs the request inside [`collect`]; plugins call [`annotate`]. Outside of `collect`,
//! as for a component in this process whose requests are not audited, annotations go nowhere.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

pub type Annotations = BTreeMap<String, String>;

/// What the keys of [`annotate_request`] begin with.
pub const OF_REQUEST: &str = "patch.webhook.admission.k8s.io/";

tokio::task_local! {
    static CURRENT: Arc<Mutex<Annotations>>;
}

/// Runs a request and returns what it was annotated with. Work that the request spawns as other tasks is not seen.
pub async fn collect<F: Future>(request: F) -> (F::Output, Annotations) {
    let annotations = Arc::new(Mutex::new(Annotations::new()));
    let output = CURRENT.scope(annotations.clone(), request).await;
    let annotations = std::mem::take(&mut *annotations.lock());
    (output, annotations)
}

/// Adds an annotation; the first value of a key stays, as upstream's.
pub fn annotate(key: &str, value: impl Into<String>) {
    let value = value.into();
    // No audit: nobody wants to know.
    let _ = CURRENT.try_with(|current| {
        current.lock().entry(key.to_owned()).or_insert(value);
    });
}

/// As [`annotate`], for what is as large as a request: recorded only where requests' bodies are.
pub fn annotate_request(key: &str, value: impl FnOnce() -> String) {
    if CURRENT.try_with(|_| ()).is_ok() {
        annotate(key, value());
    }
}

/// Whether the value of this key was given by [`annotate_request`].
pub fn is_of_request(key: &str) -> bool {
    key.starts_with(OF_REQUEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn annotations_belong_to_one_request() {
        annotate("lost", "x");
        let one = collect(async {
            annotate("k", "first");
            tokio::task::yield_now().await;
            annotate("k", "second");
            1
        });
        let two = collect(async { annotate("other", "y") });
        let ((number, one), ((), two)) = tokio::join!(one, two);
        assert_eq!(number, 1);
        assert_eq!(one, Annotations::from([("k".to_owned(), "first".to_owned())]));
        assert_eq!(two, Annotations::from([("other".to_owned(), "y".to_owned())]));
    }
}
