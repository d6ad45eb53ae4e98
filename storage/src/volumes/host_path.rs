//! `hostPath`: a file or directory of the node.

use super::host::make_dir_all;
use super::{Mounted, Record, Request, Spec, VolumeError, VolumePlugin, blocking};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::HostPathVolumeSource;
use std::fs;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

pub struct HostPath;

#[async_trait]
impl VolumePlugin for HostPath {
    fn name(&self) -> &'static str {
        "kubernetes.io/host-path"
    }

    fn supports(&self, spec: &Spec) -> bool {
        spec.inline().is_some_and(|volume| volume.host_path.is_some())
    }

    async fn publish(&self, request: &Request<'_>, _: Option<&Record>) -> Result<Mounted, VolumeError> {
        let source = request.volume.host_path.clone().unwrap_or_default();
        let path = source.path.clone();
        // The path may lead to a server that does not answer.
        blocking(move || check(&source)).await?;
        Ok(Mounted::at(path))
    }
}

/// Creates what `type` says shall be created, and checks what it says shall be there.
pub(super) fn check(source: &HostPathVolumeSource) -> Result<(), VolumeError> {
    let path = Path::new(&source.path);
    if path.components().any(|c| matches!(c, std::path::Component::ParentDir)) {
        return Err(VolumeError::Invalid(format!("hostPath {:?} must not contain '..'", source.path)));
    }
    let meta = fs::metadata(path).ok();
    let is = |test: fn(&fs::FileType) -> bool| meta.as_ref().is_some_and(|m| test(&m.file_type()));
    let (fits, kind) = match source.type_.as_deref().unwrap_or_default() {
        "" => return Ok(()),
        "DirectoryOrCreate" if meta.is_none() => return make_dir_all(path, 0o755),
        "FileOrCreate" if meta.is_none() => return create_file(path),
        "DirectoryOrCreate" | "Directory" => (is(fs::FileType::is_dir), "directory"),
        "FileOrCreate" | "File" => (is(fs::FileType::is_file), "file"),
        "Socket" => (is(FileTypeExt::is_socket), "socket file"),
        "CharDevice" => (is(FileTypeExt::is_char_device), "character device"),
        "BlockDevice" => (is(FileTypeExt::is_block_device), "block device"),
        other => return Err(VolumeError::Invalid(format!("{other:?} is an invalid volume type"))),
    };
    if fits { Ok(()) } else { Err(VolumeError::HostPathType { path: path.to_owned(), kind }) }
}

fn create_file(path: &Path) -> Result<(), VolumeError> {
    let created = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(path);
    created.map(|_| ()).map_err(|e| VolumeError::io("create", path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &Path, kind: &str) -> HostPathVolumeSource {
        HostPathVolumeSource { path: path.display().to_string(), type_: Some(kind.to_owned()) }
    }

    #[test]
    fn types_are_checked_and_created() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        assert!(check(&source(&file, "File")).is_err());
        check(&source(&file, "FileOrCreate")).unwrap();
        check(&source(&file, "File")).unwrap();
        let wrong = check(&source(&file, "Directory")).unwrap_err().to_string();
        assert_eq!(wrong, format!("hostPath type check failed: {} is not a directory", file.display()));
        check(&source(&dir.path().join("d/e"), "DirectoryOrCreate")).unwrap();
        assert!(dir.path().join("d/e").is_dir());
        assert!(check(&source(Path::new("/a/../b"), "")).is_err());
    }
}
