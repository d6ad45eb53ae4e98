//! `coracle db export` and `coracle db import`: of a store as lines, and of the snapshot of an etcd.

use coracle_tests::cluster::free_port;
use coracle_tests::{Cluster, skipped};

const OBJECTS: &str = "kubectl get configmap,secret,serviceaccount,deployment,role -n default -o jsonpath='{range .items[*]}{.kind} {.metadata.name} {.metadata.uid} {.metadata.creationTimestamp} {.metadata.resourceVersion}{\"\\n\"}{end}' | sort";

/// Leaves the data directory with its keys and without its store.
fn without_store(cluster: &mut Cluster) -> String {
    assert_eq!(cluster.terminate(), 0);
    let data = cluster.data_dir().display().to_string();
    cluster.ok(&format!("mv {data}/db old-db"));
    data
}

fn filled() -> Cluster {
    let cluster = Cluster::start(&[]);
    cluster.ok("kubectl create configmap kept --from-literal=x='a\nb' && kubectl create secret generic s --from-literal=y=z && kubectl create role r --verb=get --resource=pods && kubectl create deployment d --image=x --replicas=0");
    cluster.until("kubectl get configmap kube-root-ca.crt -o name", "configmap/kube-root-ca.crt");
    cluster.until("kubectl get deployment d -o jsonpath={.status.observedGeneration}", "1");
    cluster
}

#[test]
fn an_export_becomes_the_same_cluster() {
    let mut cluster = filled();
    let before = cluster.ok(OBJECTS);
    let data = cluster.data_dir().display().to_string();
    let said = cluster.ok(&format!("coracle db export --data-dir {data} lines"));
    assert!(said.starts_with("lines: ") && said.contains(" objects as of revision "), "{said}");
    cluster.says("stat -c %a lines", "600");
    cluster.says("head -1 lines | jq -r .format", "coracle-export/1");
    cluster.says("jq -r 'select(.key == \"configmaps./default/kept\") | .value.data.x' lines", "a\nb");
    let full = cluster.run(&format!("coracle db import --data-dir {data} lines"));
    assert!(full.code == 1 && full.stderr.contains("there is a store already"), "{full}");
    let data = without_store(&mut cluster);
    cluster.ok("sed 's/\"y\":\"eg==\"/\"y\":\"eA==\"/' lines > changed && head -c 2000 lines > short && ! cmp -s lines changed");
    for (file, why) in
        [("changed", "its checksum is another"), ("short", "it is cut short"), ("nothing", "No such file")]
    {
        let refused = cluster.run(&format!("coracle db import --data-dir {data} {file}"));
        assert!(refused.code == 1 && refused.stderr.contains(why), "{file}: {refused}");
    }
    let said = cluster.ok(&format!("coracle db import --data-dir {data} lines"));
    assert!(said.contains(" objects as of revision ") && !said.contains("sa.key"), "{said}");
    cluster.restart();
    assert_eq!(cluster.ok(OBJECTS), before);
    let running = cluster.run(&format!("coracle db compact --data-dir {data}"));
    assert!(running.code == 1 && running.stderr.contains("lock"), "{running}");
    assert_eq!(cluster.terminate(), 0);
    let said = cluster.ok(&format!("coracle db compact --data-dir {data}"));
    let bytes: Vec<u64> =
        said.split_whitespace().filter_map(|word| word.trim_end_matches('.').parse().ok()).collect();
    assert!(matches!(bytes[..], [_, after, before] | [_, _, after, before] if after < before), "{said}");
    cluster.restart();
    assert_eq!(cluster.ok(OBJECTS), before);
    assert_eq!(cluster.terminate(), 0);
    // Of a server that is stopped.
    let said = cluster.ok(&format!("coracle db export --data-dir {data} again"));
    assert!(said.starts_with("again: "), "{said}");
}

