//! What containers say, and what they are told: hooks, last words, expansions, logs.

use crate::node::{Steps, pod, running_pod};
use coracle_tests::Shell;

pub fn steps(steps: &mut Steps<'_>) {
    steps.run("hooks", hooks);
    steps.run("last-words", last_words);
    steps.run("expansion", expansion);
    steps.run("deadline", deadline);
    steps.run("log-socket", log_socket);
    steps.run("image-names", image_names);
    steps.run("image-volume", image_volume);
}

fn never(manifest: &str) -> String {
    manifest.replace("  containers:", "  restartPolicy: Never\n  containers:")
}

/// Hooks by HTTP reach another pod, and one that fails ends the container.
fn hooks(shell: &Shell) {
    let serve = "mkdir /w; touch /w/started /w/stopping; exec httpd -f -vv -p 8080 -h /w";
    running_pod(shell, "listener", serve, "");
    let ip = shell.ok("kubectl get pod listener -o jsonpath='{.status.podIP}'");
    let get = |path: &str| format!("{{httpGet: {{host: {}, port: 8080, path: {path}}}}}", ip.trim());
    let lifecycle = format!("lifecycle: {{postStart: {}, preStop: {}}}", get("/started"), get("/stopping"));
    running_pod(shell, "polite", "sleep 3600", &lifecycle);
    shell.until("kubectl logs listener 2>&1 | grep -c url:/started", "1");
    shell.ok("kubectl delete pod polite --timeout=100s");
    shell.until("kubectl logs listener 2>&1 | grep -c url:/stopping", "1");

    let bad = "lifecycle: {postStart: {exec: {command: [sh, -c, 'echo no >&2; exit 9']}}}";
    shell.apply(&pod("bad", "sleep 3600", bad));
    let events = "kubectl get events --field-selector involvedObject.name=bad -o jsonpath='{range .items[*]}{.reason}: {.message}{\"\\n\"}{end}'";
    let told = shell.until_that(events, |out| out.contains("FailedPostStartHook"));
    assert!(told.contains("FailedPostStartHook: PostStartHook failed"), "{told}");
    shell.until_that("kubectl get pod bad -o jsonpath='{.status.containerStatuses[0].restartCount}'", |n| {
        n.trim().parse::<u32>().is_ok_and(|n| n > 0)
    });
    shell.ok("kubectl delete pod bad --timeout=100s");
    let sleeping = "lifecycle: {preStop: {sleep: {seconds: 1}}}";
    running_pod(shell, "sleeper", "sleep 3600", sleeping);
    shell.ok("kubectl delete pod sleeper --grace-period=5 --timeout=100s");
}

fn last_words(shell: &Shell) {
    let message = |name: &str| {
        format!(
            "kubectl get pod {name} -o jsonpath='{{.status.phase}}:{{.status.containerStatuses[0].state.terminated.message}}'"
        )
    };
    let fall_back = "terminationMessagePolicy: FallbackToLogsOnError";
    let path = "terminationMessagePath: /dev/words\nsecurityContext: {runAsUser: 1000}";
    for (name, script, more, expected) in [
        ("logged", "printf DONE; exit 1", fall_back, "Failed:DONE"),
        ("silent", "echo DONE", fall_back, "Succeeded:"),
        ("filed", "echo -n OK >/dev/termination-log", fall_back, "Succeeded:OK"),
        ("elsewhere", "echo -n DONE >/dev/words", path, "Succeeded:DONE"),
    ] {
        shell.apply(&never(&pod(name, script, more)));
        shell.until(&message(name), expected);
    }
}

fn expansion(shell: &Shell) {
    let of = |name: &str, value: &str, expression: &str| {
        let container = format!(
            "env: [{{name: PART, value: \"{value}\"}}, {{name: NOTE, valueFrom: {{fieldRef: {{fieldPath: \"metadata.annotations['note']\"}}}}}}]\nvolumeMounts: [{{name: x, mountPath: /part, subPathExpr: {expression}}}, {{name: x, mountPath: /whole}}]"
        );
        pod(name, "sleep 3600", &container)
            .replace("  containers:", "  volumes: [{name: x, emptyDir: {}}]\n  containers:")
    };
    let reason = |name: &str| {
        format!("kubectl get pod {name} -o jsonpath='{{.status.containerStatuses[0].state.waiting.reason}}'")
    };
    for (name, value, expression) in [
        ("absolute", "/tmp", "$(PART)"),
        ("upwards", "..", "$(PART)"),
        ("unset", "x", "$(NOBODY)"),
        ("later", "foo", "$(NOTE)/$(PART)"),
    ] {
        shell.apply(&of(name, value, expression));
        shell.until(&reason(name), "CreateContainerConfigError");
    }
    shell.ok("kubectl annotate pod later note=mypath");
    shell.ok("kubectl wait pod/later --for=condition=Ready --timeout=100s");
    shell.ok("kubectl exec later -- touch /whole/mypath/foo/f && kubectl exec later -- test -f /part/f");
    shell
        .ok("kubectl annotate pod later --overwrite note=another && kubectl delete pod later --timeout=100s");
    shell.ok("kubectl delete pod absolute upwards unset --timeout=100s");
}

