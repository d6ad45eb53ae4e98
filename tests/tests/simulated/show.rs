//! kubectl get, describe, events and wait.

use super::with_web;
use coracle_tests::Cluster;

#[test]
fn get_prints_upstreams_tables() {
    let cluster = with_web();
    let columns = |line: &str| {
        let out = cluster.ok(line);
        out.lines()
            .next()
            .unwrap_or_default()
            .split("  ")
            .map(str::trim)
            .filter(|c| !c.is_empty())
            .collect::<Vec<_>>()
            .join("|")
    };
    assert_eq!(columns("kubectl get pods"), "NAME|READY|STATUS|RESTARTS|AGE");
    assert_eq!(
        columns("kubectl get pods -o wide"),
        "NAME|READY|STATUS|RESTARTS|AGE|IP|NODE|NOMINATED NODE|READINESS GATES"
    );
    assert_eq!(columns("kubectl get pods -A"), "NAMESPACE|NAME|READY|STATUS|RESTARTS|AGE");
    assert_eq!(columns("kubectl get pods --show-labels"), "NAME|READY|STATUS|RESTARTS|AGE|LABELS");
    assert_eq!(columns("kubectl get pods -L app"), "NAME|READY|STATUS|RESTARTS|AGE|APP");
    assert_eq!(
        columns("kubectl get deployments -o wide"),
        "NAME|READY|UP-TO-DATE|AVAILABLE|AGE|CONTAINERS|IMAGES|SELECTOR"
    );
    assert_eq!(columns("kubectl get replicasets"), "NAME|DESIRED|CURRENT|READY|AGE");
    assert_eq!(
        columns("kubectl get services -o wide"),
        "NAME|TYPE|CLUSTER-IP|EXTERNAL-IP|PORT(S)|AGE|SELECTOR"
    );
    assert_eq!(
        columns("kubectl get nodes -o wide"),
        "NAME|STATUS|ROLES|AGE|VERSION|INTERNAL-IP|EXTERNAL-IP|OS-IMAGE|KERNEL-VERSION|CONTAINER-RUNTIME"
    );
    assert_eq!(columns("kubectl get namespaces"), "NAME|STATUS|AGE");
    assert_eq!(columns("kubectl get endpointslices"), "NAME|ADDRESSTYPE|PORTS|ENDPOINTS|AGE");
    assert_eq!(columns("kubectl get events"), "LAST SEEN|TYPE|REASON|OBJECT|MESSAGE");
    assert_eq!(columns("kubectl get secrets,configmaps"), "NAME|DATA|AGE");
    assert_eq!(columns("kubectl get serviceaccounts"), "NAME|AGE");
    assert_eq!(columns("kubectl get clusterroles"), "NAME|CREATED AT");
    assert_eq!(columns("kubectl get leases -n kube-node-lease"), "NAME|HOLDER|AGE");
    cluster.shows("kubectl get deployment web --no-headers", &["web", "3/3", "3", "3"]);
    cluster.shows(
        "kubectl get service kubernetes --no-headers",
        &["kubernetes", "ClusterIP", "10.43.0.1", "<none>", "443/TCP"],
    );
}

