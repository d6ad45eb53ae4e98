//! How often each probe has succeeded and failed, for `/metrics/probes`.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// One line of the page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counted {
    pub namespace: String,
    pub pod: String,
    pub pod_uid: String,
    pub container: String,
    /// `Startup`, `Liveness` or `Readiness`.
    pub kind: &'static str,
    /// `successful`, `failed` or `unknown`.
    pub result: &'static str,
}

/// Whose probe it is.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    pub namespace: String,
    pub pod: String,
    pub pod_uid: String,
    pub container: String,
}

/// The probes of a kubelet.
#[derive(Debug, Default)]
pub struct Counts(Mutex<BTreeMap<Counted, u64>>);

impl Counts {
    pub fn add(&self, subject: &Subject, kind: &'static str, result: &'static str) {
        let Subject { namespace, pod, pod_uid, container } = subject.clone();
        *self.0.lock().entry(Counted { namespace, pod, pod_uid, container, kind, result }).or_default() += 1;
    }

    /// A pod that has gone is not shown any more.
    pub fn forget(&self, pod_uid: &str) {
        self.0.lock().retain(|counted, _| counted.pod_uid != pod_uid);
    }

    pub fn all(&self) -> Vec<(Counted, u64)> {
        self.0.lock().iter().map(|(counted, count)| (counted.clone(), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_counted_until_their_pod_goes() {
        let counts = Counts::default();
        let of = |pod_uid: &str| Subject { pod_uid: pod_uid.to_owned(), ..Subject::default() };
        let shown = || -> Vec<(&'static str, u64)> {
            counts.all().into_iter().map(|(counted, count)| (counted.result, count)).collect()
        };
        counts.add(&of("u1"), "Liveness", "successful");
        counts.add(&of("u1"), "Liveness", "successful");
        counts.add(&of("u2"), "Readiness", "failed");
        assert_eq!(shown(), [("successful", 2), ("failed", 1)]);
        counts.forget("u1");
        assert_eq!(shown(), [("failed", 1)]);
    }
}
