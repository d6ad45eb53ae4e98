//! The strategy of resources without rules of their own.

use super::value::remove;
use super::{CreateStrategy, Env, ResourceFacts, StatusStrategy, UpdateStrategy, copy_field};
use crate::Facts;
use coracle_api::Object;

/// What the generic path must know of any resource. None of these carries a `metadata.generation`.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// The resource has a `status` subresource.
    pub status: bool,
}

impl ResourceFacts for Plain {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        self.status
    }
}

impl CreateStrategy for Plain {
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        if self.status {
            remove(object, "status");
        }
        remove(object, "metadata.generation");
    }
}

impl UpdateStrategy for Plain {
    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl StatusStrategy for Plain {
    fn prepare_status_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "spec");
    }
}

crate::usual!(Plain: DeleteStrategy, TransactionStrategy, TableConvertor, SelectableFields, ResetFieldsStrategy);
