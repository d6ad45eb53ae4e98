//! A file system that is full, under the volumes of pods.

use crate::node::Steps;
use coracle_tests::Shell;
use coracle_tests::image::BUSYBOX;
use serde_json::Value;

pub fn steps(steps: &mut Steps<'_>) {
    // A place of the node's is one for all.
    steps.alone("full-disk", full_disk);
}

/// A further place of the node's: a small file system of its own.
const PLACE: &str = "/var/lib/coracle/local-path/@small";

/// Takes the place away, also when a step has failed.
struct Small<'a>(&'a Shell);

impl<'a> Small<'a> {
    fn new(shell: &'a Shell) -> Self {
        shell.ok(&format!("mkdir -p {PLACE} && mount -t tmpfs -o size=24m,mode=711 small {PLACE}"));
        Self(shell)
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        self.0.run(&format!("umount -l {PLACE}; rmdir {PLACE}"));
    }
}

fn full_disk(shell: &Shell) {
    let _small = Small::new(shell);
    let claim = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\nspec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Mi}}}}}}\n"
        )
    };
    // What fits goes there, and what does not stays where it is.
    let make = |name: &str, mib: u32| {
        shell.apply(&format!(
            "{}{}",
            pod(name, &format!("dd if=/dev/urandom of=/d/f bs=1M count={mib} 2>/dev/null && echo made")),
            claim(name)
        ));
        shell.until(&format!("kubectl logs {name} --ignore-errors 2>/dev/null"), "made");
        shell.ok(&format!("kubectl delete pod {name} --timeout=100s"));
    };
    make("fits", 1);
    make("huge", 40);
    let moving = |name: &str| shell.run(&format!("coracle volume move full-disk/{name} --to-place small"));
    let refused = moving("huge");
    assert!(refused.code == 1 && refused.stderr.contains("No space left on device"), "{refused}");
    shell.shows("kubectl describe pvc huge", &["VolumeMoveFailed", "No space left on device"]);
    shell.until(&format!("ls -A {PLACE}"), "");
    let moved = moving("fits");
    assert!(moved.code == 0 && moved.stdout.contains("to @small of node"), "{moved}");
    // A container that fills it is told, and so is whoever looks; nobody else is concerned.
    let script = "fill() { dd if=/dev/zero of=$1/more bs=1M count=64 2>&1 | grep -o 'No space left on device'; }; fill /d; fill /m; while [ -f /d/more ]; do sleep 0.2; done; rm /m/more; echo again >/d/again && echo again >/m/again && echo recovered; sleep 3600";
    shell.apply(&pod("fits", script));
    let full = "No space left on device\nNo space left on device";
    shell.until("kubectl logs fits --ignore-errors 2>/dev/null", full);
    shell.within(std::time::Duration::from_secs(100), STATISTICS, |page| {
        let page: Value = serde_json::from_str(page).unwrap_or_default();
        let (disk, memory) = (volume(&page, "d"), volume(&page, "m"));
        disk["availableBytes"] == 0 && memory["availableBytes"] == 0 && memory["capacityBytes"] == 8 << 20
    });
    shell.says("kubectl get --raw /livez", "ok");
    shell.says("kubectl get nodes -o jsonpath='{.items[0].status.conditions[?(@.type==\"DiskPressure\")].status}{.items[0].status.conditions[?(@.type==\"Ready\")].status}'", "FalseTrue");
    shell.says(
        "kubectl get pod fits -o jsonpath='{.status.phase} {.status.containerStatuses[0].restartCount}'",
        "Running 0",
    );
    shell.ok(&format!("rm {PLACE}/*/more"));
    shell.until("kubectl logs fits", &format!("{full}\nrecovered"));
    shell.ok("kubectl delete pod fits --timeout=100s && kubectl delete pvc fits huge --timeout=100s");
    shell.until(&format!("ls -A {PLACE}"), "");
}

const STATISTICS: &str = "kubectl get --raw /api/v1/nodes/$(kubectl get nodes -o jsonpath='{.items[0].metadata.name}')/proxy/stats/summary";

/// What statistics say of a volume of the pod.
fn volume(page: &Value, name: &str) -> Value {
    let pods = page["pods"].as_array().into_iter().flatten();
    let of_pod = pods.filter(|pod| pod["podRef"]["namespace"] == "full-disk");
    let mut volumes = of_pod.flat_map(|pod| pod["volume"].as_array().into_iter().flatten());
    volumes.find(|volume| volume["name"] == name).cloned().unwrap_or_default()
}

/// With the claim of its name at `/d` and some memory at `/m`.
fn pod(name: &str, script: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  restartPolicy: Never\n  terminationGracePeriodSeconds: 0\n  volumes: [{{name: d, persistentVolumeClaim: {{claimName: {name}}}}}, {{name: m, emptyDir: {{medium: Memory, sizeLimit: 8Mi}}}}]\n  containers:\n  - {{name: main, image: \"{BUSYBOX}\", imagePullPolicy: IfNotPresent, command: [sh, -c, \"{script}\"], volumeMounts: [{{name: d, mountPath: /d}}, {{name: m, mountPath: /m}}]}}\n"
    )
}
