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
const INITIALIZATION: SignedDuration = SignedDuration::from_secs(300);
const READINESS_DELAY: SignedDuration = SignedDuration::from_secs(30);

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
        let changed = ready.last_transition_time.as_ref().map_or(started, |t| t.0);
        let later = |time: Timestamp, by: SignedDuration| time.checked_add(by).unwrap_or(Timestamp::MAX);
        if later(started, INITIALIZATION) > self.now {
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

/// How far use is from the aim, in percent of requests where they count, and on average.
fn measure(
    samples: &Samples,
    requests: &BTreeMap<String, i64>,
    aim: Aim,
) -> Result<(f64, Option<i64>, i64), String> {
    let total: i64 = samples.values().map(|s| s.milli).sum();
    let average = total / i64::try_from(samples.len()).unwrap_or(1).max(1);
    match aim {
        Aim::Average(milli) => Ok((ratio(average, milli), None, average)),
        Aim::Utilization(percent) => {
            let requested: i64 = samples.keys().filter_map(|name| requests.get(name)).sum();
            if requested == 0 {
                return Err("no metrics returned matched known pods".to_owned());
            }
            let used = total.saturating_mul(100) / requested;
            Ok((ratio(used, percent), Some(used), average))
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
    }
}
