//! admissionregistration.k8s.io/v1: webhooks, and policies in CEL.
//!
//! Names, rules and references are checked as upstream does; expressions for presence and length only, because nothing
//! here compiles CEL yet.

mod bindings;
mod policies;
mod rules;
#[cfg(test)]
mod tests;
mod webhooks;

pub use bindings::PolicyBindings;
pub use policies::{MutatingPolicies, ValidatingPolicies};
pub use webhooks::{Webhooks, client_config};

use super::value::*;
use super::{Column, Env, Strategy, table};
use coracle_api::{FieldError, Object, validation};
use jiff::Timestamp;
use serde_json::{Value, json};
