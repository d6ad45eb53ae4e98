//! What a pod can do to its node, to other pods and to other tenants' images: as little as possible.

use crate::images::{Boats, Hosts, registry};
use crate::node::{Steps, pod, running_pod};
use coracle_tests::Shell;
use coracle_tests::cluster::free_port;
use coracle_tests::image::BUSYBOX;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

pub fn steps(steps: &mut Steps<'_>) {
    steps.run("confined", confined);
    steps.alone("fork-bomb", fork_bomb);
    steps.run("fs-group-race", fs_group_race);
    steps.run("user-namespaces", user_namespaces);
    if steps.node.run("command -v docker-registry skopeo").code == 0 {
        let archive = steps.node.dir.path().join("busybox.tar");
        steps.run("private-image", move |shell| private_image(shell, &archive));
    } else {
        println!("skipped: private images need docker-registry and skopeo");
    }
}

fn confined(shell: &Shell) {
    running_pod(shell, "plain", "sleep 3600", "");
    shell.says("kubectl exec plain -- sh -c 'wc -c </proc/interrupts'", "0");
    if Path::new("/proc/sys/kernel/seccomp/actions_avail").exists() {
        shell.says("kubectl exec plain -- awk '/^Seccomp:/ {print $2}' /proc/1/status", "2");
    }
    let uid = shell.ok("kubectl get pod plain -o jsonpath='{.metadata.uid}'");
    let token =
        shell.ok(&format!("awk '$5 ~ /{uid}.*kube-api-access/ {{print $6; exit}}' /proc/self/mountinfo"));
    for option in ["nosuid", "nodev", "noexec"] {
        assert!(token.contains(option), "{option} is missing from {token}");
    }
}

/// The pod's cgroup of processes, in either version.
fn pids(uid: &str, file: &str) -> String {
    format!("cat /sys/fs/cgroup/{{pids/,}}kubepods/besteffort/pod{uid}/{file} 2>/dev/null | head -n 1")
        .replace(
            "{pids/,}",
            if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() { "" } else { "pids/" },
        )
}

fn fork_bomb(shell: &Shell) {
    running_pod(shell, "neighbour", "sleep 3600", "");
    running_pod(shell, "bomb", "sleep 3600", "");
    let uid = shell.ok("kubectl get pod bomb -o jsonpath='{.metadata.uid}'");
    let limit: u64 = shell.ok(&pids(&uid, "pids.max")).trim().parse().expect("a limit");
    let bomb = shell.start("kubectl exec bomb -- sh -c 'b() { b | b & }; b; sleep 3600'", "bomb.log");
    shell.until_that(&pids(&uid, "pids.current"), |now| {
        now.trim().parse::<u64>().is_ok_and(|now| now * 10 >= limit * 9)
    });
    shell.says("kubectl get --raw /readyz", "ok");
    shell.says("kubectl exec neighbour -- echo alive", "alive");
    let most: u64 = shell.ok(&pids(&uid, "pids.current")).trim().parse().expect("a number");
    assert!(most <= limit, "{most} of {limit}");
    running_pod(shell, "newcomer", "sleep 3600", "");
    shell.until_that("kubectl get events --field-selector involvedObject.name=bomb,reason=PodPidsLimitReached -o jsonpath='{.items[0].message}'", |text| {
        text.contains(&format!("{limit} processes and threads, which is its limit (podPidsLimit)"))
    });
    shell.ok("kubectl delete pod bomb --timeout=100s");
    drop(bomb);
    shell.says("kubectl get node --no-headers | awk '{print $2}'", "Ready");
}

/// A root container exchanges a directory of its volume for a link to the node's files while the node looks after the
/// volume, which every change of the pod's labels brings about.
fn fs_group_race(shell: &Shell) {
    let host = shell.home().join("host");
    std::fs::create_dir(&host).expect("a directory of the node");
    std::fs::write(host.join("shadow"), "root").expect("a file of the node");
    std::fs::set_permissions(host.join("shadow"), std::fs::Permissions::from_mode(0o600)).expect("its mode");
    let seen = || {
        let meta =
            |path: &Path| std::fs::metadata(path).map(|m| (m.uid(), m.gid(), m.mode())).expect("there");
        (meta(&host), meta(&host.join("shadow")))
    };
    let before = seen();
    let script = format!(
        "mkdir -p /d/real/x; touch /d/real/shadow; while :; do chmod 700 /d; mv /d/real /d/aside; ln -s {} /d/real; rm /d/real; mv /d/aside /d/real; echo x; done",
        host.display()
    );
    shell.apply(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: attacker}}\nspec:\n  terminationGracePeriodSeconds: 0\n  securityContext: {{fsGroup: 2000}}\n  volumes: [{{name: d, emptyDir: {{}}}}]\n  containers:\n  - name: main\n    image: {BUSYBOX}\n    imagePullPolicy: IfNotPresent\n    command: [sh, -c, {script:?}]\n    volumeMounts: [{{name: d, mountPath: /d}}]\n"
    ));
    shell.ok("kubectl wait pod/attacker --for=condition=Ready --timeout=100s");
    let uid = shell.ok("kubectl get pod attacker -o jsonpath='{.metadata.uid}'");
    let volume = format!("/var/lib/coracle/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/d");
    shell.says(&format!("stat -c %g {volume}"), "2000");
    for round in 0..40 {
        shell.ok(&format!("kubectl label pod attacker round=r{round} --overwrite"));
    }
    assert_eq!(seen(), before, "nothing of the node's changed");
    shell.says(&format!("stat -c %a {volume}"), "700");
    let rounds: u64 = shell.ok("kubectl logs attacker | wc -l").trim().parse().expect("a number");
    assert!(rounds > 100, "the attack ran: {rounds}");
    shell.ok("kubectl delete pod attacker --timeout=100s");
    assert_eq!(seen(), before, "nor when the pod went");
    shell.until(&format!("ls -d {volume} 2>/dev/null || echo gone"), "gone");
}

