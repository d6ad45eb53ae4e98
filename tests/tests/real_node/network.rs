//! Services, names and addresses.

use crate::node::Steps;
use coracle_tests::{Shell, wait_for};
use std::collections::BTreeSet;
use std::time::Duration;

const WEB: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: web
        image: docker.io/library/busybox:1.36
        imagePullPolicy: IfNotPresent
        command: [sh, -c, "mkdir /w; hostname >/w/index.html; exec httpd -f -p 8080 -h /w"]
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {port: http, path: /}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: each}
spec: {clusterIP: None, selector: {app: web}, ports: [{name: http, port: 8080}]}
"#;

pub fn steps(steps: &mut Steps<'_>) {
    steps.run("service", service);
    steps.alone("service-in-other-modes", service_in_other_modes);
    steps.run("dns", dns);
    steps.run("aliases", aliases);
    steps.run("affinity", affinity);
    steps.run("endpoints-by-hand", endpoints_by_hand);
    steps.run("host-ports", host_ports);
    steps.run("balancer-check", balancer_check);
    steps.run("node-itself", node_itself);
}

fn up(shell: &Shell) {
    shell.apply(WEB);
    shell.ok("kubectl rollout status deployment/web --timeout=100s");
}

/// Asks `url` until at least so many different pods have answered.
pub fn spread(shell: &Shell, url: &str, wanted: usize) {
    let mut seen = BTreeSet::new();
    wait_for(&format!("answers of {wanted} pods from {url}"), Duration::from_secs(100), || {
        let output =
            shell.run(&format!("for i in 1 2 3 4 5 6 7 8 9 10; do curl -s --max-time 2 {url}; done"));
        seen.extend(output.stdout.lines().map(str::to_owned));
        if seen.len() >= wanted { Ok(()) } else { Err(format!("{seen:?}\n{output}")) }
    });
    assert!(seen.iter().all(|name| name.starts_with("web-")), "{seen:?}");
}

fn service(shell: &Shell) {
    up(shell);
    let address = shell.ok("kubectl get service web -o jsonpath='{.spec.clusterIP}'");
    let port = shell.ok("kubectl get service web -o jsonpath='{.spec.ports[0].nodePort}'");
    let node = shell.ok(
        "kubectl get nodes -o jsonpath='{.items[0].status.addresses[?(@.type==\"InternalIP\")].address}'",
    );
    spread(shell, &format!("http://{address}/"), 3);
    spread(shell, &format!("http://{node}:{port}/"), 3);
    let pod = shell.ok("kubectl get pods -l app=web -o name | head -n 1");
    let pod = pod.trim();
    let inside = format!(
        "kubectl exec {pod} -- sh -c 'for i in $(seq 30); do timeout 5 wget -qO- http://{address}/; done' | sort -u | wc -l"
    );
    shell.until(&inside, "3");
    unclaimed(shell, pod, address.trim());
    shell.ok(
        "kubectl scale deployment web --replicas=1 && kubectl rollout status deployment/web --timeout=100s",
    );
    let last = shell
        .until_that("kubectl get pods -l app=web -o jsonpath='{.items[*].metadata.name}'", |names| {
            !names.contains(' ')
        });
    shell.until_that(
        &format!("for i in 1 2 3 4 5 6; do curl -s --max-time 10 http://{address}/; done | sort -u"),
        |out| out.trim() == last,
    );
    shell.ok("kubectl delete service web");
    // Where the machine's own network answers for any address, it is still not the pod that answers.
    shell.until_that(&format!("curl -s --max-time 1 http://{address}/ || true"), |out| !out.contains("web-"));
    shell.until("iptables-save | grep -c \"$(kubectl config view --minify -o jsonpath='{..namespace}')/web:\" || true", "0");
}

/// The same in other modes, which a ConfigMap chooses while everything runs.
fn service_in_other_modes(shell: &Shell) {
    mode(shell, "nftables");
    service(shell);
    mode(shell, "userspace");
    service_by_userspace(shell);
    mode(shell, "iptables");
    shell.until("nft list tables | grep -c kube-proxy || true", "0");
    shell.until("ip link | grep -c kube-user || true", "0");
}

fn mode(shell: &Shell, name: &str) {
    shell.ok(&format!(
        r#"kubectl patch configmap -n kube-system kube-proxy --patch '{{"data":{{"config.conf":"mode: {name}"}}}}'"#
    ));
    shell.until("curl -s http://127.0.0.1:10249/proxyMode", name);
}

