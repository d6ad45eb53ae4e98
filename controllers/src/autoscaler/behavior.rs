//! How fast a target may grow and shrink: stabilization windows and policies.

use super::replicas::ceiling;
use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior};
use std::time::{Duration, Instant};

/// A window when none is set: upstream's --horizontal-pod-autoscaler-downscale-stabilization.
const DOWN_WINDOW: i32 = 300;

/// What one autoscaler has proposed and done lately, by a clock that nobody sets.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    proposals: Vec<(Instant, i32)>,
    /// Changes of size under rules, growth positive.
    changes: Vec<(Instant, i32)>,
}

impl Memory {
    /// The size that the target is first seen at counts as proposed: it shall not shrink at once because nobody remembers
    /// what it was like before.
    pub fn begin(&mut self, now: Instant, current: i32) {
        if self.proposals.is_empty() {
            self.proposals.push((now, current));
        }
    }

    fn lately(&self, now: Instant, seconds: i32) -> impl Iterator<Item = i32> {
        self.proposals.iter().filter(move |(at, _)| within_last(*at, now, seconds)).map(|(_, n)| *n)
    }

    /// Remembers a proposal, and those of the last seconds.
    fn propose(&mut self, now: Instant, seconds: i32, proposed: i32) {
        self.proposals.retain(|(at, _)| within_last(*at, now, seconds));
        self.proposals.push((now, proposed));
    }

    pub fn changed(&mut self, now: Instant, by: i32) {
        self.changes.retain(|(at, _)| within_last(*at, now, 3600));
        self.changes.push((now, by));
    }

    /// How much was added (or, for `down`, removed) in the last seconds.
    fn moved(&self, now: Instant, seconds: i32, down: bool) -> i32 {
        let lately = |at| within_last(at, now, seconds);
        let moves = self.changes.iter().filter(|(at, by)| lately(*at) && (*by < 0) == down);
        moves.map(|(_, by)| by.abs()).sum()
    }
}

/// Whether `at` is less than as many seconds before `now`.
fn within_last(at: Instant, now: Instant, seconds: i32) -> bool {
    now.duration_since(at) < Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// The size that is let through, and what held it back: reason and message of a condition.
#[derive(Debug, PartialEq, Eq)]
pub struct Limited {
    pub replicas: i32,
    /// Of AbleToScale.
    pub able: (&'static str, &'static str),
    /// Of ScalingLimited; it is limited unless the reason is `DesiredWithinRange`.
    pub limited: (&'static str, &'static str),
}

pub struct Bounds {
    pub current: i32,
    pub min: i32,
    pub max: i32,
}

fn policies(rules: Option<&HPAScalingRules>, up: bool) -> Vec<HPAScalingPolicy> {
    let policy = |type_: &str, value| HPAScalingPolicy { type_: type_.to_owned(), value, period_seconds: 15 };
    let given = rules.and_then(|r| r.policies.clone()).filter(|p| !p.is_empty());
    given.unwrap_or_else(|| {
        let mut default = vec![policy("Percent", 100)];
        if up {
            default.push(policy("Pods", 4));
        }
        default
    })
}

type Words = (&'static str, &'static str);

const READY: Words = ("ReadyForNewScale", "recommended size matches current size");
const UP_STABILIZED: Words = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const DOWN_STABILIZED: Words = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const TOO_FAST_UP: Words =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const TOO_FAST_DOWN: Words =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const TOO_MANY: Words =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: Words = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const WITHIN: Words = ("DesiredWithinRange", "the desired count is within the acceptable range");

pub fn limit(
    proposed: i32,
    bounds: &Bounds,
    behavior: Option<&HorizontalPodAutoscalerBehavior>,
    memory: &mut Memory,
    now: Instant,
) -> Limited {
    let Some(behavior) = behavior else { return plain(proposed, bounds, memory, now) };
    let (up, down) = (behavior.scale_up.as_ref(), behavior.scale_down.as_ref());
    let (stable, able) = stabilize(proposed, bounds.current, up, down, memory, now);
    let (replicas, limited) = within(stable, bounds, up, down, memory, now);
    Limited { replicas, able, limited }
}

/// Without rules: up to twice the size, or to 4, at one time, and down to the greatest of the window's proposals.
fn plain(proposed: i32, bounds: &Bounds, memory: &mut Memory, now: Instant) -> Limited {
    let stable = memory.lately(now, DOWN_WINDOW).fold(proposed, i32::max);
    memory.propose(now, DOWN_WINDOW, proposed);
    let rate = bounds.current.saturating_mul(2).max(4);
    let (replicas, limited) = if stable < bounds.min {
        (bounds.min, TOO_FEW)
    } else if stable > rate && rate < bounds.max {
        (rate, TOO_FAST_UP)
    } else if stable > bounds.max {
        (bounds.max, TOO_MANY)
    } else {
        (stable, WITHIN)
    };
    Limited { replicas, able: if stable == proposed { READY } else { DOWN_STABILIZED }, limited }
}

/// The least of the window's proposals when growing, the greatest when shrinking.
fn stabilize(
    proposed: i32,
    current: i32,
    up: Option<&HPAScalingRules>,
    down: Option<&HPAScalingRules>,
    memory: &mut Memory,
    now: Instant,
) -> (i32, Words) {
    let up = up.and_then(|r| r.stabilization_window_seconds).unwrap_or(0);
    let down = down.and_then(|r| r.stabilization_window_seconds).unwrap_or(DOWN_WINDOW);
    let least = memory.lately(now, up).fold(proposed, i32::min);
    let greatest = memory.lately(now, down).fold(proposed, i32::max);
    let stable = current.max(least).min(greatest);
    memory.propose(now, up.max(down), proposed);
    let why = match stable {
        _ if stable == proposed => READY,
        _ if stable < proposed => UP_STABILIZED,
        _ => DOWN_STABILIZED,
    };
    (stable, why)
}

fn within(
    wanted: i32,
    bounds: &Bounds,
    up: Option<&HPAScalingRules>,
    down: Option<&HPAScalingRules>,
    memory: &Memory,
    now: Instant,
) -> (i32, Words) {
    if wanted > bounds.current {
        let rate = up_limit(bounds.current, up, memory, now).max(bounds.current);
        let most = bounds.max.min(rate);
        if wanted > most {
            return (most, if rate < bounds.max { TOO_FAST_UP } else { TOO_MANY });
        }
    } else if wanted < bounds.current {
        let rate = down_limit(bounds.current, down, memory, now).min(bounds.current);
        let least = bounds.min.max(rate);
        if wanted < least {
            return (least, if rate > bounds.min { TOO_FAST_DOWN } else { TOO_FEW });
        }
    }
    (wanted, WITHIN)
}

fn up_limit(current: i32, rules: Option<&HPAScalingRules>, memory: &Memory, now: Instant) -> i32 {
    let select = rules.and_then(|r| r.select_policy.as_deref()).unwrap_or("Max");
    if select == "Disabled" {
        return current;
    }
    let limits = policies(rules, true).into_iter().map(|policy| {
        let added = memory.moved(now, policy.period_seconds, false);
        let removed = memory.moved(now, policy.period_seconds, true);
        let start = current - added + removed;
        match policy.type_.as_str() {
            "Pods" => start.saturating_add(policy.value),
            _ => ceiling(f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)),
        }
    });
    if select == "Min" { limits.min() } else { limits.max() }.unwrap_or(current)
}

