//! When a CronJob is due.

use coracle_api::cron::{Schedule, zone};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec};
use std::time::Duration;

/// More missed times than this are worth a warning; upstream's.
const TOO_MANY: usize = 100;
/// A last start further in the future than this is the work of a clock that was wrong.
const TRUST_PERIOD: SignedDuration = SignedDuration::from_mins(10);
/// How far back a time may lie to be served when nothing tells what was served: as long as the controller may take to
/// look.
const LOOK_BACK_WINDOW: SignedDuration = SignedDuration::from_secs(60);

/// A schedule with the zone whose clocks it means.
pub struct Clock {
    schedule: Schedule,
    pub zone: TimeZone,
}

/// Why there is none: reason and message of the event.
pub type Refusal = (&'static str, String);

impl Clock {
    pub fn of(spec: &CronJobSpec, now: Timestamp) -> Result<Self, Refusal> {
        let zone = match spec.time_zone.as_deref() {
            None => local(),
            Some(name) => zone(name).ok_or_else(|| {
                ("UnknownTimeZone", format!("invalid timeZone: {name:?}: unknown time zone {name}"))
            })?,
        };
        let schedule = Schedule::parse(&spec.schedule).map_err(|why| {
            ("UnparseableSchedule", format!("unparseable schedule: {:?} : {why}", spec.schedule))
        })?;
        let clock = Self { schedule, zone };
        if clock.next(now).is_none() {
            // Such as the 31st of February; upstream finds no time between two times of it.
            let why = "time difference between two schedules is less than 1 second";
            return Err(("InvalidSchedule", format!("invalid schedule: {} : {why}", spec.schedule)));
        }
        Ok(clock)
    }

    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.schedule.next(after, &self.zone)
    }
}

/// The machine's own zone, as /etc/localtime tells it.
fn local() -> TimeZone {
    let data = std::fs::read("/etc/localtime").ok();
    data.and_then(|data| TimeZone::tzif("Local", &data).ok()).unwrap_or(TimeZone::UTC)
}

/// The time that is due and not served yet.
#[derive(Debug, PartialEq, Eq)]
pub struct Due {
    pub at: Timestamp,
    pub too_many_missed: bool,
}

fn ago(now: Timestamp, time: SignedDuration) -> Timestamp {
    now.checked_sub(time).unwrap_or(now)
}

/// From when on times count: the last start, or when the CronJob came.
fn since(cron: &CronJob, now: Timestamp) -> Option<Timestamp> {
    let last = cron.status.as_ref().and_then(|s| s.last_schedule_time.as_ref());
    let since = last.or(cron.metadata.creation_timestamp.as_ref())?.0;
    // The clock was set back since. What it has shown already was served; what comes now is due, but for periods of
    // `@every` that are longer than the look back: those wait until the clock has caught up.
    let is_ahead = since > ago(now, -TRUST_PERIOD);
    Some(if is_ahead { ago(now, LOOK_BACK_WINDOW) } else { since })
}

/// The last time of the schedule that has passed since the last start (or since the CronJob came), not before the
/// deadline.
pub fn due(cron: &CronJob, clock: &Clock, now: Timestamp) -> Option<Due> {
    let since = since(cron, now)?;
    let deadline =
        cron.spec.starting_deadline_seconds.map(|seconds| ago(now, SignedDuration::from_secs(seconds)));
    let earliest = deadline.map_or(since, |deadline| since.max(deadline));
    let due = match clock.schedule.period() {
        Some(period) => counted(period, since, earliest, now),
        None => walked(clock, earliest, now),
    };
    due.filter(|due| due.at > earliest)
}

/// When to look again: the first time after the last one that has passed, whether that was served or not.
pub fn next_look(cron: &CronJob, clock: &Clock, now: Timestamp) -> Option<Timestamp> {
    let since = since(cron, now)?;
    match clock.schedule.period() {
        Some(period) => clock.next(counted(period, since, since, now).map_or(since, |due| due.at)),
        None => clock.next(now),
    }
}

