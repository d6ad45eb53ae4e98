//! Who may do it, the container runtime, and the programs that a node runs.

use super::machine::Machine;
use super::step::{Step, is_cri_off};
use super::{Finding, Remedy};
use coracle_kubelet::cri::{CriClient, Runtime};
use std::path::Path;
use std::time::Duration;

const CONTAINERD_CONFIG: &str = "/etc/containerd/config.toml";
/// A runtime that answers at all answers within milliseconds.
const WAIT_TIMEOUT: Duration = Duration::from_secs(3);

pub fn look(machine: &Machine, endpoint: &str) -> Vec<Finding> {
    vec![
        root(),
        runtime(machine, endpoint),
        program(machine, "runc", "runc"),
        program(machine, "iptables-restore", "iptables"),
        program(machine, "conntrack", "conntrack"),
        cni_plugins(machine),
        cni_configuration(machine),
        driver(machine, endpoint),
    ]
}

fn root() -> Finding {
    Finding::missing_unless(nix::unistd::geteuid().is_root(), "root, for the kubelet and the proxy", || {
        Remedy::by_hand("run as root, or with --disable kubelet,proxy,dns")
    })
}

/// Asks the runtime something; `None` if it does not answer at all.
fn ask<T>(
    endpoint: &str,
    question: impl AsyncFnOnce(&CriClient) -> Result<T, coracle_kubelet::cri::RuntimeError>,
) -> Option<Result<T, String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async {
        let client = CriClient::new(endpoint);
        let answer = tokio::time::timeout(WAIT_TIMEOUT, question(&client)).await.ok()?;
        Some(answer.map_err(|error| coracle_api::error::chain(&error)))
    })
}

fn runtime(machine: &Machine, endpoint: &str) -> Finding {
    let what = format!("container runtime at {endpoint}");
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    if let Err(error) = std::os::unix::net::UnixStream::connect(path) {
        let restart = Step::Run(&["systemctl", "enable", "--now", "containerd"]);
        let steps = if machine.find("containerd").is_some() {
            machine.find("systemctl").map(|_| restart).into_iter().collect()
        } else {
            vec![Step::Install("containerd")]
        };
        return Finding::missing_unless(false, what, || {
            Remedy::by(format!("{error}: apt-get install containerd and start it, or name its socket"), steps)
        });
    }
    let asked = ask(endpoint, async |client| client.version().await);
    if matches!(asked, Some(Ok(_))) {
        return Finding::good(what);
    }
    let why = asked.and_then(Result::err).unwrap_or_else(|| "no answer".to_owned());
    let remedy = || {
        if is_cri_off(&machine.text(CONTAINERD_CONFIG)) {
            let say =
                "turns its plugin for Kubernetes off: take \"cri\" out of disabled_plugins and restart it";
            let restart = Step::Run(&["systemctl", "restart", "containerd"]);
            return Remedy::by(
                format!("{CONTAINERD_CONFIG} {say}"),
                [Step::EnableCri(CONTAINERD_CONFIG), restart],
            );
        }
        Remedy::by_hand(format!("it does not speak CRI ({why}): is it the runtime's socket?"))
    };
    Finding::missing_unless(false, what, remedy)
}

fn program(machine: &Machine, name: &str, package: &'static str) -> Finding {
    Finding::missing_unless(machine.find(name).is_some(), format!("program {name}"), || {
        Remedy::by(format!("apt-get install {package}"), [Step::Install(package)])
    })
}

fn cni_plugins(machine: &Machine) -> Finding {
    let found = ["/opt/cni/bin", "/usr/lib/cni"].iter().any(|dir| machine.has(Path::new(dir).join("bridge")));
    Finding::missing_unless(found, "CNI plugins (bridge, host-local, portmap, loopback)", || {
        let package = "containernetworking-plugins";
        Remedy::by(format!("apt-get install {package}"), [Step::Install(package)])
    })
}

fn cni_configuration(machine: &Machine) -> Finding {
    Finding::missing_unless(
        !configurations(machine).is_empty(),
        "a CNI configuration in /etc/cni/net.d",
        || {
            Remedy::by_hand(
                "scripts/up (coracle-up of the package) writes one; a joining machine writes its own",
            )
        },
    )
}

/// The texts of the pod network's configuration.
pub fn configurations(machine: &Machine) -> Vec<String> {
    let entries = std::fs::read_dir(machine.at("/etc/cni/net.d")).into_iter().flatten().flatten();
    let named = entries.map(|entry| entry.path());
    named
        .filter(|path| path.extension().is_some_and(|e| e == "conflist" || e == "conf"))
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .collect()
}

/// Runtimes that do not say how they make cgroups are told by the kubelet, which takes cgroupfs: then theirs must be that.
fn driver(machine: &Machine, endpoint: &str) -> Finding {
    let asked = ask(endpoint, async |client| client.cgroup_driver().await);
    match asked.and_then(Result::ok).flatten() {
        Some(driver) => Finding::good(format!("cgroup driver {driver:?}, as the runtime says")),
        None => Finding::missing_unless(
            !configured_for_systemd(&machine.text(CONTAINERD_CONFIG)),
            "cgroup driver: the runtime does not say, and cgroupfs is taken",
            || {
                Remedy::by_hand(
                    "containerd is set to SystemdCgroup = true: give the kubelet --cgroup-driver systemd, or set it to false",
                )
            },
        ),
    }
}

fn configured_for_systemd(config: &str) -> bool {
    config.lines().any(|line| {
        line.split('#').next().unwrap_or_default().replace(' ', "").contains("SystemdCgroup=true")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerds_driver_is_read() {
        assert!(configured_for_systemd("  SystemdCgroup = true\n"));
        assert!(!configured_for_systemd("# SystemdCgroup = true\nSystemdCgroup = false\n"));
        assert!(!configured_for_systemd(""));
    }
}
