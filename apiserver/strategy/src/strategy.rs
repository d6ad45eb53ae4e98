//! The parts of a strategy, as Kubernetes' generic registry knows them. Each has defaults, but for the facts.
//!
//! A resource implements the parts in which something is particular to it and names the others in [`usual!`](crate::usual): the
//! compiler refuses a resource that leaves one out.

use super::{
    Column, DEFAULT_COLUMNS, Env, Facts, FieldLabels, FieldSet, TransactionOps, WriteKind, copy_field,
    keep_metadata, reset_fields,
};
use coracle_api::meta::NameRule;
use coracle_api::{ApiError, FieldError, Object, Resource};
use jiff::Timestamp;
use serde_json::Value;

/// All that is particular to one resource.
pub trait Strategy:
    UpdateStrategy
    + StatusStrategy
    + DeleteStrategy
    + TransactionStrategy
    + TableConvertor
    + SelectableFields
    + ResetFieldsStrategy
{
}

impl<T> Strategy for T where
    T: UpdateStrategy
        + StatusStrategy
        + DeleteStrategy
        + TransactionStrategy
        + TableConvertor
        + SelectableFields
        + ResetFieldsStrategy
{
}

/// A certificate that was asked for with a duration and is there now, as metrics count it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// Signers that are not Kubernetes' own are counted together, as `other`.
    pub signer: String,
    /// Whether its duration is about the one that was asked for.
    pub honored: bool,
}

/// The parts of a resource's strategy in which nothing is particular to it.
#[macro_export]
macro_rules! usual {
    ($resource:ty: $($part:ident),+) => {
        $(impl $crate::$part for $resource {})+
    };
}

/// What the generic path must know of a resource beside its rules.
pub trait ResourceFacts: Send + Sync + 'static {
    /// What upstream configures the resource's storage with. Every resource says it.
    fn facts(&self) -> Facts;

    /// Whether the object has a `status` that only the status subresource writes.
    fn has_status(&self) -> bool {
        false
    }

    /// How durable a write is; heartbeats and Events answer otherwise than the default. A pod's binding shows no old
    /// object.
    fn durability(&self, _new: Option<&Object>, _old: Option<&Object>) -> coracle_store::Durability {
        coracle_store::Durability::Synced
    }
}

/// What makes an object of what a client sent, and which are in order (upstream's `RESTCreateStrategy`). Defaults and
/// validation also judge what an update has made of an object.
pub trait CreateStrategy: ResourceFacts {
    /// Which names it allows; DNS subdomains unless it says otherwise.
    fn name_rule(&self) -> NameRule {
        NameRule::Dns1123Subdomain
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

    /// Adds to a new object that everybody has judged what upstream's defaulting adds when it is read back.
    fn complete_judged(&self, _object: &mut Object) {}

    /// What is wrong with a defaulted object as a client sent it and cannot be told of what is stored, where a list or map
    /// that is empty is none. Of a new object and of what an update has made of one.
    fn validate_sent(&self, _object: &Object, _errors: &mut Vec<FieldError>) {}

    fn validate(&self, _object: &Object, _env: &Env, _errors: &mut Vec<FieldError>) {}

    /// Beyond [`validate`](Self::validate), which is run too: what only a new object must not have.
    fn validate_create(&self, _object: &Object, _env: &Env, _errors: &mut Vec<FieldError>) {}

    /// Warning headers for the client of a create or update.
    fn warnings(&self, _new: &Object, _old: Option<&Object>) -> Vec<String> {
        Vec::new()
    }
}

/// What an update of the object itself may change (upstream's `RESTUpdateStrategy`).
pub trait UpdateStrategy: CreateStrategy {
    /// Puts back what a client may not change through the main resource (upstream's `PrepareForUpdate`).
    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        if self.has_status() {
            copy_field(new, old, "status");
        }
    }

    /// As [`validate`](Self::validate), of what an update has made of a valid object: what it leaves alone need not be
    /// looked at again.
    fn validate_changed(&self, new: &Object, _old: &Object, env: &Env, errors: &mut Vec<FieldError>) {
        self.validate(new, env, errors);
    }

