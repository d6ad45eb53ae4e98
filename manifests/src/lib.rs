//! The manifests directory: files of objects that are applied at start and whenever they change, and whose objects go when
//! the file or the document goes.
//!
//! `files` reads the directory, `documents` takes a file apart, `plan` says what is to be applied in which order and what
//! is to go, `charts` has helm do what archives say, `memory` remembers on disk what was applied, `cluster` carries it out, `told` says per file how it went, and
//! `run` waits for changes.

mod charts;
mod cluster;
mod documents;
mod files;
mod inotify;
mod memory;
mod outcome;
mod plan;
mod run;
mod told;

pub use run::{Config, Error, run};

/// Who owns the fields of what is applied, and the component that events name.
pub const MANAGER: &str = "coracle-manifests";
