//! Findings of machines made of files, and what their mending leaves there.

use super::machine::Machine;
use super::step::{FSTAB, MODULES, SETTINGS};
use super::*;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path.trim_start_matches('/'));
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    std::fs::write(path, text).expect("written");
}

/// A program that does this.
fn program(root: &Path, name: &str, script: &str) {
    put(root, &format!("bin/{name}"), &format!("#!/bin/sh\n{script}\n"));
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(root.join("bin").join(name), mode).expect("may be run");
}

/// A Raspberry Pi as its system comes: no memory cgroup, few instances, swap in a file, containerd of Docker's package.
fn fresh_pi(root: &Path) {
    put(root, "/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io pids\n");
    put(root, "/boot/firmware/cmdline.txt", "console=tty1 root=PARTUUID=1-02 cgroup_disable=memory\n");
    put(root, "/proc/filesystems", "nodev\tproc\n\text4\n");
    put(root, "/proc/sys/net/ipv4/ip_forward", "0\n");
    put(root, "/proc/sys/fs/inotify/max_user_instances", "128\n");
    put(root, "/proc/sys/fs/inotify/max_user_watches", "524288\n");
    put(
        root,
        "/proc/swaps",
        "Filename Type Size Used Priority\n/swapfile file 1 0 -2\n/dev/zram0 partition 1 0 100\n",
    );
    put(root, FSTAB, "UUID=1 / ext4 defaults 0 1\n/swapfile none swap sw 0 0\n");
    put(root, "/proc/sys/net/bridge/bridge-nf-call-iptables", "0\n");
    put(root, "/etc/cni/net.d/10-x.conflist", "{\"plugins\": [{ \"type\": \"bridge\" }]}");
    put(root, SETTINGS, "net.ipv4.ip_forward = 0\nvm.swappiness = 1\n");
    let log = root.join("log").display().to_string();
    for name in ["modprobe", "swapoff"] {
        program(root, name, &format!("echo {name} \"$@\" >>{log}"));
    }
}

fn lacking(findings: &[Finding]) -> Vec<&str> {
    findings
        .iter()
        .filter(|finding| finding.remedy().is_some())
        .map(|finding| finding.what.as_str())
        .collect()
}

#[test]
fn a_fresh_raspberry_pi_is_mended() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (root, machine) = (dir.path(), Machine::below(dir.path()));
    fresh_pi(root);
    let look = || {
        let mut findings = kernel::look(&machine);
        findings.extend(resources::look(&machine, Path::new("/var/lib/coracle")));
        findings.retain(|finding| !finding.what.starts_with("disk") && !finding.what.starts_with("the node"));
        findings
    };
    let before = look();
    assert_eq!(
        lacking(&before),
        [
            "IPv4 forwarding",
            "cgroups with cpu, memory and pids: memory is not there",
            "file system overlay (module overlay)",
            "connection tracking (module nf_conntrack)",
            "packets on bridges seen by the packet filter",
            "fs.inotify.max_user_instances: 128, 512 or more is better",
            "no swap on a disk: /swapfile",
        ]
    );
    assert!(before.iter().filter_map(Finding::remedy).all(|remedy| !remedy.steps.is_empty()), "{before:?}");
    mend(&machine, &before);
    mend(&machine, &before);
    assert_eq!(
        machine.text("/boot/firmware/cmdline.txt"),
        "console=tty1 root=PARTUUID=1-02 cgroup_enable=memory cgroup_memory=1\n"
    );
    assert_eq!(
        machine.text("/boot/firmware/cmdline.before-coracle"),
        "console=tty1 root=PARTUUID=1-02 cgroup_disable=memory\n"
    );
    assert_eq!(
        machine.text(SETTINGS),
        "vm.swappiness = 1\nnet.ipv4.ip_forward = 1\nnet.bridge.bridge-nf-call-iptables = 1\nfs.inotify.max_user_instances = 512\n"
    );
    assert_eq!(machine.text(MODULES), "overlay\nnf_conntrack\nbr_netfilter\n");
    assert_eq!(machine.text(FSTAB), "UUID=1 / ext4 defaults 0 1\n# /swapfile none swap sw 0 0\n");
    let done = machine.text("/log");
    assert!(
        done.starts_with(
            "modprobe overlay\nmodprobe nf_conntrack\nmodprobe br_netfilter\nswapoff /swapfile\n"
        ),
        "{done}"
    );
    // What only the kernel itself can say is still so here; the memory waits for the next start.
    let after = look();
    assert!(!lacking(&after).contains(&"IPv4 forwarding"), "{after:?}");
    let memory = after.iter().find(|finding| finding.what.starts_with("cgroups")).and_then(Finding::remedy);
    assert_eq!(
        memory.map(|m| m.say.as_str()),
        Some("/boot/firmware/cmdline.txt asks for it: start the machine anew")
    );
}

#[test]
fn a_step_that_fails_is_told_and_leaves_out_the_rest() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let machine = Machine::below(dir.path());
    fresh_pi(dir.path());
    program(dir.path(), "modprobe", "echo no such module >&2; exit 1");
    let why = Step::Load("overlay").take(&machine).expect_err("refused");
    assert_eq!(why, "modprobe overlay: no such module");
    assert!(!machine.has(MODULES), "what does not load is not asked for at the next start");
    let why = Step::Install("runc").take(&machine).expect_err("no apt-get");
    assert_eq!(why, "there is no program apt-get");
    assert!(Step::Set("net.ipv6.none", "1").take(&machine).is_err());
    assert!(!machine.text(SETTINGS).contains("net.ipv6.none"));
}

#[test]
fn two_packet_filters_are_one_too_many() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let machine = Machine::below(dir.path());
    assert_eq!(filters::look(&machine), None, "no iptables: that is told already");
    program(dir.path(), "iptables", "echo 'iptables v1.8.9 (nf_tables)'");
    assert!(filters::look(&machine).is_some_and(|finding| finding.remedy().is_none()));
    put(dir.path(), "/proc/net/ip_tables_names", "nat\n");
    put(
        dir.path(),
        "/rules",
        "*nat\n:KUBE-X - [0:0]\n-A PREROUTING -j KUBE-X\n-A POSTROUTING -j CNI-1\nCOMMIT\n",
    );
    program(dir.path(), "iptables-legacy-save", &format!("/bin/cat {}/rules", dir.path().display()));
    program(
        dir.path(),
        "iptables-legacy-restore",
        &format!("/bin/cat >{}/rules.new && /bin/mv {0}/rules.new {0}/rules", dir.path().display()),
    );
    let mixed: Vec<Finding> = filters::look(&machine).into_iter().collect();
    assert_eq!(
        lacking(&mixed),
        ["one packet filter: iptables writes nftables, and iptables-legacy has 2 rules"]
    );
    mend(&machine, &mixed);
    assert!(filters::look(&machine).is_some_and(|finding| finding.remedy().is_none()));
    assert!(machine.text("/var/backups/iptables-legacy.rules").contains("KUBE-X"));
}