    /// Beyond [`validate_changed`](Self::validate_changed), which is run too: immutable fields and transitions.
    fn validate_update(&self, _new: &Object, _old: &Object, _env: &Env, _errors: &mut Vec<FieldError>) {}

    /// Whether `metadata.generation` counts this change; upstream's resources differ. By default: any change of
    /// `spec`.
    fn changes_generation(&self, new: &Object, old: &Object) -> bool {
        new.get("spec") != old.get("spec")
    }

    /// Whether a PUT to a name that does not exist creates it (upstream's `AllowCreateOnUpdate`).
    fn create_on_update(&self) -> bool {
        false
    }
}

/// What an update of `status`, or of `approval`, may change.
pub trait StatusStrategy {
    /// Whether a write of the status leaves labels, annotations, finalizers and owners alone as it does the spec.
    /// Upstream's resources differ.
    fn status_keeps_metadata(&self) -> bool {
        false
    }

    /// Puts back everything but the status, and the metadata that status updates may change.
    fn prepare_status_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "spec");
        if self.status_keeps_metadata() {
            keep_metadata(new, old);
        }
    }

    fn validate_status_update(
        &self,
        _new: &Object,
        _old: &Object,
        _env: &Env,
        _errors: &mut Vec<FieldError>,
    ) {
    }

    /// What a written status issues; only certificate requests issue anything.
    fn issued(&self, _new: &Object, _old: &Object) -> Option<Issued> {
        None
    }

    /// Puts back everything but what the subresource `approval` may change; only certificate requests have it.
    fn prepare_approval_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        *new = old.clone();
    }

    fn validate_approval_update(
        &self,
        _new: &Object,
        _old: &Object,
        _env: &Env,
        _errors: &mut Vec<FieldError>,
    ) {
    }
}

/// What happens before an object goes (upstream's `RESTDeleteStrategy` and `RESTGracefulDeleteStrategy`).
pub trait DeleteStrategy {
    /// Seconds of graceful deletion for this object, given what the client asked for; `None` deletes at once.
    /// Pods answer `Some` (upstream's `CheckGracefulDelete`).
    fn graceful_deletion(&self, _object: &Object, _asked_seconds: Option<i64>) -> Option<i64> {
        None
    }

    /// What the first deletion of an object adds to it before its finalizers are looked at. Definitions of custom
    /// resources get the one that keeps them until their instances are gone.
    fn begin_delete(&self, _object: &mut Object, _env: &Env) {}
}

/// What is written in one transaction with the object (upstream's `BeginCreate` and `BeginUpdate`).
pub trait TransactionStrategy {
    /// Whether [`transaction_ops`](Self::transaction_ops) does anything for this resource.
    fn has_transaction_ops(&self) -> bool {
        false
    }

    /// Allocations and releases that belong to this write. May change `object` (a Service gets its cluster IP
    /// here).
    fn transaction_ops(
        &self,
        _write: WriteKind,
        _object: &mut Object,
        _old: Option<&Object>,
        _env: &Env,
    ) -> Result<TransactionOps, ApiError> {
        Ok(TransactionOps::default())
    }
}

/// The object as a line of `kubectl get` (upstream's `TableConvertor`).
pub trait TableConvertor {
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
}

/// By which fields objects can be selected (upstream's `GetAttrs` and the conversion of field labels).
pub trait SelectableFields: Send + Sync + 'static {
    /// Which fields a selector may name when the resource is served in `group`, and how others are refused. Each of
    /// [`fields`](Self::fields).
    fn field_labels(&self, _group: &str) -> FieldLabels {
        FieldLabels::PLAIN
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
}

/// Of which fields a write makes nobody the owner (upstream's `ResetFieldsStrategy`).
pub trait ResetFieldsStrategy: StatusStrategy {
    /// What a write of `resource` by this way does not change (upstream's `GetResetFields`): nobody comes to own it.
    /// `subresource` is empty for the object itself.
    fn reset_fields(&self, resource: &Resource, subresource: &str) -> &'static FieldSet<'static> {
        match subresource {
            "status" if self.status_keeps_metadata() => reset_fields::metadata_and_spec(),
            _ => reset_fields::usual(resource, subresource),
        }
    }
}