#[test]
fn get_selects_sorts_and_formats() {
    let cluster = with_web();
    cluster.ok("kubectl run other --image=nginx --labels=app=other && kubectl wait pod/other --for=condition=Ready --timeout=100s");
    cluster.says("kubectl get pods -l app=web -o name | wc -l", "3");
    cluster.says("kubectl get pods -l 'app notin (web)' -o name", "pod/other");
    cluster.says("kubectl get pods -l 'app in (web, other),!pod-template-hash' -o name", "pod/other");
    cluster.says("kubectl get pods --field-selector metadata.name=other -o name", "pod/other");
    cluster.says("kubectl get pods --field-selector status.phase=Running -o name | wc -l", "4");
    cluster.says("kubectl get pods --field-selector status.phase!=Running", "");
    cluster.says(
        "for n in sim-0 sim-1; do kubectl get pods --field-selector spec.nodeName=$n -o name; done | wc -l",
        "4",
    );
    cluster.says("kubectl get pods other -o jsonpath='{.spec.containers[0].image}'", "nginx");
    cluster.says(
        "kubectl get pods other -o custom-columns=POD:.metadata.name,IMAGE:.spec.containers[*].image",
        "POD     IMAGE\nother   nginx",
    );
    cluster.says(
        "kubectl get pods other -o json | jq -r '.kind + \" \" + .apiVersion + \" \" + .spec.restartPolicy'",
        "Pod v1 Always",
    );
    cluster.says("kubectl get pods other -o go-template='{{.metadata.namespace}}'", "default");
    cluster.says("kubectl get pods -A --sort-by=.spec.containers[0].image -o name | head -n 1", "pod/other");
    cluster.says("kubectl get services --sort-by=.metadata.name -o name", "service/kubernetes\nservice/web");
    cluster.says("kubectl get pods,services -l app=nothing", "");
    cluster.says("kubectl get pods --chunk-size=1 -o name | wc -l", "4");
    cluster.says("kubectl get pod/other service/web -o name", "pod/other\nservice/web");
    cluster.shows(
        "kubectl get pod other -o yaml",
        &["apiVersion: v1", "kind: Pod", "name: other", "qosClass: BestEffort"],
    );
}

