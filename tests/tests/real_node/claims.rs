//! Claims as people write them: of a pod alone, of a StatefulSet, of one pod at a time, and one that stays Pending.

use crate::node::Steps;
use coracle_tests::Shell;
use coracle_tests::image::BUSYBOX;
use std::time::Duration;

/// The server is started anew, and commands are given again.
const PATIENCE: Duration = Duration::from_secs(200);

pub fn steps(steps: &mut Steps<'_>) {
    steps.run("ephemeral-claim", ephemeral_claim);
    steps.run("stateful-claims", stateful_claims);
    steps.run("one-pod-volume", one_pod_volume);
    steps.run("pending-claim", pending_claim);
    steps.run("projected-files", projected_files);
    // The server is killed again and again.
    steps.alone("killed-claims", killed_claims);
}

fn container(script: &str, mount: &str) -> String {
    format!(
        "{{name: main, image: \"{BUSYBOX}\", imagePullPolicy: IfNotPresent, command: [sh, -c, \"{script}\"], volumeMounts: [{{name: d, mountPath: {mount}}}]}}"
    )
}

/// A pod with one volume, `d`, at `/d`.
fn pod(name: &str, more: &str, script: &str, volume: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 0\n{more}  volumes: [{{name: d, {volume}}}]\n  containers: [{}]\n",
        container(script, "/d")
    )
}

/// Made with its pod, and gone with it.
fn ephemeral_claim(shell: &Shell) {
    let template = "ephemeral: {volumeClaimTemplate: {metadata: {labels: {of: pod}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}}";
    shell.apply(&pod("user", "", "echo gold >/d/f; sleep 3600", template));
    shell.ok("kubectl wait pod/user --for=condition=Ready --timeout=100s");
    shell.says(
        "kubectl get pvc user-d -o jsonpath='{.status.phase} {.metadata.labels.of} {.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].name}'",
        "Bound pod Pod/user",
    );
    let volume = shell.ok("kubectl get pvc user-d -o jsonpath='{.spec.volumeName}'");
    let dir = shell.ok(&format!("kubectl get pv {volume} -o jsonpath='{{.spec.hostPath.path}}'"));
    shell.until(&format!("cat {dir}/f"), "gold");
    shell.ok("kubectl delete pod user --timeout=100s");
    shell.until(
        &format!("kubectl get pvc -o name; kubectl get pv {volume} -o name --ignore-not-found; ls -d {dir} 2>/dev/null || true"),
        "",
    );
}

/// Each of its pods has its own, finds it again, and leaves it behind.
fn stateful_claims(shell: &Shell) {
    shell.apply(&format!(
        "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: set}}\nspec:\n  serviceName: set\n  replicas: 2\n  podManagementPolicy: Parallel\n  selector: {{matchLabels: {{app: set}}}}\n  template:\n    metadata: {{labels: {{app: set}}}}\n    spec:\n      terminationGracePeriodSeconds: 0\n      containers: [{}]\n  volumeClaimTemplates:\n  - metadata: {{name: d}}\n    spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Mi}}}}}}\n",
        container("hostname >>/d/who; sleep 3600", "/d")
    ));
    shell.ok("kubectl rollout status statefulset/set --timeout=150s");
    shell.says("kubectl get pvc -o jsonpath='{.items[*].metadata.name}'", "d-set-0 d-set-1");
    shell.until("kubectl exec set-1 -- cat /d/who", "set-1");
    let before = shell.ok("kubectl get pod set-0 -o jsonpath='{.metadata.uid}'");
    shell.ok("kubectl delete pod set-0 --timeout=100s");
    shell.until_that("kubectl get pod set-0 -o jsonpath='{.metadata.uid} {.status.phase}'", |out| {
        !out.contains(before.trim()) && out.contains("Running")
    });
    shell.until("kubectl exec set-0 -- cat /d/who", "set-0\nset-0");
    shell.ok("kubectl delete statefulset set --timeout=100s && kubectl wait pod -l app=set --for=delete --timeout=100s");
    shell.says("kubectl get pvc -o jsonpath='{.items[*].status.phase}'", "Bound Bound");
    shell.ok("kubectl delete pvc d-set-0 d-set-1 --timeout=100s");
}

/// Whoever comes second waits, whether the scheduler or the node keeps him from it.
fn one_pod_volume(shell: &Shell) {
    shell.apply("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: alone}\nspec: {accessModes: [ReadWriteOncePod], resources: {requests: {storage: 1Mi}}}\n");
    let claim = "persistentVolumeClaim: {claimName: alone}";
    shell.apply(&pod("first", "", "echo mine >/d/f; sleep 3600", claim));
    shell.ok("kubectl wait pod/first --for=condition=Ready --timeout=100s");
    shell.apply(&pod("second", "", "sleep 3600", claim));
    shell.until_that("kubectl describe pod second", |out| {
        out.contains("FailedScheduling")
            && out.contains("node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode")
    });
    let node = shell.ok("kubectl get pod first -o jsonpath='{.spec.nodeName}'");
    shell.apply(&pod("third", &format!("  nodeName: {}\n", node.trim()), "sleep 3600", claim));
    shell.until_that("kubectl describe pod third", |out| {
        out.contains("FailedMount")
            && out
                .contains("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
    });
    shell.ok("kubectl delete pod third --timeout=100s && kubectl delete pod first --timeout=100s");
    shell.ok("kubectl wait pod/second --for=condition=Ready --timeout=150s");
    shell.says("kubectl exec second -- cat /d/f", "mine");
    shell.ok("kubectl delete pod/second pvc/alone --timeout=100s");
}

/// Why it is, is said where people look.
fn pending_claim(shell: &Shell) {
    shell.apply("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: lost}\nspec: {storageClassName: nowhere, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n");
    shell.apply(&pod("waiting", "", "sleep 3600", "persistentVolumeClaim: {claimName: lost}"));
    shell.until_that("kubectl describe pvc lost", |out| {
        out.contains("ProvisioningFailed")
            && out.contains("storageclass.storage.k8s.io \"nowhere\" not found")
    });
    shell.until_that("kubectl describe pod waiting", |out| {
        out.contains("FailedScheduling") && out.contains("pod has unbound immediate PersistentVolumeClaims")
    });
    shell.says("kubectl get pvc lost -o jsonpath='{.status.phase}'", "Pending");
    // The class comes, and nothing has to be done again.
    shell.apply("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: nowhere}\nprovisioner: coracle.io/local-path\nvolumeBindingMode: WaitForFirstConsumer\n");
    shell.ok("kubectl wait pod/waiting --for=condition=Ready --timeout=150s");
    shell.ok("kubectl delete pod/waiting pvc/lost storageclass/nowhere --timeout=100s");
}

fn certificate(shell: &Shell, name: &str) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    std::fs::write(shell.home().join("c.pem"), made.cert.pem()).expect("the certificate's file");
    std::fs::write(shell.home().join("k.pem"), made.signing_key.serialize_pem()).expect("the key's file");
}