/// The process itself answers, at the Service's own port, and relays.
fn service_by_userspace(shell: &Shell) {
    up(shell);
    let address = shell.ok("kubectl get service web -o jsonpath='{.spec.clusterIP}'");
    spread(shell, &format!("http://{address}/"), 3);
    let inside = format!(
        "kubectl exec $(kubectl get pods -l app=web -o name | head -n 1) -- sh -c 'for i in 1 2 3 4 5 6; do timeout 5 wget -qO- http://{address}/; done' | sort -u | wc -l"
    );
    shell.until(&inside, "3");
    shell.ok("kubectl delete service web");
    shell.until_that(&format!("curl -s --max-time 1 http://{address}/ || true"), |out| !out.contains("web-"));
}

/// What no port of a Service takes ends here, whoever sends it; else it would leave by the default route.
fn unclaimed(shell: &Shell, pod: &str, address: &str) {
    let refused = format!("curl -s --max-time 10 http://{address}:81/ || echo ended with $?");
    shell.until(&refused, "ended with 7");
    shell.says(
        &format!("kubectl exec {pod} -- sh -c 'timeout 10 wget -qO- http://{address}:81/ 2>&1' || true"),
        &format!("wget: can't connect to remote host ({address}): Connection refused"),
    );
    if shell.run("ip route get 10.43.255.254").code != 0 {
        return println!("skipped: without a default route no packet tries to leave");
    }
    let dropped = || {
        let counted = shell.ok(
            "iptables -w 5 -t filter -nvxL KUBE-CLUSTER-IPS 2>/dev/null | awk '/DROP/ {print $1}' | grep . || \
             nft list chain ip kube-proxy cluster-ips-check | sed -n 's/.*counter packets \\([0-9]*\\).*/\\1/p'",
        );
        counted.trim().parse::<u64>().expect("a rule that drops")
    };
    // The last address of the range, which is given to nobody as long as others are free. Counting begins anew when the
    // chain is written, for which a Service of another step is enough.
    wait_for("packets for an address that no Service has being dropped", Duration::from_secs(60), || {
        let before = dropped();
        shell.ok("! curl -s --max-time 2 http://10.43.255.254/");
        let after = dropped();
        if after > before { Ok(()) } else { Err(format!("{before} before, {after} after")) }
    });
}

fn dns(shell: &Shell) {
    up(shell);
    let address = shell.ok("kubectl get service web -o jsonpath='{.spec.clusterIP}'");
    let pod = shell.ok("kubectl get pods -l app=web -o name | head -n 1").trim().to_owned();
    shell.until_that(&format!("kubectl exec {pod} -- nslookup web.dns.svc.cluster.local"), |out| {
        out.contains(&format!("Address: {address}")) || out.contains(&format!("Address 1: {address}"))
    });
    shell.shows(
        &format!("kubectl exec {pod} -- cat /etc/resolv.conf"),
        &[
            "search dns.svc.cluster.local svc.cluster.local cluster.local",
            "nameserver 10.43.0.10",
            "options ndots:5",
        ],
    );
    // Short names go through the search path of resolv.conf.
    for name in ["web", "web.dns"] {
        shell
            .until(&format!("kubectl exec {pod} -- timeout 10 wget -qO- http://{name}/ | cut -c1-4"), "web-");
    }
    let pods =
        shell.ok("kubectl get pods -l app=web -o jsonpath='{.items[*].status.podIP}' | tr ' ' '\\n' | sort");
    let each = format!(
        "kubectl exec {pod} -- nslookup -type=a each.dns.svc.cluster.local | awk '/^Address/ && !/:53$/ {{print $NF}}' | sort"
    );
    shell.until_that(&each, |out| out.trim() == pods.trim());
    shell.shows(
        &format!("kubectl exec {pod} -- nslookup kubernetes.default.svc.cluster.local"),
        &["10.43.0.1"],
    );
    let nothing = shell.run(&format!("kubectl exec {pod} -- nslookup nothing.dns.svc.cluster.local"));
    assert_ne!(nothing.code, 0, "{nothing}");
    assert!(
        nothing.to_string().contains("NXDOMAIN") || nothing.to_string().contains("can't resolve"),
        "{nothing}"
    );
}

