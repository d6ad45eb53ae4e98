//! How many replicas a metric asks for.
//!
//! <https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/#algorithm-details>

use crate::common::pods;
use coracle_client::informer::deleting;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Upstream's --horizontal-pod-autoscaler-cpu-initialization-period and -initial-readiness-delay.
const INITIALIZATION_PERIOD: SignedDuration = SignedDuration::from_secs(300);
const READINESS_DELAY: SignedDuration = SignedDuration::from_secs(30);

pub const NO_PODS: &str = "no pods returned by selector while calculating replica count";

/// What a pod was measured at: thousandths of the unit, when, and over how long.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub milli: i64,
    pub at: Timestamp,
    pub window: SignedDuration,
}

pub type Samples = BTreeMap<String, Sample>;

/// Ratios that are as good as one: below it by `down`, above it by `up`.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    pub up: f64,
    pub down: f64,
}

impl Tolerance {
    pub fn holds(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// What is aimed at, per pod.
#[derive(Clone, Copy, Debug)]
pub enum Aim {
    /// Percent of what the pods request.
    Utilization(i64),
    /// Thousandths of the unit.
    Average(i64),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Proposal {
    pub replicas: i32,
    /// Percent, where requests count.
    pub utilization: Option<i64>,
    /// Thousandths of the unit.
    pub average: i64,
}

/// The pods of the target, and what is known of them.
pub struct Crowd<'a> {
    pub current: i32,
    pub pods: &'a [Arc<Pod>],
    /// A pod that starts up uses CPU for that; its sample says little.
    pub is_cpu: bool,
    pub tolerance: Tolerance,
    pub now: Timestamp,
}

#[derive(Default)]
struct Groups {
    ready: usize,
    unready: Vec<String>,
    missing: Vec<String>,
    ignored: Vec<String>,
}

impl Crowd<'_> {
    fn groups(&self, samples: &Samples) -> Groups {
        let mut groups = Groups::default();
        for pod in self.pods {
            let name = pod.name_any();
            match samples.get(&name) {
                _ if deleting(pod.as_ref()) || pods::phase(pod) == "Failed" => groups.ignored.push(name),
                _ if pods::phase(pod) == "Pending" => groups.unready.push(name),
                None => groups.missing.push(name),
                Some(sample) if self.is_cpu && self.starts_up(pod, sample) => groups.unready.push(name),
                Some(_) => groups.ready += 1,
            }
        }
        groups
    }

    fn starts_up(&self, pod: &Pod, sample: &Sample) -> bool {
        let started = pod.status.as_ref().and_then(|s| s.start_time.as_ref()).map(|t| t.0);
        let (Some(ready), Some(started)) = (pods::condition(pod, "Ready"), started) else { return true };
        // Never told is long ago, as Go's zero time.
        let changed = ready.last_transition_time.as_ref().map_or(Timestamp::MIN, |t| t.0);
        let later = |time: Timestamp, by: SignedDuration| time.checked_add(by).unwrap_or(Timestamp::MAX);
        if later(started, INITIALIZATION_PERIOD) > self.now {
            ready.status == "False" || sample.at < later(changed, sample.window)
        } else {
            ready.status == "False" && later(started, READINESS_DELAY) > changed
        }
    }

    /// `request` is what a pod requests, in thousandths; only asked for a [`Aim::Utilization`].
    ///
    /// # Errors
    /// Nothing to go by, in words.
    pub fn replicas(
        &self,
        mut samples: Samples,
        aim: Aim,
        request: impl Fn(&Pod) -> Result<i64, String>,
    ) -> Result<Proposal, String> {
        if self.pods.is_empty() {
            return Err(NO_PODS.to_owned());
        }
        let groups = self.groups(&samples);
        samples.retain(|name, _| !groups.ignored.contains(name) && !groups.unready.contains(name));
        if samples.is_empty() {
            return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
        }
        let mut requests = BTreeMap::new();
        if matches!(aim, Aim::Utilization(_)) {
            for pod in self.pods {
                requests.insert(pod.name_any(), request(pod)?);
            }
        }
        let (ratio, utilization, average) = measure(&samples, &requests, aim)?;
        let proposal = |replicas| Ok(Proposal { replicas, utilization, average });
        let unready = !groups.unready.is_empty() && ratio > 1.0;
        if !unready && groups.missing.is_empty() {
            let wanted = ceiling(ratio * count(groups.ready));
            return proposal(if self.tolerance.holds(ratio) { self.current } else { wanted });
        }
        self.assume(&mut samples, &groups, &requests, aim, ratio);
        let (again, ..) = measure(&samples, &requests, aim)?;
        let turned = (ratio < 1.0 && again > 1.0) || (ratio > 1.0 && again < 1.0);
        let wanted = ceiling(again * count(samples.len()));
        let wrong_way = (again < 1.0 && wanted > self.current) || (again > 1.0 && wanted < self.current);
        let stay = self.tolerance.holds(again) || turned || wrong_way;
        proposal(if stay { self.current } else { wanted })
    }

    /// The unknown is taken for what damps: full use when scaling down, none when scaling up.
    fn assume(
        &self,
        samples: &mut Samples,
        groups: &Groups,
        requests: &BTreeMap<String, i64>,
        aim: Aim,
        ratio: f64,
    ) {
        let sample = |milli| Sample { milli, at: self.now, window: SignedDuration::ZERO };
        for name in &groups.missing {
            let full = match aim {
                Aim::Utilization(percent) => {
                    requests.get(name).copied().unwrap_or(0) * percent.max(100) / 100
                }
                Aim::Average(milli) => milli,
            };
            if ratio < 1.0 {
                samples.insert(name.clone(), sample(full));
            } else if ratio > 1.0 {
                samples.insert(name.clone(), sample(0));
            }
        }
        if ratio > 1.0 {
            samples.extend(groups.unready.iter().map(|name| (name.clone(), sample(0))));
        }
    }
}

/// How far use is from the aim, in percent of requests where they count, and on average. Where requests count, a sample of
/// a pod that is not there (any more) does not.
fn measure(
    samples: &Samples,
    requests: &BTreeMap<String, i64>,
    aim: Aim,
) -> Result<(f64, Option<i64>, i64), String> {
    let sum = |amounts: &mut dyn Iterator<Item = i64>| amounts.fold(0, i64::saturating_add);
    let mean = |total: i64, count: usize| total / i64::try_from(count).unwrap_or(i64::MAX).max(1);
    match aim {
        Aim::Average(milli) => {
            let average = mean(sum(&mut samples.values().map(|s| s.milli)), samples.len());
            Ok((ratio(average, milli), None, average))
        }
        Aim::Utilization(percent) => {
            let known: Vec<(i64, i64)> =
                samples.iter().filter_map(|(name, s)| Some((s.milli, *requests.get(name)?))).collect();
            let total = sum(&mut known.iter().map(|(used, _)| *used));
            let requested = sum(&mut known.iter().map(|(_, requested)| *requested));
            if requested == 0 {
                return Err("no metrics returned matched known pods".to_owned());
            }
            let used = total.saturating_mul(100) / requested;
            Ok((ratio(used, percent), Some(used), mean(total, known.len())))
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of two amounts needs no more than 52 bits")]
pub fn ratio(has: i64, aim: i64) -> f64 {
    has as f64 / aim.max(1) as f64
}

#[expect(clippy::cast_precision_loss, reason = "so many pods there are not")]
fn count(pods: usize) -> f64 {
    pods as f64
}

#[expect(clippy::cast_possible_truncation, reason = "clamped to the range first")]
pub fn ceiling(replicas: f64) -> i32 {
    replicas.ceil().clamp(0.0, f64::from(i32::MAX)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    /// Pods by state: `r` ready for long, `p` pending, `m` without a sample, `n` just started.
    fn propose(current: i32, states: &str, milli: i64, aim: Aim) -> Result<i32, String> {
        let (mut pods, mut samples) = (Vec::new(), Samples::new());
        for (i, state) in states.chars().enumerate() {
            let name = format!("p{i}");
            let started = if state == 'n' { "2026-01-01T00:59:00Z" } else { "2026-01-01T00:00:00Z" };
            let phase = if state == 'p' { "Pending" } else { "Running" };
            let ready = if state == 'n' { "False" } else { "True" };
            pods.push(Arc::new(
                serde_json::from_value(json!({ "metadata": { "name": name },
                    "status": { "phase": phase, "startTime": started, "conditions": [
                        { "type": "Ready", "status": ready, "lastTransitionTime": started }] } }))
                .unwrap(),
            ));
            if state != 'm' {
                let window = SignedDuration::from_secs(30);
                samples.insert(name, Sample { milli, at: now(), window });
            }
        }
        let tolerance = Tolerance { up: 0.1, down: 0.1 };
        let crowd = Crowd { current, pods: &pods, is_cpu: true, tolerance, now: now() };
        crowd.replicas(samples, aim, |_| Ok(1000)).map(|p| p.replicas)
    }

    #[test]
    fn use_above_and_below_the_aim() {
        let half = Aim::Utilization(50);
        for (states, milli, expected) in [
            ("rrr", 500, 3),
            ("rrr", 540, 3),
            ("rrr", 1000, 6),
            ("rrr", 200, 2),
            // Unknown pods damp: up as if idle, down as if busy.
            ("rrmm", 2000, 8),
            ("rrm", 100, 3),
            ("rrp", 1000, 4),
            ("rrn", 1000, 4),
        ] {
            let current = i32::try_from(states.len()).unwrap();
            assert_eq!(propose(current, states, milli, half), Ok(expected), "{states} {milli}");
        }
        assert_eq!(propose(2, "rr", 900, Aim::Average(300)), Ok(6));
        assert!(propose(1, "p", 900, half).is_err());
        assert_eq!(propose(1, "", 900, half), Err(NO_PODS.to_owned()));
    }

    /// Pods with these phases and requests of 2000 each, samples of `levels` in order, more or fewer than pods. `f` is a pod
    /// that is ready no more and started `started` seconds ago, `r` one that is ready.
    fn table(
        current: i32,
        pods: &str,
        started: i64,
        levels: &[i64],
        aim: Aim,
        tolerance: f64,
    ) -> (i32, i64, i64) {
        let since = now().checked_sub(SignedDuration::from_secs(started)).unwrap();
        let pod = |(i, state): (usize, char)| {
            let ready = if state == 'f' { "False" } else { "True" };
            let status = json!({ "phase": "Running", "startTime": since, "conditions": [{ "type": "Ready", "status": ready }] });
            Arc::new(
                serde_json::from_value(json!({ "metadata": { "name": format!("p{i}") }, "status": status }))
                    .unwrap(),
            )
        };
        let pods: Vec<Arc<Pod>> = pods.chars().enumerate().map(pod).collect();
        let window = SignedDuration::from_secs(60);
        let sample =
            |(i, milli): (usize, &i64)| (format!("p{i}"), Sample { milli: *milli, at: now(), window });
        let samples = levels.iter().enumerate().map(sample).collect();
        let tolerance = Tolerance { up: tolerance, down: 0.1 };
        let crowd =
            Crowd { current, pods: &pods, is_cpu: matches!(aim, Aim::Utilization(_)), tolerance, now: now() };
        let found = crowd.replicas(samples, aim, |_| Ok(2000)).unwrap();
        (found.replicas, found.utilization.unwrap_or(0), found.average)
    }

    #[test]
    fn as_upstreams_table_of_resources() {
        let share = Aim::Utilization;
        for (current, pods, levels, aim, expected) in [
            (3, "rrr", &[600, 1000, 1400][..], share(30), (5, 50, 1000)),
            (3, "frr", &[600, 1000, 1400], share(30), (4, 60, 1200)),
            (3, "rff", &[800, 1000, 1400], share(30), (3, 40, 800)),
            (5, "rrrrr", &[200, 600, 1000, 500, 500], share(50), (3, 28, 560)),
            (5, "rrrff", &[200, 600, 1000, 500, 500], share(50), (2, 30, 600)),
            (4, "rrrr", &[8000, 19_000, 6000, 14_000, 6400, 4000], share(100), (24, 587, 11_750)),
            (4, "rrrr", &[800, 190], share(100), (3, 24, 495)),
            (2, "rr", &[2000], share(100), (2, 100, 2000)),
            (2, "rr", &[3800], share(100), (2, 190, 3800)),
            (2, "rr", &[1200], share(100), (2, 60, 1200)),
            (3, "frr", &[200, 900], share(50), (3, 45, 900)),
            (3, "frr", &[200, 4000], share(50), (4, 200, 4000)),
            (4, "frrr", &[200, 200, 200], share(50), (3, 10, 200)),
            (2, "rrr", &[200, 200], share(50), (2, 10, 200)),
        ] {
            assert_eq!(table(current, pods, 3600, levels, aim, 0.1), expected, "{pods} {levels:?}");
        }
    }

    #[test]
    fn as_upstreams_table_of_pods_metrics() {
        let each = Aim::Average;
        for (current, pods, levels, aim, tolerance, expected) in [
            (3, "rrr", &[20_000, 10_000, 30_000][..], each(15_000), 0.1, (4, 0, 20_000)),
            (3, "rrf", &[50_000, 10_000, 30_000], each(15_000), 0.1, (6, 0, 30_000)),
            (3, "frf", &[50_000, 15_000, 30_000], each(15_000), 0.1, (7, 0, 31_666)),
            (5, "rrrrr", &[12_000; 5], each(20_000), 0.1, (3, 0, 12_000)),
            (3, "rrr", &[20_000, 21_000, 21_000], each(20_000), 0.1, (3, 0, 20_666)),
            (3, "rrr", &[20_000, 21_000, 21_000], each(20_000), 0.01, (4, 0, 20_666)),
            (5, "rrrrr", &[20_000, 19_000, 21_000], each(20_000), 0.1, (5, 0, 20_000)),
            (2, "rrr", &[10_000, 10_000], each(17_000), 0.1, (2, 0, 10_000)),
        ] {
            assert_eq!(table(current, pods, 10, levels, aim, tolerance), expected, "{pods} {levels:?}");
        }
    }

    #[test]
    fn a_pod_that_starts_up_is_judged_by_its_condition_and_its_window() {
        let starts_up = |started: i64, ready: &str, changed: Option<i64>, window: i64| {
            let ago = |seconds| now().checked_sub(SignedDuration::from_secs(seconds)).unwrap();
            let condition =
                json!({ "type": "Ready", "status": ready, "lastTransitionTime": changed.map(ago) });
            let status = json!({ "startTime": ago(started), "conditions": [condition] });
            let pod = serde_json::from_value(json!({ "status": status })).unwrap();
            let tolerance = Tolerance { up: 0.1, down: 0.1 };
            let crowd = Crowd { current: 1, pods: &[], is_cpu: true, tolerance, now: now() };
            crowd.starts_up(&pod, &Sample { milli: 1, at: now(), window: SignedDuration::from_secs(window) })
        };
        assert!(!starts_up(60, "True", Some(30), 30), "a whole window since it is ready");
        assert!(starts_up(60, "True", Some(30), 60));
        assert!(starts_up(600, "False", Some(594), 60), "it was never ready");
        assert!(!starts_up(600, "False", Some(540), 60), "it was ready once");
        assert!(!starts_up(60, "True", None, 60));
        assert!(starts_up(600, "False", None, 60));
    }
}
