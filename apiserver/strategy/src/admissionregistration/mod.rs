//! admissionregistration.k8s.io/v1: webhooks, and policies in CEL.
//!
//! Names, rules, references and expressions are checked as upstream does. What an update does not change may stay as it is
//! only where a list of match conditions is concerned; other expressions are compiled again.

mod bindings;
mod expressions;
mod policies;
mod rules;
#[cfg(test)]
mod tests;
mod url;
mod webhooks;

pub use bindings::PolicyBindings;
pub use policies::{MutatingPolicies, ValidatingPolicies};
pub use webhooks::{Webhooks, client_config};

use super::value::*;
use super::{
    Column, CreateStrategy, Env, ResourceFacts, StatusStrategy, TableConvertor, UpdateStrategy, table,
};
use coracle_api::{FieldError, Object, validation};
use jiff::Timestamp;
use serde_json::{Value, json};
