//! Claims: data that outlives a pod, and goes when it shall.

use crate::node::Steps;
use coracle_tests::Shell;
use coracle_tests::image::BUSYBOX;

pub fn steps(steps: &mut Steps<'_>) {
    steps.run("claim", claim);
    steps.run("static-volume", static_volume);
    steps.run("scratch-volume", scratch_volume);
    steps.run("foreign-volume", foreign_volume);
    steps.run("limited-volume", limited_volume);
    steps.run("cloned-volume", cloned_volume);
    steps.run("snapshot", snapshot);
    // A second node would have directories of the same paths.
    steps.alone("recycled-volume", recycled_volume);
}

fn user(name: &str, script: &str, claim: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  restartPolicy: Never\n  terminationGracePeriodSeconds: 0\n  volumes: [{{name: d, persistentVolumeClaim: {{claimName: {claim}}}}}]\n  containers:\n  - {{name: main, image: \"{BUSYBOX}\", imagePullPolicy: IfNotPresent, command: [sh, -c, \"{script}\"], volumeMounts: [{{name: d, mountPath: /d}}]}}\n"
    )
}

fn claim(shell: &Shell) {
    shell.shows("kubectl get storageclass", &["local-path (default)", "Delete", "WaitForFirstConsumer"]);
    shell.apply("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: chest}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Mi}}}\n");
    shell.until_that("kubectl describe pvc chest", |out| {
        out.contains("WaitForFirstConsumer")
            && out.contains("waiting for first consumer to be created before binding")
    });
    shell.says("kubectl get pvc chest -o jsonpath='{.status.phase}'", "Pending");
    shell.apply(&user("first", "echo gold >/d/treasure", "chest"));
    shell.ok("kubectl wait pod/first --for=jsonpath='{.status.phase}'=Succeeded --timeout=100s");
    shell.says(
        "kubectl get pvc chest -o jsonpath='{.status.phase} {.spec.storageClassName}'",
        "Bound local-path",
    );
    let volume = shell.ok("kubectl get pvc chest -o jsonpath='{.spec.volumeName}'");
    shell.shows(
        &format!("kubectl get pv {volume} --no-headers"),
        &["10Mi", "RWO", "Delete", "Bound", "claim/chest", "local-path"],
    );
    let dir = shell
        .ok(&format!("kubectl get pv {volume} -o jsonpath='{{.spec.hostPath.path}}{{.spec.local.path}}'"));
    shell.says(&format!("cat {dir}/treasure"), "gold");
    shell.ok("kubectl delete pod first --timeout=100s");
    shell.apply(&user("second", "cat /d/treasure; sleep 3600", "chest"));
    shell.ok("kubectl wait pod/second --for=condition=Ready --timeout=100s");
    shell.until("kubectl logs second", "gold");
    shell.shows(
        "kubectl describe pvc chest",
        &["SizeNotEnforced", "The requested size of 10Mi is not enforced"],
    );
    let summary = "kubectl get --raw /api/v1/nodes/$(kubectl get nodes -o jsonpath='{.items[0].metadata.name}')/proxy/stats/summary";
    shell.until_that(summary, |out| out.contains(r#""pvcRef":{"name":"chest","namespace":"claim"}"#));
    shell.ok("kubectl delete pvc chest --wait=false");
    shell.says("kubectl get pvc chest --no-headers | awk '{print $2}'", "Terminating");
    shell.says("kubectl exec second -- cat /d/treasure", "gold");
    shell.ok("kubectl delete pod second --timeout=100s");
    shell.until(&format!("kubectl get pvc -o name; kubectl get pv {volume} -o name --ignore-not-found; ls -d {dir} 2>/dev/null || true"), "");
}

fn static_volume(shell: &Shell) {
    let dir = shell.home().join("pv");
    std::fs::create_dir(&dir).expect("a directory");
    let manifest = format!(
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: e2e-static-volume}}\nspec: {{capacity: {{storage: 5Mi}}, accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Retain, storageClassName: manual, hostPath: {{path: {}}}}}\n---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: mine}}\nspec: {{accessModes: [ReadWriteOnce], storageClassName: manual, resources: {{requests: {{storage: 1Mi}}}}}}\n",
        dir.display()
    );
    shell.apply(&manifest);
    shell.until(
        "kubectl get pvc mine -o jsonpath='{.status.phase} {.spec.volumeName} {.status.capacity.storage}'",
        "Bound e2e-static-volume 5Mi",
    );
    shell.apply(&user("keeper", "echo kept >/d/f", "mine"));
    shell.ok("kubectl wait pod/keeper --for=jsonpath='{.status.phase}'=Succeeded --timeout=100s && kubectl delete pod/keeper pvc/mine --timeout=100s ");
    shell.until("kubectl get pv e2e-static-volume -o jsonpath='{.status.phase}'", "Released");
    shell.says("cat pv/f", "kept");
    shell.ok("kubectl delete pv e2e-static-volume --timeout=100s");
}

