//! How they are shown; what they are, [`crate::http`] knows.

use super::value::*;
use super::{Column, ResourceFacts, TableConvertor, table};
use crate::Facts;
use coracle_api::Object;
use jiff::Timestamp;
use serde_json::Value;

pub struct ComponentStatuses;

impl ResourceFacts for ComponentStatuses {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }
}

impl TableConvertor for ComponentStatuses {
    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("Status", "Whether the component is healthy"),
                table::string("Message", "What it says of itself"),
                table::string("Error", "What is wrong with it"),
            ]
        }
    }

    fn row(&self, object: &Object, _now: Timestamp) -> Vec<Value> {
        let condition = list_at(object, "conditions").iter().find(|c| str_at(c, "type") == "Healthy");
        let text = |field: &str| condition.map_or("", |c| str_at(c, field));
        let status = match text("status") {
            "True" => "Healthy",
            "" => "Unknown",
            _ => "Unhealthy",
        };
        vec![name(object).into(), status.into(), text("message").into(), text("error").into()]
    }
}

crate::usual!(ComponentStatuses: CreateStrategy, UpdateStrategy, StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);
