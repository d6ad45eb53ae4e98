//! What keeps a server from starting: one clear line for each mistake, exit code 1, nothing left behind.

use coracle_tests::cluster::free_port;
use coracle_tests::{Cluster, Output, Shell, skipped};
use tempfile::TempDir;

const DISABLED: &str = "--bind-address 127.0.0.1 --node-ip 127.0.0.1 --disable kubelet,proxy,dns";

fn terminal() -> (TempDir, Shell) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let shell = Shell::new(dir.path(), &dir.path().join("kubeconfig"));
    (dir, shell)
}

/// The server ended with code 1 and these lines, each beginning like this.
#[track_caller]
fn assert_refused(output: &Output, beginnings: &[&str]) {
    assert_eq!(output.code, 1, "{output}");
    let lines: Vec<&str> = output.stderr.lines().collect();
    assert_eq!(lines.len(), beginnings.len(), "{output}");
    for beginning in beginnings {
        assert!(
            lines.iter().any(|line| line.starts_with(beginning)),
            "no line begins with {beginning:?}\n{output}"
        );
    }
}

#[test]
fn all_mistakes_are_named_at_once() {
    let (dir, shell) = terminal();
    let output = shell.run(
        "timeout 20 coracle server --data-dir ./d --disable kublet,prox --storage-backend redis --cluster-cidr 10.42 --service-cidr x \
         --node-name Node_1 --simulate-nodes 4000000000",
    );
    assert_refused(
        &output,
        &[
            "coracle: simulate-nodes: 4000000000 is more than ",
            "coracle: node-name: \"Node_1\" ",
            "coracle: disable: unknown component \"kublet\"",
            "coracle: disable: unknown component \"prox\"",
            "coracle: storage-backend: unknown \"redis\"",
            "coracle: cluster-cidr: \"10.42\" is no CIDR",
            "coracle: service-cidr: \"x\" is no CIDR",
        ],
    );
    assert!(!dir.path().join("d").exists(), "nothing is written before the settings are known to be good");
}

#[test]
fn unknown_flags_and_settings() {
    let (dir, shell) = terminal();
    let flag = shell.run("timeout 20 coracle server --data-dirr ./d");
    assert_eq!(flag.code, 2, "{flag}");
    assert!(
        flag.stderr.contains("unexpected argument '--data-dirr'") && flag.stderr.contains("--data-dir"),
        "{flag}"
    );
    let value = shell.run("timeout 20 coracle server --https-port many");
    assert_eq!(value.code, 2, "{value}");
    assert!(value.stderr.contains("invalid value 'many' for '--https-port <PORT>'"), "{value}");
    std::fs::write(dir.path().join("config.yaml"), "dataDir: ./d\nhttpPort: 1\n").expect("configuration");
    let output = shell.run("timeout 20 coracle server --config config.yaml");
    assert_eq!(output.code, 1, "{output}");
    assert!(output.stderr.contains("config.yaml") && output.stderr.contains("httpPort"), "{output}");
    let missing = shell.run("timeout 20 coracle server --config ./none.yaml");
    assert_refused(&missing, &["coracle: ./none.yaml: No such file or directory"]);
    assert!(!dir.path().join("d").exists());
}

#[test]
fn the_port_is_taken() {
    let (dir, shell) = terminal();
    let port = free_port();
    let _taken = std::net::TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    let output =
        shell.run(&format!("timeout 20 coracle server --data-dir ./d --https-port {port} {DISABLED}"));
    assert_refused(&output, &[&format!("coracle: listen on 127.0.0.1:{port}: Address already in use")]);
    assert!(!dir.path().join("kubeconfig").exists());
}

#[test]
fn the_data_directory_belongs_to_another_server() {
    let cluster = Cluster::start(&[]);
    cluster.ok("kubectl create configmap before");
    let line = format!(
        "timeout 20 coracle server --data-dir {} --https-port {} {DISABLED} --write-kubeconfig ./other",
        cluster.data_dir().display(),
        free_port()
    );
    let output = cluster.run(&line);
    assert_eq!(output.code, 1, "{output}");
    assert_eq!(output.stderr.lines().count(), 1, "{output}");
    assert!(output.stderr.contains("in use") || output.stderr.contains("another"), "{output}");
    assert!(!cluster.home().join("other").exists(), "the second server writes nothing");
    cluster.assert_alive();
    cluster.ok("kubectl get configmap before && kubectl create configmap after");
}

#[test]
fn the_data_directory_cannot_be_written() {
    let (dir, shell) = terminal();
    std::fs::write(dir.path().join("file"), "not a directory").expect("file");
    let output = shell
        .run(&format!("timeout 20 coracle server --data-dir ./file --https-port {} {DISABLED}", free_port()));
    assert_refused(&output, &["coracle: "]);
    assert!(output.stderr.contains("file"), "the message names the path\n{output}");
    let proc = shell.run(&format!(
        "timeout 20 coracle server --data-dir /proc/coracle --https-port {} {DISABLED}",
        free_port()
    ));
    assert_refused(&proc, &["coracle: "]);
    assert!(proc.stderr.contains("/proc/coracle"), "the message names the path\n{proc}");
}

#[test]
fn the_data_directory_is_read_only_for_this_user() {
    if !nix::unistd::geteuid().is_root() {
        return skipped("needs root, to become somebody else");
    }
    let (dir, shell) = terminal();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    std::fs::copy(coracle_tests::coracle(), dir.path().join("c")).expect("a copy that anybody may run");
    let line = format!(
        "timeout 20 setpriv --reuid 65534 --regid 65534 --clear-groups ./c server --data-dir ./d --https-port {} {DISABLED}",
        free_port()
    );
    let output = shell.run(&line);
    assert_refused(&output, &["coracle: "]);
    assert!(output.stderr.contains("Permission denied") && output.stderr.contains("./d"), "{output}");
}

#[test]
fn a_damaged_key_is_named() {
    let mut cluster = Cluster::start(&[]);
    assert_eq!(cluster.terminate(), 0);
    std::fs::write(cluster.data_dir().join("pki/sa.key"), "rubbish").expect("damage");
    let line = format!(
        "timeout 20 coracle server --data-dir {} --https-port {} {DISABLED}",
        cluster.data_dir().display(),
        free_port()
    );
    let output = cluster.run(&line);
    assert_refused(&output, &["coracle: "]);
    assert!(output.stderr.contains("sa.key"), "{output}");
}

#[test]
fn check_says_what_is_missing_and_how_to_mend_it() {
    let (_dir, shell) = terminal();
    let output = shell.run("coracle check --container-runtime-endpoint unix:///nowhere.sock");
    assert_eq!(output.code, 1, "{output}");
    let mut lines = output.stdout.lines();
    assert!(lines.any(|l| l == "missing  container runtime at unix:///nowhere.sock"), "{output}");
    assert!(lines.next().is_some_and(|l| l.contains("containerd")), "{output}");
}