/// A certificate, a configuration and a token in one directory; what changes is seen by who runs.
fn projected_files(shell: &Shell) {
    certificate(shell, "one");
    shell.ok("kubectl create secret tls web --cert c.pem --key k.pem && kubectl create configmap settings --from-literal=mode=first");
    let sources = "projected: {defaultMode: 0440, sources: [{secret: {name: web, items: [{key: tls.crt, path: tls/crt}, {key: tls.key, path: tls/key}]}}, {configMap: {name: settings}}, {serviceAccountToken: {path: token, audience: vault, expirationSeconds: 600}}]}";
    shell.apply(&pod("web", "", "sleep 3600", sources));
    shell.ok("kubectl wait pod/web --for=condition=Ready --timeout=100s");
    shell.says(
        "kubectl exec web -- sh -c 'cat /d/mode; echo; head -n 1 /d/tls/crt; stat -Lc %a /d/tls/key'",
        "first\n-----BEGIN CERTIFICATE-----\n440",
    );
    shell.shows(
        "kubectl exec web -- cat /d/token | cut -d. -f2 | tr _- /+ | base64 -d 2>/dev/null || true",
        &["\"aud\":[\"vault\"]", "\"pod\":{\"name\":\"web\""],
    );
    let before = shell.ok("kubectl exec web -- cat /d/tls/crt");
    certificate(shell, "two");
    shell.ok("kubectl create secret tls web --cert c.pem --key k.pem --dry-run=client -o yaml | kubectl apply -f - 2>/dev/null && kubectl patch configmap settings -p '{\"data\": {\"mode\": \"second\"}}'");
    shell.until("kubectl exec web -- cat /d/mode", "second");
    shell.until_that("kubectl exec web -- cat /d/tls/crt", |out| {
        out.contains("BEGIN CERTIFICATE") && out != before
    });
    shell.ok("kubectl delete pod/web secret/web configmap/settings --timeout=100s");
}

/// What is asked for in the life of a claim with a mount of its own, in order.
fn life() -> Vec<String> {
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: chest}\nspec: {storageClassName: e2e-killed, accessModes: [ReadWriteOncePod], resources: {requests: {storage: 8Mi}}}\n";
    let of_claim = "persistentVolumeClaim: {claimName: chest}";
    let apply = |manifest: &str| format!("kubectl apply -f - <<'E'\n{manifest}E\n");
    vec![
        apply(claim),
        apply(&pod("writer", "", "[ -f /d/gold ] || echo gold >/d/gold; sleep 3600", of_claim)),
        "kubectl wait pod/writer --for=condition=Ready --timeout=150s".to_owned(),
        "kubectl delete pod writer --ignore-not-found --timeout=100s".to_owned(),
        apply(&pod("reader", "", "cat /d/gold; sleep 3600", of_claim)),
        "kubectl wait pod/reader --for=condition=Ready --timeout=150s".to_owned(),
        "[ \"$(kubectl logs reader)\" = gold ]".to_owned(),
        "kubectl delete pod reader --ignore-not-found --timeout=100s".to_owned(),
        "kubectl delete pvc chest --ignore-not-found --timeout=100s".to_owned(),
    ]
}

/// Server, controllers and kubelet are killed while each step of the life is under way; whoever asked asks again. In the end
/// nothing was lost and nothing is left.
fn killed_claims(shell: &Shell) {
    shell.apply("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: e2e-killed}\nprovisioner: coracle.io/local-path\nvolumeBindingMode: WaitForFirstConsumer\nparameters: {sizeLimit: file}\n");
    for killed in 0..life().len() {
        for (step, command) in life().iter().enumerate() {
            if step == killed {
                // At once: the command is under way, or its consequences are.
                shell.run(&format!(
                    "(\n{command}\n) >/dev/null 2>&1 & sleep 0.3; kill -9 $(cat /run/coracle/server.pid); wait"
                ));
            }
            shell.within(PATIENCE, &format!("(\n{command}\n) >/dev/null 2>&1 && echo done"), |out| {
                out.contains("done")
            });
        }
        shell.until(
            "kubectl get pv -o name | grep pvc- || true; ls -A /var/lib/coracle/local-path; grep local-path /proc/self/mountinfo || true; losetup -l -O BACK-FILE | grep local-path || true",
            "",
        );
    }
    shell.ok("kubectl delete storageclass e2e-killed --timeout=100s");
}
