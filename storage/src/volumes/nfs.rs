//! `nfs`: a directory of an NFS server, mounted for each pod.
//!
//! By `mount.nfs` where the node has it, which knows every version and option; else by the kernel alone, which can NFSv4.

use super::host::{NfsMount, make_dir_all};
use super::{Mounted, Record, Request, Spec, VolumeError, VolumePlugin, blocking};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::NFSVolumeSource;
use nix::mount::MsFlags;
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Nfs;

const NAME: &str = "kubernetes.io/nfs";

fn source(spec: &Spec) -> Option<&NFSVolumeSource> {
    match spec.inline() {
        Some(volume) => volume.nfs.as_ref(),
        None => spec.persistent()?.nfs.as_ref(),
    }
}

#[async_trait]
impl VolumePlugin for Nfs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn supports(&self, spec: &Spec) -> bool {
        source(spec).is_some() && !spec.is_block()
    }

    async fn prepare(&self, request: &Request<'_>) -> Result<Option<Record>, VolumeError> {
        // Its mount lies in the pod's directory and goes with it; the record is for who measures claims.
        Ok(request.spec.claim().map(|_| Record {
            plugin: NAME.to_owned(),
            volume: String::new(),
            unique: format!("{NAME}/{}", request.spec.name),
            staged: false,
            attached: false,
            path: request.dir.clone(),
            claim: String::new(),
            data: serde_json::Value::Null,
        }))
    }

    async fn publish(&self, request: &Request<'_>, _: Option<&Record>) -> Result<Mounted, VolumeError> {
        let wanted = mount_of(request.spec);
        let read_only = wanted.read_only;
        let (host, dir) = (request.host.clone(), request.dir.clone());
        blocking(move || {
            make_dir_all(&dir, 0o750)?;
            if host.mounts()?.contains(&dir) { Ok(()) } else { host.mount_nfs(&wanted, &dir) }
        })
        .await?;
        Ok(Mounted { read_only, ..Mounted::at(&request.dir) })
    }
}

fn mount_of(spec: &Spec) -> NfsMount {
    let source = source(spec).cloned().unwrap_or_default();
    let options = spec.persistent().and_then(|volume| volume.mount_options.clone());
    NfsMount {
        server: source.server,
        path: source.path,
        options: options.unwrap_or_default(),
        read_only: source.read_only.unwrap_or(false) || spec.read_only,
    }
}

/// Where distributions put the helper; the kubelet's PATH says nothing of them.
const HELPERS: [&str; 4] = ["/sbin/mount.nfs", "/usr/sbin/mount.nfs", "/bin/mount.nfs", "/usr/bin/mount.nfs"];

/// Mounts for real. The helper itself gives up after two minutes, its default `retry`.
pub(super) fn mount(wanted: &NfsMount, target: &Path) -> Result<(), VolumeError> {
    let missing = |missing: &'static str| VolumeError::NfsMissing { share: wanted.share(), missing };
    if !kernel_has_client() {
        return Err(missing("the node's kernel has no NFS client, neither built in nor as a module"));
    }
    match HELPERS.iter().map(Path::new).find(|helper| helper.exists()) {
        Some(helper) => by_helper(helper, wanted, target),
        None if wants_old_version(&wanted.options) => {
            Err(missing("mount.nfs is not installed (nfs-common), and without it NFSv4 alone can be mounted"))
        }
        None => by_kernel(wanted, target),
    }
}

fn kernel_has_client() -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if known.lines().any(|line| matches!(line.split_whitespace().last(), Some("nfs" | "nfs4"))) {
        return true;
    }
    // The kernel loads it when it is asked for.
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    PathBuf::from("/lib/modules").join(release.trim()).join("kernel/fs/nfs").is_dir()
}

fn wants_old_version(options: &[String]) -> bool {
    let words = options.iter().flat_map(|option| option.split(','));
    words
        .filter_map(|word| word.split_once('='))
        .any(|(key, value)| matches!(key, "vers" | "nfsvers") && !value.starts_with('4'))
}

