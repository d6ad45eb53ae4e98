//! A CSI driver whose volumes are directories of the machine, bound where the kubelet says, seen by real containers.

use crate::driver::{self, Driver};
use crate::node::Steps;
use coracle_storage::csi::controller_messages::ControllerRpcType;
use coracle_storage::csi::messages::NodeRpcType;
use coracle_tests::Shell;
use coracle_tests::image::BUSYBOX;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

pub const NAME: &str = "csi.e2e.example";
/// The kubelet looks every 30 s whether volumes have grown that are mounted; the rest is for a busy machine.
const A_LOOK: Duration = Duration::from_secs(90);
const REGISTRY: &str = "/var/lib/coracle/kubelet/plugins_registry";

pub fn steps(steps: &mut Steps<'_>) {
    steps.run("csi", csi);
    // The definitions of snapshots are one for the machine.
    steps.alone("csi-snapshots", snapshots);
}

pub fn started(shell: &Shell, runtime: &Runtime) -> Arc<Driver> {
    let _inside = runtime.enter();
    let dir = shell.home().join("driver");
    let driver = driver::driver(NAME, &dir, &[NodeRpcType::StageUnstageVolume, NodeRpcType::ExpandVolume]);
    {
        let mut state = driver.state.lock().expect("the driver's state");
        (state.binds, state.controller.needs_node) = (true, true);
        state.controller.capabilities = [
            ControllerRpcType::CreateDeleteVolume,
            ControllerRpcType::PublishUnpublishVolume,
            ControllerRpcType::ExpandVolume,
        ]
        .into();
    }
    let endpoint = driver.serve(dir.join("csi.sock"));
    driver.register(Path::new(REGISTRY), &endpoint);
    driver
}

fn csi(shell: &Shell) {
    let runtime = Runtime::new().expect("a tokio runtime");
    let driver = started(shell, &runtime);
    announced(shell);
    claimed(shell, &driver);
    inline(shell, &driver);
    built_in(shell, &driver);
    gone(shell, &runtime, &driver);
}

fn announced(shell: &Shell) {
    shell.apply(&format!("apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {{name: {NAME}}}\nspec: {{podInfoOnMount: true, volumeLifecycleModes: [Persistent, Ephemeral]}}\n"));
    shell.until_that("kubectl get csinode -o yaml", |out| out.contains(&format!("nodeID: {NAME}-node")));
}

pub fn gone(shell: &Shell, runtime: &Runtime, driver: &Driver) {
    // A pod without a grace period is gone before its node is done with it.
    let clean = driver.until("taken away", |state| state.staged.is_empty() && state.published.is_empty());
    runtime.block_on(clean);
    shell.ok(&format!("kubectl delete csidriver {NAME}"));
    std::fs::remove_file(Path::new(REGISTRY).join(format!("{NAME}-reg.sock"))).expect("the driver goes");
    shell.until_that("kubectl get csinode -o yaml", |out| !out.contains(NAME));
    driver.kill();
}

/// Attached by hand, as the driver's attacher would; what a container writes is in the driver's directory.
fn claimed(shell: &Shell, driver: &Driver) {
    shell.apply(&format!(
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: e2e-csi}}\nspec: {{capacity: {{storage: 5Mi}}, accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Retain, storageClassName: e2e-csi, csi: {{driver: {NAME}, volumeHandle: disk}}}}\n---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: disk}}\nspec: {{accessModes: [ReadWriteOnce], storageClassName: e2e-csi, resources: {{requests: {{storage: 1Mi}}}}}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: disk}}\nspec:\n  terminationGracePeriodSeconds: 0\n  volumes: [{{name: d, persistentVolumeClaim: {{claimName: disk}}}}]\n  containers:\n  - {{name: main, image: \"{BUSYBOX}\", imagePullPolicy: IfNotPresent, command: [sh, -c, \"echo gold >/d/treasure; sleep 3600\"], volumeMounts: [{{name: d, mountPath: /d}}]}}\n"
    ));
    let attachments = format!(
        "kubectl get volumeattachment -o jsonpath='{{.items[?(@.spec.attacher==\"{NAME}\")].metadata.name}}'"
    );
    shell.until_that(&attachments, |out| out.starts_with("csi-"));
    let name = shell.ok(&attachments);
    assert!(driver.calls("NodeStageVolume").is_empty(), "it is not attached yet");
    shell.ok(&format!("kubectl patch volumeattachment {name} --subresource=status --type=merge -p '{{\"status\": {{\"attached\": true}}}}'"));
    shell.ok("kubectl wait pod/disk --for=condition=Ready --timeout=100s");
    let treasure = driver.dir.join("volumes/disk/treasure");
    shell.until(&format!("cat {}", treasure.display()), "gold");
    let in_use = format!("kubernetes.io/csi/{NAME}^disk");
    shell.until_that("kubectl get nodes -o jsonpath='{.items[0].status.volumesInUse}'", |out| {
        out.contains(&in_use)
    });
    shell.ok("kubectl delete pod disk --timeout=100s");
    shell.until(&attachments, "");
    shell.ok("kubectl delete pvc disk --timeout=100s && kubectl delete pv e2e-csi --timeout=100s");
    shell.says(&format!("cat {}", treasure.display()), "gold");
    assert!(driver.is_clean(), "{:?}", driver.order());
}

