//! What a backup of a server holds.
//!
//! ```text
//! manifest.json       what it is
//! store               every object, as of one revision
//! data/pki/...        authorities, keys and certificates
//! data/static-pods/...
//! data/manifests/...
//! outside/etc/...     files that the configuration names, by their paths
//! ```
//! Not the contents of volumes, images, logs: those are the node's, and not the cluster's state.

use super::archive::{Head, PartWriter, Writer};
use super::key::Key;
use crate::config::Config;
use coracle_apiserver::encryption::made;
use coracle_apiserver::store::sled::Picture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

pub const MANIFEST: &str = "manifest.json";
pub const STORE: &str = "store";
pub const DATA: &str = "data/";
pub const OUTSIDE: &str = "outside/";
/// Of the data directory.
const KEPT: [&str; 5] = ["pki", "static-pods", "kubelet-config.yaml", "manifests", "manifests-applied.json"];
/// Whose UID tells one cluster from another.
pub const KUBE_SYSTEM: &str = "namespaces.//kube-system";
/// A file of configuration beyond this is none.
const LARGEST: u64 = 16 << 20;
/// Deeper than anybody's folders of manifests.
const DEEPEST: usize = 8;

/// What a backup says of itself.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub created: Timestamp,
    pub coracle_version: String,
    pub kubernetes_version: String,
    /// Absent where no server ran.
    pub node_name: Option<String>,
    /// The UID of the namespace kube-system; absent where that is encrypted, and from earlier versions.
    #[serde(default)]
    pub cluster: Option<String>,
    /// A digest of the configuration by which values are encrypted; absent where there is none.
    #[serde(default)]
    pub sealing: Option<String>,
    pub revision: u64,
    pub objects: u64,
    /// What the server was told, by the names of flags.
    pub settings: BTreeMap<String, String>,
}

/// The UID of a stored object.
pub fn identity(stored: &[u8]) -> Option<String> {
    let object: serde_json::Value = serde_json::from_slice(stored).ok()?;
    object["metadata"]["uid"].as_str().map(str::to_owned)
}

/// As in a manifest, of this moment.
pub fn sealing(data_dir: &Path, config: Option<&Config>) -> Option<String> {
    let given = config.and_then(|config| config.encryption.encryption_provider_config.clone());
    let path = given.unwrap_or_else(|| data_dir.join("pki").join(made::FILE));
    let text = std::fs::read(path).ok()?;
    Some(coracle_api::hex::text(&Sha256::digest(text)[..8]))
}

/// Of whom a backup is.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    pub data_dir: &'a Path,
    /// Of the server that runs on it.
    pub config: Option<&'a Config>,
}

impl Site<'_> {
    fn manifest(self, picture: &Picture) -> Manifest {
        Manifest {
            created: Timestamp::now(),
            coracle_version: env!("CARGO_PKG_VERSION").to_owned(),
            kubernetes_version: coracle_apiserver::version::GIT_VERSION.to_owned(),
            node_name: self.config.map(|config| config.node_name.clone()),
            sealing: sealing(self.data_dir, self.config),
            cluster: picture.value(KUBE_SYSTEM).and_then(|value| identity(&value)),
            revision: picture.revision().0,
            objects: picture.objects(),
            settings: self.config.map(|config| config.program.flags.clone()).unwrap_or_default(),
        }
    }

    /// Files outside of the data directory that the settings name, and those of them that lie in a directory.
    fn outside(self) -> BTreeSet<PathBuf> {
        let flags = self.config.map(|config| &config.program.flags);
        let mut found = BTreeSet::new();
        for (flag, value) in flags.into_iter().flatten() {
            let Ok(path) = std::path::absolute(value) else { continue };
            if names_configuration(flag) && !path.starts_with(self.data_dir) {
                collect(&path, 0, &mut found);
            }
        }
        found
    }
}

