//! kubectl create and run, and what quotas say about it.

use coracle_tests::Cluster;

#[test]
fn create_says_what_it_made() {
    let cluster = Cluster::simulated();
    for (line, made) in [
        ("kubectl create namespace team", "namespace/team created"),
        ("kubectl create configmap settings --from-literal=a=b", "configmap/settings created"),
        ("kubectl create secret generic password --from-literal=p=q", "secret/password created"),
        (
            "kubectl create secret docker-registry pull --docker-server=r.example --docker-username=u --docker-password=p",
            "secret/pull created",
        ),
        ("kubectl create serviceaccount robot", "serviceaccount/robot created"),
        (
            "kubectl create role reader --verb=get,list,watch --resource=pods,pods/log",
            "role.rbac.authorization.k8s.io/reader created",
        ),
        (
            "kubectl create rolebinding readers --role=reader --serviceaccount=default:robot",
            "rolebinding.rbac.authorization.k8s.io/readers created",
        ),
        (
            "kubectl create clusterrole node-reader --verb=get --resource=nodes",
            "clusterrole.rbac.authorization.k8s.io/node-reader created",
        ),
        (
            "kubectl create clusterrolebinding node-readers --clusterrole=node-reader --group=crew",
            "clusterrolebinding.rbac.authorization.k8s.io/node-readers created",
        ),
        ("kubectl create quota small --hard=pods=2,configmaps=10", "resourcequota/small created"),
        (
            "kubectl create priorityclass urgent --value=1000",
            "priorityclass.scheduling.k8s.io/urgent created",
        ),
        ("kubectl create deployment app --image=nginx -n team", "deployment.apps/app created"),
    ] {
        cluster.says(line, made);
    }
    cluster.refuses(
        "kubectl create namespace team",
        r#"Error from server (AlreadyExists): namespaces "team" already exists"#,
    );
    cluster.says("kubectl get secret password -o jsonpath='{.type} {.data.p}'", "Opaque cQ==");
    cluster.says("kubectl get secret pull -o jsonpath='{.type}'", "kubernetes.io/dockerconfigjson");
    cluster.shows("kubectl describe role reader", &["PolicyRule:", "pods/log", "[get list watch]"]);
    cluster.shows(
        "kubectl describe rolebinding readers",
        &["Role:", "Kind:  Role", "Name:  reader", "ServiceAccount  robot  default"],
    );
    cluster.until("kubectl get serviceaccount default -n team -o name", "serviceaccount/default");
    cluster.until("kubectl get configmap kube-root-ca.crt -n team -o name", "configmap/kube-root-ca.crt");
}

#[test]
fn a_tls_secret_holds_a_pair() {
    let cluster = Cluster::simulated();
    let pki = cluster.data_dir().join("pki");
    let line =
        format!("kubectl create secret tls pair --cert={0}/admin.crt --key={0}/admin.key", pki.display());
    cluster.says(&line, "secret/pair created");
    cluster.says("kubectl get secret pair -o jsonpath='{.type}'", "kubernetes.io/tls");
    let compare = format!(
        "kubectl get secret pair -o jsonpath='{{.data.tls\\.crt}}' | base64 -d | cmp - {}/admin.crt",
        pki.display()
    );
    cluster.says(&compare, "");
}

#[test]
fn run_makes_a_pod() {
    let cluster = Cluster::simulated();
    cluster.says("kubectl run one --image=nginx --port=80 --env=A=b --labels=app=one", "pod/one created");
    cluster.ok("kubectl wait pod/one --for=condition=Ready --timeout=100s");
    cluster.says("kubectl get pod one -o jsonpath='{.spec.containers[0].env[0].value} {.spec.containers[0].ports[0].containerPort}'", "b 80");
    cluster.refuses(
        "kubectl run one --image=nginx",
        r#"Error from server (AlreadyExists): pods "one" already exists"#,
    );
}

#[test]
fn a_quota_holds() {
    let cluster = Cluster::simulated();
    cluster.ok("kubectl create quota small --hard=pods=1");
    cluster.ok("kubectl run one --image=nginx");
    cluster.refuses(
        "kubectl run two --image=nginx",
        r#"Error from server (Forbidden): pods "two" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1"#,
    );
    cluster.says("kubectl get pods -o name", "pod/one");
}

#[test]
fn generated_names_differ() {
    let cluster = Cluster::simulated();
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: run-}\n";
    let made: Vec<String> =
        (0..3).map(|_| cluster.run_with("kubectl create -f -", manifest).stdout).collect();
    for line in &made {
        let name = line.strip_prefix("configmap/run-").and_then(|l| l.strip_suffix(" created\n"));
        assert!(name.is_some_and(|n| n.len() == 5), "{made:?}");
    }
    assert!(made[0] != made[1] && made[1] != made[2] && made[0] != made[2], "{made:?}");
}

#[test]
fn service_links_to_workloads_without_a_controller_are_listed() {
    let cluster = Cluster::simulated();
    cluster.says("kubectl create job once --image=busybox -- true", "job.batch/once created");
    cluster.says(
        "kubectl create cronjob nightly --image=busybox --schedule='0 3 * * *' -- true",
        "cronjob.batch/nightly created",
    );
    cluster.says(
        "kubectl get cronjob nightly -o jsonpath='{.spec.schedule} {.spec.concurrencyPolicy}'",
        "0 3 * * * Allow",
    );
    cluster.says(
        "kubectl get job once -o jsonpath='{.spec.backoffLimit} {.spec.template.spec.restartPolicy}'",
        "6 Never",
    );
}
