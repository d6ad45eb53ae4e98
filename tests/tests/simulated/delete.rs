//! kubectl delete in all its ways.

use super::with_web;
use coracle_tests::Cluster;

#[test]
fn background_is_the_default() {
    let cluster = with_web();
    cluster.says("kubectl delete deployment web", "deployment.apps \"web\" deleted");
    cluster.until("kubectl get replicasets,pods -l app=web -o name", "");
}

#[test]
fn foreground_waits_for_the_dependents() {
    let cluster = with_web();
    cluster.says(
        "kubectl delete deployment web --cascade=foreground --timeout=100s",
        "deployment.apps \"web\" deleted",
    );
    cluster.says("kubectl get deployments,replicasets,pods -l app=web -o name", "");
}

#[test]
fn orphans_stay() {
    let cluster = with_web();
    let pods = cluster.ok("kubectl get pods -l app=web -o name");
    cluster.says("kubectl delete deployment web --cascade=orphan", "deployment.apps \"web\" deleted");
    cluster.says("kubectl get replicasets -l app=web -o jsonpath='{.items[*].metadata.ownerReferences}'", "");
    cluster.says("kubectl get pods -l app=web -o name", &pods);
    cluster.apply(super::WEB);
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    cluster.says("kubectl get pods -l app=web -o name", &pods);
}

#[test]
fn by_label_and_all() {
    let cluster = Cluster::simulated();
    for name in ["a", "b", "c"] {
        cluster.ok(&format!(
            "kubectl create configmap {name} && kubectl label configmap {name} half={}",
            name < "c"
        ));
    }
    cluster.says("kubectl delete configmap -l half=true", "configmap \"a\" deleted\nconfigmap \"b\" deleted");
    cluster.says("kubectl delete configmap --field-selector metadata.name=c", "configmap \"c\" deleted");
    cluster.ok("kubectl run one --image=nginx && kubectl run two --image=nginx");
    cluster.says("kubectl delete pods --all --grace-period=1", "pod \"one\" deleted\npod \"two\" deleted");
    cluster.says("kubectl get pods -o name", "");
}

#[test]
fn grace_is_seen_and_may_be_cut_short() {
    let cluster = Cluster::simulated();
    cluster.ok("kubectl run one --image=nginx && kubectl wait pod/one --for=condition=Ready --timeout=100s");
    let forced = cluster.run("kubectl delete pod one --grace-period=0 --force");
    assert_eq!(forced.stdout, "pod \"one\" force deleted\n", "{forced}");
    let warning = "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. \
                   The resource may continue to run on the cluster indefinitely.";
    assert_eq!(forced.stderr.trim(), warning);
    cluster.says("kubectl get pods -o name", "");
}

#[test]
fn a_finalizer_holds_an_object() {
    let cluster = Cluster::simulated();
    cluster
        .apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, finalizers: [example.com/hold]}\n");
    cluster.says("kubectl delete configmap held --wait=false", "configmap \"held\" deleted");
    cluster.until_that("kubectl get configmap held -o jsonpath='{.metadata.deletionTimestamp}'", |t| {
        t.ends_with('Z')
    });
    cluster.ok("kubectl patch configmap held --type=json -p '[{\"op\":\"remove\",\"path\":\"/metadata/finalizers\"}]'");
    cluster.refuses(
        "kubectl get configmap held",
        r#"Error from server (NotFound): configmaps "held" not found"#,
    );
}

#[test]
fn a_namespace_takes_everything_with_it() {
    let cluster = Cluster::simulated();
    cluster.ok("kubectl create namespace team");
    cluster.until("kubectl get serviceaccount default -n team -o name", "serviceaccount/default");
    cluster.ok("kubectl create deployment app --image=nginx --replicas=2 -n team && kubectl create configmap c -n team");
    cluster.ok("kubectl rollout status deployment/app -n team --timeout=100s");
    cluster.says("kubectl delete namespace team --timeout=100s", "namespace \"team\" deleted");
    cluster.says("kubectl get all,configmaps,secrets -n team -o name", "");
    cluster.refuses(
        "kubectl get namespace team",
        r#"Error from server (NotFound): namespaces "team" not found"#,
    );
    cluster.ok("kubectl create namespace team");
    cluster.refuses(
        "kubectl delete namespace default",
        r#"Error from server (Forbidden): namespaces "default" is forbidden: this namespace may not be deleted"#,
    );
}

#[test]
fn nothing_new_in_a_namespace_that_ends() {
    let cluster = Cluster::simulated();
    cluster.ok("kubectl create namespace team");
    cluster.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, namespace: team, finalizers: [example.com/hold]}\n");
    cluster.ok("kubectl delete namespace team --wait=false");
    cluster.until("kubectl get namespace team -o jsonpath='{.status.phase}'", "Terminating");
    cluster.refuses(
        "kubectl create configmap late -n team",
        "error: failed to create configmap: configmaps \"late\" is forbidden: unable to create new content in namespace team because it is being terminated",
    );
    cluster.until_that(
        "kubectl get namespace team -o jsonpath='{.status.conditions[?(@.type==\"NamespaceFinalizersRemaining\")].message}'",
        |text| text == "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances",
    );
    cluster.ok("kubectl patch configmap held -n team --type=json -p '[{\"op\":\"remove\",\"path\":\"/metadata/finalizers\"}]'");
    cluster.ok("kubectl wait namespace/team --for=delete --timeout=100s");
}
