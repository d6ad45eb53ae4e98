//! Scales: what is shown of them. They are parts of other objects, which have strategies of their own.

use super::value::{i64_at, name};
use super::{Column, ResourceFacts, TableConvertor, table};
use crate::Facts;
use coracle_api::Object;
use jiff::Timestamp;
use serde_json::Value;

pub struct Scales;

const COLUMNS: &[Column] = &[
    table::NAME,
    table::integer("Desired", "Number of pods that there shall be"),
    table::integer("Available", "Number of pods that there are"),
    table::AGE,
];

impl ResourceFacts for Scales {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }
}

impl TableConvertor for Scales {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, scale: &Object, now: Timestamp) -> Vec<Value> {
        let number = |path: &str| i64_at(scale, path).unwrap_or(0).into();
        vec![name(scale).into(), number("spec.replicas"), number("status.replicas"), table::age(scale, now)]
    }
}

crate::usual!(Scales: CreateStrategy, UpdateStrategy, StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);
