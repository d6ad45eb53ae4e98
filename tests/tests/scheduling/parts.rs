//! Parts of the cluster as processes of their own, each with nothing but its kubeconfig.

use coracle_tests::Cluster;
use coracle_tests::shell::Background;
use nix::sys::signal::Signal;

/// Shorter than upstream's, so that nobody waits: another may take over after 4 s, the leader ends after 3.
const ELECTION: &str =
    "--leader-elect-lease-duration 4s --leader-elect-renew-deadline 3s --leader-elect-retry-period 500ms";
const HOLDER: &str =
    "kubectl get lease kube-controller-manager -n kube-system -o jsonpath='{.spec.holderIdentity}'";

/// Two simulated nodes, and nobody who schedules or controls.
fn without_parts() -> Cluster {
    let disabled = "kubelet,proxy,dns,scheduler,controllers";
    // No controller makes the service account that the usual start waits for.
    Cluster::start_bare(&["--simulate-nodes", "2", "--disable", disabled])
}

fn kubeconfig(cluster: &Cluster, part: &str) -> String {
    let file = format!("{}.conf", part.split(' ').next().unwrap_or_default());
    let (data, admin) = (cluster.data_dir(), cluster.kubeconfig());
    cluster.ok(&format!(
        "coracle kubeconfig --for {part} --data-dir {} --kubeconfig {} --output {file}",
        data.display(),
        admin.display()
    ));
    file
}

fn controllers(cluster: &Cluster, kubeconfig: &str, log: &str) -> Background {
    let line = format!("coracle controllers --kubeconfig {kubeconfig} --secure-port 0 {ELECTION}");
    cluster.start(&line, log)
}

#[test]
fn controllers_and_scheduler_work_by_their_kubeconfigs_alone() {
    let cluster = without_parts();
    let (manager, scheduler) =
        (kubeconfig(&cluster, "controller-manager"), kubeconfig(&cluster, "scheduler"));
    let first = controllers(&cluster, &manager, "first.log");
    cluster.until("kubectl get serviceaccount default -o name", "serviceaccount/default");
    cluster.until("kubectl get configmap kube-root-ca.crt -o name", "configmap/kube-root-ca.crt");
    cluster.ok("kubectl create deployment web --image=nginx --replicas=3");
    let _scheduler = cluster
        .start(&format!("coracle scheduler --kubeconfig {scheduler} --secure-port 0"), "scheduler.log");
    cluster.ok("kubectl rollout status deployment web --timeout=100s");
    cluster.until("kubectl get pods -l app=web -o jsonpath='{.items[*].spec.nodeName}' | wc -w", "3");
    let accounts =
        "kubectl get serviceaccount -n kube-system deployment-controller replicaset-controller -o name";
    cluster.says(accounts, "serviceaccount/deployment-controller\nserviceaccount/replicaset-controller");
    // The binder and its like are the controller manager's, too.
    cluster.apply(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c}\nspec: {storageClassName: none, \
         accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n---\n\
         apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\nspec: {storageClassName: none, \
         accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /tmp}}\n",
    );
    cluster.until("kubectl get pvc c -o jsonpath='{.status.phase}'", "Bound");
    let leader = cluster.ok(HOLDER);
    let second = controllers(&cluster, &manager, "second.log");
    second.until_that("a second one that waits", |log| log.contains("waiting to lead"));
    cluster.says(HOLDER, leader.trim());
    first.signal(Signal::SIGTERM);
    assert_eq!(first.wait(), 0);
    second.until_that("the second one to lead", |log| log.contains("leading"));
    cluster.ok("kubectl scale deployment web --replicas=5");
    cluster.ok("kubectl rollout status deployment web --timeout=100s");
    // What it led by is taken: it says so and ends.
    cluster.ok("kubectl delete clusterrolebinding system:kube-controller-manager coracle:controller-manager");
    cluster.ok("kubectl delete rolebinding system::leader-locking-kube-controller-manager -n kube-system");
    let printed = second.until_that("the reason", |log| log.contains("leadership was lost"));
    assert!(
        printed.contains("coracle: leadership was lost: lease kube-system/kube-controller-manager could not be renewed for 3s"),
        "{printed}"
    );
    assert!(
        printed.contains("cannot get resource \"leases\"")
            || printed.contains("cannot update resource \"leases\""),
        "{printed}"
    );
    assert_eq!(second.wait(), 1);
}

