//! What the conformance suite asks of [sig-auth], [sig-cli], [sig-instrumentation], [sig-architecture], and of
//! [sig-api-machinery]: the same operations and expectations in words of our own, against the real binary with simulated
//! nodes. What kubectl does stands in tests/clients.

mod aggregator;
mod auth;
mod behaviours;
mod collector;
mod conversion;
mod customfields;
mod definitions;
mod discovery;
mod fields;
mod lists;
mod namespaces;
mod operations;
mod policies;
mod published;
mod quota;
mod samples;
mod schemas;
mod watches;
mod webhooks;

use coracle_tests::Cluster;
use coracle_tests::rest::Rest;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// One server with several checks, each with a namespace of its own where it wants one.
pub struct Suite {
    cluster: Cluster,
    pub rest: Rest,
    failed: Vec<String>,
}

impl Suite {
    pub fn start() -> Self {
        let cluster = Cluster::simulated();
        let rest = Rest::new(cluster.kubeconfig());
        Self { cluster, rest, failed: Vec::new() }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Runs a check; those after it run even when it fails.
    pub fn check(&mut self, name: &str, check: impl FnOnce(&Rest)) {
        let begun = Instant::now();
        let held = catch_unwind(AssertUnwindSafe(|| check(&self.rest))).is_ok();
        println!("{} {name} ({} ms)", if held { "ok" } else { "FAILED" }, begun.elapsed().as_millis());
        if !held {
            self.failed.push(name.to_owned());
        }
    }

    /// Likewise, with a namespace that has its service account.
    pub fn check_in(&mut self, namespace: &str, check: impl FnOnce(&Rest, &str)) {
        self.check(namespace, |rest| {
            make_namespace(rest, namespace);
            check(rest, namespace);
        });
    }

    /// Call last.
    pub fn end(self) {
        self.cluster.assert_alive();
        assert!(self.failed.is_empty(), "{} checks failed: {}", self.failed.len(), self.failed.join(", "));
    }
}

pub fn make_namespace(rest: &Rest, name: &str) {
    let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    rest.create("/api/v1/namespaces", &namespace);
    let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
    eventually("the service account", || (rest.call("GET", &account, &[], "").code == 200).then_some(()));
}

/// Longest wait for a state.
const PATIENCE: Duration = Duration::from_secs(100);

#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