/// Whether a flag names files that the server reads, rather than those that it writes.
fn names_configuration(flag: &str) -> bool {
    const DIRECTORIES: [&str; 3] = ["pod-manifest-path", "kubelet-config-dir", "config-dir"];
    // A key beside what it opens would be no key.
    const WRITTEN: [&str; 3] = ["write-kubeconfig", "audit-log-path", "backup-key-file"];
    static FILES: std::sync::LazyLock<BTreeSet<String>> = std::sync::LazyLock::new(|| {
        let command = <crate::args::ServerArgs as clap::Args>::augment_args(clap::Command::new("server"));
        let of_file = |argument: &&clap::Arg| {
            argument.get_value_names().is_some_and(|names| names.iter().any(|name| name == "FILE"))
        };
        let names = command.get_arguments().filter(of_file).filter_map(clap::Arg::get_long);
        names.map(str::to_owned).collect()
    });
    !WRITTEN.contains(&flag) && (DIRECTORIES.contains(&flag) || FILES.contains(flag))
}

/// The plain files at or below a path; links are followed. What cannot be looked at is told when it is read.
fn collect(path: &Path, depth: usize, found: &mut BTreeSet<PathBuf>) {
    let Ok(meta) = std::fs::metadata(path) else { return };
    if meta.is_file() {
        found.insert(path.to_owned());
    }
    if meta.is_dir() && depth < DEEPEST {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.for_each(|entry| collect(&entry.path(), depth + 1, found));
    }
}

/// What is being written, and asks for new certificates: of the moment, not of the state.
fn is_passing(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with('.') || name == coracle_apiserver::pki::RENEW_REQUEST
}

/// Writes a backup of the store and of the files that belong to it, which is the state as of the picture's revision.
pub fn write(out: impl Write, key: Option<&Key>, picture: &Picture, site: Site<'_>) -> io::Result<Manifest> {
    let manifest = site.manifest(picture);
    let mut archive = Writer::new(out, key)?;
    let text = serde_json::to_vec_pretty(&manifest)?;
    let head = |name: &str| Head { name: name.to_owned(), mode: 0o600 };
    archive.part(&head(MANIFEST), |part| part.write_all(&text))?;
    archive.part(&head(STORE), |part: &mut PartWriter<'_, _>| picture.write(part))?;
    let mut inside = BTreeSet::new();
    KEPT.iter().for_each(|name| collect(&site.data_dir.join(name), 0, &mut inside));
    for path in inside.iter().filter(|path| !is_passing(path)) {
        let Ok(relative) = path.strip_prefix(site.data_dir) else { continue };
        file(&mut archive, &format!("{DATA}{}", relative.display()), path)?;
    }
    for path in site.outside() {
        file(
            &mut archive,
            &format!("{OUTSIDE}{}", path.display().to_string().trim_start_matches('/')),
            &path,
        )?;
    }
    archive.finish()?;
    Ok(manifest)
}

/// One that goes away meanwhile is left out: it was being replaced.
fn file<W: Write>(archive: &mut Writer<W>, name: &str, path: &Path) -> io::Result<()> {
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let (meta, bytes) = match std::fs::metadata(path).and_then(|meta| {
        let bytes =
            if meta.len() > LARGEST { Err(io::ErrorKind::FileTooLarge.into()) } else { std::fs::read(path) };
        Ok((meta, bytes?))
    }) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(failed)?,
    };
    let head = Head { name: name.to_owned(), mode: meta.permissions().mode() & 0o777 };
    archive.part(&head, |part| part.write_all(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_read_are_kept_and_those_that_are_written_are_not() {
        for flag in ["config", "audit-policy-file", "encryption-provider-config", "pod-manifest-path"] {
            assert!(names_configuration(flag), "{flag}");
        }
        for flag in ["write-kubeconfig", "audit-log-path", "data-dir", "https-port", "disable"] {
            assert!(!names_configuration(flag), "{flag}");
        }
    }
}
