//! A node whose cluster gets a second family of addresses, with packets of both.

use crate::network::spread;
use crate::node::{Node, Steps};
use coracle_tests::image::BUSYBOX;
use coracle_tests::{Shell, skipped};

pub fn steps<'a>(steps: &mut Steps<'a>) {
    let node = steps.node;
    // The last: pods of before have one address.
    steps.alone("second-family", move |shell| second_family(node, shell));
}

fn second_family(node: &Node, shell: &Shell) {
    if shell
        .run("ip -6 -o address show scope global | grep -q . && ip -6 route show default | grep -q .")
        .code
        != 0
    {
        return skipped("the machine has no IPv6 address and route");
    }
    shell.ok("sed -i 's|}$|, clusterCidr: \"10.42.0.0/16,fd42::/56\", serviceCidr: \"10.43.0.0/16,fd43::/112\"}|' /etc/coracle/config.yaml");
    // A node keeps its ranges for as long as it is registered.
    shell.ok(&format!("kubectl delete node --all --timeout=60s; kill {}", node.server_pid()));
    let ranges = "kubectl get nodes -o jsonpath='{.items[*].spec.podCIDRs}'";
    shell.until(ranges, r#"["10.42.0.0/24","fd42::/64"]"#);
    shell.ok("kubectl wait node --all --for=condition=Ready --timeout=100s");
    shell.until("grep -c fd42::/64 /etc/cni/net.d/10-coracle.conflist", "1");
    shell.apply(&format!(
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
      containers:
      - name: web
        image: "{BUSYBOX}"
        imagePullPolicy: IfNotPresent
        command: [sh, -c, "mkdir /w; hostname >/w/index.html; exec httpd -f -p '[::]:8080' -h /w"]
        readinessProbe: {{httpGet: {{port: 8080, path: /}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec: {{ipFamilyPolicy: RequireDualStack, type: NodePort, selector: {{app: web}}, ports: [{{port: 80, targetPort: 8080}}]}}
"#
    ));
    shell.ok("kubectl rollout status deployment/web --timeout=100s");
    let field = |path: &str| shell.ok(&format!("kubectl get service web -o jsonpath='{{{path}}}'"));
    let (first, second, port) =
        (field(".spec.clusterIPs[0]"), field(".spec.clusterIPs[1]"), field(".spec.ports[0].nodePort"));
    let address =
        shell.ok("ip -6 -o address show scope global | awk '{sub(\"/.*\", \"\", $4); print $4; exit}'");
    for url in [
        format!("http://{first}/"),
        format!("http://[{second}]/"),
        format!("http://[{}]:{port}/", address.trim()),
    ] {
        spread(shell, &url, 2);
    }
    inside(shell, &second);
}

/// A pod has an address of each family, finds names of both, and reaches the Service by the second.
fn inside(shell: &Shell, second: &str) {
    let pod = shell.ok("kubectl get pods -l app=web -o name | head -n 1");
    let pod = pod.trim();
    shell.says(
        &format!("kubectl get {pod} -o jsonpath='{{.status.podIPs}}' | grep -c '10.42.0.[0-9]*.*fd42::'"),
        "1",
    );
    shell.until_that(
        &format!("kubectl exec {pod} -- nslookup -type=AAAA web.second-family.svc.cluster.local"),
        |out| out.contains(second),
    );
    shell.until(
        &format!("kubectl exec {pod} -- sh -c 'for i in $(seq 20); do timeout 5 wget -qO- http://[{second}]/; done' | sort -u | wc -l"),
        "2",
    );
    shell.apply(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: shut}\nspec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: [{from: [{ipBlock: {cidr: 2001:db8::/32}}]}]}\n",
    );
    shell.until(
        &format!("kubectl exec {pod} -- sh -c 'timeout 2 wget -qO- http://[{second}]/ >/dev/null 2>&1 || echo shut'"),
        "shut",
    );
}
