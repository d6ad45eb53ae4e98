//! kubectl patch, edit, label, annotate, expose, set.

use super::with_web;
use coracle_tests::Cluster;

#[test]
fn the_three_kinds_of_patch() {
    let cluster = with_web();
    let patch = |kind: &str, body: &str| format!("kubectl patch deployment web --type={kind} -p '{body}'");
    let containers = "kubectl get deployment web -o jsonpath='{range .spec.template.spec.containers[*]}{.name}={.image} {end}'";
    let sidecar = r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"busybox"}]}}}}"#;
    cluster.says(&patch("strategic", sidecar), "deployment.apps/web patched");
    cluster.says(containers, "side=busybox web=nginx:1.27");
    // kubectl compares statuses, too: the rollout has to be over.
    cluster.ok("kubectl rollout status deployment web --timeout=100s");
    let progress =
        "kubectl get deployment web -o jsonpath='{.status.conditions[?(@.type==\"Progressing\")].reason}'";
    cluster.until(progress, "NewReplicaSetAvailable");
    cluster.says(&patch("strategic", sidecar), "deployment.apps/web patched (no change)");
    let remove = r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","$patch":"delete"}]}}}}"#;
    cluster.ok(&patch("strategic", remove));
    cluster.says(containers, "web=nginx:1.27");
    let whole = r#"{"spec":{"template":{"spec":{"containers":[{"name":"only","image":"busybox"}]}}}}"#;
    cluster.ok(&patch("merge", whole));
    cluster.says(containers, "only=busybox");
    cluster.ok(&patch(
        "json",
        r#"[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"nginx:3"}]"#,
    ));
    cluster.says(containers, "only=nginx:3");
    cluster.refuses(
        &patch("json", r#"[{"op":"test","path":"/spec/replicas","value":99}]"#),
        "The request is invalid: the server rejected our request due to an error in our request",
    );
    cluster.refuses(
        &patch("merge", r#"{"spec":{"replicas":-1}}"#),
        r#"The Deployment "web" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"#,
    );
    cluster.says(
        "kubectl patch deployment web --subresource=scale --type=merge -p '{\"spec\":{\"replicas\":2}}'",
        "scale.autoscaling/web patched",
    );
    cluster.says("kubectl get deployment web -o jsonpath='{.spec.replicas}'", "2");
}

#[test]
fn edit_with_an_editor() {
    let cluster = with_web();
    cluster.says(
        "KUBE_EDITOR='sed -i s/replicas:.3/replicas:\\ 4/' kubectl edit deployment web",
        "deployment.apps/web edited",
    );
    cluster.says("kubectl get deployment web -o jsonpath='{.spec.replicas}'", "4");
    let untouched = cluster.run("KUBE_EDITOR=true kubectl edit deployment web");
    assert_eq!(
        (untouched.code, untouched.stderr.trim()),
        (0, "Edit cancelled, no changes made."),
        "{untouched}"
    );
}

#[test]
fn labels_and_annotations() {
    let cluster = with_web();
    cluster.says("kubectl label deployment web tier=front", "deployment.apps/web labeled");
    cluster.refuses(
        "kubectl label deployment web tier=back",
        "error: 'tier' already has a value (front), and --overwrite is false",
    );
    cluster.says("kubectl label deployment web tier=back --overwrite", "deployment.apps/web labeled");
    cluster.says("kubectl label deployment web tier-", "deployment.apps/web unlabeled");
    cluster.says("kubectl annotate deployment web note=hello", "deployment.apps/web annotated");
    cluster.says("kubectl get deployment web -o jsonpath='{.metadata.annotations.note}'", "hello");
    cluster.says("kubectl annotate deployment web note-", "deployment.apps/web annotated");
    cluster.says("kubectl label pods -l app=web extra=yes | wc -l", "3");
    cluster.says("kubectl get pods -l extra=yes -o name | wc -l", "3");
    cluster.refuses(
        "kubectl label deployment web 'bad key'=x",
        "The Deployment \"web\" is invalid: metadata.labels: Invalid value: \"bad key\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
         an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
    );
}

#[test]
fn a_pod_that_loses_its_label_is_replaced_and_left_alone() {
    let cluster = with_web();
    cluster.ok("kubectl label --overwrite $(kubectl get pods -l app=web -o name | head -n 1) app=adrift");
    cluster.until("kubectl get pods -l app=web -o name | wc -l", "3");
    cluster.says("kubectl get pods -l app=adrift -o name | wc -l", "1");
    cluster.until("kubectl get pods -l app=adrift -o jsonpath='{.items[0].metadata.ownerReferences}'", "");
}

#[test]
fn a_pods_spec_is_fixed_but_for_its_image() {
    let cluster = Cluster::simulated();
    cluster.ok("kubectl run one --image=nginx && kubectl wait pod/one --for=condition=Ready --timeout=100s");
    cluster.says("kubectl set image pod/one one=nginx:2", "pod/one image updated");
    let output = cluster.run("kubectl patch pod one -p '{\"spec\":{\"restartPolicy\":\"Never\"}}'");
    assert_ne!(output.code, 0);
    let said = "The Pod \"one\" is invalid: spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`";
    assert!(output.stderr.starts_with(said), "{output}");
    cluster.says(
        "kubectl get pod one -o jsonpath='{.spec.restartPolicy} {.spec.containers[0].image}'",
        "Always nginx:2",
    );
}

#[test]
fn expose_makes_services_of_every_type() {
    let cluster = with_web();
    cluster.says(
        "kubectl expose deployment web --name=inside --port=80 --target-port=8080",
        "service/inside exposed",
    );
    cluster.says(
        "kubectl expose deployment web --name=outside --port=80 --target-port=8080 --type=NodePort",
        "service/outside exposed",
    );
    let port = cluster.ok("kubectl get service outside -o jsonpath='{.spec.ports[0].nodePort}'");
    assert!((30_000..=32_767).contains(&port.parse::<u32>().expect("a port")), "{port}");
    cluster.says(
        "kubectl get service outside --no-headers | awk '{print $2, $5}'",
        &format!("NodePort 80:{port}/TCP"),
    );
    cluster.says("kubectl create service clusterip bare --clusterip=None --tcp=80", "service/bare created");
    cluster.says("kubectl get service bare -o jsonpath='{.spec.clusterIP}'", "None");
    let address = cluster.ok("kubectl get service inside -o jsonpath='{.spec.clusterIP}'");
    assert!(address.starts_with("10.43."), "{address}");
    let twice = format!("kubectl create service clusterip thief --clusterip={address} --tcp=80");
    let output = cluster.run(&twice);
    assert!(output.stderr.contains("provided IP is already allocated"), "{output}");
}

#[test]
fn set_env_and_resources() {
    let cluster = with_web();
    cluster.says("kubectl set env deployment/web COLOUR=red", "deployment.apps/web env updated");
    cluster.says("kubectl set env deployment/web --list", "# Deployment web, container web\nCOLOUR=red");
    cluster.says(
        "kubectl set resources deployment web --limits=cpu=200m",
        "deployment.apps/web resource requirements updated",
    );
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    cluster.says(
        "kubectl get deployment web -o jsonpath='{.spec.template.spec.containers[0].resources.limits.cpu}'",
        "200m",
    );
}

/// Every rule is upstream's, in its words.
#[test]
fn a_pod_is_resized() {
    let cluster = with_web();
    cluster.apply(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  \
         initContainers: [{name: i, image: x, resources: {requests: {cpu: 1m}}}]\n  \
         containers: [{name: c, image: x, resources: {requests: {cpu: 10m}, limits: {cpu: 20m}}}]",
    );
    cluster.ok("kubectl wait pod p --for=condition=Ready --timeout=60s");
    let resize = |spec: &str| format!("kubectl patch pod p --subresource=resize -p '{{\"spec\":{spec}}}'");
    cluster.ok(&resize(r#"{"initContainers":[{"name":"i","resources":{"requests":{"cpu":"2m"}}}]}"#));
    cluster.says("kubectl get pod p -o jsonpath='{.spec.initContainers[0].resources.requests.cpu}'", "2m");
    let of_c =
        |resources: &str| resize(&format!(r#"{{"containers":[{{"name":"c","resources":{resources}}}]}}"#));
    cluster.ok(&of_c(r#"{"requests":{"cpu":"15m"}}"#));
    cluster.refuses(
        &of_c(r#"{"requests":{"cpu":"33"},"limits":{"cpu":"33"}}"#),
        "Error from server (Forbidden): pods \"p\" is forbidden: Node didn't have enough allocatable resources: cpu, \
         requested: 33000, allocatable: 32000",
    );
    cluster.refuses(
        &of_c(r#"{"limits":null}"#),
        "The Pod \"p\" is invalid: spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
    );
    cluster.refuses(
        &of_c(r#"{"requests":{"ephemeral-storage":"1Gi"}}"#),
        "The Pod \"p\" is invalid: spec: Forbidden: only cpu and memory resources are mutable",
    );
    let node = cluster.ok("kubectl get pod p -o jsonpath='{.spec.nodeName}'");
    let node = node.trim();
    cluster.ok(&format!(
        "kubectl patch node {node} --subresource=status --type=merge -p '{{\"status\":{{\"declaredFeatures\":[]}}}}'"
    ));
    cluster.refuses(
        &resize(r#"{"initContainers":[{"name":"i","resources":{"requests":{"cpu":"3m"}}}]}"#),
        &format!(
            "Error from server (Forbidden): pods \"p\" is forbidden: pod update requires features \
             InPlacePodVerticalScalingInitContainers which are not available on node \"{node}\""
        ),
    );
}
