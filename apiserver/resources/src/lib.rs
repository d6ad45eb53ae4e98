//! Which resources are served, and their present state: the watch cache over the store, the catalogue of built-in and
//! custom resources, custom resources themselves with their versions and conversion webhooks, and the controller of
//! their definitions.

pub mod cache;
pub mod catalogue;
pub mod conversion;
pub mod custom;
pub mod definitions;
