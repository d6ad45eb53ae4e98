//! What one resource adds to the generic path: defaults, validation, what an update may change, table columns,
//! selectable fields. No resource has a handler of its own.
//!
//! All functions are synchronous and free of I/O. The registry calls them in this order on a write: decode,
//! mutating admission, [`Strategy::defaults`], `prepare_*`, `validate*`, validating admission,
//! [`Strategy::companions`], commit. Objects are already checked against the schema facts (types, required and
//! unknown fields) and their metadata against the common rules when a strategy sees them.

pub mod expression;
mod facts;
pub mod human;
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
pub use registry::for_resource;
pub use rules::forgive_addresses;
pub use scales::Scales;

pub use coracle_requests::Reader;
pub(crate) use coracle_requests::value;

pub use coracle_api::Object;
use coracle_store::{Guard, Op};

use coracle_api::{ApiError, FieldError, Resource, UserInfo};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

/// What a strategy may know of the request and the world.
pub struct Env<'a> {
    pub user: &'a UserInfo,
    /// The API group that the request names; objects are judged in their stored form.
    pub group: &'a str,
    pub now: Timestamp,
    pub read: &'a dyn Reader,
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
/// If a guard fails the registry calls [`Strategy::companions`] again, a few times.
#[derive(Default)]
pub struct Companions {
    pub guards: Vec<Guard>,
    pub ops: Vec<Op>,
}

/// What happens to the object of [`Strategy::companions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
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

pub trait Strategy: Send + Sync + 'static {
    /// What upstream configures the resource's storage with. Every resource says it.
    fn facts(&self) -> Facts;

    /// What a write of `resource` by this way does not change (upstream's `GetResetFields`): nobody comes to own it.
    /// `subresource` is empty for the object itself.
    fn reset_fields(&self, resource: &Resource, subresource: &str) -> &'static FieldSet<'static> {
        reset_fields::usual(resource, subresource)
    }

    /// Which fields a selector may name when the resource is served in `group`, and how others are refused. Each of
    /// [`fields`](Self::fields).
    fn field_labels(&self, _group: &str) -> FieldLabels {
        FieldLabels::PLAIN
    }

    /// Fills in what the client left out, as upstream's defaulting functions do. Also run on what an update or a
    /// patch produced. Idempotent.
    fn defaults(&self, _object: &mut Object) {}

    /// Removes what a client may not set on creation (upstream's `PrepareForCreate`). The registry has set uid,
    /// creationTimestamp and `generation: 1` already.
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        if self.has_status()
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
    }

    /// Adds to the labels of a new, prepared object what follows from the labels that the client `sent`.
    fn complete_labels(&self, _object: &mut Object, _sent: &Value) {}

    /// Puts back what a client may not change through the main resource (upstream's `PrepareForUpdate`).
    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        if self.has_status() {
            copy_field(new, old, "status");
        }
    }

    /// Puts back everything but the status, and the metadata that status updates may change.
    fn prepare_status_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "spec");
    }

    /// Puts back everything but what the subresource `approval` may change; only certificate requests have it.
    fn prepare_approval_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        *new = old.clone();
    }

    fn validate(&self, _object: &Object, _env: &Env, _errors: &mut Vec<FieldError>) {}

    /// As [`validate`](Self::validate), of what an update has made of a valid object: what it leaves alone need not be
    /// looked at again.
    fn validate_changed(&self, new: &Object, _old: &Object, env: &Env, errors: &mut Vec<FieldError>) {
        self.validate(new, env, errors);
    }

    /// Beyond [`validate`](Self::validate), which is run too: what only a new object must not have.
    fn validate_create(&self, _object: &Object, _env: &Env, _errors: &mut Vec<FieldError>) {}

    /// Beyond [`validate_changed`](Self::validate_changed), which is run too: immutable fields and transitions.
    fn validate_update(&self, _new: &Object, _old: &Object, _env: &Env, _errors: &mut Vec<FieldError>) {}

    fn validate_status_update(
        &self,
        _new: &Object,
        _old: &Object,
        _env: &Env,
        _errors: &mut Vec<FieldError>,
    ) {
    }

    fn validate_approval_update(
        &self,
        _new: &Object,
        _old: &Object,
        _env: &Env,
        _errors: &mut Vec<FieldError>,
    ) {
    }

    /// Whether the object has a `status` that only the status subresource writes.
    fn has_status(&self) -> bool {
        false
    }

    /// Whether `metadata.generation` counts this change; upstream's resources differ. By default: any change of
    /// `spec`.
    fn changes_generation(&self, new: &Object, old: &Object) -> bool {
        new.get("spec") != old.get("spec")
    }

    /// Whether a PUT to a name that does not exist creates it (Leases, Endpoints, Events, ...).
    fn create_on_update(&self) -> bool {
        false
    }

    /// Warning headers for the client of a create or update.
    fn warnings(&self, _new: &Object, _old: Option<&Object>) -> Vec<String> {
        Vec::new()
    }

    /// Seconds of graceful deletion for this object, given what the client asked for; `None` deletes at once.
    /// Pods answer `Some` (upstream's `CheckGracefulDelete`).
    fn graceful_deletion(&self, _object: &Object, _asked_seconds: Option<i64>) -> Option<i64> {
        None
    }

    /// What the first deletion of an object adds to it before its finalizers are looked at. Definitions of custom
    /// resources get the one that keeps them until their instances are gone.
    fn begin_delete(&self, _object: &mut Object, _env: &Env) {}

    /// Whether [`companions`](Self::companions) does anything for this resource.
    fn has_companions(&self) -> bool {
        false
    }

    /// Allocations and releases that belong to this write. May change `object` (a Service gets its cluster IP
    /// here).
    fn companions(
        &self,
        _write: Write,
        _object: &mut Object,
        _old: Option<&Object>,
        _env: &Env,
    ) -> Result<Companions, ApiError> {
        Ok(Companions::default())
    }

    fn columns(&self) -> &'static [Column] {
        DEFAULT_COLUMNS
    }

    /// The columns as a Table states them.
    fn column_definitions(&self) -> Value {
        let columns = self.columns().iter().map(|c| {
            serde_json::json!({ "name": c.name, "type": c.kind, "format": c.format, "description": c.description,
                "priority": c.priority })
        });
        columns.collect()
    }

    /// One cell per column.
    fn row(&self, object: &Object, _now: Timestamp) -> Vec<Value> {
        vec![object["metadata"]["name"].clone(), object["metadata"]["creationTimestamp"].clone()]
    }

    /// Conditions of the table row, with which upstream marks finished pods and jobs.
    fn row_conditions(&self, _object: &Object) -> Vec<Value> {
        Vec::new()
    }

    /// Fields for field selectors, beside `metadata.name` and `metadata.namespace`. A field that is absent from an
    /// object is listed with an empty value: the names are the same for every object of the resource.
    fn fields(&self, _object: &Object) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Whether a selectable field can lie in what built-in kinds have for bulk (`data`, `annotations`).
    fn selects_anywhere(&self) -> bool {
        false
    }

    /// How durable a write is; heartbeats and Events answer otherwise than the default. A pod's binding shows no old
    /// object.
    fn durability(&self, _new: Option<&Object>, _old: Option<&Object>) -> coracle_store::Durability {
        coracle_store::Durability::Synced
    }
}

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
