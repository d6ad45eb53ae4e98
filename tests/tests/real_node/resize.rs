//! CPU and memory of running pods.

use crate::node::{Steps, pod};
use coracle_tests::Shell;
use coracle_tests::image::BUSYBOX;
use serde_json::{Value, json};

pub fn steps(steps: &mut Steps<'_>) {
    steps.run("resize", resize);
    steps.run("resize-pods", resize_pods);
    steps.run("runtime-class", runtime_class);
}

const MEMORY: &str =
    "cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max";
const QUOTA: &str =
    "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 /sys/fs/cgroup/cpu.max";

/// Limits and as much requested.
fn amounts(cpu: &str, memory: &str) -> Value {
    let amounts = json!({ "cpu": cpu, "memory": memory });
    json!({ "requests": amounts, "limits": amounts })
}

fn resize_to(name: &str, cpu: &str, memory: &str) -> String {
    let spec = json!({ "spec": { "containers": [{ "name": "main", "resources": amounts(cpu, memory) }] } });
    format!("kubectl patch pod {name} --subresource resize --patch '{spec}'")
}

fn resize(shell: &Shell) {
    let resources = format!("resources: {}", amounts("20m", "35Mi"));
    shell.apply(&pod("grown", "sleep 3600", &resources));
    let anew =
        format!("{resources}\nresizePolicy: [{{resourceName: memory, restartPolicy: RestartContainer}}]");
    shell.apply(&pod("anew", "sleep 3600", &anew));
    shell.ok("kubectl wait pod/grown pod/anew --for=condition=Ready --timeout=100s");

    shell.ok(&resize_to("grown", "25m", "40Mi"));
    let shown = "kubectl get pod grown -o jsonpath='{.status.containerStatuses[0].resources.limits}'";
    shell.until(shown, r#"{"cpu":"25m","memory":"40Mi"}"#);
    shell.says(&format!("kubectl exec grown -- sh -c \"{MEMORY}\""), "41943040");
    shell.says(&format!("kubectl exec grown -- sh -c \"{QUOTA}\""), "2500");
    shell.says("kubectl get pod grown -o jsonpath='{.status.containerStatuses[0].restartCount}'", "0");

    let too_much = "Node didn't have enough allocatable resources: cpu, requested: 9000000";
    let refused = shell.run(&resize_to("grown", "9000", "40Mi"));
    assert!(refused.code != 0 && refused.stderr.contains(too_much), "{refused}");
    shell.says(shown, r#"{"cpu":"25m","memory":"40Mi"}"#);
    shell.ok(&resize_to("grown", "20m", "35Mi"));
    shell.until(shown, r#"{"cpu":"20m","memory":"35Mi"}"#);
    shell.until(
        "kubectl get pod grown -o jsonpath='{.status.conditions[*].type}' | tr ' ' '\\n' | grep -c PodResize || true",
        "0",
    );

    shell.ok(&resize_to("anew", "20m", "50Mi"));
    let state = "kubectl get pod anew -o jsonpath='{.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready} {.status.containerStatuses[0].resources.limits.memory}'";
    shell.until(state, "1 true 50Mi");
    shell.says(&format!("kubectl exec anew -- sh -c \"{MEMORY}\""), "52428800");
}

/// The containers of a pod, each with its name, its CPU and its memory.
fn three(containers: [(&str, &str, &str); 3]) -> Value {
    let container = |(name, cpu, memory)| json!({ "name": name, "resources": amounts(cpu, memory) });
    json!({ "spec": { "containers": containers.map(container) } })
}

fn quiet(shell: &Shell, pod: &str) {
    let resizing = format!(
        "kubectl get pod {pod} -o jsonpath='{{.status.conditions[*].type}} {{.status.observedGeneration}}={{.metadata.generation}}'"
    );
    shell.until_that(&resizing, |text| {
        let (_, generations) = text.trim().rsplit_once(' ').unwrap_or_default();
        let (observed, wanted) = generations.split_once('=').unwrap_or_default();
        !text.contains("PodResize") && observed == wanted && !wanted.is_empty()
    });
}

/// A pod of three containers, one with its own resources, and one that uses what it is asked to give up.
fn resize_pods(shell: &Shell) {
    let pods = Resized { shell };
    let before = three([("c1", "20m", "20Mi"), ("c2", "22m", "22Mi"), ("c3", "24m", "24Mi")]);
    pods.apply("three", Value::Null, before["spec"]["containers"].clone());
    let free = json!([{ "name": "own", "resources": amounts("20m", "16Mi") }, { "name": "none" }]);
    pods.apply("whole-own", amounts("80m", "64Mi"), free);
    shell.ok("kubectl wait pod/three pod/whole-own --for=condition=Ready --timeout=100s");
    containers_up_and_down(&pods, before);
    the_pods_own(&pods);
    what_is_in_use(&pods);
    shell.ok("kubectl delete pod three whole-own --timeout=100s");
}

/// Two pods whose resources change as a whole.
struct Resized<'a> {
    shell: &'a Shell,
}

impl Resized<'_> {
    fn apply(&self, name: &str, own: Value, containers: Value) {
        let all = containers.as_array().into_iter().flatten().map(|container| {
            let mut container = container.clone();
            container["image"] = BUSYBOX.into();
            container["command"] = json!(["sh", "-c", "sleep 3600"]);
            container
        });
        let all: Vec<Value> = all.collect();
        let spec = json!({ "terminationGracePeriodSeconds": 0, "resources": own, "containers": all });
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec });
        self.shell.apply(&pod.to_string());
    }

    fn patch(&self, pod: &str, patch: Value) {
        self.shell.ok(&format!("kubectl patch pod {pod} --subresource resize --patch '{patch}'"));
        quiet(self.shell, pod);
    }

    /// The command that prints a file of the pod's cgroup.
    fn group(&self, pod: &str, controller: &str, one: &str, two: &str) -> String {
        let uid = self.shell.ok(&format!("kubectl get pod {pod} -o jsonpath='{{.metadata.uid}}'"));
        crate::cgroups::file(&format!("kubepods/pod{}", uid.trim()), controller, one, two)
    }

    fn says_memory(&self, pod: &str, mib: u64) {
        let file = self.group(pod, "memory", "memory.limit_in_bytes", "memory.max");
        self.shell.says(&file, &(mib << 20).to_string());
    }

    fn says_quota(&self, pod: &str, micros: &str) {
        let file = self.group(pod, "cpu", "cpu.cfs_quota_us", "cpu.max");
        let wanted = if crate::cgroups::is_v2() { format!("{micros} 100000") } else { micros.to_owned() };
        self.shell.says(&file, &wanted);
    }

    fn inside(&self, pod: &str, container: &str, what: &str) -> String {
        format!("kubectl exec {pod} -c {container} -- sh -c \"{what}\"")
    }

    fn says_inside(&self, pod: &str, container: &str, mib: u64) {
        self.shell.says(&self.inside(pod, container, MEMORY), &(mib << 20).to_string());
    }

    fn nothing_was_restarted(&self) {
        let counts = "kubectl get pod three whole-own -o jsonpath='{.items[*].status.containerStatuses[*].restartCount}'";
        self.shell.says(counts, "0 0 0 0 0");
    }
}

