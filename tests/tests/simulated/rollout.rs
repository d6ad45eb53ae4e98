//! kubectl scale, set image and rollout.

use super::with_web;

#[test]
fn scale_up_and_down() {
    let cluster = with_web();
    cluster.says("kubectl scale deployment web --replicas=5", "deployment.apps/web scaled");
    cluster.until("kubectl get deployment web -o jsonpath='{.status.readyReplicas}'", "5");
    cluster
        .says("kubectl scale deployment web --current-replicas=5 --replicas=1", "deployment.apps/web scaled");
    cluster.until("kubectl get pods -l app=web -o name | wc -l", "1");
    cluster.refuses(
        "kubectl scale deployment web --current-replicas=9 --replicas=2",
        "error: Expected replicas to be 9, was 1",
    );
    cluster.says("kubectl scale deployment web --replicas=0", "deployment.apps/web scaled");
    cluster.until("kubectl get pods -l app=web -o name | wc -l", "0");
    cluster.says("kubectl get deployment web --no-headers | awk '{print $2, $3, $4}'", "0/0 0 0");
}

#[test]
fn a_new_image_rolls_out_and_back() {
    let cluster = with_web();
    cluster.says("kubectl set image deployment/web web=nginx:1.28", "deployment.apps/web image updated");
    cluster.shows(
        "kubectl rollout status deployment/web --timeout=100s",
        &["deployment \"web\" successfully rolled out"],
    );
    cluster.until(
        "kubectl get pods -l app=web -o jsonpath='{.items[*].spec.containers[0].image}'",
        "nginx:1.28 nginx:1.28 nginx:1.28",
    );
    cluster.says(
        "kubectl rollout history deployment/web",
        "deployment.apps/web \nREVISION  CHANGE-CAUSE\n1         <none>\n2         <none>",
    );
    cluster.shows(
        "kubectl rollout history deployment/web --revision=1",
        &["deployment.apps/web with revision #1", "Image:\tnginx:1.27"],
    );
    cluster.says("kubectl rollout undo deployment/web", "deployment.apps/web rolled back");
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    cluster.says(
        "kubectl get deployment web -o jsonpath='{.spec.template.spec.containers[0].image}'",
        "nginx:1.27",
    );
    cluster.says(
        "kubectl rollout history deployment/web",
        "deployment.apps/web \nREVISION  CHANGE-CAUSE\n2         <none>\n3         <none>",
    );
    cluster.says("kubectl rollout undo deployment/web --to-revision=2", "deployment.apps/web rolled back");
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    cluster.says(
        "kubectl get deployment web -o jsonpath='{.spec.template.spec.containers[0].image}'",
        "nginx:1.28",
    );
    cluster.says("kubectl get replicasets -l app=web -o name | wc -l", "2");
    cluster.refuses(
        "kubectl rollout undo deployment/web --to-revision=9",
        "error: unable to find specified revision 9 in history",
    );
}

#[test]
fn a_paused_rollout_waits() {
    let cluster = with_web();
    cluster.says("kubectl rollout pause deployment/web", "deployment.apps/web paused");
    cluster
        .refuses("kubectl rollout pause deployment/web", "error: deployments.apps \"web\" is already paused");
    cluster.ok("kubectl set image deployment/web web=nginx:1.28");
    let seen = "kubectl get deployment web -o jsonpath='{.metadata.generation} {.status.observedGeneration}'";
    cluster
        .until_that(seen, |text| text.split_once(' ').is_some_and(|(wanted, observed)| wanted == observed));
    cluster.says("kubectl get replicasets -l app=web -o name | wc -l", "1");
    cluster.shows("kubectl describe deployment web", &["Progressing    Unknown  DeploymentPaused"]);
    cluster.says("kubectl rollout resume deployment/web", "deployment.apps/web resumed");
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    cluster.until(
        "kubectl get pods -l app=web -o jsonpath='{.items[*].spec.containers[0].image}'",
        "nginx:1.28 nginx:1.28 nginx:1.28",
    );
}

#[test]
fn restart_replaces_every_pod() {
    let cluster = with_web();
    let names = "kubectl get pods -l app=web -o name | sort";
    let before = cluster.ok(names);
    cluster.says("kubectl rollout restart deployment/web", "deployment.apps/web restarted");
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    let after = cluster.until_that(names, |out| out.lines().count() == 3);
    assert!(before.lines().all(|pod| !after.contains(pod)), "{before} still in {after}");
}

#[test]
fn recreate_never_mixes_versions() {
    let cluster = with_web();
    cluster.ok("kubectl patch deployment web -p '{\"spec\":{\"strategy\":{\"$retainKeys\":[\"type\"],\"type\":\"Recreate\"}}}'");
    cluster.ok("kubectl set image deployment/web web=nginx:1.28");
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    cluster.until(
        "kubectl get pods -l app=web -o jsonpath='{.items[*].spec.containers[0].image}'",
        "nginx:1.28 nginx:1.28 nginx:1.28",
    );
    cluster.says("kubectl get deployment web -o jsonpath='{.spec.strategy}'", r#"{"type":"Recreate"}"#);
}

#[test]
fn a_deleted_pod_comes_back() {
    let cluster = with_web();
    cluster.ok("kubectl delete $(kubectl get pods -l app=web -o name | head -n 1)");
    cluster.until("kubectl get deployment web -o jsonpath='{.status.readyReplicas}'", "3");
    cluster.until("kubectl get pods -l app=web -o name | wc -l", "3");
}
