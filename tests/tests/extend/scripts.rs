//! An operator in Python and informers in JavaScript, on custom resources.

use coracle_tests::{Cluster, clients};

const BELL: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: bells.python.coracle.dev}
spec:
  group: python.coracle.dev
  scope: Namespaced
  names: {plural: bells, singular: bell, kind: Bell, shortNames: [bl]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {rings: {type: integer, minimum: 0}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
";

fn with_bells(cluster: &Cluster) {
    cluster.apply(BELL);
    cluster.ok("kubectl wait --for=condition=Established crd/bells.python.coracle.dev --timeout=100s");
}

/// kopf finds the resource by discovery, watches it, keeps its own notes in annotations, adds its finalizer, posts
/// Events, and adopts children.
#[test]
fn a_kopf_operator() {
    let cluster = Cluster::simulated();
    with_bells(&cluster);
    let shell = cluster.in_namespace("kopf");
    std::fs::write(shell.home().join("bells.py"), include_str!("scripts/kopf_operator.py")).expect("a file");
    let python = clients::python();
    let line = format!("{} -m kopf run --namespace=kopf --standalone bells.py", python.display());
    let running = shell.start(&line, "kopf.log");
    let bell = |name: &str, rings: u32| {
        format!(
            "apiVersion: python.coracle.dev/v1\nkind: Bell\nmetadata: {{name: {name}}}\nspec: {{rings: {rings}}}\n"
        )
    };
    shell.apply(&bell("big", 2));
    shell.until("kubectl get bell big -o jsonpath='{.status.create.heard}'", "2");
    shell.says(
        "kubectl get bell big -o jsonpath='{.metadata.finalizers}'",
        r#"["kopf.zalando.org/KopfFinalizerMarker"]"#,
    );
    shell.says(
        "kubectl get configmap big-rings -o jsonpath='{.data.rings} {.metadata.ownerReferences[0].kind}'",
        "2 Bell",
    );
    shell.ok(r#"kubectl patch bell big --type=merge -p '{"spec":{"rings":3}}'"#);
    shell.until("kubectl get configmap big-rings -o jsonpath='{.data.rings}'", "3");
    shell.until_that("kubectl get events --field-selector involvedObject.name=big", |text| {
        text.contains("Rung") && text.contains("three times")
    });
    shell.until("kubectl get bell big -o jsonpath='{.status.count}'", "1");
    shell.ok("kubectl delete bell big --timeout=100s");
    shell.until("kubectl get configmap big-rings --ignore-not-found", "");
    shell.says("kubectl get configmap silence -o jsonpath='{.data.after}'", "big");
    running.signal(nix::sys::signal::Signal::SIGTERM);
    let log = running.printed();
    assert!(!log.contains("Traceback"), "{log}");
    cluster.assert_alive();
}

#[test]
fn javascript_informers_on_custom_resources() {
    let cluster = Cluster::simulated();
    with_bells(&cluster);
    let shell = cluster.in_namespace("javascript");
    std::fs::create_dir(shell.home().join("code")).expect("a folder");
    std::fs::write(shell.home().join("code/custom.mjs"), include_str!("scripts/custom.mjs")).expect("a file");
    std::os::unix::fs::symlink(clients::node_modules(), shell.home().join("code/node_modules"))
        .expect("a link");
    let output = shell.run(&format!("{} code/custom.mjs", clients::node().display()));
    println!("{output}");
    assert_eq!(output.code, 0, "some checks failed, see above");
    cluster.assert_alive();
}