/// The volume is written in the pod, and goes with it.
fn inline(shell: &Shell, driver: &Driver) {
    shell.apply(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: inline}}\nspec:\n  terminationGracePeriodSeconds: 0\n  volumes: [{{name: d, csi: {{driver: {NAME}, readOnly: true, volumeAttributes: {{secretProviderClass: aws-secrets}}}}}}]\n  containers:\n  - {{name: main, image: \"{BUSYBOX}\", imagePullPolicy: IfNotPresent, command: [sleep, \"3600\"], volumeMounts: [{{name: d, mountPath: /d}}]}}\n"
    ));
    shell.ok("kubectl wait pod/inline --for=condition=Ready --timeout=100s");
    let published = driver.calls("NodePublishVolume");
    let call = published.iter().find(|call| call.read_only).expect("a publication that is read-only");
    assert_eq!(call.context["secretProviderClass"], "aws-secrets");
    assert_eq!(call.context["csi.storage.k8s.io/pod.name"], "inline");
    std::fs::write(driver.dir.join("volumes").join(&call.volume).join("password"), "secret").expect("a file");
    shell.says("kubectl exec inline -- cat /d/password", "secret");
    shell.ok("kubectl delete pod inline --timeout=100s");
}

/// Once the driver is handed over nothing of its own is needed: its volume is made, attached, grows and goes.
fn built_in(shell: &Shell, driver: &Driver) {
    assert!(driver.calls("CreateVolume").is_empty() && driver.calls("ControllerPublishVolume").is_empty());
    shell.ok(&format!("kubectl annotate csidriver {NAME} coracle.io/controller=built-in"));
    shell.apply(&format!(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: e2e-built-in}}\nprovisioner: {NAME}\nvolumeBindingMode: WaitForFirstConsumer\nallowVolumeExpansion: true\n---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: made}}\nspec: {{accessModes: [ReadWriteOnce], storageClassName: e2e-built-in, resources: {{requests: {{storage: 1Mi}}}}}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: made}}\nspec:\n  terminationGracePeriodSeconds: 0\n  volumes: [{{name: d, persistentVolumeClaim: {{claimName: made}}}}]\n  containers:\n  - {{name: main, image: \"{BUSYBOX}\", imagePullPolicy: IfNotPresent, command: [sh, -c, \"echo gold >/d/treasure; sleep 3600\"], volumeMounts: [{{name: d, mountPath: /d}}]}}\n"
    ));
    shell.ok("kubectl wait pod/made --for=condition=Ready --timeout=100s");
    let published = driver.calls("NodePublishVolume").pop().expect("a publication");
    assert!(published.publish_context["device"].starts_with("/dev/vol-pvc-"), "{published:?}");
    shell.until(
        &format!("cat {}", driver.dir.join("volumes").join(&published.volume).join("treasure").display()),
        "gold",
    );
    shell.ok("kubectl patch pvc made --type=merge -p '{\"spec\": {\"resources\": {\"requests\": {\"storage\": \"2Mi\"}}}}'");
    let grown = "kubectl get pvc made -o jsonpath='{.status.capacity.storage} {.status.conditions}{.status.allocatedResourceStatuses}'";
    shell.within(A_LOOK, grown, |out| out.trim() == "2Mi");
    assert_eq!(driver.calls("NodeExpandVolume").pop().map(|call| call.bytes), Some(2 << 20));
    shell.shows(
        "kubectl describe pvc made",
        &["ProvisioningSucceeded", "External resizer is resizing volume", "FileSystemResizeRequired"],
    );
    shell.ok("kubectl delete pod made --timeout=100s && kubectl delete pvc made --timeout=100s");
    shell.until_that("kubectl get pv,volumeattachment", |out| {
        !out.contains(NAME) && !out.contains("e2e-built-in")
    });
    let state = driver.state.lock().expect("the driver's state");
    let controller = &state.controller;
    assert!(controller.made.is_empty() && controller.attached.is_empty() && controller.violations.is_empty());
    drop(state);
    shell.ok("kubectl delete storageclass e2e-built-in");
}

