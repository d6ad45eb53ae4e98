//! `coracle check`: what this machine lacks, and how to mend it.

use crate::args::CheckArgs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// One finding: what was looked for, and what to do when it is missing.
struct Finding {
    what: String,
    /// `None`: all is well.
    mend: Option<String>,
}

/// Prints every finding; the exit code is 0 when nothing is missing.
pub fn run(args: &CheckArgs) -> ExitCode {
    let findings = [
        root(),
        runtime(&args.container_runtime_endpoint),
        program("runc", "runc"),
        program("iptables-restore", "iptables"),
        program("conntrack", "conntrack"),
        cni_plugins(),
        cni_configuration(),
        forwarding(),
        cgroups(),
        driver(&args.container_runtime_endpoint),
    ];
    for finding in &findings {
        match &finding.mend {
            None => println!("ok       {}", finding.what),
            Some(mend) => println!("missing  {}\n         {mend}", finding.what),
        }
    }
    let missing = findings.iter().filter(|f| f.mend.is_some()).count();
    if missing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn finding(what: impl Into<String>, good: bool, mend: &str) -> Finding {
    Finding { what: what.into(), mend: (!good).then(|| mend.to_owned()) }
}

fn root() -> Finding {
    finding(
        "root, for the kubelet and the proxy",
        nix::unistd::geteuid().is_root(),
        "run as root, or with --disable kubelet,proxy,dns",
    )
}

fn runtime(endpoint: &str) -> Finding {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    let answers = std::os::unix::net::UnixStream::connect(path);
    let mend = match &answers {
        Ok(_) => String::new(),
        Err(e) => format!("{e}: apt-get install containerd and start it, or name its socket"),
    };
    finding(format!("container runtime at {endpoint}"), answers.is_ok(), &mend)
}

fn program(name: &str, package: &str) -> Finding {
    finding(format!("program {name}"), find_program(name).is_some(), &format!("apt-get install {package}"))
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into());
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn cni_plugins() -> Finding {
    let found = ["/opt/cni/bin", "/usr/lib/cni"].iter().find(|dir| Path::new(dir).join("bridge").is_file());
    finding(
        "CNI plugins (bridge, host-local, portmap, loopback)",
        found.is_some(),
        "apt-get install containernetworking-plugins",
    )
}

fn cni_configuration() -> Finding {
    let configured = std::fs::read_dir("/etc/cni/net.d").is_ok_and(|dir| {
        dir.filter_map(Result::ok)
            .any(|f| f.path().extension().is_some_and(|e| e == "conflist" || e == "conf"))
    });
    finding("a CNI configuration in /etc/cni/net.d", configured, "scripts/up writes one")
}

fn forwarding() -> Finding {
    let on = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").is_ok_and(|v| v.trim() == "1");
    finding("IPv4 forwarding", on, "sysctl -w net.ipv4.ip_forward=1")
}

fn cgroups() -> Finding {
    let v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").is_file();
    let v1 = Path::new("/sys/fs/cgroup/memory").is_dir() && Path::new("/sys/fs/cgroup/cpu").exists();
    finding("cgroups with cpu and memory", v1 || v2, "mount cgroup2 at /sys/fs/cgroup")
}

/// Runtimes that do not say how they make cgroups are told by the kubelet, which takes cgroupfs: then theirs must be that.
fn driver(endpoint: &str) -> Finding {
    let asked = tokio::runtime::Builder::new_current_thread().enable_all().build().map(|runtime| {
        runtime.block_on(async {
            let client = coracle_kubelet::cri::CriClient::new(endpoint);
            let limit = std::time::Duration::from_secs(3);
            tokio::time::timeout(limit, coracle_kubelet::cri::Runtime::cgroup_driver(&client)).await
        })
    });
    let says = asked.ok().and_then(Result::ok).and_then(Result::ok).flatten();
    match says {
        Some(driver) => finding(format!("cgroup driver {driver:?}, as the runtime says"), true, ""),
        None => finding(
            "cgroup driver: the runtime does not say, and cgroupfs is taken",
            !configured_for_systemd(Path::new(CONTAINERD_CONFIG)),
            "containerd is set to SystemdCgroup = true: give the kubelet --cgroup-driver systemd, or set it to false",
        ),
    }
}

const CONTAINERD_CONFIG: &str = "/etc/containerd/config.toml";

fn configured_for_systemd(config: &Path) -> bool {
    let text = std::fs::read_to_string(config).unwrap_or_default();
    text.lines().any(|line| {
        line.split('#').next().unwrap_or_default().replace(' ', "").contains("SystemdCgroup=true")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerds_driver_is_read() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("config.toml");
        for (text, systemd) in
            [("  SystemdCgroup = true\n", true), ("# SystemdCgroup = true\nSystemdCgroup = false\n", false)]
        {
            std::fs::write(&path, text).expect("written");
            assert_eq!(configured_for_systemd(&path), systemd, "{text}");
        }
        assert!(!configured_for_systemd(&dir.path().join("none.toml")));
    }
}