fn by_helper(helper: &Path, wanted: &NfsMount, target: &Path) -> Result<(), VolumeError> {
    let mut options = wanted.options.clone();
    options.extend(wanted.read_only.then(|| "ro".to_owned()));
    let mut command = Command::new(helper);
    command.arg(wanted.share()).arg(target);
    if !options.is_empty() {
        command.arg("-o").arg(options.join(","));
    }
    let ran = command.output().map_err(|error| VolumeError::io("run", helper, error))?;
    if ran.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    Err(VolumeError::MountCommand(format!("{}: {}", ran.status, said.trim())))
}

/// The kernel wants the server's address beside its name.
fn by_kernel(wanted: &NfsMount, target: &Path) -> Result<(), VolumeError> {
    let failed = |error| VolumeError::io("mount NFS at", target, error);
    let server = wanted.server.trim_matches(['[', ']']);
    let mut addresses = (server, NFS_PORT).to_socket_addrs().map_err(failed)?;
    let address = addresses.next().ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    let (flags, data) = kernel_options(wanted, address);
    nix::mount::mount(Some(wanted.share().as_str()), target, Some("nfs4"), flags, Some(data.as_str()))
        .map_err(|errno| failed(errno.into()))
}

const NFS_PORT: u16 = 2049;

/// Of the options those that are flags of mount(2), and the rest as text for the file system.
fn kernel_options(wanted: &NfsMount, address: SocketAddr) -> (MsFlags, String) {
    let mut flags = if wanted.read_only { MsFlags::MS_RDONLY } else { MsFlags::empty() };
    let mut data = Vec::new();
    for option in wanted.options.iter().flat_map(|option| option.split(',')) {
        match option {
            "ro" => flags |= MsFlags::MS_RDONLY,
            "nosuid" => flags |= MsFlags::MS_NOSUID,
            "nodev" => flags |= MsFlags::MS_NODEV,
            "noexec" => flags |= MsFlags::MS_NOEXEC,
            "noatime" => flags |= MsFlags::MS_NOATIME,
            "nodiratime" => flags |= MsFlags::MS_NODIRATIME,
            "relatime" => flags |= MsFlags::MS_RELATIME,
            "" | "rw" | "defaults" | "suid" | "dev" | "exec" | "atime" => {}
            other => data.push(other.replace("nfsvers=", "vers=")),
        }
    }
    if !data.iter().any(|option| option.starts_with("vers=")) {
        data.push("vers=4.2".to_owned());
    }
    data.push(format!("addr={}", address.ip()));
    data.push(format!("clientaddr={}", if address.is_ipv4() { "0.0.0.0" } else { "::" }));
    (flags, data.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(options: &[&str], read_only: bool) -> NfsMount {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        NfsMount { server: "nfs.example".to_owned(), path: "/exports".to_owned(), options, read_only }
    }

    #[test]
    fn the_kernel_is_told_flags_apart_from_options() {
        let address = "192.0.2.7:2049".parse().unwrap();
        let (flags, data) = kernel_options(&wanted(&["nfsvers=4.1,hard", "noatime"], true), address);
        assert_eq!(flags, MsFlags::MS_RDONLY | MsFlags::MS_NOATIME);
        assert_eq!(data, "vers=4.1,hard,addr=192.0.2.7,clientaddr=0.0.0.0");
        let (flags, data) = kernel_options(&wanted(&[], false), address);
        assert_eq!((flags, data.as_str()), (MsFlags::empty(), "vers=4.2,addr=192.0.2.7,clientaddr=0.0.0.0"));
    }

    #[test]
    fn old_versions_need_the_helper() {
        for (options, old) in
            [(&["vers=3"][..], true), (&["hard,nfsvers=3"], true), (&["vers=4.1"], false), (&[], false)]
        {
            assert_eq!(wants_old_version(&wanted(options, false).options), old, "{options:?}");
        }
    }

    #[test]
    fn an_address_of_version_6_stands_in_brackets() {
        let share = |server: &str| NfsMount { server: server.to_owned(), ..wanted(&[], false) }.share();
        assert_eq!((share("fd00::1").as_str(), share("h").as_str()), ("[fd00::1]:/exports", "h:/exports"));
    }
}
