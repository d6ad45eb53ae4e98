//! Who asks, and may they: authentication, authorization, and the reviews through which others ask the same.

pub mod authn;
pub mod authz;
pub mod reviews;