/// More memory and less CPU in all, up and down among the containers, and back.
fn containers_up_and_down(pods: &Resized<'_>, before: Value) {
    let after = three([("c1", "25m", "30Mi"), ("c2", "12m", "20Mi"), ("c3", "14m", "34Mi")]);
    pods.patch("three", after);
    pods.says_memory("three", 84);
    pods.says_quota("three", "5100");
    for (name, mib, cpu) in [("c1", 30, "2500"), ("c2", 20, "1200"), ("c3", 34, "1400")] {
        pods.says_inside("three", name, mib);
        pods.shell.says(&pods.inside("three", name, QUOTA), cpu);
    }
    pods.patch("three", before);
    pods.says_memory("three", 66);
    pods.says_quota("three", "6600");
    pods.says_inside("three", "c3", 24);
    pods.nothing_was_restarted();
}

/// A container without a limit has its pod's.
fn the_pods_own(pods: &Resized<'_>) {
    pods.says_inside("whole-own", "none", 64);
    for (cpu, mib, micros) in [("100m", 96, "10000"), ("60m", 48, "6000")] {
        pods.patch("whole-own", json!({ "spec": { "resources": amounts(cpu, &format!("{mib}Mi")) } }));
        pods.says_memory("whole-own", mib);
        pods.says_quota("whole-own", micros);
        pods.says_inside("whole-own", "none", mib);
        pods.says_inside("whole-own", "own", 16);
        let shown = "kubectl get pod whole-own -o jsonpath='{.status.resources.limits.memory} {.status.allocatedResources.memory}'";
        pods.shell.says(shown, &format!("{mib}Mi {mib}Mi"));
    }
    pods.nothing_was_restarted();
}

/// What is in use is not taken, and the pod goes on.
fn what_is_in_use(pods: &Resized<'_>) {
    let shell = pods.shell;
    shell.ok(&pods.inside("whole-own", "none", "head -c 30000000 /dev/zero >/dev/shm/x"));
    let small = json!({ "spec": { "resources": amounts("60m", "20Mi") } });
    shell.ok(&format!("kubectl patch pod whole-own --subresource resize --patch '{small}'"));
    let refused = "kubectl get pod whole-own -o jsonpath='{.status.conditions[?(@.type==\"PodResizeInProgress\")].reason} {.status.conditions[?(@.type==\"PodResizeInProgress\")].message}'";
    shell.until_that(refused, |text| {
        text.starts_with("Error cannot decrease memory limits: ")
            && text.contains("pod memory limit (20971520) below current usage")
    });
    pods.says_memory("whole-own", 48);
    pods.patch("whole-own", json!({ "spec": { "resources": amounts("60m", "50Mi") } }));
    pods.says_memory("whole-own", 50);
    pods.nothing_was_restarted();
}

fn runtime_class(shell: &Shell) {
    for (class, handler) in [("good", "runc"), ("bad", "no-such-handler")] {
        shell.apply(&format!(
            "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {{name: real-node-{class}}}\nhandler: {handler}\n"
        ));
        let of_class = format!("  runtimeClassName: real-node-{class}\n  containers:");
        shell.apply(&pod(class, "sleep 3600", "").replace("  containers:", &of_class));
    }
    shell.ok("kubectl wait pod/good --for=condition=Ready --timeout=100s");
    shell.until_that(
        "kubectl get events --field-selector reason=FailedCreatePodSandBox -o jsonpath='{.items[0].message}'",
        |out| out.contains("no-such-handler"),
    );
    shell.ok("kubectl delete pod bad --timeout=100s");
    shell.ok("kubectl delete runtimeclass real-node-good real-node-bad");
}
