//! An operator with kube-rs' runtime, end to end: finalizers, status, owned objects, two replicas of which one leads,
//! webhooks of all three kinds, a leader that dies, and a server that is killed and comes back.

mod hooks;
mod run;
mod types;

use crate::{client, runtime};
use coracle_tests::{Cluster, Shell};

const SITE: &str = "
apiVersion: sites.coracle.dev/v1beta1
kind: Site
metadata: {name: shop}
spec: {domain: shop.example.com}
";

/// Waits until the site's status says this.
#[track_caller]
fn until_status(shell: &Shell, expected: &str) {
    let path = "{.status.phase} {.status.ready} {.status.leader} {.spec.replicas}";
    shell.until(&format!("kubectl get site shop -o jsonpath='{path}'"), expected);
}

fn install(cluster: &Cluster, hook: &coracle_tests::Hook) {
    let definition = types::definition(&hook.client_config("/convert"));
    cluster.apply(&serde_json::to_string(&definition).expect("JSON"));
    cluster.ok("kubectl wait --for=condition=Established crd/sites.sites.coracle.dev --timeout=100s");
    for configuration in hooks::configurations(hook) {
        cluster.apply(&configuration.to_string());
    }
}

#[test]
fn an_operator_does_its_work_whatever_happens() {
    let mut cluster = Cluster::simulated();
    let hook = hooks::start();
    install(&cluster, &hook);
    let runtime = runtime();
    let client = runtime.block_on(client(&cluster));
    let first = runtime.spawn(run::replica(client.clone(), "first"));
    cluster.until("kubectl get lease sites -o jsonpath='{.spec.holderIdentity}'", "first");
    let second = runtime.spawn(run::replica(client, "second"));

    // Made in the old version, completed by the webhook, served by what the operator makes of it.
    assert_eq!(cluster.apply(SITE), "site.sites.coracle.dev/shop created\n");
    until_status(&cluster, "Ready 1 first 1");
    cluster.says(
        "kubectl get site shop -o jsonpath='{.spec.host} {.metadata.labels}'",
        r#"shop.example.com {"sites.coracle.dev/host":"shop.example.com"}"#,
    );
    cluster.says(
        "kubectl get sites.v1beta1.sites.coracle.dev shop -o jsonpath='{.apiVersion} {.spec.domain}'",
        "sites.coracle.dev/v1beta1 shop.example.com",
    );
    cluster.says("kubectl get deployment shop -o jsonpath='{.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].name}'", "Site/shop");
    cluster.says("kubectl get site shop -o jsonpath='{.metadata.finalizers[0]}'", run::FINALIZER);
    refusals(&cluster);

    // A scaled site, and something owned that is lost.
    cluster.ok(r#"kubectl patch site shop --type=merge -p '{"spec":{"replicas":3}}'"#);
    until_status(&cluster, "Ready 3 first 3");
    let uid = cluster.ok("kubectl get configmap shop -o jsonpath='{.metadata.uid}'");
    cluster.ok("kubectl delete configmap shop");
    cluster.until_that("kubectl get configmap shop -o jsonpath='{.metadata.uid}'", |now| {
        !now.is_empty() && now != uid
    });

    // The leader dies.
    first.abort();
    cluster.until("kubectl get lease sites -o jsonpath='{.spec.holderIdentity}'", "second");
    cluster.ok(r#"kubectl patch site shop --type=merge -p '{"spec":{"replicas":2}}'"#);
    until_status(&cluster, "Ready 2 second 2");

    // The server dies, and comes back with everything: definition, webhooks, watches.
    cluster.kill();
    cluster.restart();
    cluster.ok(r#"kubectl patch site shop --type=merge -p '{"spec":{"replicas":4}}'"#);
    until_status(&cluster, "Ready 4 second 4");
    refusals(&cluster);
    end(&cluster);
    second.abort();
    cluster.assert_alive();
}

fn refusals(cluster: &Cluster) {
    let denied = |text: &str| {
        format!(
            "Error from server (Forbidden): admission webhook \"sites.coracle.dev\" denied the request: {text}"
        )
    };
    cluster.refuses(
        r#"kubectl patch site shop --type=merge -p '{"spec":{"host":"other"}}'"#,
        &denied("a site does not move"),
    );
    let made = cluster
        .run_with("kubectl create -f -", &SITE.replace("shop.example.com", "forbidden").replace("shop", "x"));
    assert!(
        made.code != 0 && made.stderr.contains("denied the request: no site may be called forbidden"),
        "{made}"
    );
    let warned =
        cluster.run(r#"kubectl patch site shop --type=merge --dry-run=server -p '{"spec":{"replicas":9}}'"#);
    assert_eq!(
        (warned.code, warned.stderr.trim()),
        (0, "Warning: more than five replicas are a waste"),
        "{warned}"
    );
}

/// The finalizer runs, then everything owned goes.
fn end(cluster: &Cluster) {
    cluster.ok("kubectl delete site shop --timeout=100s");
    cluster.says("kubectl get configmap farewell-shop -o jsonpath='{.data.host}'", "shop.example.com");
    cluster.until("kubectl get deployments,replicasets,pods -l site=shop -o name", "");
    cluster.until("kubectl get configmap shop --ignore-not-found", "");
    cluster.ok("kubectl delete crd sites.sites.coracle.dev --timeout=100s");
    cluster.says("kubectl api-resources --api-group=sites.coracle.dev -o name", "");
}
