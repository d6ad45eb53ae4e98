//! `coracle ci -- CMD`.

use coracle_tests::{Shell, skipped, wait_for};
use nix::sys::signal::Signal;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

fn terminal() -> (TempDir, Shell) {
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::create_dir(dir.path().join("tmp")).expect("a directory for temporary files");
    let shell = Shell::new(dir.path(), Path::new("/nonexistent"));
    (dir, shell)
}

#[track_caller]
fn assert_nothing_left(dir: &TempDir) {
    let left: Vec<_> = std::fs::read_dir(dir.path().join("tmp"))
        .expect("tmp")
        .map(|f| f.expect("entry").file_name())
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn its_exit_code_is_the_commands() {
    let (dir, shell) = terminal();
    for (command, code) in [("true", 0), ("false", 1), ("sh -c 'exit 42'", 42), ("sh -c 'kill -9 $$'", 137)] {
        let output = shell.run(&format!("TMPDIR=$PWD/tmp coracle ci -- {command}"));
        assert_eq!(
            (output.code, output.stdout.as_str(), output.stderr.as_str()),
            (code, "", ""),
            "{command}"
        );
        assert_nothing_left(&dir);
    }
    // As env(1) and docker: no such command, one that cannot be run.
    for (command, code, why) in [
        ("no-such-command", 127, "No such file or directory (os error 2)"),
        ("./no/such/command", 127, "No such file or directory (os error 2)"),
        ("/", 126, "Permission denied (os error 13)"),
        ("./tmp", 126, "Permission denied (os error 13)"),
    ] {
        let output = shell.run(&format!("TMPDIR=$PWD/tmp coracle ci -- {command}"));
        assert_eq!(output.code, code, "{output}");
        assert_eq!(output.stderr.trim(), format!("coracle ci: {command}: {why}"));
        let env = shell.run(&format!("env -- {command}"));
        assert_eq!(env.code, code, "env(1): {env}");
    }
    assert_eq!(shell.run("TMPDIR=$PWD/tmp coracle ci").code, 2);
    assert_nothing_left(&dir);
}

#[test]
fn the_command_finds_a_cluster() {
    let (dir, shell) = terminal();
    shell.says(
        "TMPDIR=$PWD/tmp coracle ci --nodes 2 -- kubectl get nodes --no-headers | awk '{print $1, $2, $3}'",
        "sim-0 Ready control-plane\nsim-1 Ready <none>",
    );
    shell.says(
        "TMPDIR=$PWD/tmp coracle ci --nodes 1 -- kubectl get node sim-0 -o jsonpath='{.spec.taints}'",
        "",
    );
    shell.says("TMPDIR=$PWD/tmp coracle ci --nodes 5 -- sh -c 'kubectl wait node --all --for=condition=Ready --timeout=100s >/dev/null; kubectl get nodes -o name | wc -l'", "5");
    shell.shows(
        "TMPDIR=$PWD/tmp coracle ci -- sh -c 'kubectl create deployment web --image=nginx --replicas=3 && kubectl rollout status deployment/web --timeout=100s'",
        &["deployment.apps/web created", "deployment \"web\" successfully rolled out"],
    );
    assert_nothing_left(&dir);
}

#[test]
fn input_and_output_are_the_commands() {
    let (_dir, shell) = terminal();
    let output = shell.run_with("coracle ci -- sh -c 'cat; echo problem >&2'", "some text\n");
    assert_eq!(
        (output.code, output.stdout.as_str(), output.stderr.as_str()),
        (0, "some text\n", "problem\n")
    );
}

#[test]
fn the_kubeconfig_goes_where_it_is_wanted() {
    let (dir, shell) = terminal();
    shell.says(
        "TMPDIR=$PWD/tmp coracle ci --kubeconfig ./mine -- kubectl --kubeconfig ./mine get nodes -o name",
        "node/sim-0",
    );
    let unwritable = shell.run("TMPDIR=$PWD/tmp coracle ci --kubeconfig /proc/none -- true");
    assert_eq!((unwritable.code, unwritable.stderr.lines().count()), (125, 1), "{unwritable}");
    assert!(unwritable.stderr.starts_with("coracle ci: /proc/none: "), "{unwritable}");
    assert_nothing_left(&dir);
}

#[test]
fn signals_reach_the_command() {
    let (dir, shell) = terminal();
    let script = "trap 'echo told; exit 7' TERM; echo ready; while :; do sleep 0.1; done";
    let running = shell
        .start(&format!("env TMPDIR={}/tmp coracle ci -- sh -c \"{script}\"", dir.path().display()), "out");
    running.until_that("the command's start", |text| text.contains("ready"));
    running.signal(Signal::SIGTERM);
    let file = dir.path().join("out");
    assert_eq!(running.wait(), 7);
    assert_eq!(std::fs::read_to_string(file).expect("output"), "ready\ntold\n");
    assert_nothing_left(&dir);
}

#[test]
fn it_needs_no_root() {
    if !nix::unistd::geteuid().is_root() {
        return skipped("is not root already, so every other test here shows it");
    }
    let (dir, shell) = terminal();
    let open = |path: &Path| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("mode")
    };
    open(dir.path());
    open(&dir.path().join("tmp"));
    std::fs::copy(coracle_tests::coracle(), dir.path().join("c")).expect("a copy that anybody may run");
    let user = "setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs env TMPDIR=$PWD/tmp";
    shell.says(&format!("{user} ./c ci -- kubectl get nodes -o name"), "node/sim-0");
    shell.says(&format!("{user} ./c ci -- id -u"), "65534");
    assert_nothing_left(&dir);
}

#[test]
fn several_at_once_do_not_meet() {
    let (dir, shell) = terminal();
    let line = "env TMPDIR=tmp coracle ci -- sh -c 'kubectl create configmap mine >/dev/null && kubectl get configmap -o name | grep -c /mine'";
    let all: Vec<_> = (0..3).map(|i| shell.start(line, &format!("out-{i}"))).collect();
    for one in all {
        let printed = one.until_that("the count", |text| !text.trim().is_empty());
        assert_eq!(printed.trim(), "1");
        assert_eq!(one.wait(), 0);
    }
    wait_for("an empty directory", Duration::from_secs(60), || {
        let left = std::fs::read_dir(dir.path().join("tmp")).expect("tmp").count();
        if left == 0 { Ok(()) } else { Err(format!("{left} entries")) }
    });
}