/// Rights that nobody has given are asked for again and again, which is told once; and told to end, it ends.
#[test]
fn a_part_without_rights_waits_and_says_so() {
    let cluster = Cluster::start(&[]);
    let proxy = kubeconfig(&cluster, "proxy");
    let stranger = controllers(&cluster, &proxy, "stranger.log");
    let printed =
        stranger.until_that("a refusal", |log| log.contains("leader election failed, trying again"));
    assert!(printed.contains("User \"system:kube-proxy\" cannot get resource \"leases\""), "{printed}");
    stranger.signal(Signal::SIGTERM);
    assert_eq!(stranger.wait(), 0);
}

#[test]
fn each_kubeconfig_has_its_parts_rights() {
    let cluster = Cluster::start(&[]);
    let answers = [
        ("scheduler", "system:kube-scheduler", "create pods/binding", "create secrets"),
        (
            "controller-manager",
            "system:kube-controller-manager",
            "create serviceaccounts/token",
            "create clusterrolebindings",
        ),
        ("kubelet --node n1", "system:node:n1", "create nodes", "create deployments"),
        ("proxy", "system:kube-proxy", "watch endpointslices.discovery.k8s.io", "get secrets"),
    ];
    for (part, user, may, may_not) in answers {
        let file = kubeconfig(&cluster, part);
        let kubectl = format!("kubectl --kubeconfig {file}");
        cluster.says(&format!("{kubectl} auth whoami -o jsonpath='{{.status.userInfo.username}}'"), user);
        cluster.says(&format!("{kubectl} auth can-i {} 2>/dev/null", spaced(may)), "yes");
        let no = cluster.run(&format!("{kubectl} auth can-i {} 2>/dev/null", spaced(may_not)));
        assert_eq!((no.code, no.stdout.trim()), (1, "no"), "{part}: {no}");
        cluster.says(&format!("stat -c %a {file}"), "600");
    }
    cluster.says(
        "kubectl --kubeconfig kubelet.conf auth whoami -o jsonpath='{.status.userInfo.groups[0]}'",
        "system:nodes",
    );
    let data = format!("--data-dir {}", cluster.data_dir().display());
    let wrong = cluster.run(&format!("coracle kubeconfig --for kubelet {data}"));
    assert!(wrong.code == 2 && wrong.stderr.contains("--node <NAME>"), "{wrong}");
    let wrong = cluster.run(&format!("coracle kubeconfig --for proxy --node n1 {data} --server https://a:1"));
    assert_eq!(
        (wrong.code, wrong.stderr.as_str()),
        (1, "coracle: node: only a kubelet's kubeconfig is of one node\n")
    );
    let wrong = cluster.run("coracle kubeconfig --for proxy --data-dir ./none --server https://a:1");
    assert!(wrong.code == 1 && wrong.stderr.contains("none/pki/ca.crt"), "{wrong}");
}

/// `create pods/binding` as kubectl takes it.
fn spaced(asked: &str) -> String {
    match asked.split_once('/') {
        Some((resource, subresource)) => format!("{resource} --subresource={subresource}"),
        None => asked.to_owned(),
    }
}

