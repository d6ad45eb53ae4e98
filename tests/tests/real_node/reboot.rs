//! What a start of the machine finds: directories as they were, and nothing mounted, running or in `/run`.

use crate::csi::{NAME, gone, started};
use crate::node::{Node, Steps};
use coracle_tests::image::BUSYBOX;
use coracle_tests::{Shell, skipped};
use tokio::runtime::Runtime;

pub fn steps(steps: &mut Steps<'_>) {
    let node = steps.node;
    steps.alone("reboot", move |shell| reboot(shell, node));
}

/// Whatever the machine's runtime runs is killed at once, and what does not outlive the machine's power is taken away. A
/// machine has one node and one containerd: all shims of its namespace, all that runs in control groups of pods and all network
/// namespaces of CNI are this node's.
const POWER_CUT: &str = r#"
kill -9 $(cat /run/coracle/supervisor.pid /run/coracle/server.pid /run/coracle/containerd.pid)
for shim in $(pgrep -f '^/[^ ]*containerd-shim-runc-v2 .*-namespace k8s.io '); do kill -9 "$shim"; done
find /sys/fs/cgroup -path '*kubepods*' -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u | xargs -r kill -9 2>/dev/null
for try in 1 2 3 4 5 6 7 8 9 10; do
    find /sys/fs/cgroup -depth -type d -path '*kubepods*' -exec rmdir {} + 2>/dev/null
    [ -n "$(find /sys/fs/cgroup -type d -path '*kubepods*')" ] || break
    sleep 0.2
done
for pass in 1 2 3; do
    awk '$5 ~ "^/(var/lib/coracle|run/containerd|var/lib/containerd|(var/)?run/netns/cni)" {print $5}' /proc/self/mountinfo | sort -r |
        while read -r point; do umount -l "$point" 2>/dev/null; done
