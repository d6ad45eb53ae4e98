//! Durations of flags: as Go writes them (`1m30s`), or as a number of seconds.

use jiff::SignedDuration;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::str::FromStr;
use std::time::Duration;

/// Never negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(seconds) = text.parse() {
            return Ok(Self(Duration::from_secs(seconds)));
        }
        let parsed = text.parse::<SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
        parsed.map(Self).ok_or_else(|| format!("invalid duration {text:?}: such as 90, 90s or 1m30s"))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Seconds(u64),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Seconds(seconds) => Ok(Self(Duration::from_secs(seconds))),
            Form::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_or_as_go_writes_it() {
        for (text, millis) in
            [("30", 30_000), ("30s", 30_000), ("1m0s", 60_000), ("1h", 3_600_000), ("250ms", 250)]
        {
            assert_eq!(text.parse::<Time>().unwrap().0.as_millis(), millis, "{text}");
        }
        for text in ["", "x", "-5s", "5 parsecs"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
        assert_eq!(
            serde_saphyr::from_str::<Vec<Time>>("[5, 1m5s]")
                .unwrap()
                .iter()
                .map(|t| t.0.as_secs())
                .sum::<u64>(),
            70
        );
    }
}
