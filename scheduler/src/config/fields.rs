//! Reading an object field by field, with the path of every mistake.

use super::Mistake;
use serde_json::{Map, Value};

/// Mistakes and warnings while a configuration is read.
#[derive(Default)]
pub struct Notes {
    pub mistakes: Vec<Mistake>,
    pub warnings: Vec<String>,
}

impl Notes {
    pub fn mistake(&mut self, path: &str, why: impl Into<String>) {
        self.mistakes.push(Mistake { path: path.to_owned(), why: why.into() });
    }

    pub fn invalid(&mut self, path: &str, value: &Value, why: &str) {
        self.mistake(path, format!("Invalid value: {value}: {why}"));
    }

    pub fn warn(&mut self, text: String) {
        if !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }
}

/// An object of the configuration. Fields that are never asked for are mistakes.
pub struct Fields<'n> {
    path: String,
    fields: Map<String, Value>,
    pub notes: &'n mut Notes,
}

impl<'n> Fields<'n> {
    pub fn new(path: &str, value: Value, notes: &'n mut Notes) -> Self {
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => Map::new(),
            other => {
                notes.invalid(path, &other, "must be an object");
                Map::new()
            }
        };
        Self { path: path.to_owned(), fields, notes }
    }

    pub fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Takes a field; null is as good as absent.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name).filter(|v| !v.is_null())
    }

    pub fn text(&mut self, name: &str) -> Option<String> {
        let value = self.take(name)?;
        let text = value.as_str().map(str::to_owned);
        if text.is_none() {
            self.refuse(name, &value, "must be a string");
        }
        text
    }

    pub fn flag(&mut self, name: &str) -> Option<bool> {
        let value = self.take(name)?;
        if !value.is_boolean() {
            self.refuse(name, &value, "must be a boolean");
        }
        value.as_bool()
    }

    /// An integer for which `valid` holds; `why` is upstream's word for those for which it does not.
    pub fn number(&mut self, name: &str, valid: impl Fn(i64) -> bool, why: &str) -> Option<i64> {
        let value = self.take(name)?;
        let number = value.as_i64();
        let valid = number.filter(|n| valid(*n));
        match (number, valid) {
            (None, _) => self.refuse(name, &value, "must be an integer"),
            (_, None) => self.refuse(name, &value, why),
            _ => {}
        }
        valid
    }

    /// The elements of a list, each with its path.
    pub fn list(&mut self, name: &str) -> Vec<(String, Value)> {
        let Some(value) = self.take(name) else { return Vec::new() };
        let path = self.path(name);
        match value {
            Value::Array(items) => {
                items.into_iter().enumerate().map(|(i, item)| (format!("{path}[{i}]"), item)).collect()
            }
            other => {
                self.refuse(name, &other, "must be a list");
                Vec::new()
            }
        }
    }

    pub fn refuse(&mut self, name: &str, value: &Value, why: &str) {
        let path = self.path(name);
        self.notes.invalid(&path, value, why);
    }

    /// Whatever was not asked for is unknown.
    pub fn finish(self) {
        for name in self.fields.keys() {
            let path = if self.path.is_empty() { name.clone() } else { format!("{}.{name}", self.path) };
            self.notes.mistake(&path, format!("unknown field \"{path}\""));
        }
    }
}
