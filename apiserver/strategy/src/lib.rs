//! What one resource adds to the generic path: defaults, validation, what an update may change, table columns,
//! selectable fields. No resource has a handler of its own.
//!
//! All functions are synchronous and free of I/O. The registry calls them in this order on a write: decode,
//! mutating admission, [`Strategy::defaults`], `prepare_*`, `validate*`, validating admission,
//! [`Strategy::transaction_ops`], commit. Objects are already checked against the schema facts (types, required and
//! unknown fields) and their metadata against the common rules when a strategy sees them.

pub mod duration;
pub mod expression;
mod facts;
mod plain;
mod registry;
pub mod reset_fields;

mod admissionregistration;
pub mod apiextensions;
mod apiservices;
mod apps;
mod autoscalers;
mod batch;
mod certificates;
mod claim_spec;
mod claims;
mod componentstatuses;
mod conditions;
mod configmaps;
mod disruptionbudgets;
mod endpoints;
mod events;
pub mod flowcontrol;
mod leases;
mod namespaces;
mod networking;
mod nodes;
mod pods;
mod podtemplates;
mod priorityclasses;
mod quotas;
mod rbac;
mod replicationcontrollers;
mod resource;
mod rules;
mod scales;
mod secrets;
mod serviceaccounts;
mod services;
mod storage;
mod strategy;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod volume_warnings;
mod volumes;
mod workloads;

pub use coracle_api::managed::Set as FieldSet;
pub use facts::{Facts, FieldLabels, Refusal};
pub use nodes::STORE_READ_ONLY;
pub use plain::Plain;
pub use pods::validate::update::changes;
pub use pods::validate::{containers::forgive_resizes, security::forgive_contexts};
pub use registry::for_resource;
pub use rules::forgive_addresses;
pub use scales::Scales;
pub use strategy::{
    CreateStrategy, DeleteStrategy, Issued, ResetFieldsStrategy, ResourceFacts, SelectableFields,
    StatusStrategy, Strategy, TableConvertor, TransactionStrategy, UpdateStrategy,
};

pub use coracle_requests::ObjectReader;
pub(crate) use coracle_requests::value;

pub use coracle_api::Object;
use coracle_store::{Op, Precondition};

use coracle_api::UserInfo;
use jiff::Timestamp;
use parking_lot::Mutex;

/// What a strategy may know of the request and the world.
pub struct Env<'a> {
    pub user: &'a UserInfo,
    /// The API group that the request names; objects are judged in their stored form.
    pub group: &'a str,
    pub now: Timestamp,
    pub read: &'a dyn ObjectReader,
    /// For the client, as `Warning` headers.
    pub warnings: &'a Mutex<Vec<String>>,
}

impl Env<'_> {
    /// As [`Strategy::warnings`], of what is found while an object is validated.
    pub fn warn(&self, warnings: impl IntoIterator<Item = String>) {
        self.warnings.lock().extend(warnings);
    }
}

/// Writes that must happen in one transaction with the object's own, such as the reservation of a cluster IP.
///
/// If a guard fails the registry calls [`Strategy::transaction_ops`] again, a few times.
#[derive(Default)]
pub struct TransactionOps {
    pub guards: Vec<Precondition>,
    pub ops: Vec<Op>,
}

/// What happens to the object of [`Strategy::transaction_ops`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    Create,
    Update,
    Delete,
}

/// One column of `kubectl get`, as upstream's printers define it.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub name: &'static str,
    /// `string`, `integer`, `number`, `boolean` or `date`
    pub kind: &'static str,
    pub format: &'static str,
    pub description: &'static str,
    /// 0 is shown always, 1 with `-o wide`.
    pub priority: u8,
}

/// The columns of a resource that defines none: Name and Created At, as upstream.
pub const DEFAULT_COLUMNS: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", description: "Name of the object", priority: 0 },
    Column { name: "Created At", kind: "date", format: "", description: "Creation time", priority: 0 },
];

/// Makes one top-level field of `new` what it is in `old`.
pub fn copy_field(new: &mut Object, old: &Object, field: &str) {
    let Some(fields) = new.as_object_mut() else { return };
    match old.get(field) {
        // To compare costs a fraction of a copy, and mostly that is all there is to do.
        Some(value) if fields.get(field) == Some(value) => {}
        Some(value) => {
            fields.insert(field.to_owned(), value.clone());
        }
        None => {
            fields.remove(field);
        }
    }
}

/// Puts back the metadata that a write of a status does not change (upstream's `ResetObjectMetaForStatus`): who owns which
/// field is kept of the new object.
pub(crate) fn keep_metadata(new: &mut Object, old: &Object) {
    let Some(metadata) = new.get_mut("metadata") else { return };
    let fields =
        ["labels", "annotations", "finalizers", "ownerReferences", "generation", "deletionTimestamp"];
    for field in fields {
        copy_field(metadata, &old["metadata"], field);
    }
}