#[test]
fn wrong_kubeconfigs_are_told_by_every_part() {
    let cluster = Cluster::start(&[]);
    cluster.ok("echo 'clusters: 1' > broken.yaml");
    let (scheduler, kubelet) = (kubeconfig(&cluster, "scheduler"), kubeconfig(&cluster, "kubelet --node n1"));
    for part in ["scheduler --secure-port 0", "controllers --secure-port 0", "kubelet", "proxy"] {
        let run = |rest: &str| cluster.run(&format!("timeout 60 coracle {part} {rest}"));
        let help = run("--help");
        assert!(help.code == 0 && help.stdout.contains("--kubeconfig <FILE>"), "{part}: {help}");
        let missing = run("--kubeconfig none.conf");
        assert!(missing.code == 1 && missing.stderr.starts_with("coracle: none.conf: "), "{part}: {missing}");
        let broken = run("--kubeconfig broken.yaml");
        assert!(broken.code == 1 && broken.stderr.starts_with("coracle: broken.yaml: "), "{part}: {broken}");
    }
    let wrong = cluster.run(&format!("coracle kubelet --kubeconfig {kubelet} --node-name n2 --data-dir k"));
    assert_eq!(wrong.code, 1);
    assert_eq!(wrong.stderr, "coracle: node-name: \"n2\" is another node than the kubeconfig's, \"n1\"\n");
    let wrong = cluster.run(&format!("coracle kubelet --kubeconfig {scheduler} --data-dir k"));
    assert!(
        wrong.code == 1 && wrong.stderr.contains("of user \"system:kube-scheduler\", which is no node"),
        "{wrong}"
    );
    let wrong =
        cluster.run("coracle proxy --kubeconfig proxy.conf --cluster-cidr x --disable dns --node-name N_");
    for line in ["coracle: clusterCIDR: \"x\"", "coracle: disable: \"dns\"", "coracle: node-name: \"N_\""] {
        assert!(wrong.code == 1 && wrong.stderr.contains(line), "{line}: {wrong}");
    }
}

/// A server that is away, or does not know the part (any more), is asked again until it does.
#[test]
fn a_server_that_is_away_is_waited_for() {
    let cluster = Cluster::start(&[]);
    for part in ["kubelet --node n1", "proxy"] {
        let name = part.split(' ').next().unwrap_or_default();
        let file = kubeconfig(&cluster, part);
        cluster.ok(&format!("sed 's|server: .*|server: https://127.0.0.1:1|' {file} > away.conf"));
        let line = format!(
            "coracle {name} --kubeconfig away.conf {}",
            if name == "kubelet" { "--data-dir k" } else { "" }
        );
        let waiting = cluster.start(&line, "away.log");
        let printed =
            waiting.until_that("a word of waiting", |log| log.contains("cannot be read, trying again"));
        assert!(
            printed.contains("127.0.0.1:1") && printed.to_lowercase().contains("connection refused"),
            "{printed}"
        );
        waiting.signal(Signal::SIGTERM);
        assert_eq!(waiting.wait(), 0, "{name}");
    }
}

/// Without any part the API is whole: upstream's own components find what they need.
#[test]
fn a_server_without_parts_is_a_control_plane_for_others() {
    for disabled in
        ["scheduler", "controllers", "scheduler,controllers,kubelet,proxy,network,dns,storage,load-balancers"]
    {
        // Neither kubelet nor proxy may touch this machine.
        let all = format!("kubelet,proxy,dns,{disabled}");
        let cluster = Cluster::start_bare(&["--disable", &all]);
        cluster.ok("kubectl get priorityclass system-node-critical system-cluster-critical");
        cluster.ok("kubectl get clusterrole system:kube-scheduler system:kube-controller-manager system:node system:node-proxier");
        cluster.ok("kubectl get configmap -n kube-system extension-apiserver-authentication");
        let ready = cluster.ok("kubectl get --raw '/readyz?verbose'");
        let runs = |check: &str| ready.contains(&format!("[+]{check} ok"));
        assert_eq!(runs("scheduler"), !disabled.contains("scheduler"), "{ready}");
        assert_eq!(
            (runs("controllers"), runs("storage")),
            (!disabled.contains("controllers"), !disabled.contains("controllers")),
            "{ready}"
        );
        let class = cluster.ok("kubectl get storageclass -o name");
        assert_eq!(class.is_empty(), disabled.contains("storage"), "{class}");
    }
}