/// What the runtime cannot do is refused, not left out.
fn user_namespaces(shell: &Shell) {
    let able = shell.ok("kubectl get node -o jsonpath='{.items[0].status.runtimeHandlers[?(@.name==\"\")].features.userNamespaces}'");
    shell.apply(&pod("own-users", "sleep 3600", "").replace("spec:\n", "spec:\n  hostUsers: false\n"));
    if able.trim() == "true" {
        shell.ok("kubectl wait pod/own-users --for=condition=Ready --timeout=100s");
        let map = shell.ok("kubectl exec own-users -- cat /proc/self/uid_map");
        let first = map.split_whitespace().nth(1).and_then(|id| id.parse::<u32>().ok());
        assert!(first.is_some_and(|first| first >= 65536), "{map}");
        return;
    }
    shell.until_that("kubectl get events --field-selector involvedObject.name=own-users,reason=FailedCreatePodSandBox -o jsonpath='{.items[0].message}'", |text| {
        text.contains("does not support user namespaces")
    });
    shell.says("kubectl get pod own-users -o jsonpath='{.status.phase}'", "Pending");
}

/// `sesame`, of the user `crew`, as registries keep passwords.
const PASSWORD: &str = "crew:$2y$10$abcdefghijklmnopqrstuuYoA/Ig5dOcHJ1Uzls.zCgSC7r9v4W76\n";

fn private_image(shell: &Shell, archive: &Path) {
    let _boats = Boats::none(shell, "ferry");
    let port = free_port();
    let name = format!("127.0.0.1:{port}");
    let _hosts = Hosts::plain_http(&name);
    std::fs::write(shell.home().join("passwords"), PASSWORD).expect("the registry's users");
    let _running = registry(shell, port, "auth: {htpasswd: {realm: boats, path: passwords}}\n");
    shell.ok(&format!("skopeo copy --insecure-policy --dest-tls-verify=false --dest-creds crew:sesame docker-archive:{} docker://{name}/ferry:private", archive.display()));
    for (secret, user) in [("crew", "crew"), ("stranger", "stranger")] {
        shell.ok(&format!("kubectl create secret docker-registry {secret} --docker-server={name} --docker-username={user} --docker-password=sesame"));
    }
    let image = |of: &str, secret: &str, policy: &str| {
        let secrets = format!("spec:\n  imagePullSecrets: [{secret}]\n");
        pod(of, "sleep 3600", "")
            .replace(BUSYBOX, &format!("{name}/ferry:private"))
            .replace("spec:\n", &secrets)
            .replace("imagePullPolicy: IfNotPresent", &format!("imagePullPolicy: {policy}"))
    };
    shell.apply(&image("owner", "{name: crew}", "IfNotPresent"));
    shell.ok("kubectl wait pod/owner --for=condition=Ready --timeout=100s");
    let state = |of: &str| format!("kubectl get pod {of} --no-headers | awk '{{print $3}}'");
    for (of, secret) in [("anonymous", ""), ("stranger", "{name: stranger}")] {
        shell.apply(&image(of, secret, "IfNotPresent"));
        shell.until_that(&state(of), |s| s.trim() == "ErrImagePull" || s.trim() == "ImagePullBackOff");
    }
    shell.apply(&image("never", "", "Never"));
    shell.until(&state("never"), "ErrImageNeverPull");
    shell.apply(&image("mate", "{name: crew}", "Never"));
    shell.ok("kubectl wait pod/mate --for=condition=Ready --timeout=100s");
    shell.says("ls /var/lib/coracle/kubelet/image_manager/pulling", "");
    shell.says("stat -c %a /var/lib/coracle/kubelet/image_manager", "700");
}
