//! What the kernel was built with, started with and set to.

use super::machine::{Machine, setting};
use super::programs::configurations;
use super::step::Step;
use super::{Finding, Remedy};

pub fn look(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![
        forwarding(machine),
        cgroups(machine),
        module("overlay", "file system overlay", listed(machine, "overlay")),
        module("nf_conntrack", "connection tracking", machine.has(setting("net.netfilter.nf_conntrack_max"))),
    ];
    findings.extend(bridges(machine));
    findings.push(at_least(machine, "fs.inotify.max_user_instances", 512, "512"));
    findings.push(at_least(machine, "fs.inotify.max_user_watches", 65_536, "524288"));
    findings
}

fn is_on(machine: &Machine, key: &str) -> bool {
    machine.text(setting(key)).trim() == "1"
}

fn forwarding(machine: &Machine) -> Finding {
    let key = "net.ipv4.ip_forward";
    Finding::missing_unless(is_on(machine, key), "IPv4 forwarding", || {
        Remedy::by(format!("sysctl -w {key}=1"), [Step::Set(key, "1")])
    })
}

/// Each container, and each program that follows files, needs instances of inotify(7); Debian's 128 are used up by some
/// dozens of pods of one user, and what they say then is "too many open files".
fn at_least(machine: &Machine, key: &'static str, least: u64, wanted: &'static str) -> Finding {
    let now: u64 = machine.text(setting(key)).trim().parse().unwrap_or(0);
    Finding::poor_unless(now >= least, format!("{key}: {now}, {least} or more is better"), || {
        Remedy::by(format!("sysctl -w {key}={wanted}"), [Step::Set(key, wanted)])
    })
}

fn listed(machine: &Machine, filesystem: &str) -> bool {
    machine.text("/proc/filesystems").lines().any(|line| line.split_whitespace().last() == Some(filesystem))
}

fn module(name: &'static str, what: &str, there: bool) -> Finding {
    Finding::missing_unless(there, format!("{what} (module {name})"), || {
        Remedy::by(format!("modprobe {name}"), [Step::Load(name)])
    })
}

/// Where pods hang on a bridge, traffic between them must meet the packet filter.
fn bridges(machine: &Machine) -> Option<Finding> {
    let bridged =
        configurations(machine).iter().any(|text| text.replace(' ', "").contains("\"type\":\"bridge\""));
    let key = "net.bridge.bridge-nf-call-iptables";
    bridged.then(|| {
        Finding::missing_unless(is_on(machine, key), "packets on bridges seen by the packet filter", || {
            Remedy::by(
                format!("modprobe br_netfilter, sysctl -w {key}=1"),
                [Step::Load("br_netfilter"), Step::Set(key, "1")],
            )
        })
    })
}

/// Where Raspberry Pi OS has the kernel's command line: since Debian 12, and before.
const COMMAND_LINES: [&str; 2] = ["/boot/firmware/cmdline.txt", "/boot/cmdline.txt"];
const MEMORY: &[&str] = &["cgroup_enable=memory", "cgroup_memory=1"];

fn cgroups(machine: &Machine) -> Finding {
    let unified = machine.text("/sys/fs/cgroup/cgroup.controllers");
    let lacking: Vec<&str> = ["cpu", "memory", "pids"]
        .into_iter()
        .filter(|name| {
            let of_v1 = machine.has(format!("/sys/fs/cgroup/{name}"));
            !of_v1 && !unified.split_whitespace().any(|known| known == *name)
        })
        .collect();
    if lacking.is_empty() {
        return Finding::good("cgroups with cpu, memory and pids");
    }
    let what = format!("cgroups with cpu, memory and pids: {} is not there", lacking.join(", "));
    Finding::missing_unless(false, what, || without(machine, &lacking))
}

fn without(machine: &Machine, lacking: &[&str]) -> Remedy {
    if lacking != ["memory"] {
        return Remedy::by_hand("mount cgroup2 at /sys/fs/cgroup; the kernel must be built with these");
    }
    match COMMAND_LINES.into_iter().find(|path| machine.has(path)) {
        Some(file) if MEMORY.iter().all(|word| machine.text(file).split_whitespace().any(|w| w == *word)) => {
            Remedy::by_hand(format!("{file} asks for it: start the machine anew"))
        }
        Some(file) => Remedy::by(
            format!("put {} behind the line of {file} and start the machine anew", MEMORY.join(" ")),
            [Step::AtBoot { file, words: MEMORY }],
        ),
        None => Remedy::by_hand(format!(
            "start the kernel with {}: GRUB_CMDLINE_LINUX in /etc/default/grub, update-grub",
            MEMORY.join(" ")
        )),
    }
}