/// Emptied by the node itself and offered again: there is no image to be pulled for it.
fn recycled_volume(shell: &Shell) {
    let dir = shell.home().join("recycled");
    std::fs::create_dir(&dir).expect("a directory");
    shell.apply(&format!(
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: e2e-recycled}}\nspec: {{capacity: {{storage: 5Mi}}, accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Recycle, storageClassName: e2e-recycled, hostPath: {{path: {}}}}}\n",
        dir.display()
    ));
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: again}\nspec: {accessModes: [ReadWriteOnce], storageClassName: e2e-recycled, resources: {requests: {storage: 1Mi}}}\n";
    shell.apply(claim);
    shell.apply(&user("writer", "mkdir /d/below; echo old >/d/below/f", "again"));
    shell.ok("kubectl wait pod/writer --for=jsonpath='{.status.phase}'=Succeeded --timeout=100s && kubectl delete pod/writer pvc/again --timeout=100s");
    shell.until("kubectl get pv e2e-recycled -o jsonpath='{.status.phase}'", "Available");
    shell.says("ls -A recycled", "");
    shell.shows("kubectl describe pv e2e-recycled", &["VolumeRecycled", "Volume recycled"]);
    shell.apply(claim);
    shell.until(
        "kubectl get pvc again -o jsonpath='{.status.phase} {.spec.volumeName}'",
        "Bound e2e-recycled",
    );
    shell.ok("kubectl delete pvc again --timeout=100s && kubectl delete pv e2e-recycled --timeout=100s");
}

/// A path below /tmp goes with its volume, and no other path does.
fn scratch_volume(shell: &Shell) {
    let scratch = format!("/tmp/e2e-scratch-{}", std::process::id());
    let other = format!("/var{scratch}");
    for (name, path) in [("e2e-scratch", &scratch), ("e2e-kept", &other)] {
        shell.ok(&format!("mkdir -p {path} && echo data >{path}/f"));
        shell.apply(&format!(
            "apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {name}}}\nspec: {{capacity: {{storage: 5Mi}}, accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Delete, storageClassName: {name}, hostPath: {{path: {path}}}}}\n---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\nspec: {{accessModes: [ReadWriteOnce], storageClassName: {name}, resources: {{requests: {{storage: 1Mi}}}}}}\n",
        ));
        shell.until(&format!("kubectl get pvc {name} -o jsonpath='{{.status.phase}}'"), "Bound");
        shell.ok(&format!("kubectl delete pvc {name} --timeout=100s"));
    }
    shell.until(
        &format!(
            "kubectl get pv e2e-scratch -o name --ignore-not-found; ls -d {scratch} 2>/dev/null || true"
        ),
        "",
    );
    shell.until("kubectl get pv e2e-kept -o jsonpath='{.status.phase}'", "Failed");
    shell.shows(
        "kubectl describe pv e2e-kept",
        &["host_path deleter only supports /tmp/.+ but received provided"],
    );
    shell.says(&format!("cat {other}/f"), "data");
    shell.ok(&format!("kubectl delete pv e2e-kept --timeout=100s && rm -r {other}"));
}

