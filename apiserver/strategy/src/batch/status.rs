//! What the status of a Job may say, and become. Others than our controller may manage a Job (KEP-4368), so a status is
//! held to what clients expect of one: finished stays finished, and the parts fit together. What a write leaves alone
//! is not judged again, for a change of the spec may have made it wrong for the moment.

use super::policies::{count_indexes, interval};
use crate::conditions;
use coracle_api::Object;
use coracle_requests::value::*;

const TERMINAL: [&str; 3] = ["Failed", "Complete", "FailureTarget"];

fn is(job: &Object, kind: &str) -> bool {
    conditions::is_true(job, kind)
}

fn is_finished(job: &Object) -> bool {
    is(job, "Complete") || is(job, "Failed")
}

fn count(job: &Object, field: &str) -> i64 {
    i64_at(&job["status"], field).unwrap_or(0)
}

pub fn update(new: &Object, old: &Object, errors: &mut Errors) {
    let path = Path::root("status");
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        crate::rules::non_negative_at(&new["status"], field, &path, errors);
    }
    uncounted(new, &path.field("uncountedTerminatedPods"), errors);
    condition_rules(new, old, &path.field("conditions"), errors);
    times(new, old, &path, errors);
    finished(new, old, &path, errors);
    indexes(new, old, &path, errors);
    counters(new, old, &path, errors);
}

fn changed(new: &Object, old: &Object, field: &str) -> bool {
    at(&new["status"], field) != at(&old["status"], field)
}

fn turned(new: &Object, old: &Object, kinds: &[&str]) -> bool {
    kinds.iter().any(|kind| is(new, kind) != is(old, kind))
}

/// Pods that have ended and are not in the counters yet: each once.
fn uncounted(job: &Object, path: &Path, errors: &mut Errors) {
    let mut seen = std::collections::HashSet::new();
    for field in ["succeeded", "failed"] {
        for (i, uid) in strings_at(at(job, "status.uncountedTerminatedPods"), field).enumerate() {
            let here = path.field(field).index(i);
            if uid.is_empty() {
                errors.invalid(&here, uid, "must not be empty");
            } else if !seen.insert(uid) {
                errors.duplicate(&here, uid);
            }
        }
    }
}

