//! How often each probe has succeeded and failed, for `/metrics/probes`.

use coracle_metrics::{Family, Histogram, Text};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// The result of a probe that was answered badly.
pub const FAILED: &str = "failed";

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
pub struct Counts {
    counts: Mutex<BTreeMap<Counted, u64>>,
    durations: Family<Histogram>,
}

impl std::fmt::Debug for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counts").finish_non_exhaustive()
    }
}

impl Default for Counts {
    fn default() -> Self {
        let durations = Family::new(
            "prober_probe_duration_seconds",
            "Duration in seconds for a probe response.",
            &["container", "namespace", "pod", "probe_type"],
            || Histogram::new(super::DEFAULT),
        );
        Self { counts: Mutex::default(), durations }
    }
}

impl Counts {
    /// A probe took so long. As upstream has it, the time of one that failed says nothing of the container.
    pub fn add(&self, subject: &Subject, kind: &'static str, result: &'static str, time: Duration) {
        let Subject { namespace, pod, pod_uid, container } = subject.clone();
        let counted = Counted { namespace, pod, pod_uid, container, kind, result };
        *self.counts.lock().entry(counted).or_default() += 1;
        if result != FAILED {
            let labels = [&*subject.container, &subject.namespace, &subject.pod, kind];
            self.durations.with(&labels, |histogram| histogram.observe(time));
        }
    }

    /// A pod that has gone is not shown any more. Another one of its name may have come.
    pub fn forget(&self, pod_uid: &str) {
        let mut counts = self.counts.lock();
        counts.retain(|counted, _| counted.pod_uid != pod_uid);
        let there: HashSet<(&str, &str)> =
            counts.keys().map(|counted| (&*counted.namespace, &*counted.pod)).collect();
        self.durations.retain(|labels| there.contains(&(&*labels[1], &*labels[2])));
    }

    pub fn all(&self) -> Vec<(Counted, u64)> {
        self.counts.lock().iter().map(|(counted, count)| (counted.clone(), *count)).collect()
    }

    /// Writes how long they took.
    pub fn render_durations(&self, text: &mut Text) {
        self.durations.render_with_head(text);
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
        let moment = Duration::from_millis(20);
        counts.add(&of("u1"), "Liveness", "successful", moment);
        counts.add(&of("u1"), "Liveness", "successful", moment);
        counts.add(&of("u2"), "Readiness", FAILED, moment);
        assert_eq!(shown(), [("successful", 2), ("failed", 1)]);
        counts.forget("u1");
        assert_eq!(shown(), [("failed", 1)]);
    }

    #[test]
    fn good_answers_are_timed_until_the_last_pod_of_a_name_goes() {
        let counts = Counts::default();
        let of = |pod: &str, pod_uid: &str| Subject {
            pod: pod.to_owned(),
            pod_uid: pod_uid.to_owned(),
            ..Subject::default()
        };
        let shown = || {
            let mut page = Text::default();
            counts.render_durations(&mut page);
            page.finish()
        };
        for (uid, result) in [("u1", "successful"), ("u1", FAILED), ("u1", "unknown"), ("u2", "successful")] {
            counts.add(&of("web", uid), "Readiness", result, Duration::from_millis(20));
        }
        counts.add(&of("db", "u3"), "Startup", "successful", Duration::from_millis(20));
        let web = "prober_probe_duration_seconds_count{container=\"\",namespace=\"\",pod=\"web\",probe_type=\"Readiness\"} 3";
        assert!(shown().contains(web), "{}", shown());
        counts.forget("u1");
        assert!(shown().contains(web), "its follower is there: {}", shown());
        counts.forget("u2");
        assert!(!shown().contains("web") && shown().contains("pod=\"db\""), "{}", shown());
    }
}
