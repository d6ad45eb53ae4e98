//! How often each probe of this process has succeeded and failed, for `/metrics/probes`.

use super::prober::Kind;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// One line of the page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counted {
    pub namespace: String,
    pub pod: String,
    pub pod_uid: String,
    pub container: String,
    pub kind: Kind,
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

static COUNTS: Mutex<BTreeMap<Counted, u64>> = Mutex::new(BTreeMap::new());

pub fn add(subject: &Subject, kind: Kind, result: &'static str) {
    let Subject { namespace, pod, pod_uid, container } = subject.clone();
    *COUNTS.lock().entry(Counted { namespace, pod, pod_uid, container, kind, result }).or_default() += 1;
}

/// A pod that has gone is not shown any more.
pub fn forget(pod_uid: &str) {
    COUNTS.lock().retain(|counted, _| counted.pod_uid != pod_uid);
}

pub fn all() -> Vec<(Counted, u64)> {
    COUNTS.lock().iter().map(|(counted, count)| (counted.clone(), *count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_counted_until_their_pod_goes() {
        let subject = Subject { pod_uid: "counts-test".to_owned(), ..Subject::default() };
        let mine = || -> Vec<(&'static str, u64)> {
            let all = all().into_iter().filter(|(c, _)| c.pod_uid == "counts-test");
            all.map(|(c, n)| (c.result, n)).collect()
        };
        add(&subject, Kind::Liveness, "successful");
        add(&subject, Kind::Liveness, "successful");
        add(&subject, Kind::Readiness, "failed");
        assert_eq!(mine(), [("successful", 2), ("failed", 1)]);
        forget("counts-test");
        assert_eq!(mine(), []);
    }
}