fn down_limit(current: i32, rules: Option<&HPAScalingRules>, memory: &Memory, now: Instant) -> i32 {
    let select = rules.and_then(|r| r.select_policy.as_deref()).unwrap_or("Max");
    if select == "Disabled" {
        return current;
    }
    let limits = policies(rules, false).into_iter().map(|policy| {
        let added = memory.moved(now, policy.period_seconds, false);
        let removed = memory.moved(now, policy.period_seconds, true);
        let start = current - added + removed;
        match policy.type_.as_str() {
            "Pods" => start.saturating_sub(policy.value),
            _ => ceiling((f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)).floor()),
        }
    });
    if select == "Min" { limits.max() } else { limits.min() }.unwrap_or(current)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn since(start: Instant) -> impl Fn(u64) -> Instant {
        move |second| start + Duration::from_secs(second)
    }

    #[test]
    fn growth_and_shrinkage_under_rules_keep_to_their_rates() {
        let rules = HorizontalPodAutoscalerBehavior::default();
        let bounds = |current| Bounds { current, min: 1, max: 50 };
        let (mut memory, at) = (Memory::default(), since(Instant::now()));
        let first = limit(40, &bounds(3), Some(&rules), &mut memory, at(0));
        assert_eq!((first.replicas, first.limited.0), (7, "ScaleUpLimit"));
        memory.changed(at(0), 4);
        assert_eq!(limit(40, &bounds(7), Some(&rules), &mut memory, at(5)).replicas, 7);
        assert_eq!(limit(40, &bounds(7), Some(&rules), &mut memory, at(20)).replicas, 14);
        let down = limit(2, &bounds(14), Some(&rules), &mut memory, at(30));
        assert_eq!((down.replicas, down.able.0), (14, "ScaleDownStabilized"));
        assert_eq!(limit(2, &bounds(14), Some(&rules), &mut memory, at(400)).replicas, 2);
    }

    #[test]
    fn without_rules_growth_doubles_and_shrinkage_waits() {
        for (current, proposed, (min, max), expected) in [
            (3, 40, (1, 50), (6, "ScaleUpLimit")),
            (0, 40, (0, 50), (4, "ScaleUpLimit")),
            (49, 90, (1, 50), (50, "TooManyReplicas")),
            (2, 90, (1, 4), (4, "TooManyReplicas")),
            (10, 3, (5, 50), (5, "TooFewReplicas")),
            (10, 7, (5, 50), (7, "DesiredWithinRange")),
        ] {
            let bounds = Bounds { current, min, max };
            let found = limit(proposed, &bounds, None, &mut Memory::default(), Instant::now());
            assert_eq!((found.replicas, found.limited.0), expected, "{current} to {proposed}");
        }
        let (mut memory, at) = (Memory::default(), since(Instant::now()));
        let bounds = || Bounds { current: 9, min: 1, max: 50 };
        memory.begin(at(0), 9);
        memory.begin(at(1), 50);
        let first = limit(2, &bounds(), None, &mut memory, at(15));
        assert_eq!((first.replicas, first.able.0), (9, "ScaleDownStabilized"), "as it was first seen");
        assert_eq!(limit(5, &bounds(), None, &mut memory, at(200)).replicas, 9);
        assert_eq!(limit(2, &bounds(), None, &mut memory, at(400)).replicas, 5);
    }

    #[test]
    fn rules_of_ones_own() {
        let behavior: HorizontalPodAutoscalerBehavior = serde_json::from_value(json!({
            "scaleDown": { "stabilizationWindowSeconds": 0, "policies": [{ "type": "Pods", "value": 2, "periodSeconds": 60 }] },
            "scaleUp": { "selectPolicy": "Disabled" } }))
        .unwrap();
        let (mut memory, at) = (Memory::default(), since(Instant::now()));
        let bounds = || Bounds { current: 10, min: 1, max: 50 };
        assert_eq!(limit(3, &bounds(), Some(&behavior), &mut memory, at(0)).replicas, 8);
        assert_eq!(limit(30, &bounds(), Some(&behavior), &mut memory, at(1)).replicas, 10);
    }
}
