//! What a process of ours may still do as root.

use coracle_tests::{Cluster, binary, wait_for};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// SYS_ADMIN, CHOWN, FOWNER, FSETID, DAC_OVERRIDE, NET_ADMIN, NET_BIND_SERVICE, NET_RAW and SYS_RESOURCE (capabilities(7)).
const OF_A_NODE: u64 = 1 << 21 | 1 | 1 << 3 | 1 << 4 | 1 << 1 | 1 << 10 | 1 << 12 | 1 << 13 | 1 << 24;

/// Permitted, effective and bounding capabilities of every thread, and whether it may gain any.
fn threads(pid: u32) -> Vec<([u64; 3], bool)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let mut all = Vec::new();
    for task in tasks.flatten() {
        let Ok(status) = std::fs::read_to_string(task.path().join("status")) else { continue };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field of proc(5)");
            u64::from_str_radix(line.trim_start_matches(':').trim(), 16).expect("hexadecimal")
        };
        all.push((["CapPrm", "CapEff", "CapBnd"].map(field), field("NoNewPrivs") == 1));
    }
    all
}

fn own() -> u64 {
    threads(std::process::id())[0].0[1]
}

/// Whether every thread keeps these capabilities and no others; whoever runs the tests may have fewer.
fn keeps(pid: u32, kept: u64) -> Result<(), String> {
    let (all, own) = (threads(pid), own());
    let right = |(sets, no_more): &([u64; 3], bool)| {
        sets[..2] == [kept & own; 2] && sets[2] & own & !kept == 0 && *no_more
    };
    if all.len() > 1 && all.iter().all(right) { Ok(()) } else { Err(format!("{all:x?}")) }
}

#[test]
fn a_server_without_kubelet_and_proxy_keeps_no_capability() {
    let cluster = Cluster::start(&["--disable", "kubelet,proxy,network,dns"]);
    assert_eq!(keeps(cluster.pid(), 0), Ok(()));
    // Under the number that it was started with, and by the name.
    let arguments = std::fs::read(format!("/proc/{}/cmdline", cluster.pid())).expect("it runs");
    assert!(String::from_utf8_lossy(&arguments).contains("coracle\0server\0"));
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server never answers the agent, which waits, with what it may do.
#[test]
fn a_node_keeps_what_mounts_and_packet_rules_take() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let server = format!("https://{}", silent.local_addr().expect("an address"));
    let agent = Command::new(binary::coracle())
        .args(["agent", "--server", &server, "--node-name", "two", "--data-dir"])
        .arg(dir.path())
        .args(["--cni-conf-dir"])
        .arg(dir.path())
        .env("CORACLE_TOKEN", "abcdef.0123456789abcdef")
        .stderr(Stdio::null())
        .spawn()
        .expect("the agent starts");
    let agent = Killed(agent);
    // It runs itself again without them first.
    wait_for("the agent's threads", Duration::from_secs(60), || keeps(agent.0.id(), OF_A_NODE));
}