/// The objects as a server of upstream would have stored them: protobuf, below `/registry`.
#[test]
fn the_snapshot_of_an_etcd_becomes_a_cluster() {
    let mut cluster = filled();
    if cluster.run("command -v etcd etcdctl").code != 0 {
        return skipped("etcd-server and etcd-client are not installed; scripts/prepare does that");
    }
    let before = cluster.ok("kubectl get configmap kept -o jsonpath='{.metadata.uid} {.metadata.creationTimestamp} {.data.x}' && kubectl get deployment d -o jsonpath='{.metadata.uid} {.spec.strategy}' && kubectl get secret s -o jsonpath='{.metadata.uid} {.data.y}'");
    let (client, peer) = (free_port(), free_port());
    let etcd = cluster.start(
        &format!("etcd --data-dir etcd --listen-client-urls http://127.0.0.1:{client} --advertise-client-urls http://127.0.0.1:{client} --listen-peer-urls http://127.0.0.1:{peer} --initial-advertise-peer-urls http://127.0.0.1:{peer} --initial-cluster default=http://127.0.0.1:{peer}"),
        "etcd-log",
    );
    let ctl = format!("ETCDCTL_API=3 etcdctl --endpoints 127.0.0.1:{client}");
    cluster.until_that(&format!("{ctl} endpoint health 2>&1"), |text| text.contains("is healthy"));
    let port = cluster.port();
    cluster.ok("for part in certificate key; do kubectl config view --raw -o jsonpath=\"{.users[0].user.client-$part-data}\" | base64 -d >> admin.pem; done");
    let keep = |path: &str, key: &str| {
        let get = format!(
            "curl -skf --cert admin.pem --key admin.pem -H 'Accept: application/vnd.kubernetes.protobuf' https://127.0.0.1:{port}{path}"
        );
        cluster.ok(&format!("{get} > object && head -c 3 object | grep -q k8s && {ctl} put {key} < object"));
    };
    keep("/api/v1/namespaces/default", "/registry/namespaces/default");
    keep("/api/v1/namespaces/default/configmaps/kept", "/registry/configmaps/default/gone");
    keep("/api/v1/namespaces/default/configmaps/kept", "/registry/configmaps/default/kept");
    keep("/api/v1/namespaces/default/secrets/s", "/registry/secrets/default/s");
    keep("/apis/apps/v1/namespaces/default/deployments/d", "/registry/deployments/default/d");
    cluster.ok(&format!("{ctl} del /registry/configmaps/default/gone && {ctl} put /registry/ranges/serviceips x && {ctl} put compact_rev_key 1"));
    // Enough for branches, and values that are longer than a page.
    cluster.ok(&format!("for n in $(seq 300); do {ctl} put /registry/events/default/e$n $(head -c 200 /dev/zero | tr '\\0' x); done && head -c 20000 /dev/zero | tr '\\0' y | {ctl} put /registry/events/default/long"));
    cluster.ok(&format!("{ctl} snapshot save snapshot"));
    drop(etcd);
    let data = without_store(&mut cluster);
    // Another byte, whichever stands there.
    cluster.ok(r"cp snapshot damaged && head -c 9001 snapshot | tail -c 1 | tr '\000-\377' '\001-\377\000' | dd of=damaged bs=1 seek=9000 conv=notrunc 2>/dev/null && head -c 20480 snapshot > short");
    for (file, why) in [("damaged", "its checksum is another"), ("short", "page ")] {
        let refused = cluster.run(&format!("coracle db import --data-dir {data} {file}"));
        assert!(refused.code == 1 && refused.stderr.contains(why), "{file}: {refused}");
    }
    let said = cluster.ok(&format!("coracle db import --data-dir {data} snapshot"));
    assert!(said.contains(": 4 objects as of revision ") && said.contains("303 keys that are"), "{said}");
    cluster.restart();
    let after = cluster.ok("kubectl get configmap kept -o jsonpath='{.metadata.uid} {.metadata.creationTimestamp} {.data.x}' && kubectl get deployment d -o jsonpath='{.metadata.uid} {.spec.strategy}' && kubectl get secret s -o jsonpath='{.metadata.uid} {.data.y}'");
    assert_eq!(after, before);
    cluster.says("kubectl get configmap gone --ignore-not-found", "");
}
