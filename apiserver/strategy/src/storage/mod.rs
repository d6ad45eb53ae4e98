//! storage.k8s.io/v1.

mod classes;
mod csi;
#[cfg(test)]
mod tests;

pub use classes::{StorageClasses, VolumeAttributesClasses};
pub use csi::{CsiDrivers, CsiNodes, CsiStorageCapacities, VolumeAttachments};

use super::{
    Column, CreateStrategy, Env, ResourceFacts, StatusStrategy, TableConvertor, UpdateStrategy, copy_field,
    rules, table, value::*,
};
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::{Value, json};
