//! kubectl logs, exec, attach, cp, port-forward and run.

use crate::node::{Steps, pod, running_pod};
use coracle_tests::Shell;
use coracle_tests::image::BUSYBOX;

pub fn steps(steps: &mut Steps<'_>) {
    steps.run("logs", logs);
    steps.run("exec", exec);
    steps.run("cp", cp);
    steps.run("port-forward", port_forward);
    steps.run("run-it-rm", run_it_rm);
    steps.run("attach", attach);
    let name = steps.node.name.trim().to_owned();
    steps.run("debug-node", move |shell| debug_node(shell, &name));
    let name = steps.node.name.trim().to_owned();
    steps.run("checkpoint", move |shell| checkpoint(shell, &name));
}

/// A shell on the machine itself: its files, its network and its processes.
fn debug_node(shell: &Shell, node: &str) {
    let script = "hostname; test -s /host/etc/coracle/admin.conf && echo files; ps | grep -q '[c]ontainerd' && echo processes";
    shell.ok(&format!(
        "kubectl debug node/{node} --profile=general --image={BUSYBOX} --image-pull-policy=IfNotPresent -- sh -c '{script}'"
    ));
    let pod = shell.ok("kubectl get pods -o jsonpath='{.items[0].metadata.name}'");
    assert!(pod.starts_with(&format!("node-debugger-{node}-")), "{pod}");
    shell.until(&format!("kubectl get pod {pod} -o jsonpath='{{.status.phase}}'"), "Succeeded");
    let machine = shell.ok("hostname");
    shell.says(&format!("kubectl logs {pod}"), &format!("{}\nfiles\nprocesses", machine.trim()));
}

/// Containerd 1 writes no archives of containers, and says so; containerd 2 does where the machine has CRIU.
fn checkpoint(shell: &Shell, node: &str) {
    running_pod(shell, "box", "sleep 3600", "");
    shell.ok("kubectl create serviceaccount archivist && kubectl create token archivist >token");
    let curl = |path: &str| {
        format!(
            "curl -sk -X POST -H \"Authorization: Bearer $(cat token)\" -w ' %{{http_code}}' https://127.0.0.1:10250/checkpoint/checkpoint/{path}"
        )
    };
    shell.until_that(&curl("box/main"), |said| said.ends_with(" 403"));
    shell.ok(
        "kubectl create clusterrole archivist --verb=create --resource=nodes/checkpoint && kubectl create clusterrolebinding archivist --clusterrole=archivist --serviceaccount=checkpoint:archivist",
    );
    shell.until(&curl("box/other"), "container other does not exist 404");
    shell.says(&curl("nobody/main"), "pod does not exist 404");
    let said = shell.ok(&curl("box/main"));
    let archived = said.contains("/checkpoints/checkpoint-box_checkpoint-main-") && said.ends_with(" 200");
    let refused = "checkpointing of checkpoint/box/main failed (rpc error: code = ";
    assert!(archived || said.starts_with(refused) && said.ends_with(" 500"), "{node}: {said}");
    shell.ok("kubectl delete clusterrole,clusterrolebinding archivist");
}

fn logs(shell: &Shell) {
    // The runtime copies the two streams independently of each other, so there is a moment between them.
    running_pod(
        shell,
        "talker",
        "echo one; sleep 0.3; echo two >&2; i=0; while :; do sleep 0.2; i=$((i+1)); echo tick $i; done",
        "",
    );
    shell.until_that("kubectl logs talker", |out| out.starts_with("one\ntwo\ntick 1\n"));
    shell.says("kubectl logs talker | head -n 2", "one\ntwo");
    shell.says("kubectl logs talker --tail=1 | wc -l", "1");
    shell.until_that("kubectl logs talker --timestamps | head -n 1", |out| {
        out.split_once(' ')
            .is_some_and(|(time, text)| time.ends_with('Z') && time.contains('T') && text == "one\n")
    });
    shell.says("kubectl logs talker --limit-bytes=3", "one");
    shell.says("kubectl logs talker -c main --since=1h | head -n 1", "one");
    shell.says("kubectl logs -l app=talker --tail=-1 | head -n 1", "one");
    shell.refuses("kubectl logs talker -c other", "error: container other is not valid for pod talker");
    shell.refuses(
        "kubectl logs nobody",
        r#"error: error from server (NotFound): pods "nobody" not found in namespace "logs""#,
    );
    shell.refuses(
        "kubectl logs talker --previous",
        r#"Error from server (BadRequest): previous terminated container "main" in pod "talker" not found"#,
    );
    let follower = shell.start("kubectl logs -f talker --tail=0", "followed");
    let seen = follower.until_that("five new lines", |text| text.lines().count() >= 5);
    let numbers: Vec<u32> = seen.lines().filter_map(|l| l.strip_prefix("tick ")?.parse().ok()).collect();
    assert!(numbers.windows(2).all(|w| w[1] == w[0] + 1), "lines are missing or doubled: {seen}");
    shell.ok("kubectl delete pod talker --timeout=100s");
    assert_eq!(follower.wait(), 0, "logs -f ends with the container");
}

