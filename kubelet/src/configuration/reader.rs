//! Reads values out of a configuration, noting each mistake with its field.

use coracle_api::duration;
use coracle_api::quantity::Quantity;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;
use std::time::Duration;

/// A configuration that is being read. Fields go by their paths: `authorization.webhook.cacheAuthorizedTTL`.
pub struct Reader<'a> {
    written: &'a Map<String, Value>,
    pub mistakes: Vec<String>,
}

impl<'a> Reader<'a> {
    pub fn new(written: &'a Map<String, Value>) -> Self {
        Self { written, mistakes: Vec::new() }
    }

    fn value(&self, path: &str) -> Option<&'a Value> {
        let mut parts = path.split('.');
        let first = self.written.get(parts.next()?)?;
        parts.try_fold(first, |value, name| value.get(name)).filter(|value| !value.is_null())
    }

    pub fn mistake(&mut self, path: &str, why: impl std::fmt::Display) {
        self.mistakes.push(format!("{path}: {why}"));
    }

    /// `None` where nothing is said, or a mistake was noted.
    pub fn get<T: DeserializeOwned>(&mut self, path: &str) -> Option<T> {
        match serde_json::from_value(self.value(path)?.clone()) {
            Ok(value) => Some(value),
            Err(error) => {
                self.mistake(path, error);
                None
            }
        }
    }

    /// Text that is not empty.
    pub fn text(&mut self, path: &str) -> Option<String> {
        self.get::<String>(path).filter(|text| !text.is_empty())
    }

    pub fn parsed<T>(&mut self, path: &str, parse: impl Fn(&str) -> Option<T>, what: &str) -> Option<T> {
        let text = self.text(path)?;
        let parsed = parse(&text);
        if parsed.is_none() {
            self.mistake(path, format!("{text:?} is {what}"));
        }
        parsed
    }

    /// Zero is none, as upstream's defaults have it.
    pub fn duration(&mut self, path: &str) -> Option<Duration> {
        let parsed = self.parsed(path, duration::parse, "no duration such as 1m30s");
        parsed.filter(|time| !time.is_zero())
    }

    pub fn whole<T: TryFrom<i64>>(&mut self, path: &str, range: RangeInclusive<i64>) -> Option<T> {
        let number: i64 = self.get(path)?;
        let good = range.contains(&number).then(|| T::try_from(number).ok()).flatten();
        if good.is_none() {
            self.mistake(path, format!("{number} is not between {} and {}", range.start(), range.end()));
        }
        good
    }

    /// A quantity of whole units, as text or as a number.
    pub fn quantity(&mut self, path: &str) -> Option<Quantity> {
        let value = self.value(path)?;
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let parsed = text.parse::<Quantity>().ok().filter(|amount| !amount.is_negative());
        if parsed.is_none() {
            self.mistake(path, format!("{text:?} is no quantity such as 500Mi"));
        }
        parsed
    }

    /// One of several words.
    pub fn word<T: Copy>(&mut self, path: &str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(path)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.mistake(path, format!("{text:?} is unknown, known are {}", known.join(", ")));
        }
        found
    }
}

impl Reader<'_> {
    /// Notes fields of an object that are not among those that are `known`.
    pub fn only(&mut self, path: &str, known: &[&str]) {
        let Some(value) = self.value(path) else { return };
        let Some(fields) = value.as_object() else {
            return self.mistake(path, "not an object");
        };
        for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
            self.mistake(path, format!("unknown field {name:?}, known are {}", known.join(", ")));
        }
    }
}
