//! The strategy of resources without rules of their own.

use super::value::remove;
use super::{Env, Strategy, copy_field};
use coracle_api::Object;

/// What the generic path must know of any resource.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// The resource has a `status` subresource.
    pub status: bool,
    /// `metadata.generation` counts changes of `spec`; many of upstream's older resources carry none.
    pub generation: bool,
}

impl Strategy for Plain {
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        if self.status {
            remove(object, "status");
        }
        if !self.generation {
            remove(object, "metadata.generation");
        }
    }

    fn prepare_status_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "spec");
    }

    fn has_status(&self) -> bool {
        self.status
    }

    fn changes_generation(&self, new: &Object, old: &Object) -> bool {
        self.generation && new.get("spec") != old.get("spec")
    }
}