fn exec(shell: &Shell) {
    running_pod(shell, "box", "sleep 3600", "");
    shell.says("kubectl exec box -- echo hello", "hello");
    for code in [0, 1, 42, 137] {
        assert_eq!(shell.run(&format!("kubectl exec box -- sh -c 'exit {code}'")).code, code);
    }
    shell.says("echo oar | kubectl exec -i box -- cat", "oar");
    shell.says("head -c 3000000 /dev/zero | kubectl exec -i box -- wc -c", "3000000");
    shell.says("kubectl exec box -- head -c 5000000 /dev/zero | wc -c", "5000000");
    let both = shell.run("kubectl exec box -- sh -c 'echo out; echo err >&2'");
    assert_eq!((both.stdout.as_str(), both.stderr.as_str()), ("out\n", "err\n"));
    let fails = shell.run("kubectl exec box -- sh -c 'echo why >&2; exit 3'");
    assert_eq!((fails.code, fails.stderr.as_str()), (3, "why\ncommand terminated with exit code 3\n"));
    let missing = shell.run("kubectl exec box -- no-such-command");
    assert_ne!(missing.code, 0);
    assert!(missing.stderr.contains("no-such-command") && missing.stderr.contains("not found"), "{missing}");
    shell.says("kubectl exec box -- sh -c 'test -t 0 && echo yes || echo no'", "no");
    let terminal = shell.ok("script -qec 'stty cols 91 rows 33; kubectl exec -it box -- sh -c \"test -t 0 && echo tty; sleep 1; stty size\"' /dev/null </dev/null");
    assert!(terminal.contains("tty") && terminal.contains("33 91"), "{terminal}");
    let code = shell.run("script -qec 'kubectl exec -it box -- sh -c \"exit 5\"' /dev/null </dev/null");
    assert_eq!(code.code, 5, "{code}");
    for web_sockets in ["true", "false"] {
        shell.says(
            &format!(
                "echo over | KUBECTL_REMOTE_COMMAND_WEBSOCKETS={web_sockets} kubectl exec -i box -- cat"
            ),
            "over",
        );
        assert_eq!(
            shell
                .run(&format!(
                    "KUBECTL_REMOTE_COMMAND_WEBSOCKETS={web_sockets} kubectl exec box -- sh -c 'exit 9'"
                ))
                .code,
            9
        );
    }
    shell.refuses("kubectl exec nobody -- true", r#"Error from server (NotFound): pods "nobody" not found"#);
    shell.refuses(
        "kubectl exec box -c other -- true",
        "Error from server (BadRequest): container other is not valid for pod box",
    );
}

fn cp(shell: &Shell) {
    running_pod(shell, "box", "sleep 3600", "");
    shell.ok("mkdir -p tree/below && head -c 2000000 /dev/urandom >tree/big && echo small >tree/below/small");
    shell.ok("kubectl cp tree box:/tmp/tree && kubectl cp box:/tmp/tree back");
    shell.says("diff -r tree back && echo same", "same");
    shell.ok("kubectl cp tree/below/small box:/tmp/renamed");
    shell.says("kubectl exec box -- cat /tmp/renamed", "small");
    // kubectl may end, with success, before it has printed what tar complained of.
    shell.until_that("kubectl cp box:/nothing here 2>&1", |out| out.contains("No such file or directory"));
    shell.says("ls here 2>/dev/null | wc -l", "0");
}

fn port_forward(shell: &Shell) {
    running_pod(
        shell,
        "web",
        "mkdir /w; echo forwarded >/w/index.html; exec httpd -f -p 8080 -h /w",
        "ports: [{containerPort: 8080}]",
    );
    shell.ok("kubectl expose pod web --port=80 --target-port=8080");
    for (sockets, target) in
        [("true", "pod/web :8080"), ("false", "pod/web :8080"), ("true", "service/web :80")]
    {
        let forward = shell.start(
            &format!("env KUBECTL_PORT_FORWARD_WEBSOCKETS={sockets} kubectl port-forward {target}"),
            "forward",
        );
        let said =
            forward.until_that("the forwarded port", |text| text.contains("Forwarding from 127.0.0.1:"));
        let port = said
            .split("127.0.0.1:")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .unwrap_or_default()
            .to_owned();
        for _ in 0..3 {
            shell.says(&format!("curl -s --max-time 10 http://127.0.0.1:{port}/"), "forwarded");
        }
    }
}

fn run_it_rm(shell: &Shell) {
    let run =
        format!("kubectl run once --image={BUSYBOX} --image-pull-policy=IfNotPresent --restart=Never --rm");
    let output = shell.run(&format!("echo 'echo $((6*7)); exit' | {run} -i -- sh"));
    assert!(
        output.code == 0 && output.stdout.contains("42") && output.stdout.contains("pod \"once\" deleted"),
        "{output}"
    );
    let failing = shell.run(&format!("{run} -i -- sh -c 'sleep 1; exit 4'"));
    assert_eq!(failing.code, 4, "{failing}");
    shell.says("kubectl get pods -o name", "");
    let typed = shell.ok(&format!(
        "(sleep 4; echo 'echo sum $((40+2))'; sleep 1; echo exit) | script -qec '{run} -it -- sh' /dev/null"
    ));
    assert!(typed.contains("sum 42") && typed.contains("deleted"), "{typed}");
    shell.says("kubectl get pods -o name", "");
}

fn attach(shell: &Shell) {
    let more = "stdin: true\nstdinOnce: true";
    shell.apply(
        &pod("listener", "read word; echo heard $word; sleep 1", more)
            .replace("  containers:", "  restartPolicy: Never\n  containers:"),
    );
    shell.ok("kubectl wait pod/listener --for=condition=Ready --timeout=100s");
    let output = shell.run("echo ahoy | kubectl attach -i listener");
    assert!(output.stdout.contains("heard ahoy"), "{output}");
    shell.ok("kubectl wait pod/listener --for=jsonpath='{.status.phase}'=Succeeded --timeout=100s");
}
