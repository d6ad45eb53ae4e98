//! Service accounts.

use super::table;
use super::value::*;
use super::{Column, Env, Strategy};
use coracle_api::Object;
use jiff::Timestamp;
use serde_json::Value;

pub struct ServiceAccounts;

impl Strategy for ServiceAccounts {
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }

    fn columns(&self) -> &'static [Column] {
        const { &[table::NAME, table::string("Secrets", "Number of secrets that pods may use"), table::AGE] }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        vec![name(object).into(), list_at(object, "secrets").len().into(), table::age(object, now)]
    }
}