fn deadline(shell: &Shell) {
    running_pod(shell, "late", "sleep 3600", "");
    shell.ok("kubectl patch pod late --patch '{\"spec\":{\"activeDeadlineSeconds\":3}}'");
    shell.until(
        "kubectl get pod late -o jsonpath='{.status.phase} {.status.reason} {.status.message}'",
        "Failed DeadlineExceeded Pod was active on the node longer than the specified deadline",
    );
    shell.until(
        "kubectl get pod late -o jsonpath='{.metadata.generation} {.status.observedGeneration}'",
        "2 2",
    );
}

/// The log as messages of a WebSocket, by hand.
fn log_socket(shell: &Shell) {
    running_pod(shell, "talker", "echo container is alive; sleep 3600", "");
    for (file, field) in [
        ("ca", ".clusters[0].cluster.certificate-authority-data"),
        ("cert", ".users[0].user.client-certificate-data"),
        ("key", ".users[0].user.client-key-data"),
    ] {
        shell.ok(&format!(
            "kubectl config view --raw --minify -o jsonpath='{{{field}}}' | base64 -d >{file} && test -s {file}"
        ));
    }
    let server = shell.ok("kubectl config view --minify -o jsonpath='{.clusters[0].cluster.server}'");
    let ask = |protocol: &str| {
        format!(
            "curl -s --http1.1 --include --no-buffer --max-time 3 --cacert ca --cert cert --key key -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==' -H 'Sec-WebSocket-Protocol: {protocol}' {}/api/v1/namespaces/log-socket/pods/talker/log | tr -c '[:print:]\\n' .",
            server.trim()
        )
    };
    let told = shell.ok(&ask("binary.k8s.io"));
    assert!(told.contains("101 Switching Protocols") && told.contains("container is alive"), "{told}");
    let told = shell.ok(&ask("base64.binary.k8s.io"));
    assert!(told.contains("Y29udGFpbmVyIGlzIGFsaXZlCg=="), "{told}");
}

fn image_names(shell: &Shell) {
    for (name, image, reason) in [
        ("bad", "Not/An/Image", "InvalidImageName"),
        ("absent", "localhost:9/absent:1", "ErrImageNeverPull"),
        ("unreachable", "localhost:9/absent:1", "ImagePullBackOff"),
    ] {
        let policy = if name == "absent" { "Never" } else { "IfNotPresent" };
        let manifest = pod(name, "true", "").replace(coracle_tests::image::BUSYBOX, image);
        shell
            .apply(&manifest.replace("imagePullPolicy: IfNotPresent", &format!("imagePullPolicy: {policy}")));
        shell.until(
            &format!(
                "kubectl get pod {name} -o jsonpath='{{.status.containerStatuses[0].state.waiting.reason}}'"
            ),
            reason,
        );
    }
}

/// Runtimes before containerd 2.1 mount no images; then the pod says so instead of running without its volume.
fn image_volume(shell: &Shell) {
    let volume = format!(
        "  volumes: [{{name: image, image: {{reference: {}, pullPolicy: IfNotPresent}}}}]\n  containers:",
        coracle_tests::image::BUSYBOX
    );
    let mount = "volumeMounts: [{name: image, mountPath: /image}]";
    shell.apply(&pod("mounter", "sleep 3600", mount).replace("  containers:", &volume));
    let state = "kubectl get pod mounter -o jsonpath='{.status.containerStatuses[0].state}'";
    let state =
        shell.until_that(state, |out| out.contains("CreateContainerError") || out.contains("running"));
    if state.contains("running") {
        shell.ok("kubectl exec mounter -- test -x /image/bin/busybox");
    }
    shell.ok("kubectl delete pod mounter --timeout=100s");
}