done
losetup -l -n -O NAME,BACK-FILE | awk '$2 ~ "^/var/lib/coracle" {print $1}' | xargs -r -n 1 losetup -d
rm -rf /run/containerd /run/coracle/*.pid /run/netns/cni-*
awk '$5 ~ "^/(var/lib/coracle|run/containerd)" {print $5}' /proc/self/mountinfo
"#;

/// Volumes of each kind, with something in them that pods have written once.
fn pod(name: &str, grace: u32) -> String {
    let script = "date +%s%N >>/scratch/boots; cat /memory/word 2>/dev/null; [ -f /d/treasure ] || echo gold >/d/treasure; [ -f /csi/treasure ] || echo silver >/csi/treasure; [ -f /l/treasure ] || echo copper >/l/treasure; echo lost >/memory/word; cat /d/treasure /csi/treasure /l/treasure /settings/mode /sub/f; wc -l </scratch/boots; echo up; trap 'exit 0' TERM; sleep 3600 & wait";
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: {grace}
  volumes:
  - {{name: scratch, emptyDir: {{}}}}
  - {{name: memory, emptyDir: {{medium: Memory}}}}
  - {{name: d, persistentVolumeClaim: {{claimName: {name}-plain}}}}
  - {{name: l, persistentVolumeClaim: {{claimName: {name}-limited}}}}
  - {{name: csi, persistentVolumeClaim: {{claimName: {name}-csi}}}}
  - {{name: settings, configMap: {{name: settings}}}}
  containers:
  - name: main
    image: "{BUSYBOX}"
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "{script}"]
    volumeMounts:
    - {{name: scratch, mountPath: /scratch}}
    - {{name: memory, mountPath: /memory}}
    - {{name: d, mountPath: /d}}
    - {{name: l, mountPath: /l}}
    - {{name: csi, mountPath: /csi}}
    - {{name: settings, mountPath: /settings}}
    - {{name: scratch, mountPath: /sub, subPath: below}}
  initContainers:
  - {{name: first, image: "{BUSYBOX}", imagePullPolicy: IfNotPresent, command: [sh, -c, "mkdir -p /s/below; echo deep >/s/below/f"], volumeMounts: [{{name: scratch, mountPath: /s}}]}}
"#
    )
}

fn claims(pod: &str) -> String {
    let claim = |kind: &str, class: &str, size: &str| {
        format!(
            "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {pod}-{kind}}}\nspec: {{accessModes: [ReadWriteOnce], storageClassName: {class}, resources: {{requests: {{storage: {size}}}}}}}\n"
        )
    };
    [
        claim("plain", "local-path", "1Mi"),
        claim("limited", "e2e-reboot-limited", "16Mi"),
        claim("csi", "e2e-reboot-csi", "1Mi"),
    ]
    .concat()
}

fn reboot(shell: &Shell, node: &Node) {
    if shell.run("test -d /run/systemd/system").code == 0 {
        return skipped("systemd would start again what is killed here");
    }
    let runtime = Runtime::new().expect("a tokio runtime");
    let driver = started(shell, &runtime);
    shell.apply(&format!("apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {{name: {NAME}, annotations: {{coracle.io/controller: built-in}}}}\nspec: {{attachRequired: true}}\n---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: e2e-reboot-csi}}\nprovisioner: {NAME}\nvolumeBindingMode: WaitForFirstConsumer\n---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: e2e-reboot-limited}}\nprovisioner: coracle.io/local-path\nvolumeBindingMode: WaitForFirstConsumer\nparameters: {{sizeLimit: file}}\n"));
    shell.ok("kubectl create configmap settings --from-literal=mode=calm");
    for (name, grace) in [("stays", 0), ("leaves", 600)] {
        shell.apply(&format!("{}---\n{}", pod(name, grace), claims(name)));
    }
    let said = |boots: u32| format!("gold\nsilver\ncopper\ncalmdeep\n{boots}\nup");
    for name in ["stays", "leaves"] {
        shell.until(&format!("kubectl logs {name} -c main --ignore-errors 2>/dev/null"), &said(1));
    }
    let uid = shell.ok("kubectl get pod stays -o jsonpath='{.metadata.uid}'");
    let data = "cd /var/lib/coracle && find local-path kubelet/pods -name treasure -o -name boots | sort; cat local-path/*/treasure";
    // It is on its way out when the power goes: what is left of it is cleared up, and its data is not.
    shell.ok("kubectl delete pod leaves --wait=false");
    let left = shell.ok(POWER_CUT);
    assert_eq!(left.trim(), "", "still mounted");
    {
        let mut state = driver.state.lock().expect("the driver's state");
        state.staged.clear();
        state.published.clear();
        state.calls.clear();
    }
    println!("after the power cut:\n{}", shell.ok(data));
    node.start_server_again();
    shell.ok("kubectl wait node --all --for=condition=Ready --timeout=100s");
    shell.until("kubectl logs stays -c main --ignore-errors 2>/dev/null", &said(2));
    shell.says("kubectl get pod stays -o jsonpath='{.metadata.uid}'", &uid);
    shell.until("kubectl get pod stays -o jsonpath='{.status.containerStatuses[0].restartCount}'", "1");
    for method in ["NodeStageVolume", "NodePublishVolume"] {
        assert!(!driver.calls(method).is_empty(), "{method}: {:?}", driver.order());
    }
    shell.until("kubectl get pod leaves -o name --ignore-not-found", "");
    let mine = |kind: &str| format!("$(kubectl get pvc leaves-{kind} -o jsonpath='{{.spec.volumeName}}')");
    shell.says(&format!("cat /var/lib/coracle/local-path/{}_*/treasure", mine("plain")), "gold");
    let silver = format!("cat {}/volumes/*/treasure", driver.dir.display());
    shell.says(&silver, "silver\nsilver");
    // Whoever has its claims next finds everything, but for what was the pod's own.
    shell.apply(&pod("leaves", 0));
    shell.until("kubectl logs leaves -c main --ignore-errors 2>/dev/null", &said(1));
    shell.ok("kubectl delete pod stays leaves --timeout=100s");
    shell.ok("kubectl delete pvc --all --timeout=100s");
    shell.until("ls -A /var/lib/coracle/local-path; kubectl get pv -o name | grep pvc- || true", "");
    shell.ok("kubectl delete storageclass e2e-reboot-csi e2e-reboot-limited");
    gone(shell, &runtime, &driver);
}