#[test]
fn the_default_class_goes_with_storage_and_comes_back() {
    let mut cluster = Cluster::start(&[]);
    cluster.says("kubectl get storageclass -o name", "storageclass.storage.k8s.io/local-path");
    assert_eq!(cluster.terminate(), 0);
    cluster.restart_with(&["--disable", "kubelet,proxy,dns,storage"]);
    cluster.says("kubectl get storageclass -o name", "");
    assert_eq!(cluster.terminate(), 0);
    cluster.restart_with(&[]);
    cluster.says("kubectl get storageclass -o name", "storageclass.storage.k8s.io/local-path");
}

/// A kubelet's request for the certificate of its port, as the node `name`.
fn ask_for_serving_certificate(cluster: &Cluster, name: &str) {
    let file = kubeconfig(cluster, &format!("kubelet --node {name}"));
    cluster.ok(&format!(
        "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key \
         -subj /O=system:nodes/CN=system:node:{name} -addext subjectAltName=DNS:{name} | base64 -w0 > {name}.req"
    ));
    let request = cluster.ok(&format!("cat {name}.req"));
    let manifest = format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n---\n\
         apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: {name}}}\n\
         spec: {{request: {request}, signerName: kubernetes.io/kubelet-serving, usages: [digital signature, server auth]}}\n"
    );
    let asked = cluster.run_with(&format!("kubectl --kubeconfig {file} create -f -"), &manifest);
    assert_eq!(asked.code, 0, "{asked}");
}

/// Certificates and tokens are signed by the files that upstream's flags name; but never for the API server's machine.
#[test]
fn controllers_sign_with_the_files_that_they_are_given() {
    let cluster = Cluster::start_bare(&["--node-name", "box", "--disable", "kubelet,proxy,dns,controllers"]);
    let pki = cluster.data_dir().join("pki").display().to_string();
    let manager = kubeconfig(&cluster, "controller-manager");
    let _controllers = cluster.start(
        &format!(
            "coracle controllers --kubeconfig {manager} --secure-port 0 --service-account-private-key-file {pki}/sa.key \
             --cluster-signing-cert-file {pki}/ca.crt --cluster-signing-key-file {pki}/ca.key \
             --cluster-signing-kubelet-serving-cert-file {pki}/kubelet-serving-ca.crt \
             --cluster-signing-kubelet-serving-key-file {pki}/kubelet-serving-ca.key"
        ),
        "controllers.log",
    );
    // The one that is refused comes first: when the other has its certificate, this one has been looked at.
    ask_for_serving_certificate(&cluster, "box");
    ask_for_serving_certificate(&cluster, "n1");
    cluster.apply(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: t, annotations: {kubernetes.io/service-account.name: default}}\n\
         type: kubernetes.io/service-account-token\n",
    );
    let certificate = "kubectl get csr n1 -o jsonpath='{.status.certificate}' | base64 -d > n1.crt";
    cluster.until_that(&format!("{certificate}; wc -c < n1.crt"), |size| size.trim() != "0");
    cluster.says(&format!("openssl verify -CAfile {pki}/kubelet-serving-ca.crt n1.crt"), "n1.crt: OK");
    let token = "kubectl get secret t -o jsonpath='{.data.token}' | base64 -d";
    cluster.until_that(token, |token| token.starts_with("eyJ"));
    let server = format!(
        "--server https://127.0.0.1:{} --insecure-skip-tls-verify --kubeconfig /dev/null",
        cluster.port()
    );
    cluster.says(
        &format!(
            "kubectl {server} --token \"$({token})\" auth whoami -o jsonpath='{{.status.userInfo.username}}'"
        ),
        "system:serviceaccount:default:default",
    );
    cluster.says("kubectl get csr box -o jsonpath='{.status}'", "{}");
}
