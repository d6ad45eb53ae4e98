//! kill -9 of the server while many pods wait for a node.

use super::priorities;

/// Two nodes that hold just as many pods as there are. The first kill finds all of them waiting, the second half of
/// them at least, the others on their way to the node that is just open.
#[test]
fn a_backlog_is_worked_off_after_a_kill_and_no_node_takes_too_many() {
    let mut cluster = priorities(2);
    cluster.ok("kubectl cordon sim-0 sim-1");
    cluster.apply(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: many}\nspec:\n  replicas: 220\n  \
         selector: {matchLabels: {app: many}}\n  template:\n    metadata: {labels: {app: many}}\n    spec:\n      \
         containers: [{name: app, image: nginx}]\n",
    );
    cluster.until("kubectl get pods -l app=many -o name | wc -l", "220");
    let bound = "kubectl get pods -l app=many -o jsonpath='{range .items[*]}{.spec.nodeName}{\"\\n\"}{end}' | grep -c sim || true";
    cluster.says(bound, "0");
    cluster.kill_and_restart();
    cluster.ok("kubectl uncordon sim-0");
    let count = cluster.ok(bound);
    assert!(count.trim().parse::<usize>().is_ok_and(|count| count < 220), "{count} of 220 are bound");
    cluster.kill_and_restart();
    cluster.until(bound, "110");
    cluster.ok("kubectl uncordon sim-1");
    cluster.until(bound, "220");
    cluster.says(
        "kubectl get pods -l app=many -o jsonpath='{range .items[*]}{.spec.nodeName}{\"\\n\"}{end}' | sort | uniq -c | awk '{print $1,$2}'",
        "110 sim-0\n110 sim-1",
    );
    cluster.ok("kubectl rollout status deployment/many --timeout=100s");
}
