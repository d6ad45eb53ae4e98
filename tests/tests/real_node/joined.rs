//! A second machine: a network namespace with a container runtime of its own, joined by `coracle agent`, lost and found.

use crate::node::{KUBECONFIG, Node, Steps, pod};
use crate::second::{ADDRESS, NAME, Second};
use coracle_tests::image::BUSYBOX;
use coracle_tests::{Shell, wait_for};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// A node counts as lost 50 s after its last sign of life; the rest is for a busy machine.
const LOST: Duration = Duration::from_secs(180);

pub fn steps(steps: &mut Steps<'_>) {
    let node = steps.node;
    steps.alone("second-node", move |shell| second_node(shell, node));
}

fn second_node(shell: &Shell, node: &Node) {
    let mut second = Second::new(shell);
    joins(shell, &mut second);
    is_held_back(shell, node, &second);
    runs_pods(shell, node, &second);
    answers_names_alone(shell, node, &second);
    keeps_volumes(shell, &second);
    moves_volumes(shell, node, &second);
    rolls_back(shell, node);
    rolls_on(shell, node, &second);
    is_lost(shell, &mut second);
    is_found(shell, &mut second);
    second.leave();
}

/// By what `coracle token create` says; who may not join is of the tests of healing.
fn joins(shell: &Shell, second: &mut Second) {
    let made = format!("coracle token create --kubeconfig {KUBECONFIG} --ttl 1h --print-join-command");
    let command = shell.ok(&made);
    let flags = command.trim().strip_prefix("coracle agent ").expect("the command to type");
    let mut words = flags.split(' ').map(str::to_owned).skip(1);
    second.server = words.next().expect("the server");
    let token = words.nth(1).expect("the token");
    second.start(flags);
    shell.within(LOST, &ready(NAME), |status| status == "True");
    // The serving certificate waits until the server has met the node at its addresses: it may come after Ready.
    let pki = second.data("pki");
    let files = "kubelet-client.pem kubelet-serving.pem kube-proxy.pem .";
    shell.until(&format!("cd {} && stat -c %a {files}", pki.display()), "600\n600\n600\n700");
    shell.ok(&format!("coracle token delete {token}"));
    let own =
        format!("kubectl get node {NAME} -o jsonpath='{{.status.addresses[0].address}} {{.spec.podCIDR}}'");
    let own = shell.until_that(&own, |text| text.split(' ').count() == 2);
    let range = own.split(' ').nth(1).unwrap_or_default().to_owned();
    assert_eq!(own, format!("{ADDRESS} {range}"));
    shell.until_that("ip -4 route show", |text| text.contains(&format!("{range} via {ADDRESS}")));
    // The server has met it there, and gives it no role.
    let met = "{.metadata.annotations.coracle\\.io/checked-addresses}";
    shell.until(&format!("kubectl get node {NAME} -o jsonpath='{met}'"), ADDRESS);
    shell.says(&format!("kubectl get node {NAME} --no-headers | awk '{{print $3}}'"), "<none>");
    // Both take pods: nothing keeps them away.
    shell.until("kubectl get nodes -o jsonpath='{.items[*].spec.taints}{.items[*].spec.unschedulable}'", "");
    shell.says("kubectl get nodes --no-headers | wc -l", "2");
}

fn ready(node: &str) -> String {
    format!("kubectl get node {node} -o jsonpath='{{.status.conditions[?(@.type==\"Ready\")].status}}'")
}

/// The certificates give no more than upstream's node authorizer, NodeRestriction and role of proxies allow.
fn is_held_back(shell: &Shell, node: &Node, second: &Second) {
    let by = |file: &str, words: &str| {
        let (pki, server) = (second.data("pki"), &second.server);
        let own = pki.join(file);
        let own = own.display();
        shell.run(&format!(
            "kubectl --kubeconfig /dev/null --server {server} --certificate-authority {}/ca.crt --client-certificate {own} --client-key {own} {words}",
            pki.display()
        ))
    };
    let refused = |file: &str, words: &str, why: &str| {
        let output = by(file, words);
        assert!(output.code != 0 && output.stderr.contains(why), "{words}: {output}");
    };
    shell.ok("kubectl create secret generic private --from-literal=a=b");
    let here = format!("-n {}", "second-node");
    refused(
        "kubelet-client.pem",
        &format!("get secret private {here}"),
        "no relationship found between node 'two' and this object",
    );
    refused(
        "kubelet-client.pem",
        "get secrets -A",
        "is forbidden: User \"system:node:two\" cannot list resource \"secrets\"",
    );
    refused("kubelet-client.pem", &format!("annotate node {} a=b", node.name), "is forbidden");
    refused(
        "kubelet-client.pem",
        &format!("label node {NAME} node-restriction.kubernetes.io/a=b"),
        "is not allowed to modify labels: node-restriction.kubernetes.io/a",
    );
    refused(
        "kube-proxy.pem",
        "get secrets -A",
        "is forbidden: User \"system:kube-proxy\" cannot list resource \"secrets\"",
    );
    refused("kube-proxy.pem", &format!("annotate node {NAME} a=b"), "is forbidden");
    assert_eq!(by("kubelet-client.pem", &format!("annotate node {NAME} checked=yes")).code, 0);
}

