//! What the tokens of configured issuers cost, and how old their keys are, under upstream's names.

use coracle_component_base::config_file::digest;
use coracle_component_base::metrics::{Counter, Family, Histogram, Metrics, Text};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Upstream's buckets, in seconds: powers of two from a millisecond.
const SECONDS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];

/// Seconds since 1970 of the last fetch that succeeded and of the last that did not, and the set's digest.
#[derive(Clone, Debug, Default)]
struct Fetched {
    success: Option<u64>,
    failure: Option<u64>,
    set: Option<String>,
}

/// Of all issuers of a server: another configuration goes on counting.
pub struct Figures {
    latency: Family<Histogram>,
    fetches: Family<Counter>,
    last: Mutex<BTreeMap<String, Fetched>>,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            latency: Family::new(
                "apiserver_authentication_jwt_authenticator_latency_seconds",
                "Time to check the tokens of an issuer, by result.",
                &["jwt_issuer_hash", "result"],
                || Histogram::new(SECONDS),
            ),
            fetches: Family::new(
                "coracle_jwt_authenticator_jwks_fetches_total",
                "Fetches of the keys of an issuer, by result.",
                &["jwt_issuer_hash", "result"],
                Counter::default,
            ),
            last: Mutex::default(),
        }
    }
}

impl Figures {
    /// On the page of `metrics`.
    pub fn shown(metrics: &Metrics) -> Arc<Self> {
        let figures = Arc::<Self>::default();
        let shown = figures.clone();
        metrics.collect_as("jwt_authenticators", move |text| shown.render(text));
        figures
    }

    pub fn checked(&self, issuer: &str, accepted: bool, time: Duration) {
        let result = if accepted { "success" } else { "failure" };
        self.latency.with(&[&digest(issuer), result], |histogram| histogram.observe(time));
    }

    /// `set`: what was fetched, if it was.
    pub fn fetched(&self, issuer: &str, set: Option<&[u8]>) {
        let hash = digest(issuer);
        let result = if set.is_some() { "success" } else { "failure" };
        self.fetches.with(&[&hash, result], |counter| counter.add(1));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let mut last = self.last.lock();
        let entry = last.entry(hash).or_default();
        match set {
            Some(set) => {
                entry.success = Some(now);
                entry.set = Some(digest(&String::from_utf8_lossy(set)));
            }
            None => entry.failure = Some(now),
        }
    }

    fn render(&self, text: &mut Text) {
        self.latency.render(text);
        self.fetches.render(text);
        let last = self.last.lock();
        let name = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds";
        text.head(name, "When the keys of an issuer were last fetched, by result.", "gauge");
        for (hash, fetched) in &*last {
            for (result, at) in [("failure", fetched.failure), ("success", fetched.success)] {
                if let Some(at) = at {
                    text.sample(name, &[("jwt_issuer_hash", hash), ("result", result)], at);
                }
            }
        }
        let name = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info";
        text.head(name, "1 with the hash of an issuer's keys.", "gauge");
        for (hash, fetched) in &*last {
            if let Some(set) = &fetched.set {
                text.sample(name, &[("hash", set), ("jwt_issuer_hash", hash)], 1);
            }
        }
    }
}
