//! From a box alone to several servers and back: `coracle migrate`, and `coracle server --join`. Needs Debian's etcd-server.

use super::WEB;
use coracle_tests::Cluster;
use coracle_tests::cluster::free_port;
use coracle_tests::etcd::Etcd;
use std::time::Duration;

/// What neither moves by itself nor may change.
const OBJECTS: &str = "kubectl get namespaces,nodes,secrets,configmaps,services,deployments,replicasets,pods,customresourcedefinitions,boats -A -o jsonpath='{range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.metadata.uid} {.metadata.creationTimestamp}{\"\\n\"}{end}' | sort";

const BOATS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  names: {kind: Boat, plural: boats, singular: boat}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
"#;
const BOAT: &str = r#"
apiVersion: example.com/v1
kind: Boat
metadata: {name: coracle}
spec: {seats: 1, weight: 12.5, notes: [], name: null}
"#;

#[test]
fn a_box_that_began_alone_becomes_one_of_several_and_goes_back() {
    let etcd = Etcd::start();
    let mut one = Cluster::start(&["--simulate-nodes", "2"]);
    one.apply(WEB);
    one.apply(BOATS);
    one.ok("kubectl wait crd/boats.example.com --for=condition=Established --timeout=60s");
    one.apply(BOAT);
    one.ok("kubectl create secret generic s --from-literal=y=z && kubectl rollout status deployment/web --timeout=100s");
    let before = one.ok(OBJECTS);
    let seen = one.ok("kubectl get --raw /api/v1/configmaps | jq -r .metadata.resourceVersion");
    let migrate = |from: &str, to: &str| {
        let data = one.data_dir();
        format!(
            "coracle migrate --from {from} --to {to} --data-dir {} --etcd-servers {}",
            data.display(),
            etcd.url
        )
    };
    let (there, back) = (migrate("sled", "etcd"), migrate("etcd", "sled"));
    let nothing = one.run(&back);
    assert!(nothing.code == 1 && nothing.stderr.contains("stop it first"), "{nothing}");
    // While the server runs: it goes on reading.
    let said = one.ok(&there);
    assert!(said.contains(" objects are in etcd, each compared") && said.contains("stop it"), "{said}");
    assert_eq!(one.ok(OBJECTS), before);
    let late = one.run("kubectl create configmap late");
    assert!(late.code == 1 && late.stderr.contains("being moved to another store"), "{late}");
    let again = one.run(&there);
    assert!(again.code == 1 && again.stderr.contains("objects were moved to"), "{again}");
    assert_eq!(one.terminate(), 0);
    let alone = one.run(&format!(
        "timeout 20 coracle server --data-dir {} --https-port {} --disable kubelet,proxy,dns --write-kubeconfig none",
        one.data_dir().display(),
        free_port()
    ));
    assert!(alone.code == 1 && alone.stderr.contains("objects were moved to"), "{alone}");
    let mut arguments = etcd.arguments("192.0.2.1").to_vec();
    arguments.extend(["--simulate-nodes", "2"]);
    one.restart_with(&arguments);
    assert_eq!(one.ok(OBJECTS), before, "nothing is lost, nothing is another");
    let watched = one.raw(
        "GET",
        &format!("/api/v1/configmaps?watch=1&resourceVersion={}&timeoutSeconds=1", seen.trim()),
        "",
    );
    assert!(watched.text.contains("\"code\":410"), "{watched:?}");
    let url = format!("https://127.0.0.1:{}", one.port());
    let token = one.ok(&format!("coracle token create --server --data-dir {}", one.data_dir().display()));
    let mut arguments = etcd.arguments("192.0.2.2").to_vec();
    arguments.extend(["--join", &url, "--token", token.trim()]);
    let mut two = Cluster::start(&arguments);
    assert_eq!(two.ok(OBJECTS), one.ok(OBJECTS));
    two.ok("kubectl create configmap by-the-second");
    one.ok("kubectl get configmap by-the-second");
    and_back(&mut one, &mut two, &back, &before);
}

/// `back` is the command; `before` are objects that were there at the beginning.
fn and_back(one: &mut Cluster, two: &mut Cluster, back: &str, before: &str) {
    let writing = one.run(back);
    assert!(writing.code == 1 && writing.stderr.contains("servers write to etcd: stop"), "{writing}");
    assert_eq!((two.terminate(), one.terminate()), (0, 0));
    let said = one.ok(back);
    assert!(said.contains("each compared") && said.contains("what was there before is in"), "{said}");
    one.restart_with(&["--simulate-nodes", "2"]);
    one.ok("kubectl get configmap by-the-second");
    let now = one.ok(OBJECTS);
    for line in before.lines() {
        assert!(now.contains(line), "{line} is missing from\n{now}");
    }
}