/// Times of `@every` are a period each from `since`; those after `earliest` are missed.
fn counted(period: Duration, since: Timestamp, earliest: Timestamp, now: Timestamp) -> Option<Due> {
    let seconds = i64::try_from(period.as_secs()).ok().filter(|seconds| *seconds > 0)?;
    let start = since.as_second();
    let passed = (now.as_second() - start).max(0) / seconds;
    let before = (earliest.as_second() - start).max(0) / seconds;
    let at = Timestamp::from_second(start + passed * seconds).ok().filter(|_| passed > 0)?;
    let missed = usize::try_from(passed - before).unwrap_or(usize::MAX);
    Some(Due { at, too_many_missed: missed > TOO_MANY })
}

fn walked(clock: &Clock, since: Timestamp, now: Timestamp) -> Option<Due> {
    let mut at = clock.next(since).filter(|at| *at <= now)?;
    let mut missed = 1;
    while let Some(later) = clock.next(at).filter(|later| *later <= now) {
        missed += 1;
        if missed > TOO_MANY {
            // Rather than count the minutes of a year: the last one is near.
            return Some(Due { at: last_before(clock, at, now), too_many_missed: true });
        }
        at = later;
    }
    Some(Due { at, too_many_missed: false })
}

/// The last time up to `now`, looked for in ever longer steps back from `now`; `known` is one that has passed.
fn last_before(clock: &Clock, known: Timestamp, now: Timestamp) -> Timestamp {
    let mut back = SignedDuration::from_secs(60);
    loop {
        let from = now.checked_sub(back).unwrap_or(known).max(known);
        let mut last = if from == known { Some(known) } else { None };
        let mut next = clock.next(from);
        while let Some(at) = next.filter(|at| *at <= now) {
            last = Some(at);
            next = clock.next(at);
        }
        if let Some(last) = last {
            return last;
        }
        back *= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cron(schedule: &str, created: &str, deadline: Option<i64>) -> CronJob {
        serde_json::from_value(json!({ "metadata": { "name": "c", "creationTimestamp": created },
            "spec": { "schedule": schedule, "startingDeadlineSeconds": deadline, "timeZone": "UTC",
                "jobTemplate": {} } }))
        .unwrap()
    }

    fn ask(cron: &CronJob, now: &str) -> Option<(String, bool)> {
        let now = now.parse().unwrap();
        let clock = Clock::of(&cron.spec, now).unwrap();
        due(cron, &clock, now).map(|due| (due.at.to_string(), due.too_many_missed))
    }

    #[test]
    fn what_never_comes_is_refused() {
        let refused = |schedule: &str| {
            let never = cron(schedule, "2026-01-01T00:00:30Z", None);
            Clock::of(&never.spec, "2026-01-01T00:00:59Z".parse().unwrap()).err().unwrap()
        };
        assert_eq!(
            refused("0 0 31 2 *"),
            (
                "InvalidSchedule",
                "invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second"
                    .to_owned()
            )
        );
        assert_eq!(refused("0 0 31").0, "UnparseableSchedule");
    }

    #[test]
    fn the_last_missed_time_is_due() {
        let created = "2026-01-01T00:00:30Z";
        let minutely = cron("* * * * *", created, None);
        assert_eq!(ask(&minutely, "2026-01-01T00:00:59Z"), None);
        let due = |at: &str, many| Some((at.to_owned(), many));
        assert_eq!(ask(&minutely, "2026-01-01T00:01:00Z"), due("2026-01-01T00:01:00Z", false));
        assert_eq!(ask(&minutely, "2026-01-01T00:05:10Z"), due("2026-01-01T00:05:00Z", false));
        assert_eq!(ask(&minutely, "2027-01-01T00:05:10Z"), due("2027-01-01T00:05:00Z", true));
        let mut ahead = minutely.clone();
        ahead.status = serde_json::from_value(json!({ "lastScheduleTime": "2027-01-01T00:00:00Z" })).unwrap();
        assert_eq!(
            ask(&ahead, "2026-12-31T12:00:20Z"),
            due("2026-12-31T12:00:00Z", false),
            "the clock was set back"
        );
        let mut hourly = cron("0 * * * *", created, None);
        hourly.status = ahead.status;
        assert_eq!(ask(&hourly, "2026-12-31T12:20:00Z"), None, "and nothing is served twice");
        let late = cron("0 * * * *", created, Some(60));
        assert_eq!(ask(&late, "2026-01-01T02:02:00Z"), None);
        assert_eq!(ask(&late, "2026-01-01T02:00:20Z"), due("2026-01-01T02:00:00Z", false));
    }

    #[test]
    fn every_so_often_is_counted_from_the_last_start() {
        let due = |at: &str, many| Some((at.to_owned(), many));
        let every = |created: &str, last: Option<&str>, deadline| {
            let mut cron = cron("@every 1h", created, deadline);
            cron.status = serde_json::from_value(json!({ "lastScheduleTime": last })).unwrap();
            cron
        };
        let look = |cron: &CronJob, now: &str| {
            let now = now.parse().unwrap();
            next_look(cron, &Clock::of(&cron.spec, now).unwrap(), now).unwrap().to_string()
        };
        let created = "2016-05-19T08:59:00Z";
        let fresh = every(created, None, None);
        assert_eq!(ask(&fresh, "2016-05-19T09:58:59Z"), None);
        assert_eq!(look(&fresh, "2016-05-19T09:30:00Z"), "2016-05-19T09:59:00Z", "whatever woke us");
        assert_eq!(ask(&fresh, "2016-05-19T09:59:00Z"), due("2016-05-19T09:59:00Z", false));
        assert_eq!(look(&fresh, "2016-05-19T10:01:00Z"), "2016-05-19T10:59:00Z");
        let ran = |deadline| every(created, Some("2016-05-19T10:01:00Z"), deadline);
        assert_eq!(ask(&ran(None), "2016-05-26T10:00:00Z"), due("2016-05-26T09:01:00Z", true));
        assert_eq!(look(&ran(None), "2016-05-26T10:00:00Z"), "2016-05-26T10:01:00Z");
        assert_eq!(ask(&ran(Some(10)), "2016-05-26T10:01:11Z"), None, "past the deadline");
        assert_eq!(ask(&ran(Some(10)), "2016-05-26T10:01:09Z"), due("2016-05-26T10:01:00Z", false));
        assert_eq!(look(&ran(Some(10)), "2016-05-26T10:01:11Z"), "2016-05-26T11:01:00Z");
    }

    #[test]
    fn as_upstreams_table_of_recent_times() {
        let top = "2016-05-19T10:00:00Z";
        let due = |at: &str| Some((at.to_owned(), false));
        for (schedule, last, deadline, now, expected) in [
            ("0 * * * *", None, None, "2016-05-19T10:00:30Z", None),
            ("0 * * * *", None, None, "2016-05-19T11:01:00Z", due("2016-05-19T11:00:00Z")),
            ("0 * * * *", None, None, "2016-05-19T15:01:00Z", due("2016-05-19T15:00:00Z")),
            (
                "30 6-16/4 * * 1-5",
                Some("2016-05-19T10:30:00Z"),
                None,
                "2016-05-20T10:31:00Z",
                due("2016-05-20T10:30:00Z"),
            ),
            (
                "30 6-16/4 * * 1-5",
                Some("2016-05-19T10:30:00Z"),
                None,
                "2016-05-23T10:31:00Z",
                due("2016-05-23T10:30:00Z"),
            ),
            ("0 * * * *", Some(top), None, "2016-05-19T10:00:30Z", None),
            ("*/5 * * * *", Some("2016-05-19T10:30:00Z"), Some(60), "2016-05-19T10:31:00Z", None),
            ("*/5 * * * *", Some("2016-05-19T10:25:00Z"), Some(60), "2016-05-19T10:32:00Z", None),
        ] {
            let mut cron = cron(schedule, top, deadline);
            cron.status = serde_json::from_value(json!({ "lastScheduleTime": last })).unwrap();
            assert_eq!(ask(&cron, now), expected, "{schedule} at {now}");
        }
    }
}