/// Services of type ExternalName that name another Service, and changes of the type both ways.
fn aliases(shell: &Shell) {
    up(shell);
    let address = shell.ok("kubectl get service web -o jsonpath='{.spec.clusterIP}'");
    shell.ok("kubectl create service nodeport alias --tcp=80");
    // A client that knows of no `clusterIPs` clears the one field.
    let away = r#"{"spec": {"type": "ExternalName", "externalName": "web.aliases.svc.cluster.local", "clusterIP": ""}}"#;
    shell.ok(&format!("kubectl patch service alias --type=merge -p '{away}'"));
    shell.says("kubectl get service alias -o jsonpath='{.spec.clusterIPs}{.spec.ports[*].nodePort}'", "");
    let pod = shell.ok("kubectl get pods -l app=web -o name | head -n 1").trim().to_owned();
    shell.until_that(&format!("kubectl exec {pod} -- nslookup alias.aliases.svc.cluster.local"), |out| {
        out.lines().any(|line| line.starts_with("Address") && line.trim_end().ends_with(address.trim()))
    });
    shell.until(&format!("kubectl exec {pod} -- timeout 10 wget -qO- http://alias/ | cut -c1-4"), "web-");
    let back = r#"{"spec": {"type": "NodePort", "externalName": null, "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}}"#;
    shell.ok(&format!("kubectl patch service alias --type=merge -p '{back}'"));
    let own = shell.ok(
        "kubectl get service alias -o jsonpath='{.spec.clusterIP}:80 127.0.0.1:{.spec.ports[0].nodePort}'",
    );
    for url in own.split(' ') {
        shell.until_that(&format!("curl -s --max-time 2 http://{url}/ || true"), |out| {
            out.starts_with("web-")
        });
    }
}

/// A client keeps its pod while the Service asks for that, and no longer.
fn affinity(shell: &Shell) {
    up(shell);
    let address = shell.ok("kubectl get service web -o jsonpath='{.spec.clusterIP}'");
    let port = shell.ok("kubectl get service web -o jsonpath='{.spec.ports[0].nodePort}'");
    let switch = |to: &str| {
        shell.ok(&format!("kubectl patch service web -p '{{\"spec\":{{\"sessionAffinity\":\"{to}\"}}}}'"));
    };
    for url in [format!("http://{address}/"), format!("http://127.0.0.1:{port}/")] {
        for _ in 0..2 {
            switch("ClientIP");
            let asked = format!("for i in $(seq 20); do curl -s --max-time 2 {url} || echo none; done");
            shell.until_that(&asked, |out| {
                let pods: BTreeSet<&str> = out.lines().collect();
                out.lines().count() == 20 && pods.len() == 1 && out.starts_with("web-")
            });
            switch("None");
            spread(shell, &url, 2);
        }
    }
}

/// A Service without a selector is served by every EndpointSlice that names it, for the ports that each has.
fn endpoints_by_hand(shell: &Shell) {
    up(shell);
    let pods = shell.ok("kubectl get pods -l app=web -o jsonpath='{range .items[*]}{.status.podIP} {.metadata.name}{\"\\n\"}{end}'");
    let pods: Vec<(&str, &str)> = pods.lines().filter_map(|line| line.split_once(' ')).take(2).collect();
    let slice = |service: &str, name: &str, port: &str, address: &str| {
        format!(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {service}-{name}, labels: {{kubernetes.io/service-name: {service}}}}}\naddressType: IPv4\nports: [{{name: {port}, port: 8080}}]\nendpoints: [{{addresses: [\"{address}\"]}}]\n"
        )
    };
    let service = |name: &str, ports: &str| {
        format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{ports}]}}\n"
        )
    };
    shell.apply(&service("one-port", "{name: a, port: 80}"));
    shell.apply(&service("two-ports", "{name: a, port: 80}, {name: b, port: 81}"));
    for ((address, _), (name, port)) in pods.iter().zip([("x", "a"), ("y", "b")]) {
        shell.apply(&slice("one-port", name, "a", address));
        shell.apply(&slice("two-ports", name, port, address));
    }
    let address =
        |name: &str| shell.ok(&format!("kubectl get service {name} -o jsonpath='{{.spec.clusterIP}}'"));
    spread(shell, &format!("http://{}/", address("one-port")), 2);
    let address = address("two-ports");
    for ((_, name), port) in pods.iter().zip([80, 81]) {
        let asked =
            format!("for i in $(seq 10); do curl -s --max-time 10 http://{address}:{port}/; done | sort -u");
        shell.until(&asked, name);
    }
}

