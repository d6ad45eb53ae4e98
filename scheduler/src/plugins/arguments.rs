//! Reading a plugin's arguments: every field is asked for, whatever is left is a mistake, all mistakes are told.

use serde_json::{Map, Value};

/// A plugin's `args` being read.
pub struct Arguments {
    fields: Map<String, Value>,
    mistakes: Vec<String>,
}

impl Arguments {
    /// `apiVersion` and `kind` may stand in them, as upstream writes them.
    pub fn new(arguments: &Value) -> Self {
        let mut mistakes = Vec::new();
        let mut fields = match arguments {
            Value::Null => Map::new(),
            Value::Object(fields) => fields.clone(),
            other => {
                mistakes.push(format!(": Invalid value: {other}: must be an object"));
                Map::new()
            }
        };
        fields.remove("apiVersion");
        fields.remove("kind");
        Self { fields, mistakes }
    }

    /// Takes a field out; null is as good as absent.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name).filter(|v| !v.is_null())
    }

    /// A field that a type can be read from.
    pub fn read<T: serde::de::DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let value = self.take(name)?;
        match serde_json::from_value(value.clone()) {
            Ok(read) => Some(read),
            Err(error) => {
                self.mistake(name, &value, &error.to_string());
                None
            }
        }
    }

    /// An integer in a range; one that ends with `i32::MAX` is called open.
    pub fn integer(&mut self, name: &str, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        let value = self.take(name)?;
        let number = value.as_i64().filter(|n| range.contains(n));
        if number.is_none() {
            let (low, high) = (range.start(), range.end());
            let high = if *high < i64::from(i32::MAX) { format!("{high}]") } else { "inf)".to_owned() };
            self.mistake(name, &value, &format!("not in valid range [{low}, {high}"));
        }
        number
    }

    /// One of some words.
    pub fn one_of(&mut self, name: &str, words: &[&str]) -> Option<String> {
        let value = self.take(name)?;
        let word = value.as_str().filter(|w| words.contains(w)).map(str::to_owned);
        if word.is_none() {
            let quoted: Vec<String> = words.iter().map(|w| format!("{w:?}")).collect();
            self.mistakes
                .push(format!("{name}: Unsupported value: {value}: supported values: {}", quoted.join(", ")));
        }
        word
    }

    pub fn mistake(&mut self, path: &str, value: &Value, why: &str) {
        self.mistakes.push(format!("{path}: Invalid value: {value}: {why}"));
    }

    /// Fields that nobody asked for are mistakes too.
    pub fn finish(mut self) -> Result<(), Vec<String>> {
        for name in self.fields.keys() {
            self.mistakes.push(format!("{name}: Forbidden: unknown field"));
        }
        if self.mistakes.is_empty() { Ok(()) } else { Err(self.mistakes) }
    }
}
