//! What the server says about itself: api-resources, explain, version, proxy.

use coracle_tests::Cluster;

#[test]
fn resources_versions_and_information() {
    let cluster = Cluster::simulated();
    cluster.says(
        "kubectl api-resources --no-headers | awk '$1 == \"deployments\"' | tr -s ' '",
        "deployments deploy apps/v1 true Deployment",
    );
    cluster.says(
        "kubectl api-resources --api-group=apps -o name | sort",
        "controllerrevisions.apps\ndaemonsets.apps\ndeployments.apps\nreplicasets.apps\nstatefulsets.apps",
    );
    cluster.says(
        "kubectl api-resources --namespaced=false --api-group= -o name | sort",
        "componentstatuses\nnamespaces\nnodes\npersistentvolumes",
    );
    cluster.shows(
        "kubectl api-resources -o wide",
        &["VERBS", "CATEGORIES", "create,delete,deletecollection,get,list,patch,update,watch", "all"],
    );
    cluster.shows(
        "kubectl api-versions",
        &[
            "apps/v1\n",
            "coordination.k8s.io/v1\n",
            "discovery.k8s.io/v1\n",
            "rbac.authorization.k8s.io/v1\n",
            "\nv1\n",
        ],
    );
    cluster.shows("kubectl version", &["Client Version: v1.", "Server Version: v1.36."]);
    cluster.says("kubectl get --raw /version | jq -r '.major + \".\" + .minor'", "1.36");
    let server = cluster.ok("kubectl config view -o jsonpath='{.clusters[0].cluster.server}'");
    cluster.shows("kubectl cluster-info", &[&format!("Kubernetes control plane is running at {server}")]);
    cluster.says("kubectl get --raw /livez", "ok");
    cluster.says("kubectl get --raw '/readyz?verbose' | tail -n 1", "readyz check passed");
    cluster.shows("kubectl get --raw /metrics", &["apiserver_request_total"]);
    cluster.shows("kubectl get --raw /openapi/v3 | jq -r '.paths | keys[]'", &["api/v1", "apis/apps/v1"]);
}

#[test]
fn explain_has_types_and_prose() {
    let cluster = Cluster::simulated();
    cluster.shows(
        "kubectl explain pod.spec.containers.image",
        &[
            "KIND:       Pod",
            "VERSION:    v1",
            "FIELD: image <string>",
            "DESCRIPTION:",
            "Container image name.",
        ],
    );
    cluster.shows(
        "kubectl explain deployment",
        &["GROUP:      apps", "KIND:       Deployment", "FIELDS:", "spec\t<DeploymentSpec>"],
    );
    cluster.shows(
        "kubectl explain service.spec --recursive",
        &["ports\t<[]ServicePort>", "port\t<integer> -required-"],
    );
    cluster.refuses("kubectl explain pod.spec.nothing", "error: field \"nothing\" does not exist");
}

#[test]
fn proxy_serves_the_api_on_loopback() {
    let cluster = Cluster::simulated();
    let proxy = cluster.start("kubectl proxy --port=0", "proxy");
    let said =
        proxy.until_that("the proxy's address", |text| text.contains("Starting to serve on 127.0.0.1:"));
    let address = said.trim().rsplit(' ').next().unwrap_or_default().to_owned();
    cluster.says(
        &format!("curl -s http://{address}/api/v1/nodes | jq -r '.items[].metadata.name'"),
        "sim-0\nsim-1",
    );
    cluster.says(&format!("curl -s http://{address}/livez"), "ok");
    cluster.says(&format!("curl -s -o /dev/null -w '%{{http_code}}' http://{address}/api/v1/nothing"), "404");
}

#[test]
fn status_says_what_is_wrong() {
    let cluster = Cluster::simulated();
    let shown = cluster.run("coracle status");
    assert_eq!((shown.code, shown.stderr.as_str()), (0, ""), "{shown}");
    for part in [
        "Status        all is well\n",
        "Version       Kubernetes v1.36",
        "Node          sim-0  Ready  v1.36",
        "Node          sim-1  Ready  v1.36",
        "Pods          none\n",
        " free\n",
        " objects, ",
        "Certificates  the first to end is ",
        "Last backup   none\n",
    ] {
        assert!(shown.stdout.contains(part), "{part:?} in {shown}");
    }
    cluster.says(
        "coracle status -o json | jq -c '[.wrong, .nodes[0].name, .lastBackup]'",
        r#"[[],"sim-0",null]"#,
    );
    cluster.ok("kubectl run bad --image=x && kubectl wait pod/bad --for=condition=Ready --timeout=100s");
    cluster.ok(r#"kubectl patch pod bad --subresource=status -p '{"status":{"phase":"Failed"}}'"#);
    let wrong = cluster.run("coracle status");
    assert_eq!(wrong.code, 1, "{wrong}");
    assert!(
        wrong.stdout.contains("1 pod is not ready") && wrong.stdout.contains("  not ready   default/bad  "),
        "{wrong}"
    );
    // Who waits for nodes is told of nodes.
    assert_eq!(cluster.run("coracle status --wait 5").code, 0);
    let nobody = cluster.run("coracle status --kubeconfig ./none");
    assert_eq!((nobody.code, nobody.stderr.lines().count()), (2, 1), "{nobody}");
    assert!(nobody.stderr.starts_with("coracle: ./none: "), "{nobody}");
    cluster.ok("(timeout 3 coracle status --watch || true) | grep -q 'Node          sim-0'");
}
