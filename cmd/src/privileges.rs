//! What root may do is more than a node needs: everything else is given up before anything else begins
//! (capabilities(7), prctl(2) PR_SET_NO_NEW_PRIVS). Programs that are started (iptables, ip, conntrack, ctr) inherit what
//! is left. Containers are the runtime's, which is a process of its own.

use crate::config::{Component, Config};
use rustix::thread::CapabilitySet;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// What the kubelet, the proxy and the pod network need, and what for.
const OF_A_NODE: &[(CapabilitySet, &str)] = &[
    (CapabilitySet::SYS_ADMIN, "mounts and unmounts volumes"),
    (CapabilitySet::CHOWN, "gives volumes to fsGroup"),
    (CapabilitySet::FOWNER, "changes modes in volumes that belong to containers' users"),
    (CapabilitySet::FSETID, "keeps the set-group-ID bit of volumes' directories"),
    (CapabilitySet::DAC_OVERRIDE, "clears away what containers' users left, and reads their logs"),
    (CapabilitySet::NET_ADMIN, "writes packet rules and routes, forgets flows"),
    (CapabilitySet::NET_RAW, "iptables speaks to the kernel by a raw socket, where it is not nftables'"),
    (CapabilitySet::NET_BIND_SERVICE, "answers at Services' own ports in the proxy's mode userspace"),
    (CapabilitySet::SYS_RESOURCE, "raises limits of open files"),
];
/// Ports below are the kernel's to give: net.ipv4.ip_unprivileged_port_start as it comes.
const FIRST_FREE_PORT: u16 = 1024;

#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    #[error("no_new_privs")]
    NoNewPrivileges(#[source] rustix::io::Errno),
    #[error("capabilities could not be read")]
    Read(#[source] rustix::io::Errno),
    #[error("capabilities could not be given up")]
    Set(#[source] rustix::io::Errno),
    #[error("/proc/self/exe could not be run again without them")]
    Exec(#[source] std::io::Error),
}

/// A server's: none without kubelet and proxy, but for a port below 1024 and a data directory that is another user's.
pub fn of_server(config: &Config) -> CapabilitySet {
    let mut kept = CapabilitySet::empty();
    let on_machine = [Component::Kubelet, Component::Proxy, Component::Network];
    if on_machine.iter().any(|component| config.runs(*component)) {
        kept |= of_node();
    }
    if (1..FIRST_FREE_PORT).contains(&config.https_port) {
        kept |= CapabilitySet::NET_BIND_SERVICE;
    }
    let written = [Some(config.data_dir.as_path()), config.kubeconfig.parent()];
    if written.into_iter().flatten().any(is_anothers) {
        kept |= CapabilitySet::DAC_OVERRIDE;
    }
    kept
}

pub fn of_node() -> CapabilitySet {
    OF_A_NODE.iter().map(|(capability, _)| *capability).collect()
}

/// Whether the directory, or the nearest one above that is there, belongs to somebody else.
fn is_anothers(path: &Path) -> bool {
    let there = path.ancestors().find_map(|dir| std::fs::metadata(dir).ok());
    there.is_some_and(|dir| dir.uid() != nix::unistd::geteuid().as_raw())
}

/// Gives up all capabilities but `kept`, for this process and whatever it starts. Must be called before any thread is
/// started: where there are some already (the allocator's), the program is run again from its beginning, which keeps the
/// process number, and finds nothing left to give up.
pub fn keep_only(kept: CapabilitySet) -> Result<(), PrivilegeError> {
    rustix::thread::set_no_new_privs(true).map_err(PrivilegeError::NoNewPrivileges)?;
    let mut sets = rustix::thread::capabilities(None).map_err(PrivilegeError::Read)?;
    if kept.contains(sets.permitted) {
        return Ok(());
    }
    // May be refused in a container; no program gets anything new, so it is a second bolt.
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if !kept.contains(one) && rustix::thread::capability_is_in_bounding_set(one) == Ok(true) {
            let _ = rustix::thread::remove_capability_from_bounding_set(one);
        }
    }
    sets.permitted &= kept;
    sets.effective = sets.permitted;
    sets.inheritable = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, sets).map_err(PrivilegeError::Set)?;
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads == 1 {
        return Ok(());
    }
    let mut arguments = std::env::args_os();
    let mut again = Command::new("/proc/self/exe");
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    Err(PrivilegeError::Exec(again.args(arguments).exec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_keeps_nine_and_none_that_reaches_beyond_it() {
        let kept = of_node();
        assert_eq!(kept.bits().count_ones(), 9);
        for given_up in [
            CapabilitySet::SYS_MODULE,
            CapabilitySet::SYS_BOOT,
            CapabilitySet::SYS_TIME,
            CapabilitySet::SYS_RAWIO,
            CapabilitySet::SYS_PTRACE,
            CapabilitySet::MAC_ADMIN,
            CapabilitySet::MAC_OVERRIDE,
            CapabilitySet::SETUID,
            CapabilitySet::SETFCAP,
            CapabilitySet::BPF,
        ] {
            assert!(!kept.intersects(given_up), "{given_up:?}");
        }
    }

    #[test]
    fn a_directory_that_is_not_there_is_judged_by_the_one_above() {
        let dir = tempfile::tempdir().expect("temporary directory");
        assert!(!is_anothers(&dir.path().join("a/b")));
    }
}
