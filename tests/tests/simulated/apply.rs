//! kubectl apply, diff and replace.

use super::{WEB, with_web};
use coracle_tests::Cluster;

#[test]
fn a_deployment_and_a_service_come_up() {
    let cluster = with_web();
    cluster.until(
        "kubectl get pods -l app=web -o jsonpath='{.items[*].status.phase}'",
        "Running Running Running",
    );
    cluster.until("kubectl get deployment web -o jsonpath='{.status.readyReplicas}'", "3");
    cluster.until_that("kubectl get endpointslices -l kubernetes.io/service-name=web -o jsonpath='{.items[*].endpoints[*].addresses[0]}'", |out| {
        out.split(' ').count() == 3
    });
    let pods = "kubectl get pods -l app=web --sort-by=.status.podIP -o jsonpath='{range .items[*]}{.status.podIP}:8080{\"\\n\"}{end}' | sort | paste -sd,";
    let addresses = cluster.ok(pods);
    cluster.until("kubectl get endpoints web --no-headers | awk '{print $2}'", addresses.trim());
}

#[test]
fn applying_twice_changes_nothing_the_second_time() {
    let cluster = with_web();
    let before =
        cluster.ok("kubectl get deployment,service web -o jsonpath='{.items[*].metadata.resourceVersion}'");
    assert_eq!(cluster.apply(WEB), "deployment.apps/web unchanged\nservice/web unchanged\n");
    let after =
        cluster.ok("kubectl get deployment,service web -o jsonpath='{.items[*].metadata.resourceVersion}'");
    assert_eq!(before, after);
}

#[test]
fn apply_merges_three_ways() {
    let cluster = with_web();
    cluster.ok("kubectl label deployment web by-hand=kept");
    let changed = WEB
        .replace("replicas: 3", "replicas: 2")
        .replace("labels: {app: web}}\nspec", "labels: {tier: front}}\nspec");
    assert_eq!(cluster.apply(&changed), "deployment.apps/web configured\nservice/web unchanged\n");
    cluster.says(
        "kubectl get deployment web -o jsonpath='{.metadata.labels}'",
        r#"{"by-hand":"kept","tier":"front"}"#,
    );
    cluster.until("kubectl get deployment web -o jsonpath='{.status.replicas}'", "2");
}

#[test]
fn a_dry_run_on_the_server_changes_nothing() {
    let cluster = Cluster::simulated();
    std::fs::write(cluster.home().join("web.yaml"), WEB).expect("manifest");
    cluster.says(
        "kubectl apply --dry-run=server -f web.yaml",
        "deployment.apps/web created (server dry run)\nservice/web created (server dry run)",
    );
    cluster.refuses(
        "kubectl get deployment web",
        r#"Error from server (NotFound): deployments.apps "web" not found"#,
    );
    cluster.shows(
        "kubectl create deployment web --image=nginx --dry-run=server -o yaml",
        &["namespace: default", "uid: "],
    );
    cluster.refuses("kubectl get service web", r#"Error from server (NotFound): services "web" not found"#);
}

#[test]
fn diff_shows_what_apply_would_change() {
    let cluster = with_web();
    let same = cluster.run_with("kubectl diff -f -", WEB);
    assert_eq!((same.code, same.stdout.as_str()), (0, ""), "{same}");
    let changed = cluster.run_with("kubectl diff -f -", &WEB.replace("replicas: 3", "replicas: 5"));
    assert_eq!(changed.code, 1, "{changed}");
    let lines: Vec<&str> = changed.stdout.lines().filter(|l| l.contains("  replicas:")).collect();
    assert_eq!(lines, ["-  replicas: 3", "+  replicas: 5"], "{changed}");
    cluster.says("kubectl get deployment web -o jsonpath='{.spec.replicas}'", "3");
}

#[test]
fn replace_needs_the_newest_version() {
    let cluster = Cluster::simulated();
    cluster.ok("kubectl create configmap settings --from-literal=colour=red");
    cluster.ok("kubectl get configmap settings -o yaml >old.yaml");
    cluster.says("sed s/red/blue/ old.yaml | kubectl replace -f -", "configmap/settings replaced");
    cluster.says("kubectl get configmap settings -o jsonpath='{.data.colour}'", "blue");
    cluster.refuses(
        "sed s/red/green/ old.yaml | kubectl replace -f -",
        "Error from server (Conflict): error when replacing \"STDIN\": Operation cannot be fulfilled on configmaps \"settings\": \
         the object has been modified; please apply your changes to the latest version and try again",
    );
    cluster.shows(
        "sed '/resourceVersion/d; /uid/d; s/red/grey/' old.yaml | kubectl replace --force -f -",
        &["replaced"],
    );
    cluster.says("kubectl get configmap settings -o jsonpath='{.data.colour}'", "grey");
}

#[test]
fn server_side_apply_owns_what_it_applies() {
    let cluster = Cluster::simulated();
    let output = cluster.run_with("kubectl apply --server-side -f -", WEB);
    assert_eq!(output.stdout, "deployment.apps/web serverside-applied\nservice/web serverside-applied\n");
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    cluster.shows(
        "kubectl get deployment web -o yaml --show-managed-fields",
        &["manager: kubectl", "operation: Apply"],
    );
}

#[test]
fn apply_prunes_nothing_by_itself_and_deletes_by_file() {
    let cluster = with_web();
    std::fs::write(cluster.home().join("web.yaml"), WEB).expect("manifest");
    cluster.says("kubectl delete -f web.yaml", "deployment.apps \"web\" deleted\nservice \"web\" deleted");
    cluster.until("kubectl get pods,replicasets,endpointslices -l app=web -o name", "");
}
