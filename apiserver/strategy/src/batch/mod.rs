//! batch/v1.

mod cronjobs;
mod jobs;
mod policies;
mod status;
#[cfg(test)]
mod tests;

pub use cronjobs::CronJobs;
pub use jobs::Jobs;

use super::{
    Column, CreateStrategy, Env, ResourceFacts, SelectableFields, StatusStrategy, TableConvertor,
    UpdateStrategy, conditions, copy_field, duration, rules, table, value::*, workloads,
};
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::{Value, json};
