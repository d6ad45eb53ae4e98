//! The binary under test.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Path of `coracle`.
///
/// # Panics
/// When there is none: a test of nothing must not pass.
pub fn coracle() -> PathBuf {
    if let Some(named) = std::env::var_os("CORACLE_BIN") {
        let path = PathBuf::from(named);
        assert!(path.is_file(), "CORACLE_BIN names {}, which does not exist", path.display());
        return path.canonicalize().expect("CORACLE_BIN was just found");
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
    let built = ["release", "debug"].map(|profile| target.join(profile).join("coracle"));
    let age = |path: &PathBuf| path.metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let newest = built.into_iter().filter(|path| path.is_file()).max_by_key(age);
    newest.expect("no binary to test: cargo build -p coracle, or name one in CORACLE_BIN")
}

/// The repository's root.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository").to_owned()
}