#[test]
fn what_does_not_exist_is_said_as_upstream_says_it() {
    let cluster = Cluster::simulated();
    cluster.refuses("kubectl get pod nobody", r#"Error from server (NotFound): pods "nobody" not found"#);
    cluster.refuses(
        "kubectl get namespace nowhere",
        r#"Error from server (NotFound): namespaces "nowhere" not found"#,
    );
    cluster.refuses("kubectl get widgets", r#"error: the server doesn't have a resource type "widgets""#);
    cluster.refuses("kubectl delete pod nobody", r#"Error from server (NotFound): pods "nobody" not found"#);
    cluster.refuses(
        "kubectl create configmap a -n nowhere",
        r#"error: failed to create configmap: namespaces "nowhere" not found"#,
    );
    let nothing = cluster.run("kubectl get pods");
    assert_eq!((nothing.code, nothing.stdout.as_str()), (0, ""));
    assert_eq!(nothing.stderr, "No resources found in default namespace.\n");
    cluster.says("kubectl get pod nobody --ignore-not-found", "");
}

/// Events are written beside the work that they tell of, and may come after it.
fn has_events(cluster: &Cluster) {
    for (reason, count) in [("Scheduled", "3"), ("SuccessfulCreate", "3"), ("ScalingReplicaSet", "1")] {
        let line = format!("kubectl get events --field-selector reason={reason} -o name | wc -l");
        cluster.until_that(&line, |n| n.trim() == count);
    }
}

#[test]
fn describe_tells_of_a_workload() {
    let cluster = with_web();
    has_events(&cluster);
    cluster.shows(
        "kubectl describe deployment web",
        &[
            "Name:                   web",
            "Annotations:            deployment.kubernetes.io/revision: 1",
            "Selector:               app=web",
            "Replicas:               3 desired | 3 updated | 3 total | 3 available | 0 unavailable",
            "StrategyType:           RollingUpdate",
            "RollingUpdateStrategy:  25% max unavailable, 25% max surge",
            "Available      True    MinimumReplicasAvailable",
            "Progressing    True    NewReplicaSetAvailable",
            "OldReplicaSets:  <none>",
            "(3/3 replicas created)",
            "ScalingReplicaSet",
            "deployment-controller  Scaled up replica set web-",
            "from 0 to 3",
        ],
    );
    cluster.shows(
        "kubectl describe $(kubectl get pods -l app=web -o name | head -n 1)",
        &[
            "Namespace:        default",
            "Service Account:  default",
            "Labels:           app=web",
            "Status:           Running",
            "Controlled By:  ReplicaSet/web-",
            "Image:          nginx:1.27",
            "State:          Running",
            "Restart Count:  0",
            "memory:  128Mi",
            "PodScheduled                True",
            "QoS Class:                   Burstable",
            "node.kubernetes.io/not-ready:NoExecute op=Exists for 300s",
            "Normal  Scheduled",
            "default-scheduler  Successfully assigned default/web-",
        ],
    );
}

#[test]
fn describe_tells_of_services_nodes_and_namespaces() {
    let cluster = with_web();
    cluster.shows(
        "kubectl describe service web",
        &[
            "Selector:                 app=web",
            "Type:                     ClusterIP",
            "Port:                     <unset>  80/TCP",
            "TargetPort:               8080/TCP",
            "Endpoints:                10.42.",
            "Events:                   <none>",
        ],
    );
    cluster.shows(
        "kubectl describe node sim-0",
        &[
            "Name:               sim-0",
            "Taints:             <none>",
            "Unschedulable:      false",
            "HolderIdentity:  sim-0",
            "Ready            True",
            "KubeletReady",
            "kubelet is posting ready status",
            "Allocatable:",
            "Non-terminated Pods:",
            "Allocated resources:",
        ],
    );
    cluster.shows("kubectl describe namespace default", &["Name:         default", "Status:       Active"]);
}

#[test]
fn events_say_who_did_what() {
    let cluster = with_web();
    has_events(&cluster);
    cluster.shows(
        "kubectl events --for deployment/web",
        &["Normal", "ScalingReplicaSet", "Deployment/web", "Scaled up replica set web-"],
    );
    cluster.until_that(
        "kubectl get events --field-selector reason=SuccessfulCreate -o jsonpath='{.items[*].message}'",
        |text| text.matches("Created pod: web-").count() == 3,
    );
    cluster.ok("kubectl run huge --image=nginx --overrides='{\"spec\":{\"containers\":[{\"name\":\"huge\",\"image\":\"nginx\",\"resources\":{\"requests\":{\"cpu\":\"4000\"}}}]}}'");
    cluster.until_that(
        "kubectl get events --field-selector reason=FailedScheduling -o jsonpath='{.items[0].message}'",
        |text| text.starts_with("0/2 nodes are available: 2 Insufficient cpu."),
    );
    cluster.says("kubectl get pod huge --no-headers | awk '{print $2, $3}'", "0/1 Pending");
    cluster.shows(
        "kubectl describe pod huge",
        &[
            "PodScheduled   False",
            "Warning  FailedScheduling",
            "default-scheduler  0/2 nodes are available: 2 Insufficient cpu.",
        ],
    );
}

#[test]
fn wait_waits_for_conditions_fields_and_ends() {
    let cluster = Cluster::simulated();
    cluster.says("kubectl run one --image=nginx", "pod/one created");
    cluster.says("kubectl wait pod/one --for=condition=Ready --timeout=100s", "pod/one condition met");
    cluster.says(
        "kubectl wait pod/one --for=jsonpath='{.status.phase}'=Running --timeout=100s",
        "pod/one condition met",
    );
    cluster.refuses(
        "kubectl wait pod/one --for=condition=Ready=false --timeout=1s",
        "error: timed out waiting for the condition on pods/one",
    );
    let waiter = cluster.start("kubectl wait pod/one --for=delete --timeout=100s", "waiter");
    cluster.says("kubectl delete pod one --wait=false", "pod \"one\" deleted");
    assert_eq!(waiter.wait(), 0);
    cluster.refuses("kubectl get pod one", r#"Error from server (NotFound): pods "one" not found"#);
    cluster.refuses(
        "kubectl wait pod/one --for=condition=Ready --timeout=1s",
        r#"Error from server (NotFound): pods "one" not found"#,
    );
}