/// A volume that the node cannot mount is no riddle: no pod is placed there for it, and its event says why.
fn foreign_volume(shell: &Shell) {
    let pod = |name: &str, volume: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 0\n  volumes: [{{name: d, {volume}}}]\n  containers:\n  - {{name: main, image: \"{BUSYBOX}\", imagePullPolicy: IfNotPresent, command: [sleep, \"3600\"], volumeMounts: [{{name: d, mountPath: /d}}]}}\n"
        )
    };
    shell.apply(&pod("disk", "iscsi: {targetPortal: 127.0.0.1, iqn: iqn.2026-01.example:d, lun: 0}"));
    let kind = "node(s) cannot mount volumes of kind \"iscsi\"";
    shell.until_that("kubectl describe pod disk", |out| {
        out.contains("FailedScheduling") && out.contains(kind)
    });
    // Who chooses the node himself is told by the node.
    shell.apply(
        &pod("chosen", "iscsi: {targetPortal: 127.0.0.1, iqn: iqn.2026-01.example:e, lun: 0}").replace(
            "spec:\n",
            &format!(
                "spec:\n  nodeName: {}\n",
                shell.ok("kubectl get nodes -o jsonpath='{.items[0].metadata.name}'").trim()
            ),
        ),
    );
    let kind = "this node cannot mount volumes of kind \"iscsi\"";
    shell.until_that("kubectl describe pod chosen", |out| out.contains("FailedMount") && out.contains(kind));
    let client = shell.ok("grep -cw 'nfs4\\?$' /proc/filesystems || ls -d /lib/modules/$(uname -r)/kernel/fs/nfs 2>/dev/null || true");
    if client.trim() == "0" {
        shell.apply(&pod("share", "nfs: {server: 127.0.0.1, path: /exports}"));
        let why = "mounting \"127.0.0.1:/exports\" is not possible: the node's kernel has no NFS client";
        shell
            .until_that("kubectl describe pod share", |out| out.contains("FailedMount") && out.contains(why));
    } else {
        println!("this kernel can mount NFS: that it says so where it cannot is not looked at");
    }
    shell.ok("kubectl delete pod disk chosen share --ignore-not-found --timeout=100s");
}

/// A size that holds: what does not fit is refused to the container, not to the node's disk.
fn limited_volume(shell: &Shell) {
    shell.apply("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: e2e-limited}\nprovisioner: coracle.io/local-path\nvolumeBindingMode: WaitForFirstConsumer\nparameters: {sizeLimit: file}\n---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: small}\nspec: {accessModes: [ReadWriteOnce], storageClassName: e2e-limited, resources: {requests: {storage: 16Mi}}}\n");
    shell.apply(&user("filler", "dd if=/dev/zero of=/d/f bs=1M count=32 2>&1; sleep 3600", "small"));
    shell.ok("kubectl wait pod/filler --for=condition=Ready --timeout=100s");
    shell.until_that("kubectl logs filler", |out| out.contains("No space left on device"));
    shell.says("kubectl describe pvc small | grep -c SizeNotEnforced || true", "0");
    let dir = shell.ok("kubectl get pv $(kubectl get pvc small -o jsonpath='{.spec.volumeName}') -o jsonpath='{.spec.hostPath.path}'");
    let size = shell.ok(&format!("stat -c %s {dir}.img"));
    assert_eq!(size.trim(), (16 << 20).to_string());
    shell.ok("kubectl delete pod filler --timeout=100s");
    // As after a start of the machine: who uses it next mounts it again.
    shell.ok(&format!("umount {dir}"));
    shell.apply(&user("reader", "test -s /d/f", "small"));
    shell.ok("kubectl wait pod/reader --for=jsonpath='{.status.phase}'=Succeeded --timeout=100s && kubectl delete pod reader --timeout=100s");
    shell.ok("kubectl delete pvc small --timeout=100s");
    shell.until(
        &format!(
            "kubectl get pv --no-headers 2>/dev/null | grep -c e2e-limited; ls -d {dir}* 2>/dev/null || true"
        ),
        "0",
    );
    shell.ok("kubectl delete storageclass e2e-limited");
}

