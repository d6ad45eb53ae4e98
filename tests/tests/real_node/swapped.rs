//! The node's parts as processes of their own beside a server without them.

use crate::node::{KUBECONFIG, Node, Steps, running_pod};
use coracle_tests::Shell;
use coracle_tests::shell::Background;
use nix::sys::signal::Signal;
use std::time::Duration;

const PKI: &str = "/var/lib/coracle/pki";
/// Of a node whose kubelet has ended, until the next one has taken its pods up on a busy machine.
const TAKEN_UP: Duration = Duration::from_secs(100);

pub fn steps(steps: &mut Steps<'_>) {
    let node = steps.node;
    steps.alone("swapped-parts", move |shell| swapped(shell, node));
}

/// Puts the whole server back, also after a failure.
struct Whole<'a>(&'a Node);

impl Drop for Whole<'_> {
    fn drop(&mut self) {
        self.0.start_server_again();
    }
}

fn swapped(shell: &Shell, node: &Node) {
    running_pod(shell, "stays", "mkdir /w; echo here >/w/index.html; exec httpd -f -p 8080 -h /w", "");
    let container = "kubectl get pod stays -o jsonpath='{.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}'";
    let before = shell.ok(container);
    let address = shell.ok("kubectl get pod stays -o jsonpath='{.status.podIP}'");
    let pid = node.server_pid();
    let _whole = Whole(node);
    shell.ok(&format!("kill {pid}; while kill -0 {pid} 2>/dev/null; do sleep 0.1; done"));
    let server = shell.start(
        "coracle server --config /etc/coracle/config.yaml --disable kubelet,proxy",
        "server-alone.log",
    );
    shell.until("kubectl get --raw /readyz", "ok");
    let parts = start(shell, &node.name);
    shell.within(TAKEN_UP, "kubectl logs --tail=1 stays; echo $?", |said| said.trim() == "0");
    assert_eq!(shell.ok(container), before, "the pod was taken up as it was");
    work(shell);
    for part in parts {
        part.signal(Signal::SIGTERM);
        assert_eq!(part.wait(), 0);
    }
    shell.says(&format!("curl -s --max-time 10 http://{}:8080/", address.trim()), "here");
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait(), 0);
}

/// Kubelet and proxy, each with nothing but its kubeconfig. No request may name the server's own machine, so the kubelet gets
/// the certificate that the server keeps for it.
fn start(shell: &Shell, name: &str) -> [Background; 2] {
    for part in [format!("kubelet --node {name}"), "proxy".to_owned()] {
        let file = part.split(' ').next().unwrap_or_default();
        shell.ok(&format!("coracle kubeconfig --for {part} --kubeconfig {KUBECONFIG} -o {file}.conf"));
    }
    let certificate = format!("--tls-cert-file {PKI}/kubelet.crt --tls-private-key-file {PKI}/kubelet.key");
    let kubelet = format!(
        "coracle kubelet --kubeconfig kubelet.conf {certificate} --eviction-hard 'nodefs.available<50Mi,imagefs.available<50Mi'"
    );
    [
        shell.start(&kubelet, "kubelet-alone.log"),
        shell.start("coracle proxy --kubeconfig proxy.conf", "proxy-alone.log"),
    ]
}

/// A new pod, its log, a command in it, its Service, and its end.
fn work(shell: &Shell) {
    running_pod(
        shell,
        "comes",
        "mkdir /w; echo new >/w/index.html; echo said; exec httpd -f -p 8080 -h /w",
        "",
    );
    shell.says("kubectl logs comes", "said");
    shell.says("kubectl exec comes -- cat /w/index.html", "new");
    shell.ok("kubectl label pod comes app=comes && kubectl expose pod comes --port=80 --target-port=8080");
    let service = shell.ok("kubectl get service comes -o jsonpath='{.spec.clusterIP}'");
    shell.until(&format!("curl -s --max-time 10 http://{}/", service.trim()), "new");
    shell.until_that("kubectl top node --no-headers", |text| !text.is_empty() && !text.contains("unknown"));
    shell.ok("kubectl delete pod comes --timeout=100s");
}