/// Two pods, a Service of them, and tolerations that make a lost node matter soon.
fn web() -> String {
    format!(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 0
      tolerations:
      - {{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 3}}
      - {{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 3}}
      containers:
      - name: web
        image: {BUSYBOX}
        imagePullPolicy: IfNotPresent
        command: [sh, -c, "echo here; mkdir /w; hostname >/w/index.html; exec httpd -f -p 8080 -h /w"]
        readinessProbe: {{httpGet: {{port: 8080, path: /}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec: {{selector: {{app: web}}, ports: [{{port: 80, targetPort: 8080}}]}}
"#
    )
}

/// A pod on this node, Ready.
fn bound(shell: &Shell, name: &str, node: &str) {
    let there = format!("  nodeName: {node}\n  containers:");
    shell.apply(&pod(name, "sleep 3600", "").replace("  containers:", &there));
    shell.ok(&format!("kubectl wait pod/{name} --for=condition=Ready --timeout=100s"));
}

/// Name and node of the workload's pods that are not being deleted.
fn living(shell: &Shell) -> Vec<(String, String)> {
    let all: Value = serde_json::from_str(&shell.ok("kubectl get pods -l app=web -o json")).expect("JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = all["items"].as_array().into_iter().flatten();
    let living = items.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    living.map(|pod| (text(&pod["metadata"]["name"]), text(&pod["spec"]["nodeName"]))).collect()
}

/// Real containers over there; logs, exec, names and the Service from either side.
fn runs_pods(shell: &Shell, node: &Node, second: &Second) {
    shell.ok(&format!("kubectl cordon {}", node.name));
    shell.apply(&web());
    shell
        .ok(&format!("kubectl rollout status deployment/web --timeout=100s; kubectl uncordon {}", node.name));
    let pods = living(shell);
    assert!(pods.len() == 2 && pods.iter().all(|(_, on)| on == NAME), "{pods:?}");
    assert_eq!(second.containers().len(), 4, "two sandboxes, two containers");
    let names: BTreeSet<String> = pods.into_iter().map(|(name, _)| name).collect();
    for name in &names {
        shell.says(&format!("kubectl logs {name}"), "here");
        shell.says(&format!("kubectl exec {name} -- hostname"), name);
        shell.until(
            &format!("kubectl exec {name} -- nslookup web.second-node.svc.cluster.local | grep -c Name:"),
            "1",
        );
    }
    bound(shell, "near", &node.name);
    let address = shell.ok("kubectl get service web -o jsonpath='{.spec.clusterIP}'");
    let ask = format!("for i in 1 2 3 4 5 6 7 8; do curl -s --max-time 2 http://{address}/; done");
    let inside = format!("for i in 1 2 3 4 5 6 7 8; do timeout 2 wget -qO- http://{address}/; done");
    let one = names.first().expect("a pod");
    for line in [
        ask.clone(),
        second.inside(&format!("sh -c '{ask}'")),
        format!("kubectl exec near -- sh -c '{inside}'"),
        format!("kubectl exec {one} -- sh -c '{inside}'"),
    ] {
        let mut seen = BTreeSet::new();
        wait_for(&format!("both pods answering {line}"), Duration::from_secs(60), || {
            let output = shell.run(&line);
            seen.extend(output.stdout.lines().map(str::to_owned));
            if seen == names { Ok(()) } else { Err(format!("{seen:?}\n{output}")) }
        });
    }
    shell.until_that("kubectl top node --no-headers", |text| text.contains(NAME));
}

/// Names are answered by the node itself, with the server away, too.
fn answers_names_alone(shell: &Shell, node: &Node, second: &Second) {
    let led_to = "kubectl get endpointslices -n kube-system -l kubernetes.io/service-name=kube-dns -o jsonpath='{range .items[*].endpoints[*]}{.nodeName} {.conditions.ready} {.hints.forNodes[*].name}{\"\\n\"}{end}'";
    shell.until_that(led_to, |text| {
        text.lines().count() == 2 && text.contains(&format!("{NAME} true {NAME}"))
    });
    let dns = shell.ok("kubectl get service -n kube-system kube-dns -o jsonpath='{.spec.clusterIP}'");
    let web = shell.ok("kubectl get service web -o jsonpath='{.spec.clusterIP}'");
    let pid = node.server_pid();
    let ask = second.inside(&format!("timeout 5 busybox nslookup web.second-node.svc.cluster.local {dns}"));
    let mut answered = String::new();
    wait_for("an answer without the server", Duration::from_secs(60), || {
        let output = shell.run(&format!("trap 'kill -CONT {pid}' EXIT; kill -STOP {pid}; {ask}"));
        answered = output.stdout.clone();
        if answered.contains(&web) { Ok(()) } else { Err(output.to_string()) }
    });
    assert!(answered.contains("web.second-node.svc.cluster.local"), "{answered}");
}

/// A claim of the built-in class lies where its pod runs, and goes from there.
fn keeps_volumes(shell: &Shell, second: &Second) {
    shell.apply("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: over-there}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n");
    let volumes = "volumes: [{name: d, persistentVolumeClaim: {claimName: over-there}}]";
    let there = format!("  nodeSelector: {{kubernetes.io/hostname: {NAME}}}\n  {volumes}\n  containers:");
    let keeper =
        pod("keeper", "echo gold >/d/treasure; sleep 3600", "volumeMounts: [{name: d, mountPath: /d}]");
    shell.apply(&keeper.replace("  containers:", &there));
    shell.ok("kubectl wait pod/keeper --for=condition=Ready --timeout=100s");
    let root = second.data("local-path");
    shell.until(&format!("cat {}/pvc-*_second-node_over-there/treasure", root.display()), "gold");
    shell.ok("kubectl delete pod keeper --timeout=100s && kubectl delete pvc over-there --timeout=100s");
    shell.until(
        &format!("kubectl get pv --no-headers 2>/dev/null | grep -c over-there; ls {}", root.display()),
        "0",
    );
}

/// A pod that has the claim `treasury`, wherever that is.
fn of_treasury(name: &str, script: &str, node: Option<&str>) -> String {
    let volumes = "volumes: [{name: d, persistentVolumeClaim: {claimName: treasury}}]";
    let selector = node.map(|node| format!("  nodeSelector: {{kubernetes.io/hostname: {node}}}\n"));
    let own = format!("{}  {volumes}\n  containers:", selector.unwrap_or_default());
    pod(name, script, "volumeMounts: [{name: d, mountPath: /d}]").replace("  containers:", &own)
}

/// A claim goes to the other machine with all that is in it, and its pod after it; back again while the server is killed.
fn moves_volumes(shell: &Shell, node: &Node, second: &Second) {
    shell.apply("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: treasury}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n");
    let script = "mkdir /d/vein; echo gold >/d/vein/treasure; ln /d/vein/treasure /d/same; chmod 2750 /d/vein; chown 70:71 /d/vein; mkfifo /d/pipe; dd if=/dev/urandom of=/d/much bs=1M count=16 2>/dev/null; cd /d; sha256sum much >sum; echo dug; sleep 3600";
    shell.apply(&of_treasury("miner", script, Some(node.name.as_str())));
    shell.until("kubectl logs miner --ignore-errors 2>/dev/null", "dug");
    let command =
        |rest: &str| format!("coracle volume move treasury -n second-node {rest} --kubeconfig {KUBECONFIG}");
    let used = shell.run(&command(&format!("--to-node {NAME}")));
    assert!(
        used.code == 1 && used.stderr.contains("the claim is used by the pods miner: stop them first"),
        "{used}"
    );
    shell.ok("kubectl delete pod miner --timeout=100s");
    shell.shows(
        &command(&format!("--to-node {NAME} --dry-run")),
        &["would move the volume pvc-", "6 files (16."],
    );
    let moved = shell.ok(&command(&format!("--to-node {NAME}")));
    assert!(moved.contains(&format!("moved second-node/treasury to node {NAME}: 5 files (16.")), "{moved}");
    assert!(moved.contains("1 sockets, pipes or devices (pipe)"), "{moved}");
    let (here, there) =
        ("/var/lib/coracle/local-path".to_owned(), second.data("local-path").display().to_string());
    let lies_in = |place: &str, other: &str| {
        shell.says(
            &format!(
                "cat {place}/pvc-*_second-node_treasury/vein/treasure; ls {other} | grep -c _treasury || true"
            ),
            "gold\n0",
        );
    };
    lies_in(&there, &here);
    let whole = "cd /d && sha256sum -c sum && stat -c '%a %u:%g' vein && stat -c %h same && sleep 3600";
    let reads = |name: &str, node: &str| {
        shell.apply(&of_treasury(name, whole, None));
        shell.until(&format!("kubectl logs {name} --ignore-errors 2>/dev/null"), "much: OK\n2750 70:71\n2");
        shell.says(&format!("kubectl get pod {name} -o jsonpath='{{.spec.nodeName}}'"), node);
        shell.ok(&format!("kubectl delete pod {name} --timeout=100s"));
    };
    reads("heir", NAME);
    let back = command(&format!("--to-node {}", node.name));
    shell.run(&format!("({back}) >/dev/null 2>&1 & sleep 0.4; kill -9 {}; wait", node.server_pid()));
    node.start_server_again();
    shell.within(LOST, &format!("{back} 2>&1 || true"), |said| {
        said.contains("moved second-node/treasury") || said.contains("lies there already")
    });
    shell.until(&format!("ls {there} | grep -c _treasury || true"), "0");
    lies_in(&here, &there);
    reads("grandson", &node.name);
    shell.says("kubectl get events --field-selector reason=ClaimLost -o name", "");
    shell.ok("kubectl delete pvc treasury --timeout=100s");
    shell.until(&format!("ls {here} | grep -c _treasury || true"), "0");
}

/// One on each node.
fn everywhere() -> String {
    format!(
        r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: everywhere}}
spec:
  selector: {{matchLabels: {{app: everywhere}}}}
  template:
    metadata: {{labels: {{app: everywhere}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {{name: one, image: {BUSYBOX}, imagePullPolicy: IfNotPresent, command: [sleep, "3600"]}}
"#
    )
}

/// A DaemonSet whose new image nobody has gets its old one back: the pod that the update had not come to is never
/// restarted, and the old revision is taken up again.
fn rolls_back(shell: &Shell, node: &Node) {
    let line =
        "{range .items[*]}{.spec.nodeName} {.metadata.uid} {.status.containerStatuses[*].restartCount} {end}";
    let pods = format!("kubectl get pods -l app=everywhere --sort-by .spec.nodeName -o jsonpath='{line}'");
    let revisions = "kubectl get controllerrevisions -l app=everywhere -o jsonpath='{.items[*].revision}' | tr ' ' '\\n' | sort | tr '\\n' ' '";
    shell.apply(&everywhere());
    shell.ok("kubectl rollout status daemonset/everywhere --timeout=100s");
    let before = shell.ok(&pods);
    let before: Vec<&str> = before.split_whitespace().collect();
    assert!(
        before.len() == 6 && before.contains(&NAME) && before.contains(&node.name.as_str()),
        "{before:?}"
    );
    shell.ok("kubectl set image daemonset/everywhere one=localhost:1/never:1");
    let waiting = "kubectl get pods -l app=everywhere -o jsonpath='{range .items[*]}{.spec.containers[0].image} {.status.containerStatuses[0].state.waiting.reason}{\"\\n\"}{end}' | grep -c 'never:1 .*Image'";
    shell.until(waiting, "1");
    let amid = shell.ok(&pods);
    let kept = [before[1], before[4]].into_iter().filter(|uid| amid.contains(*uid)).collect::<Vec<_>>();
    assert_eq!(kept.len(), 1, "one at a time: {before:?}, then {amid}");
    shell.ok("kubectl rollout undo daemonset/everywhere");
    shell.ok("kubectl rollout status daemonset/everywhere --timeout=100s");
    let after = shell.until_that(&pods, |text| text.split_whitespace().count() == 6);
    assert!(after.contains(&format!("{} 0", kept[0])), "{after} after {amid}");
    shell.says(revisions, "2 3 ");
    shell.ok("kubectl delete daemonset everywhere --timeout=100s");
    shell.until("kubectl get pods -l app=everywhere -o name", "");
}

/// kill -9 of the server in the middle of a rollout over both nodes: it goes on, and the agent comes back by itself.
fn rolls_on(shell: &Shell, node: &Node, second: &Second) {
    shell.ok(
        "kubectl scale deployment web --replicas=6 && kubectl rollout status deployment/web --timeout=100s",
    );
    let before: BTreeSet<String> = living(shell).into_iter().map(|(name, _)| name).collect();
    shell.ok("kubectl set env deployment/web V=2");
    wait_for("a rollout that has begun", Duration::from_secs(60), || match living(shell) {
        pods if pods.iter().any(|(name, _)| !before.contains(name)) => Ok(()),
        pods => Err(format!("{pods:?}")),
    });
    shell.ok(&format!("kill -9 {}", node.server_pid()));
    node.start_server_again();
    shell.ok("kubectl rollout status deployment/web --timeout=100s");
    shell.until("kubectl get pods -l app=web -o name | wc -l", "6");
    let now = living(shell);
    assert!(now.len() == 6 && now.iter().all(|(name, _)| !before.contains(name)), "{now:?} after {before:?}");
    shell.until("kubectl get replicasets -o jsonpath='{.items[*].status.replicas}' | tr ' ' '\\n' | sort | tr '\\n' ' '", "0 6");
    shell.within(LOST, &ready(NAME), |status| status == "True");
    let there = now.iter().filter(|(_, on)| on == NAME).count();
    wait_for("containers for the pods over there and no others", Duration::from_secs(60), || {
        match second.containers() {
            all if all.len() == 2 * there => Ok(()),
            all => Err(format!("{all:?} for {there} pods of {now:?}")),
        }
    });
}

/// The agent is killed: its containers run on, but after its Lease nobody counts on them.
fn is_lost(shell: &Shell, second: &mut Second) {
    shell.ok("kubectl delete pod near --grace-period=0 --force");
    // Something to lose, wherever the rollout has put the pods.
    bound(shell, "held", NAME);
    let there = second.containers();
    second.kill();
    shell.within(LOST, &ready(NAME), |status| status == "Unknown");
    shell.until(
        &format!("kubectl get node {NAME} -o jsonpath='{{range .spec.taints[*]}}{{.key}}:{{.effect}} {{end}}' | tr ' ' '\\n' | sort | tr '\\n' ' '"),
        "node.kubernetes.io/unreachable:NoExecute node.kubernetes.io/unreachable:NoSchedule",
    );
    shell.until(
        &format!("kubectl get endpointslice -n kube-system kube-dns-{NAME} -o jsonpath='{{.endpoints[0].conditions.ready}}'"),
        "false",
    );
    wait_for("six pods elsewhere", LOST, || match living(shell) {
        pods if pods.len() == 6 && pods.iter().all(|(_, on)| on != NAME && !on.is_empty()) => Ok(()),
        pods => Err(format!("{pods:?}")),
    });
    shell.until("kubectl get deployment web -o jsonpath='{.status.readyReplicas} {.status.replicas}'", "6 6");
    shell.until(
        "kubectl get endpointslices -l kubernetes.io/service-name=web -o jsonpath='{range .items[*].endpoints[?(@.conditions.ready==true)]}{.nodeName}{\"\\n\"}{end}' | sort | uniq -c | wc -l",
        "1",
    );
    assert_eq!(second.containers(), there, "nobody stops containers of a node that nobody reaches");
}

/// It comes back without a token and with a certificate that is nearly over: the machine is a node again, what was to go
/// from it is gone, and nothing waits for anything.
fn is_found(shell: &Shell, second: &mut Second) {
    let before = second.nearly_over();
    let server = second.server.clone();
    second.start(&format!("--server {server}"));
    shell.within(LOST, &ready(NAME), |status| status == "True");
    shell.until(&format!("kubectl get node {NAME} -o jsonpath='{{.spec.taints}}'"), "");
    shell.until("kubectl get pods -l app=web -o jsonpath='{.items[*].metadata.deletionTimestamp}'", "");
    wait_for("the containers of the pods that were replaced being gone", Duration::from_secs(60), || {
        // The pod that tolerates five minutes was not replaced.
        match second.containers() {
            all if all.len() == 2 => Ok(()),
            all => Err(format!("{all:?}")),
        }
    });
    shell.says("kubectl get pod held -o jsonpath='{.status.containerStatuses[0].restartCount}'", "0");
    assert_eq!(living(shell).len(), 6);
    shell.says("kubectl get pods -A -o jsonpath='{.items[*].metadata.finalizers}'", "");
    wait_for("a new certificate", Duration::from_secs(60), || {
        let now = std::fs::read_to_string(second.data("pki/kubelet-client.pem")).unwrap_or_default();
        if now != before && second.log().contains("certificate issued") { Ok(()) } else { Err(second.log()) }
    });
    shell.ok("kubectl delete pod held --grace-period=1 --timeout=100s");
    shell.ok(&format!("kubectl cordon {NAME} && kubectl delete deployment,service web --timeout=100s"));
    shell.until("kubectl get pods -o name", "");
    assert!(second.containers().is_empty(), "{:?}", second.containers());
}