/// Flags of a server that writes to this directory alone.
fn beside(etcd: &Etcd, port: u16) -> String {
    format!(
        "--bind-address 127.0.0.1 --https-port {port} --data-dir new --write-kubeconfig new.conf --disable kubelet,proxy,dns --storage-backend etcd --etcd-servers {}",
        etcd.url
    )
}

/// Nobody joins by `agents`, a token of agents, nor by what is not quite `token`, and nothing is left of the attempt.
fn refused(one: &Cluster, etcd: &Etcd, token: &str, agents: &str) {
    let url = format!("https://127.0.0.1:{}", one.port());
    let forged =
        format!("{}{}", &token[..token.len() - 4], if token.ends_with("0000") { "1111" } else { "0000" });
    let pin = format!("--discovery-token-ca-cert-hash sha256:{}", "0".repeat(64));
    for (token, further, why) in [
        (agents, "", "token: a server joins by one of the form"),
        (&*format!("{}.{}", agents, "0a".repeat(32)), "", "is not one for servers"),
        (&*forged, "", "sealed by another token"),
        (token, &*pin, "does not allow"),
        (token, "--service-cidr 10.9.0.0/16", "service-cidr: the cluster has 10.43.0.0/16"),
    ] {
        let refused = one.run(&format!(
            "timeout 30 coracle server --join {url} --token {token} {further} {}",
            beside(etcd, free_port())
        ));
        assert!(refused.code == 1 && refused.stderr.contains(why), "{why}: {refused}");
        one.ok("test ! -e new/pki");
    }
}

#[test]
fn a_server_joins_by_a_token_of_its_own_kind_and_strangers_are_kept_out() {
    let etcd = Etcd::start();
    let one = Cluster::start(&etcd.arguments("192.0.2.1"));
    let data = one.data_dir().display().to_string();
    let url = format!("https://127.0.0.1:{}", one.port());
    let token = one.ok(&format!("coracle token create --server --data-dir {data} --description third"));
    let (token, agents) = (token.trim(), one.ok("coracle token create"));
    let id = &token[..6];
    let list = one.ok("coracle token list");
    assert!(list.contains(&format!("system:bootstrappers:coracle:server:{id}")), "{list}");
    // Neither the keys nor what opens them can be read through the API.
    let stored = one.ok("kubectl get secrets -n kube-system -o json");
    assert!(!stored.contains(&token[24..]) && !stored.contains("PRIVATE KEY"));
    let forever = one.run(&format!("coracle token create --server --ttl 0 --data-dir {data}"));
    assert!(forever.code == 1 && forever.stderr.contains("for ever"), "{forever}");
    refused(&one, &etcd, token, agents.trim());
    let elsewhere = one.run(&format!(
        "timeout -k 9 8 coracle server --join {url} --token {token} --etcd-prefix /elsewhere {}; rm -r new",
        beside(&etcd, free_port())
    ));
    let told = format!("{}{}", elsewhere.stdout, elsewhere.stderr);
    assert!(told.contains("etcd holds no cluster under this prefix"), "{told}");
    // Whoever brings authorities of his own is not let in, and changes nothing.
    let info = one.ok("kubectl get configmap -n kube-public cluster-info -o jsonpath={.data.kubeconfig}");
    let stranger = one.run(&format!("timeout -k 9 5 coracle server {}", beside(&etcd, free_port())));
    assert!(stranger.code == 124, "it ends when it is told to: {stranger}");
    let told = format!("{}{}", stranger.stdout, stranger.stderr);
    assert!(told.contains("etcd holds another cluster under this prefix"), "{told}");
    one.says("kubectl get configmap -n kube-public cluster-info -o jsonpath={.data.kubeconfig}", info.trim());

    let mut arguments = etcd.arguments("192.0.2.2").to_vec();
    arguments.extend(["--join", &url, "--token", token]);
    let mut two = Cluster::start(&arguments);
    for file in ["ca.key", "sa.key", "kubelet-serving-ca.key", "front-proxy-ca.key"] {
        let read =
            |cluster: &Cluster| std::fs::read(cluster.data_dir().join("pki").join(file)).expect("a key");
        assert!(read(&one) == read(&two), "{file}");
    }
    let account = one.ok("kubectl create token default");
    let said = two.ok(&format!(
        "curl -sk -H 'Authorization: Bearer {}' https://127.0.0.1:{}/api/v1/namespaces/default/secrets",
        account.trim(),
        two.port()
    ));
    assert!(said.contains("system:serviceaccount:default:default"), "{said}");
    // The token is for the first start alone.
    one.ok(&format!("coracle token delete {id}"));
    one.within(Duration::from_secs(60), &format!("kubectl get secret,role,rolebinding -n kube-system --ignore-not-found coracle-server-{id} -o name"), |left| left.is_empty());
    assert_eq!(two.terminate(), 0);
    two.restart();
}