fn condition_rules(new: &Object, old: &Object, path: &Path, errors: &mut Errors) {
    const COMPLETE: &str = "Complete";
    const MET: &str = "SuccessCriteriaMet";
    let fits = has(new, "spec.successPolicy") && !is(new, MET) && is(new, COMPLETE);
    let rules: [(bool, &str); 9] = [
        (
            turned(new, old, &[COMPLETE, "Failed"]) && is(new, COMPLETE) && is(new, "Failed"),
            "cannot set Complete=True and Failed=true conditions",
        ),
        (
            turned(new, old, &[COMPLETE, "FailureTarget"]) && is(new, COMPLETE) && is(new, "FailureTarget"),
            "cannot set Complete=True and FailureTarget=true conditions",
        ),
        (
            (turned(new, old, &["Failed"]) || changed(new, old, "failedIndexes"))
                && is(new, "Failed")
                && !is(new, "FailureTarget"),
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            turned(new, old, &[COMPLETE, MET]) && is(new, COMPLETE) && !is(new, MET),
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (is(new, MET) && is(new, "Failed"), "cannot set SuccessCriteriaMet=True and Failed=true conditions"),
        (
            is(new, MET) && is(new, "FailureTarget"),
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ),
        (fits, "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"),
        (is(old, MET) && !is(new, MET), "cannot disable the SuccessCriteriaMet=True condition"),
        (
            is(old, COMPLETE) && !is(old, MET) && is(new, MET),
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        ),
    ];
    for (_, detail) in rules.iter().filter(|(broken, _)| *broken) {
        errors.invalid_unshown(path, detail);
    }
    for kind in TERMINAL.iter().filter(|kind| is(old, kind) && !is(new, kind)) {
        errors.invalid_unshown(path, &format!("cannot disable the terminal {kind}=True condition"));
    }
}

fn times(new: &Object, old: &Object, path: &Path, errors: &mut Errors) {
    let (start, end) = (at(new, "status.startTime"), at(new, "status.completionTime"));
    let (ends, here) = (path.field("completionTime"), path.field("startTime"));
    let (starts_anew, ends_anew) = (changed(new, old, "startTime"), changed(new, old, "completionTime"));
    let completes = turned(new, old, &["Complete"]) || ends_anew;
    if completes && !end.is_null() && !is(new, "Complete") {
        let detail = "cannot set completionTime when there is no Complete=True condition";
        errors.invalid(&ends, end.clone(), detail);
    }
    if completes && end.is_null() && is(new, "Complete") {
        errors.required(&ends, "completionTime is required for Complete jobs");
    }
    let time = super::duration::timestamp;
    if let (true, Some(first), Some(last)) = (starts_anew || ends_anew, time(start), time(end))
        && last < first
    {
        errors.invalid(&ends, end.clone(), "must be equal to or after `startTime`");
    }
    if !end.is_null() && has(old, "status.completionTime") && ends_anew {
        errors.invalid(&ends, end.clone(), "field is immutable");
    }
    let resumes = is(old, "Suspended") && conditions::is(new, "Suspended", "False");
    let holds = has(old, "status.startTime") && !bool_at(new, "spec.suspend");
    if starts_anew && !resumes && holds {
        match start.is_null() {
            true => errors.required(&here, "startTime cannot be removed for unsuspended job"),
            false => errors.invalid(&here, start.clone(), "field is immutable for unsuspended job once set"),
        }
    }
    let never_starts = bool_at(new, "spec.suspend") && i64_at(new, "spec.completions") == Some(0);
    let finishes = is_finished(new) != is_finished(old) || starts_anew;
    if finishes && !never_starts && start.is_null() && is_finished(new) {
        errors.required(&here, "startTime is required for finished job");
    }
}

/// Nothing runs and nothing is left to count.
fn finished(new: &Object, old: &Object, path: &Path, errors: &mut Errors) {
    if !is_finished(new) {
        return;
    }
    let looks_at = |field: &str| !is_finished(old) || changed(new, old, field);
    for field in ["active", "terminating"] {
        if looks_at(field) && count(new, field) > 0 {
            let detail = format!("{field}>0 is invalid for finished job");
            errors.invalid(&path.field(field), count(new, field), &detail);
        }
    }
    let left = at(new, "status.uncountedTerminatedPods");
    let any = ["succeeded", "failed"].iter().any(|field| !list_at(left, field).is_empty());
    if looks_at("uncountedTerminatedPods") && any {
        let here = path.field("uncountedTerminatedPods");
        errors.invalid(&here, left.clone(), "must be empty for finished job");
    }
}

fn indexes(new: &Object, old: &Object, path: &Path, errors: &mut Errors) {
    let (completed, failed) = (str_at(new, "status.completedIndexes"), at(new, "status.failedIndexes"));
    let (completed_path, failed_path) = (path.field("completedIndexes"), path.field("failedIndexes"));
    let completions = i64_at(new, "spec.completions");
    let by_index = has(new, "spec.backoffLimitPerIndex");
    let parse = |text: &str| completions.and_then(|limit| count_indexes(text, limit).err());
    let (completes, fails) = (changed(new, old, "completedIndexes"), changed(new, old, "failedIndexes"));
    if completes {
        if let Some(why) = parse(completed) {
            errors.invalid(&completed_path, completed, &format!("error parsing completedIndexes: {why}"));
        }
        if !completed.is_empty() && str_at(new, "spec.completionMode") != "Indexed" {
            let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
            errors.invalid(&completed_path, completed, detail);
        }
    }
    let Some(failed) = failed.as_str() else { return };
    if fails && !by_index {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.invalid(&failed_path, failed, detail);
    } else if let (true, Some(why)) = (fails, parse(failed)) {
        errors.invalid(&failed_path, failed, &format!("error parsing failedIndexes: {why}"));
    }
    let shared =
        completions.filter(|_| completes || fails).and_then(|limit| overlap(completed, failed, limit));
    if let Some(index) = shared {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.invalid(&failed_path, failed, &detail);
    }
}

/// The first index that both name; what cannot be read has been complained of.
fn overlap(one: &str, other: &str, completions: i64) -> Option<i64> {
    let spans = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let (one, other) = (spans(one), spans(other));
    let shared = one
        .iter()
        .flat_map(|(a, b)| other.iter().filter(move |(c, d)| a <= d && c <= b).map(move |(c, _)| *a.max(c)));
    shared.min()
}

fn counters(new: &Object, old: &Object, path: &Path, errors: &mut Errors) {
    // Elastic: scaled down, a Job has fewer that have succeeded.
    let elastic = str_at(new, "spec.completionMode") == "Indexed"
        && at(new, "spec.completions") == at(new, "spec.parallelism");
    for (field, held) in [("failed", true), ("succeeded", !elastic)] {
        if held && count(new, field) < count(old, field) {
            let detail = format!("cannot decrease the {field} counter");
            errors.invalid(&path.field(field), count(new, field), &detail);
        }
    }
    let moved = changed(new, old, "ready") || changed(new, old, "active");
    let ready = i64_at(new, "status.ready").filter(|ready| moved && *ready > count(new, "active"));
    if let Some(ready) = ready {
        errors.invalid(&path.field("ready"), ready, "cannot set more ready pods than active");
    }
}