/// Without a snapshotter of its own: a snapshot is taken of a claim, another claim comes of it, and all goes again.
fn snapshots(shell: &Shell) {
    let runtime = Runtime::new().expect("a tokio runtime");
    let driver = started(shell, &runtime);
    {
        let mut state = driver.state.lock().expect("the driver's state");
        state.controller.ready_after = 2;
        let further = [ControllerRpcType::CreateDeleteSnapshot, ControllerRpcType::ListSnapshots];
        state.controller.capabilities.extend(further);
    }
    announced(shell);
    shell.ok("coracle snapshots | kubectl apply -f - && kubectl wait crd/volumesnapshots.snapshot.storage.k8s.io --for=condition=Established --timeout=60s");
    shell.ok(&format!("kubectl annotate csidriver {NAME} coracle.io/controller=built-in"));
    shell.apply(&format!(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: e2e-shot}}\nprovisioner: {NAME}\n---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: source}}\nspec: {{accessModes: [ReadWriteOnce], storageClassName: e2e-shot, resources: {{requests: {{storage: 1Mi}}}}}}\n---\napiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshotClass\nmetadata: {{name: e2e-shots}}\ndriver: {NAME}\ndeletionPolicy: Delete\nparameters: {{quality: good}}\n---\napiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshot\nmetadata: {{name: shot}}\nspec: {{volumeSnapshotClassName: e2e-shots, source: {{persistentVolumeClaimName: source}}}}\n---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: restored}}\nspec: {{accessModes: [ReadWriteOnce], storageClassName: e2e-shot, resources: {{requests: {{storage: 1Mi}}}}, dataSource: {{apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: shot}}}}\n"
    ));
    shell.ok("kubectl wait volumesnapshot/shot --for=jsonpath='{.status.readyToUse}'=true --timeout=100s");
    shell.ok("kubectl wait pvc/source pvc/restored --for=jsonpath='{.status.phase}'=Bound --timeout=100s");
    let content = "kubectl get volumesnapshotcontent -o jsonpath='{.items[0].status.snapshotHandle} {.items[0].spec.volumeSnapshotRef.name} {.items[0].spec.driver}'";
    let told = shell.ok(content);
    {
        let state = driver.state.lock().expect("the driver's state");
        let controller = &state.controller;
        let shot = controller.snapshots.values().next().expect("a snapshot");
        assert_eq!(told.trim(), format!("{} shot {NAME}", shot.id));
        assert!(shot.asked > 2 && shot.parameters["quality"] == "good", "{shot:?}");
        let restored = controller.made.values().filter(|made| made.source.is_some()).count();
        assert_eq!((controller.made.len(), restored), (2, 1), "{:?}", controller.made);
    }
    shell.ok("kubectl delete volumesnapshot shot --timeout=100s && kubectl delete pvc source restored --timeout=100s");
    shell.until("kubectl get volumesnapshotcontent -o name", "");
    shell.until_that("kubectl get pv", |out| !out.contains("e2e-shot"));
    {
        let state = driver.state.lock().expect("the driver's state");
        let controller = &state.controller;
        assert!(controller.made.is_empty() && controller.snapshots.is_empty(), "{:?}", controller.snapshots);
        assert_eq!(controller.violations, [""; 0]);
    }
    shell
        .ok("kubectl delete storageclass e2e-shot && coracle snapshots | kubectl delete -f - --timeout=100s");
    gone(shell, &runtime, &driver);
}
