//! Service accounts.

use super::table;
use super::value::*;
use super::{Column, CreateStrategy, Env, ResourceFacts, TableConvertor, UpdateStrategy};
use crate::Facts;
use coracle_api::Object;
use jiff::Timestamp;
use serde_json::Value;

pub struct ServiceAccounts;

/// Obsolete; upstream warns of it where it is set or changed.
const ENFORCE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

impl ResourceFacts for ServiceAccounts {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: true, unconditional_update: true }
    }
}

impl CreateStrategy for ServiceAccounts {
    fn warnings(&self, new: &Object, old: Option<&Object>) -> Vec<String> {
        let value = |object: &Object| at(object, "metadata.annotations").get(ENFORCE_SECRETS).cloned();
        if value(new).is_none() || old.is_some_and(|old| value(old) == value(new)) {
            return Vec::new();
        }
        let text = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
        vec![format!("metadata.annotations[{ENFORCE_SECRETS}]: {text}")]
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }
}

impl UpdateStrategy for ServiceAccounts {
    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl TableConvertor for ServiceAccounts {
    fn columns(&self) -> &'static [Column] {
        const { &[table::NAME, table::AGE] }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        vec![name(object).into(), table::age(object, now)]
    }
}

crate::usual!(ServiceAccounts: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);
