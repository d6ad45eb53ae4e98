//! What is the machine's owner's alone: the data directory, whose Secrets and keys nobody else may read.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Rights of anybody but the owner.
const OTHERS: u32 = 0o077;

/// Makes the data directory, 0700, or takes away what rights others have to it. One that holds somebody else's things too
/// (`/tmp`, a home) is left as it is, and its owner told.
pub fn directory(dir: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", dir.display());
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    let mode = std::fs::metadata(dir).map_err(failed)?.permissions().mode();
    if mode & OTHERS == 0 {
        return Ok(());
    }
    let shown = format!("{:o}", mode & 0o7777);
    if !is_ours(dir).map_err(failed)? {
        tracing::warn!(directory = %dir.display(), mode = shown, "others may read what is in the data directory");
        return Ok(());
    }
    tracing::warn!(directory = %dir.display(), mode = shown, "others could read the data directory; now it is 0700");
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).map_err(failed)
}

/// Empty, or made by an earlier start.
fn is_ours(dir: &Path) -> std::io::Result<bool> {
    Ok(dir.join("pki").is_dir() || std::fs::read_dir(dir)?.next().is_none())
}

/// Tells the owner of a configuration file that others may read or change it.
pub fn warn_of_file(path: &Path) {
    let mode = std::fs::metadata(path).map(|m| m.permissions().mode()).unwrap_or_default();
    if mode & OTHERS != 0 {
        let shown = format!("{:o}", mode & 0o7777);
        tracing::warn!(file = %path.display(), mode = shown, "others may read or change the configuration; chmod 600 keeps them out");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(dir: &Path) -> u32 {
        std::fs::metadata(dir).expect("it is there").permissions().mode() & 0o7777
    }

    #[test]
    fn the_data_directory_is_made_private_and_others_directories_are_not() {
        let world = tempfile::tempdir().expect("temporary directory");
        let new = world.path().join("a/b");
        directory(&new).expect("made");
        assert_eq!(mode(&new), 0o700);
        let wide = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&new, wide.clone()).expect("widened");
        directory(&new).expect("tightened, as it is empty");
        assert_eq!(mode(&new), 0o700);
        std::fs::write(new.join("letters"), "").expect("somebody's file");
        std::fs::set_permissions(&new, wide.clone()).expect("widened");
        directory(&new).expect("left alone");
        assert_eq!(mode(&new), 0o755);
        std::fs::create_dir(new.join("pki")).expect("our folder");
        directory(&new).expect("tightened");
        assert_eq!(mode(&new), 0o700);
    }
}
