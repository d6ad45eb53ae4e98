//! Prometheus' text exposition format, version 0.0.4.

use crate::stability;
use std::fmt::{Display, Write};

/// For the `Content-Type` of a response that carries it.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of samples being written.
#[derive(Debug, Default)]
pub struct Text {
    written: String,
    /// Whether nothing is said of how far metrics are promised.
    plain: bool,
}

impl Text {
    /// A page that is cAdvisor's, which gives families of the same names no level of stability.
    pub fn without_levels() -> Self {
        Self { plain: true, ..Self::default() }
    }

    /// Begins a metric; its samples follow. The kind is `counter`, `gauge`, `histogram` or `untyped`.
    pub fn head(&mut self, name: &str, help: &str, kind: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let level = stability::level(name).filter(|_| !self.plain);
        let level = level.map(|level| format!("[{level}] ")).unwrap_or_default();
        self.line(format_args!("# HELP {name} {level}{help}\n# TYPE {name} {kind}\n"));
    }

    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.series(name, labels);
        self.line(format_args!(" {value}\n"));
    }

    /// A sample with the time at which it was read, in milliseconds since 1970.
    pub fn sample_at(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display, millis: i64) {
        self.series(name, labels);
        self.line(format_args!(" {value} {millis}\n"));
    }

    fn series(&mut self, name: &str, labels: &[(&str, &str)]) {
        self.written.push_str(name);
        for (index, (label, held)) in labels.iter().enumerate() {
            self.written.push(if index == 0 { '{' } else { ',' });
            self.written.push_str(label);
            self.written.push_str("=\"");
            self.escaped(held);
            self.written.push('"');
        }
        self.written.push_str(if labels.is_empty() { "" } else { "}" });
    }

    /// A metric of one sample without labels.
    pub fn single(&mut self, name: &str, help: &str, kind: &str, value: impl Display) {
        self.head(name, help, kind);
        self.sample(name, &[], value);
    }

    /// Samples with their heads that somebody else has written in this format.
    pub fn page(&mut self, page: &str) {
        self.written.push_str(page);
    }

    /// What is written so far.
    pub(crate) fn so_far(&self) -> &str {
        &self.written
    }

    fn escaped(&mut self, value: &str) {
        for character in value.chars() {
            match character {
                '\\' => self.written.push_str("\\\\"),
                '"' => self.written.push_str("\\\""),
                '\n' => self.written.push_str("\\n"),
                other => self.written.push(other),
            }
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.written.write_fmt(line);
    }

    pub fn finish(self) -> String {
        self.written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_what_would_end_a_label() {
        let mut text = Text::default();
        text.head("a_total", "one\ntwo\\", "counter");
        text.sample("a_total", &[("b", "x\"y\\z\n"), ("c", "")], 3);
        text.sample("a_total", &[], 0.5);
        let expected = "# HELP a_total one\\ntwo\\\\\n# TYPE a_total counter\n\
                        a_total{b=\"x\\\"y\\\\z\\n\",c=\"\"} 3\na_total 0.5\n";
        assert_eq!(text.finish(), expected);
    }
}
