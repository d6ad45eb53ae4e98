//! Label and field selectors: parsing, matching, printing.

mod field;
mod label;
mod parse;

pub use field::{FieldRequirement, FieldSelector};
pub use label::{LabelSelector, Operator, Requirement};

use crate::FieldError;

/// Why a selector was refused; the text is upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);

impl From<FieldError> for SelectorError {
    fn from(error: FieldError) -> Self {
        Self(error.to_string())
    }
}