/// The same port of the node for several pods, told apart by address and by protocol.
fn host_ports(shell: &Shell) {
    let node = shell.ok(
        "kubectl get nodes -o jsonpath='{.items[0].status.addresses[?(@.type==\"InternalIP\")].address}'",
    );
    let pod = |name: &str, command: &str, protocol: &str, address: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 0\n  containers:\n  - name: main\n    image: docker.io/library/busybox:1.36\n    imagePullPolicy: IfNotPresent\n    command: [sh, -c, \"{command}\"]\n    ports: [{{containerPort: 8080, hostPort: 54323, hostIP: {address}, protocol: {protocol}}}]\n"
        )
    };
    let web = "mkdir /w; hostname >/w/index.html; exec httpd -f -p 8080 -h /w";
    shell.apply(&pod("inner", web, "TCP", "127.0.0.1"));
    shell.apply(&pod("outer", web, "TCP", &node));
    shell.apply(&pod("datagrams", "while :; do hostname | nc -u -l -p 8080 -w 1; done", "UDP", &node));
    shell.ok("kubectl wait pod/inner pod/outer pod/datagrams --for=condition=Ready --timeout=100s");
    shell.until("curl -s --max-time 10 http://127.0.0.1:54323/", "inner");
    shell.until(&format!("curl -s --max-time 10 http://{node}:54323/"), "outer");
    let apart =
        shell.ok("kubectl get pods -o jsonpath='{.items[*].status.podIP}' | tr ' ' '\\n' | sort -u | wc -l");
    assert_eq!(apart.trim(), "3");
    // A fourth that asks for what one of them has is not placed.
    shell.apply(&pod("late", web, "TCP", "0.0.0.0"));
    shell.until_that("kubectl describe pod late", |out| {
        out.contains("didn't have free ports for the requested pod ports")
    });
}

/// What a load balancer asks: whether this node has endpoints of the Service.
fn balancer_check(shell: &Shell) {
    up(shell);
    shell.ok("kubectl create service loadbalancer lb --tcp=8099:8080");
    shell.ok("kubectl patch service lb -p '{\"spec\":{\"externalTrafficPolicy\":\"Local\",\"selector\":{\"app\":\"web\"}}}'");
    let port = shell.ok("kubectl get service lb -o jsonpath='{.spec.healthCheckNodePort}'");
    let asked = format!("curl -s --max-time 2 -w '%{{http_code}}' http://127.0.0.1:{port}/healthz || true");
    shell.until_that(&asked, |out| out.contains("\"localEndpoints\": 3") && out.ends_with("200"));
    shell.ok("kubectl scale deployment web --replicas=0");
    shell.until_that(&asked, |out| out.contains("\"localEndpoints\": 0") && out.ends_with("503"));
    shell.ok("kubectl delete service lb");
    shell.until_that(&asked, |out| out.ends_with("000"));
}

fn node_itself(shell: &Shell) {
    shell.says("kubectl get nodes --no-headers | awk '{print $2, $3}'", "Ready control-plane");
    shell.says("kubectl get nodes -o jsonpath='{.items[0].spec.taints}'", "");
    shell.shows("kubectl get nodes -o wide", &["v1.36", "containerd://"]);
    shell.shows(
        "kubectl describe node",
        &[
            "KubeletReady",
            "Capacity:",
            "cpu:",
            "ephemeral-storage:",
            "memory:",
            "pods:",
            "Allocatable:",
            "Container Runtime Version:  containerd://",
            "PodCIDR:",
        ],
    );
    let cpus = shell.ok("nproc");
    shell.says("kubectl get nodes -o jsonpath='{.items[0].status.capacity.cpu}'", cpus.trim());
    shell.until_that("kubectl get nodes -o jsonpath='{.items[0].status.images[*].names}'", |names| {
        names.contains("docker.io/library/busybox:1.36")
    });
    shell.says("kubectl get --raw /api/v1/nodes/$(kubectl get nodes -o jsonpath='{.items[0].metadata.name}')/proxy/healthz", "ok");
    shell.says("curl -sk -o /dev/null -w '%{http_code}' https://127.0.0.1:10250/pods", "401");
    shell.says("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:10256/healthz", "200");
    shell.ok("coracle status --wait 1 | grep -q '^Node .*  Ready  '");
    shell.shows("coracle check", &["ok       root"]);
    shell.says("kubectl get endpointslices -n default kubernetes -o jsonpath='{.ports[0].port}'", "6443");
}
