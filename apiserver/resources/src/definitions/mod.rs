//! The keeper of CustomResourceDefinitions: which names are accepted, whether resources are served, and what happens when
//! a definition is deleted.
//!
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/>. One task follows
//! the definitions in the watch cache and writes their status as a client of this server; upstream spreads the same over
//! five controllers. Names are given to whoever was first; a resource is served as soon as its names are accepted, in the
//! same write, because the catalogue is told of the definitions before they are shown and can never lag behind them.
//!
//! A deleted definition stays until its instances are gone ([`finalize`]); each has a task of its own, so that the
//! finalizers of one never hold up another.

mod controller;
mod finalize;
mod instances;
mod names;
mod status;
mod write;

pub use controller::maintain;

use coracle_strategy::apiextensions::{DEFINITIONS, FINALIZER, conditions};
