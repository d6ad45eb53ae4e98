//! Volumes that need no claim.

use crate::node::{Steps, running_pod};
use coracle_tests::Shell;
use coracle_tests::image::BUSYBOX;

pub fn steps(steps: &mut Steps<'_>) {
    steps.run("config-volume", config_volume);
    steps.run("empty-dir", empty_dir);
    steps.run("host-path", host_path);
}

fn with_volumes(name: &str, script: &str, mounts: &str, volumes: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: {name}}}}}\nspec:\n  terminationGracePeriodSeconds: 0\n  volumes: {volumes}\n  containers:\n  - name: main\n    image: {BUSYBOX}\n    imagePullPolicy: IfNotPresent\n    command: [sh, -c, \"{script}\"]\n    volumeMounts: {mounts}\n"
    )
}

fn config_volume(shell: &Shell) {
    shell.ok("kubectl create configmap settings --from-literal=colour=red --from-literal=size=big && kubectl create secret generic password --from-literal=word=sesame");
    shell.apply(&with_volumes(
        "reader", "sleep 3600",
        "[{name: c, mountPath: /c}, {name: s, mountPath: /s, readOnly: true}, {name: c, mountPath: /one, subPath: colour}, {name: p, mountPath: /p}]",
        "[{name: c, configMap: {name: settings}}, {name: s, secret: {secretName: password, defaultMode: 0400}}, \
          {name: p, projected: {sources: [{configMap: {name: settings, items: [{key: size, path: deep/size}]}}, {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]}}]",
    ));
    shell.ok("kubectl wait pod/reader --for=condition=Ready --timeout=100s");
    shell.says("kubectl exec reader -- sh -c 'cat /c/colour; echo; cat /c/size; echo; cat /s/word; echo; cat /one; echo; cat /p/deep/size; echo; cat /p/labels'", "red\nbig\nsesame\nred\nbig\napp=\"reader\"");
    shell.says("kubectl exec reader -- stat -Lc %a /s/word /c/colour", "400\n644");
    shell.ok("kubectl patch configmap settings -p '{\"data\":{\"colour\":\"blue\"}}' && kubectl label pod reader extra=yes");
    shell.until("kubectl exec reader -- cat /c/colour", "blue");
    shell.until_that("kubectl exec reader -- cat /p/labels", |out| out.contains("extra=\"yes\""));
    shell.says("kubectl exec reader -- cat /one", "red");
    shell.apply(&with_volumes(
        "waiting",
        "sleep 3600",
        "[{name: c, mountPath: /c}]",
        "[{name: c, configMap: {name: later}}]",
    ));
    shell.until_that("kubectl get events --field-selector involvedObject.name=waiting,reason=FailedMount -o jsonpath='{.items[0].message}'", |out| {
        out.contains("MountVolume.SetUp failed for volume \"c\" : configmap \"later\" not found")
    });
    shell.says("kubectl get pod waiting --no-headers | awk '{print $3}'", "ContainerCreating");
    shell.ok("kubectl create configmap later --from-literal=a=b && kubectl wait pod/waiting --for=condition=Ready --timeout=180s");
}

fn empty_dir(shell: &Shell) {
    let manifest = format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: pair}}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{{name: disk, emptyDir: {{}}}}, {{name: ram, emptyDir: {{medium: Memory, sizeLimit: 8Mi}}}}]
  containers:
  - {{name: writer, image: "{BUSYBOX}", imagePullPolicy: IfNotPresent, command: [sh, -c, "echo shared >/d/f; sleep 3600"], volumeMounts: [{{name: disk, mountPath: /d}}]}}
  - {{name: reader, image: "{BUSYBOX}", imagePullPolicy: IfNotPresent, command: [sleep, "3600"], volumeMounts: [{{name: disk, mountPath: /e}}, {{name: ram, mountPath: /r}}]}}
"#
    );
    shell.apply(&manifest);
    shell.ok("kubectl wait pod/pair --for=condition=Ready --timeout=100s");
    shell.until("kubectl exec pair -c reader -- cat /e/f", "shared");
    shell.says("kubectl exec pair -c reader -- awk '$2 == \"/r\" {print $3}' /proc/mounts", "tmpfs");
    let uid = shell.ok("kubectl get pod pair -o jsonpath='{.metadata.uid}'");
    let dir = format!("/var/lib/coracle/kubelet/pods/{uid}");
    shell.says(&format!("cat {dir}/volumes/kubernetes.io~empty-dir/disk/f"), "shared");
    shell.ok("kubectl delete pod pair --timeout=100s");
    shell.until(&format!("ls -d {dir} 2>/dev/null; grep -c {uid} /proc/self/mountinfo || true"), "0");
}

fn host_path(shell: &Shell) {
    let dir = shell.home().join("host");
    std::fs::create_dir(&dir).expect("a directory");
    std::fs::write(dir.join("from-host"), "ahoy\n").expect("a file");
    let volumes = format!(
        "[{{name: h, hostPath: {{path: {0}, type: Directory}}}}, {{name: fresh, hostPath: {{path: {0}/new, type: DirectoryOrCreate}}}}]",
        dir.display()
    );
    shell.apply(&with_volumes(
        "guest",
        "cat /h/from-host; echo reply >/h/from-pod; sleep 3600",
        "[{name: h, mountPath: /h}, {name: fresh, mountPath: /n}]",
        &volumes,
    ));
    shell.ok("kubectl wait pod/guest --for=condition=Ready --timeout=100s");
    shell.until("kubectl logs guest", "ahoy");
    shell.until("cat host/from-pod; ls -d host/new", "reply\nhost/new");
    let missing = format!("[{{name: h, hostPath: {{path: {}/none, type: Directory}}}}]", dir.display());
    shell.apply(&with_volumes("lost", "sleep 3600", "[{name: h, mountPath: /h}]", &missing));
    shell.until_that("kubectl get events --field-selector involvedObject.name=lost,reason=FailedMount -o jsonpath='{.items[0].message}'", |out| {
        out.contains("hostPath type check failed") && out.contains("is not a directory")
    });
    running_pod(shell, "after", "sleep 3600", "");
}
