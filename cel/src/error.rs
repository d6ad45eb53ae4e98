//! What can be wrong with an expression, before and while it runs.

use std::fmt;

/// Where and why a source text is no expression, or one that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Byte offset in the source.
    pub at: usize,
    pub message: String,
}

impl SyntaxError {
    pub fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }

    /// The message with the place in the source, laid out as cel-go lays it out.
    pub fn render(&self, source: &str) -> String {
        let before = &source[..floor(source, self.at)];
        let row = before.matches('\n').count();
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        let column = before[begin..].chars().count();
        let line = source.lines().nth(row).unwrap_or_default();
        let dots = ".".repeat(column);
        format!("ERROR: <input>:{}:{}: {}\n | {line}\n | {dots}^", row + 1, column + 1, self.message)
    }
}

fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0)
}

/// All that is wrong with one source text, rendered one below the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issues(pub Vec<String>);

impl Issues {
    pub fn of(source: &str, errors: &[SyntaxError]) -> Self {
        Self(errors.iter().map(|error| error.render(source)).collect())
    }
}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for Issues {}

/// Why an evaluation ended without a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error("{0}")]
    Message(String),
    #[error("no such overload")]
    NoOverload,
    /// As it was called.
    #[error("no such overload: {0}")]
    NoOverloadOf(String),
    #[error("no such key: {0}")]
    NoKey(String),
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// A variable of the caller's whose own expression failed.
    #[error("composited variable \"{name}\" fails to evaluate: {error}")]
    Variable { name: String, error: Box<EvalError> },
}

impl EvalError {
    /// Whether it cost too much, or a variable that it names did.
    pub fn is_cost_limit(&self) -> bool {
        match self {
            Self::CostLimit => true,
            Self::Variable { error, .. } => error.is_cost_limit(),
            Self::Message(_) | Self::NoOverload | Self::NoOverloadOf(_) | Self::NoKey(_) => false,
        }
    }

    pub fn of<T>(message: impl Into<String>) -> Result<T, Self> {
        Err(Self::Message(message.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_point_into_their_line() {
        let error = SyntaxError::new(9, "undefined field 'b'");
        assert_eq!(error.render("true &&\na.b"), "ERROR: <input>:2:2: undefined field 'b'\n | a.b\n | .^");
    }
}
