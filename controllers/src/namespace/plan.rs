//! The conditions of a namespace that is being emptied, worded as upstream words them.

use coracle_api::condition::set_condition;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::NamespaceCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

/// What one pass over the namespace's content found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    pub discovery_failure: Option<String>,
    pub deletion_failures: Vec<String>,
    /// Objects left, by `<plural>.<group>`.
    pub remaining: BTreeMap<String, usize>,
    /// Finalizers on the objects left, and on how many of them.
    pub finalizers: BTreeMap<String, usize>,
    /// The longest grace period of the pods left, in seconds.
    pub grace_seconds: i64,
}

impl Findings {
    pub fn is_empty(&self) -> bool {
        self.discovery_failure.is_none() && self.deletion_failures.is_empty() && self.remaining.is_empty()
    }
}

struct Wording {
    type_: &'static str,
    fine: (&'static str, &'static str),
    bad: &'static str,
}

const WORDINGS: [Wording; 5] = [
    Wording {
        type_: "NamespaceDeletionDiscoveryFailure",
        fine: ("ResourcesDiscovered", "All resources successfully discovered"),
        bad: "DiscoveryFailed",
    },
    Wording {
        type_: "NamespaceDeletionGroupVersionParsingFailure",
        fine: ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        bad: "GroupVersionParsingFailed",
    },
    Wording {
        type_: "NamespaceDeletionContentFailure",
        fine: ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        bad: "ContentDeletionFailed",
    },
    Wording {
        type_: "NamespaceContentRemaining",
        fine: ("ContentRemoved", "All content successfully removed"),
        bad: "SomeResourcesRemain",
    },
    Wording {
        type_: "NamespaceFinalizersRemaining",
        fine: ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        bad: "SomeFinalizersRemain",
    },
];

fn counted(counts: &BTreeMap<String, usize>, words: &str) -> Vec<String> {
    counts.iter().map(|(what, count)| format!("{what} {words} {count} resource instances")).collect()
}

fn problem(findings: &Findings, type_: &str) -> Option<String> {
    let (prefix, parts) = match type_ {
        "NamespaceDeletionDiscoveryFailure" => return findings.discovery_failure.clone(),
        "NamespaceDeletionContentFailure" => {
            let mut failures = findings.deletion_failures.clone();
            failures.sort();
            ("Failed to delete all resource types, ", failures)
        }
        "NamespaceContentRemaining" => {
            ("Some resources are remaining: ", counted(&findings.remaining, "has"))
        }
        "NamespaceFinalizersRemaining" => {
            ("Some content in the namespace has finalizers remaining: ", counted(&findings.finalizers, "in"))
        }
        _ => return None,
    };
    if parts.is_empty() {
        return None;
    }
    if type_ == "NamespaceDeletionContentFailure" {
        return Some(format!("{prefix}{} remaining: {}", parts.len(), parts.join(", ")));
    }
    Some(format!("{prefix}{}", parts.join(", ")))
}

/// The conditions after a pass. Fine ones are written only where a condition was bad before or any is bad now.
pub fn conditions(
    old: &[NamespaceCondition],
    findings: &Findings,
    now: Timestamp,
) -> Vec<NamespaceCondition> {
    let mut all = old.to_vec();
    for wording in &WORDINGS {
        let (status, reason, message) = match problem(findings, wording.type_) {
            Some(message) => ("True", wording.bad, message),
            None => ("False", wording.fine.0, wording.fine.1.to_owned()),
        };
        let new = NamespaceCondition {
            type_: wording.type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(Time(now)),
        };
        set_condition(&mut all, new);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_remains_is_named_and_cleared_again() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let findings = Findings {
            remaining: [("pods.".to_owned(), 2)].into(),
            finalizers: [("example.com/keep".to_owned(), 1)].into(),
            ..Findings::default()
        };
        let first = conditions(&[], &findings, at(10));
        let message = |all: &[NamespaceCondition], type_: &str| {
            let c = all.iter().find(|c| c.type_ == type_).unwrap();
            (c.status.clone(), c.message.clone().unwrap())
        };
        assert_eq!(
            message(&first, "NamespaceContentRemaining"),
            ("True".into(), "Some resources are remaining: pods. has 2 resource instances".into())
        );
        assert_eq!(
            message(&first, "NamespaceFinalizersRemaining").1,
            "Some content in the namespace has finalizers remaining: example.com/keep in 1 resource instances"
        );
        assert_eq!(conditions(&first, &findings, at(20)), first);
        let failures = ["b", "a"].map(str::to_owned).to_vec();
        let failing =
            conditions(&[], &Findings { deletion_failures: failures, ..Findings::default() }, at(10));
        assert_eq!(
            message(&failing, "NamespaceDeletionContentFailure").1,
            "Failed to delete all resource types, 2 remaining: a, b"
        );
        let done = conditions(&first, &Findings::default(), at(30));
        assert_eq!(
            message(&done, "NamespaceContentRemaining"),
            ("False".into(), "All content successfully removed".into())
        );
    }
}
