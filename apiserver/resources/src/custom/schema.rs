//! The schema of one version, ready to use.

use super::Definition;
use coracle_api::FieldError;
use coracle_api::schema::Dynamic;
use coracle_api::structural::{self, Structural};
use coracle_cel::rules::{self, Rules};
use serde_json::Value;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Shared by all requests to a version, and by the definition's later forms as long as the schema is the same.
pub struct Schema {
    /// Of no other schema; objects remember that they are in order by this one.
    pub id: u32,
    pub structural: Structural,
    /// Nothing is dropped.
    pub preserve_all: bool,
    ty: OnceLock<Dynamic>,
    rules: OnceLock<Result<Rules, Vec<FieldError>>>,
    /// Whether there are embedded objects, and whether there are lists that hold nothing twice.
    features: OnceLock<(bool, bool)>,
}

fn next_id() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1)
}

impl Schema {
    pub(crate) fn of(definition: &Definition, version: &str) -> Self {
        let raw = definition.raw_schema(version);
        Self::parse(&raw, definition.preserve_unknown || raw.is_null())
    }

    pub fn parse(raw: &Value, preserve_all: bool) -> Self {
        let structural = structural::parse(raw);
        Self {
            id: next_id(),
            structural,
            preserve_all,
            ty: OnceLock::new(),
            rules: OnceLock::new(),
            features: OnceLock::new(),
        }
    }

    /// As field ownership sees it.
    pub fn ty(&self) -> &Dynamic {
        self.ty.get_or_init(|| structural::object_type(&self.structural, self.preserve_all))
    }

    /// Whether what is written is what is read: a status that has a default and that writes leave out is not.
    pub fn is_settled_by_writes(&self) -> bool {
        self.structural.properties.get("status").is_none_or(|status| status.default.is_none())
    }

    /// Whether there are objects inside the object.
    pub(super) fn has_embedded(&self) -> bool {
        self.features().0
    }

    /// Whether there are sets or keyed lists.
    pub(super) fn has_unique(&self) -> bool {
        self.features().1
    }

    fn features(&self) -> (bool, bool) {
        let find = || (structural::has_embedded(&self.structural), structural::has_unique(&self.structural));
        *self.features.get_or_init(find)
    }

    /// The rules of `x-kubernetes-validations`.
    ///
    /// # Errors
    /// Rules that do not compile, in definitions that were accepted by another version of the server.
    pub fn rules(&self) -> Result<&Rules, &[FieldError]> {
        let compiled = self.rules.get_or_init(|| rules::compile(&self.structural, "openAPIV3Schema"));
        compiled.as_ref().map_err(Vec::as_slice)
    }
}
