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
    let spec = |own: Value, containers: Value| {
        let all = containers.as_array().into_iter().flatten().map(|container| {
            let mut container = container.clone();
            container["image"] = BUSYBOX.into();
            container["command"] = json!(["sh", "-c", "sleep 3600"]);
            container
        });
        let spec = json!({ "terminationGracePeriodSeconds": 0, "resources": own, "containers": all.collect::<Vec<_>>() });
        spec
    };
    let apply = |name: &str, spec: Value| {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec });
        shell.apply(&pod.to_string());
    };
    let before = three([("c1", "20m", "20Mi"), ("c2", "22m", "22Mi"), ("c3", "24m", "24Mi")]);
    apply("three", spec(Value::Null, before["spec"]["containers"].clone()));
    let free = json!([{ "name": "own", "resources": amounts("20m", "16Mi") }, { "name": "none" }]);
    apply("whole-own", spec(amounts("80m", "64Mi"), free));
    shell.ok("kubectl wait pod/three pod/whole-own --for=condition=Ready --timeout=100s");
    let group = |pod: &str, controller: &str, one: &str, two: &str| {
        let uid = shell.ok(&format!("kubectl get pod {pod} -o jsonpath='{{.metadata.uid}}'"));
        crate::cgroups::file(&format!("kubepods/pod{}", uid.trim()), controller, one, two)
    };
    let memory = |pod: &str| group(pod, "memory", "memory.limit_in_bytes", "memory.max");
    let quota = |pod: &str| group(pod, "cpu", "cpu.cfs_quota_us", "cpu.max");
    let inside = |pod: &str, container: &str, what: &str| {
        format!("kubectl exec {pod} -c {container} -- sh -c \"{what}\"")
    };
    let mib = |mib: u64| (mib << 20).to_string();
    let period =
        |quota: &str| if crate::cgroups::is_v2() { format!("{quota} 100000") } else { quota.to_owned() };
    let patch = |pod: &str, patch: Value| {
        shell.ok(&format!("kubectl patch pod {pod} --subresource resize --patch '{patch}'"));
        quiet(shell, pod);
    };

    // More memory and less CPU in all, up and down among the containers, and back.
    let after = three([("c1", "25m", "30Mi"), ("c2", "12m", "20Mi"), ("c3", "14m", "34Mi")]);
    patch("three", after);
    shell.says(&memory("three"), &mib(84));
    shell.says(&quota("three"), &period("5100"));
    for (name, bytes, cpu) in [("c1", 30, "2500"), ("c2", 20, "1200"), ("c3", 34, "1400")] {
        shell.says(&inside("three", name, MEMORY), &mib(bytes));
        shell.says(&inside("three", name, QUOTA), cpu);
    }
    patch("three", before);
    shell.says(&memory("three"), &mib(66));
    shell.says(&quota("three"), &period("6600"));
    shell.says(&inside("three", "c3", MEMORY), &mib(24));
    let counts =
        "kubectl get pod three whole-own -o jsonpath='{.items[*].status.containerStatuses[*].restartCount}'";
    shell.says(counts, "0 0 0 0 0");

    // The pod's own: a container without a limit has its pod's.
    shell.says(&inside("whole-own", "none", MEMORY), &mib(64));
    for (cpu, bytes, micros) in [("100m", 96, "10000"), ("60m", 48, "6000")] {
        patch("whole-own", json!({ "spec": { "resources": amounts(cpu, &format!("{bytes}Mi")) } }));
        shell.says(&memory("whole-own"), &mib(bytes));
        shell.says(&quota("whole-own"), &period(micros));
        shell.says(&inside("whole-own", "none", MEMORY), &mib(bytes));
        shell.says(&inside("whole-own", "own", MEMORY), &mib(16));
        let shown = "kubectl get pod whole-own -o jsonpath='{.status.resources.limits.memory} {.status.allocatedResources.memory}'";
        shell.says(shown, &format!("{bytes}Mi {bytes}Mi"));
    }
    shell.says(counts, "0 0 0 0 0");

    // What is in use is not taken, and the pod goes on.
    shell.ok(&inside("whole-own", "none", "head -c 30000000 /dev/zero >/dev/shm/x"));
    let small = json!({ "spec": { "resources": amounts("60m", "20Mi") } });
    shell.ok(&format!("kubectl patch pod whole-own --subresource resize --patch '{small}'"));
    let refused = "kubectl get pod whole-own -o jsonpath='{.status.conditions[?(@.type==\"PodResizeInProgress\")].reason} {.status.conditions[?(@.type==\"PodResizeInProgress\")].message}'";
    shell.until_that(refused, |text| {
        text.starts_with("Error cannot decrease memory limits: ")
            && text.contains("pod memory limit (20971520) below current usage")
    });
    shell.says(&memory("whole-own"), &mib(48));
    patch("whole-own", json!({ "spec": { "resources": amounts("60m", "50Mi") } }));
    shell.says(&memory("whole-own"), &mib(50));
    shell.says(counts, "0 0 0 0 0");
    shell.ok("kubectl delete pod three whole-own --timeout=100s");
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
