//! `coracle backup` and `coracle restore`, of a server that runs and of one that is stopped.

use coracle_tests::Cluster;

const OBJECTS: &str = "kubectl get configmap,secret,serviceaccount,service -n default -o jsonpath='{range .items[*]}{.kind} {.metadata.namespace} {.metadata.name} {.metadata.uid}{\"\\n\"}{end}' | sort";

#[test]
fn a_restored_server_is_the_one_that_was_backed_up() {
    let mut cluster = Cluster::start(&[]);
    let data = cluster.data_dir().display().to_string();
    cluster.ok("kubectl create configmap kept --from-literal=x=1 && cp $KUBECONFIG old && openssl rand -hex 32 > key");
    cluster.until("kubectl get configmap kube-root-ca.crt -o name", "configmap/kube-root-ca.crt");
    let before = cluster.ok(OBJECTS);
    let said = cluster.ok(&format!("coracle backup --data-dir {data} --key-file key b"));
    assert!(said.starts_with("b: ") && said.contains(" objects as of revision "), "{said}");
    cluster.says("stat -c %a b", "600");
    cluster.ok("kubectl create configmap later");
    let seen: u64 = cluster
        .ok("kubectl get configmap later -o jsonpath={.metadata.resourceVersion}")
        .parse()
        .expect("a revision");

    let unwritten = cluster.run(&format!("coracle backup --data-dir {data} nowhere/b"));
    assert!(unwritten.code == 1 && unwritten.stderr.contains("nowhere/b"), "{unwritten}");
    let running = cluster.run(&format!("coracle restore --data-dir {data} --key-file key --replace b"));
    assert!(running.code == 1 && running.stderr.contains("has it open; stop it first"), "{running}");
    assert_eq!(cluster.terminate(), 0);

    let full = cluster.run(&format!("coracle restore --data-dir {data} --key-file key b"));
    assert!(full.code == 1 && full.stderr.contains("it is not empty (db, manifests, pki"), "{full}");
    cluster
        .ok("openssl rand -hex 32 > other; head -c 2000 b > short; tr a b < b > damaged; echo x > foreign");
    for (line, why) in [
        ("b", "it is sealed; --key-file"),
        ("--key-file other b", "it is sealed by another key"),
        ("--key-file key short", "it is cut short"),
        ("--key-file key damaged", "it is "),
        ("--key-file key foreign", "it is no backup of coracle"),
    ] {
        let refused = cluster.run(&format!("coracle restore --data-dir new {line}"));
        assert!(refused.code == 1 && refused.stderr.contains(why), "{line}: {refused}");
        assert_eq!(refused.stderr.lines().count(), 1, "{refused}");
        cluster.says("ls -d new 2>/dev/null || true", "");
    }
    let well = cluster.ok("coracle backup verify --key-file key b");
    assert!(well.contains(" objects as of revision "), "{well}");

    let restored = cluster.ok(&format!("coracle restore --data-dir {data} --key-file key --replace b"));
    assert!(restored.contains("what was there before is in"), "{restored}");
    cluster.restart();
    assert_eq!(cluster.ok(OBJECTS), before);
    cluster.says("kubectl --kubeconfig old get configmap kept -o jsonpath={.data.x}", "1");
    cluster.ok("kubectl create configmap again");
    let next: u64 = cluster
        .ok("kubectl get configmap again -o jsonpath={.metadata.resourceVersion}")
        .parse()
        .expect("a revision");
    assert!(next > seen, "{next} after {seen}");
    let gone = cluster.raw(
        "GET",
        &format!("/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=5&resourceVersion={seen}"),
        "",
    );
    assert!(gone.text.contains("\"code\":410"), "{gone:?}");
}

#[test]
fn a_stopped_server_is_backed_up_too() {
    let mut cluster = Cluster::start(&[]);
    let data = cluster.data_dir().display().to_string();
    cluster.ok("kubectl create configmap kept");
    cluster.kill();
    cluster.ok(&format!("coracle backup --data-dir {data} b && coracle restore --data-dir new b"));
    cluster
        .ok("cmp new/pki/ca.key $(dirname $KUBECONFIG)/data/pki/ca.key && coracle db check --data-dir new");
    cluster.ok("echo writing > new/restore-unfinished");
    let refused = cluster.run("timeout 60 coracle server --data-dir new --https-port 0 --bind-address 127.0.0.1 --node-ip 127.0.0.1 --disable kubelet,proxy,dns");
    assert!(refused.code == 1 && refused.stderr.contains("a restore was interrupted here"), "{refused}");
    cluster.ok("coracle restore --data-dir new b && ! test -e new/restore-unfinished");
    cluster.ok(&format!("rm -rf {data}"));
    cluster.ok(&format!("coracle restore --data-dir {data} b"));
    cluster.restart();
    cluster.ok("kubectl get configmap kept");
}
