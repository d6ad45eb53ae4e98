//! Field ownership: which manager decides which field of an object, and server-side apply on top of it.
//!
//! Mirrors <https://kubernetes.io/docs/reference/using-api/server-side-apply/>. [`Set`]s of field paths are read from
//! and written to `metadata.managedFields`; values of a known schema become sets, are compared, merged and pruned;
//! [`update`] and [`apply`] put that together into what a write does to the owners. The schema is whatever
//! [`TypeRef`](crate::schema::TypeRef) stands for, so custom resources are treated by the same code.

mod apply;
mod collect;
mod compare;
mod conflict;
mod element;
mod entry;
mod fields;
mod lists;
mod merge;
mod owners;
mod prune;
mod remove;
mod scale;
mod set;
mod show;
mod update;
mod validate;

pub use apply::{Applied, ApplyError, apply};
pub use collect::to_set;
pub use compare::{Comparison, compare};
pub use conflict::Conflict;
pub use element::{Element, Tag};
pub use entry::{Entry, ManagedFieldsError, Operation, decode, encode};
pub use fields::{parse_fields, write_fields};
pub use merge::{MergeError, merge};
pub use owners::{Request, SingleVersion, Versions};
pub use remove::remove;
pub use scale::{scale_from_parent, scale_to_parent};
pub use set::Set;
pub use update::{same_but_times, update};
pub use validate::validate;

#[cfg(test)]
mod tests;