/// A claim that begins as a copy of another.
fn cloned_volume(shell: &Shell) {
    shell.apply("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: original}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n");
    shell.apply(&user(
        "writer",
        "mkdir -p /d/a && echo gold >/d/a/treasure && ln -s a/treasure /d/link",
        "original",
    ));
    shell.ok("kubectl wait pod/writer --for=jsonpath='{.status.phase}'=Succeeded --timeout=100s");
    shell.apply("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: copy}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}, dataSource: {kind: PersistentVolumeClaim, name: original}}\n");
    shell.apply(&user("copyist", "cat /d/link; echo silver >/d/a/treasure", "copy"));
    shell.ok("kubectl wait pod/copyist --for=jsonpath='{.status.phase}'=Succeeded --timeout=100s");
    shell.until("kubectl logs copyist", "gold");
    shell.apply(&user("again", "cat /d/link", "original"));
    shell.ok("kubectl wait pod/again --for=jsonpath='{.status.phase}'=Succeeded --timeout=100s");
    shell.until("kubectl logs again", "gold");
    shell.ok("kubectl delete pod writer copyist again --timeout=100s && kubectl delete pvc original copy --timeout=100s");
}

/// What a claim was like at one time, in other claims.
fn snapshot(shell: &Shell) {
    shell.ok("coracle snapshots | kubectl apply -f - && kubectl wait crd/volumesnapshots.snapshot.storage.k8s.io --for=condition=Established --timeout=60s");
    shell.apply("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: living}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n");
    shell.apply(&user("first", "echo gold >/d/treasure", "living"));
    shell.ok("kubectl wait pod/first --for=jsonpath='{.status.phase}'=Succeeded --timeout=100s");
    shell.apply("apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshotClass\nmetadata: {name: e2e-copies}\ndriver: coracle.io/local-path\ndeletionPolicy: Delete\n---\napiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshot\nmetadata: {name: then}\nspec: {volumeSnapshotClassName: e2e-copies, source: {persistentVolumeClaimName: living}}\n");
    shell.ok("kubectl wait volumesnapshot/then --for=jsonpath='{.status.readyToUse}'=true --timeout=100s");
    shell.shows(
        "kubectl get volumesnapshot then --no-headers",
        &["true", "living", "1Mi", "e2e-copies", "snapcontent-"],
    );
    shell.apply(&user("second", "echo silver >/d/treasure", "living"));
    shell.ok("kubectl wait pod/second --for=jsonpath='{.status.phase}'=Succeeded --timeout=100s");
    shell.apply("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: restored}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}, dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: then}}\n");
    shell.apply(&user("third", "cat /d/treasure", "restored"));
    shell.ok("kubectl wait pod/third --for=jsonpath='{.status.phase}'=Succeeded --timeout=100s");
    shell.until("kubectl logs third", "gold");
    let place = shell.ok("kubectl get volumesnapshotcontent -o jsonpath='{.items[0].status.snapshotHandle}'");
    let place =
        format!("/var/lib/coracle/local-path/{}", place.split('/').nth(1).expect("node and directory"));
    shell.says(&format!("cat {place}/treasure"), "gold");
    shell.ok("kubectl delete volumesnapshot then --timeout=100s");
    shell.until(&format!("kubectl get volumesnapshotcontent -o name; ls -d {place} 2>/dev/null || true"), "");
    shell.ok("kubectl delete pod first second third --timeout=100s && kubectl delete pvc living restored --timeout=100s");
    shell.ok("coracle snapshots | kubectl delete -f - --timeout=100s");
}
