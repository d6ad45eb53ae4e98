//! The names of backups that the server writes by itself, and which of them stay.

use crate::scheduled::Keeping;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const ENDING: &str = ".backup";
const FORM: &str = "%Y%m%dT%H%M%SZ";

/// A time as names have it: `20260503T030000Z`.
pub fn stamp(at: Timestamp) -> String {
    at.strftime(FORM).to_string()
}

/// The time of such a stamp.
pub fn stamped(text: &str) -> Option<Timestamp> {
    let time = DateTime::strptime(FORM, text).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// Of one backup of this node, made at this time: `coracle-NODE-20260503T030000Z.backup`.
pub fn name(node: &str, at: Timestamp) -> String {
    format!("coracle-{node}-{}{ENDING}", stamp(at))
}

/// Of which node the backup of this name is, if the server gave it.
pub fn node_of(name: &str) -> Option<&str> {
    let (of, time) = parts(name)?;
    stamped(time).map(|_| of)
}

/// When the backup of this name was made, if the server gave it; of this node, or of any.
pub fn made_at(name: &str, node: Option<&str>) -> Option<Timestamp> {
    let (of, time) = parts(name)?;
    if node.is_some_and(|node| node != of) { None } else { stamped(time) }
}

/// The node and the time.
fn parts(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("coracle-")?.strip_suffix(ENDING)?.rsplit_once('-')
}

/// Those of `names` that go: beyond the count, or too old. The newest stays whatever its age is, and so does what has
/// another name than the server gives to backups of this node.
pub fn superfluous(names: &[String], node: &str, keeping: Keeping, now: Timestamp) -> Vec<String> {
    let mut ours: Vec<(Timestamp, &String)> =
        names.iter().filter_map(|name| Some((made_at(name, Some(node))?, name))).collect();
    ours.sort_unstable_by(|a, b| b.cmp(a));
    let is_old = |at: Timestamp| {
        let life = keeping.life.and_then(|life| jiff::SignedDuration::try_from(life).ok());
        life.is_some_and(|life| now.duration_since(at) > life)
    };
    let ours = ours.into_iter().enumerate().skip(1);
    ours.filter(|(place, (at, _))| *place >= keeping.count || is_old(*at))
        .map(|(_, (_, name))| name.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_newest_stay_and_what_is_not_ours_is_not_touched() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let made: Vec<String> =
            (1..=5).map(|day| name("n-1", at(&format!("2026-05-0{day}T03:00:00Z")))).collect();
        assert_eq!(made[0], "coracle-n-1-20260501T030000Z.backup");
        assert_eq!(made_at(&made[0], Some("n-1")), Some(at("2026-05-01T03:00:00Z")));
        assert_eq!((made_at(&made[0], Some("1")), made_at("coracle-n-1.backup", None)), (None, None));
        let mut names = made.clone();
        names.extend(
            ["mine.backup", "coracle-other-20200101T000000Z.backup", "coracle-n-1-x.backup"]
                .map(str::to_owned),
        );
        let gone = |count, days: Option<u64>, now: &str| {
            let life = days.map(|days| Duration::from_secs(days * 24 * 3600));
            let mut gone = superfluous(&names, "n-1", Keeping { count, life }, at(now));
            gone.sort();
            gone
        };
        assert_eq!(gone(2, None, "2026-05-06T00:00:00Z"), made[..3]);
        assert_eq!(gone(9, Some(2), "2026-05-06T00:00:00Z"), made[..3]);
        assert_eq!(gone(9, Some(1), "2036-05-06T00:00:00Z"), made[..4], "the newest is all that there is");
        assert!(gone(9, None, "2036-05-06T00:00:00Z").is_empty());
    }
}
