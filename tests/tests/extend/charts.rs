//! Charts with custom resources: crds/ folders, hooks with weights and delete policies, objects of the definition in
//! the same chart, look-ups; and a chart that others published.

use coracle_tests::{Cluster, Shell, clients};

const FILES: &[(&str, &str)] = &[
    ("Chart.yaml", "apiVersion: v2\nname: ship\nversion: 0.1.0\n"),
    ("values.yaml", "masts: 3\nbroken: false\n"),
    (
        "crds/ship.yaml",
        r#"apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ships.charts.coracle.dev}
spec:
  group: charts.coracle.dev
  scope: Namespaced
  names: {plural: ships, singular: ship, kind: Ship}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Masts, type: integer, jsonPath: .spec.masts}]
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [masts]
            properties:
              masts: {type: integer, minimum: 1, maximum: 5}
              flag: {type: string, default: plain}
          status: {type: object, properties: {afloat: {type: boolean}}}
"#,
    ),
    (
        "templates/ship.yaml",
        r#"apiVersion: charts.coracle.dev/v1
kind: Ship
metadata: {name: {{ .Release.Name }}}
spec: {masts: {{ .Values.masts }}}
"#,
    ),
    (
        "templates/log.yaml",
        r#"{{- $before := lookup "charts.coracle.dev/v1" "Ship" .Release.Namespace .Release.Name }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-log}
data:
  before: {{ if $before }}{{ $before.spec.masts | quote }}{{ else }}nothing{{ end }}
  known: {{ .Capabilities.APIVersions.Has "charts.coracle.dev/v1/Ship" | quote }}
"#,
    ),
    (
        "templates/hooks.yaml",
        r#"{{- range $hook := list (list "first" "pre-install,pre-upgrade" "-5" "hook-succeeded") (list "second" "pre-install,pre-upgrade" "5" "before-hook-creation") (list "last" "post-install,post-upgrade" "0" "hook-succeeded") (list "check" "test" "0" "before-hook-creation") (list "bye" "post-delete" "0" "before-hook-creation") }}
---
apiVersion: v1
kind: Pod
metadata:
  name: {{ $.Release.Name }}-{{ index $hook 0 }}
  labels: {hook: {{ index $hook 0 }}}
  annotations:
    helm.sh/hook: {{ index $hook 1 }}
    helm.sh/hook-weight: {{ index $hook 2 | quote }}
    helm.sh/hook-delete-policy: {{ index $hook 3 }}
    simulate.coracle.local/duration: {{ if and $.Values.broken (eq (index $hook 0) "first") }}1h{{ else }}0s{{ end }}
spec:
  restartPolicy: Never
  containers: [{name: hook, image: busybox, command: ["true"]}]
{{- end }}
"#,
    ),
];

fn chart(shell: &Shell, leave_out: &[&str]) {
    let left_out = |name: &str| leave_out.iter().any(|prefix| name.starts_with(prefix));
    for (name, text) in FILES.iter().filter(|(name, _)| !left_out(name)) {
        let path = shell.home().join("ship").join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the chart's folders");
        std::fs::write(path, text).expect("a file of the chart");
    }
    shell.provide("helm", &clients::helm());
}

#[test]
fn charts_with_definitions_and_hooks() {
    let cluster = Cluster::simulated();
    let shell = cluster.in_namespace("harbour");
    chart(&shell, &[]);
    shell.shows(
        "helm template s ship --include-crds",
        &["kind: CustomResourceDefinition", "before: nothing", "kind: Ship"],
    );
    let watching = shell.start("kubectl get pods --watch-only -o name", "hooks");
    shell.shows("helm install s ship --wait --timeout 60s", &["STATUS: deployed", "REVISION: 1"]);
    shell.shows("kubectl get ships", &["NAME", "MASTS", "s", "3"]);
    shell.says("kubectl get ship s -o jsonpath='{.spec.flag}'", "plain");
    shell.says("kubectl get configmap s-log -o jsonpath='{.data.before} {.data.known}'", "nothing true");
    // In the order of their weights; those that succeeded are gone.
    let seen = watching.until_that("the hooks", |text| text.contains("pod/s-last"));
    let place =
        |name: &str| seen.find(&format!("pod/s-{name}")).unwrap_or_else(|| panic!("no {name} in\n{seen}"));
    assert!(place("first") < place("second") && place("second") < place("last"), "{seen}");
    shell.says("kubectl get pods -o name", "pod/s-second");

    shell.shows(
        "helm upgrade s ship --set masts=4 --wait --timeout 60s",
        &["has been upgraded", "REVISION: 2"],
    );
    shell.says("kubectl get ship s -o jsonpath='{.spec.masts}'", "4");
    shell.says("kubectl get configmap s-log -o jsonpath='{.data.before}'", "3");
    shell.shows(
        "helm upgrade s ship --set masts=5 --dry-run=server",
        &["REVISION: 3", "before: \"4\"", "masts: 5"],
    );
    shell.says("kubectl get ship s -o jsonpath='{.spec.masts}'", "4");
    let refused = shell.run("helm upgrade s ship --set masts=9");
    assert!(
        refused.code != 0 && refused.stderr.contains("spec.masts in body should be less than or equal to 5"),
        "{refused}"
    );
    shell.shows("helm rollback s 1 --wait --timeout 60s", &["Rollback was a success"]);
    shell.says("kubectl get ship s -o jsonpath='{.spec.masts}'", "3");
    shell.shows("helm test s --timeout 60s", &["TEST SUITE:", "s-check", "Succeeded"]);
    shell.ok("helm uninstall s --wait --timeout 60s");
    // The definition is not the release's; what belongs to the release goes, and the last hook has run.
    shell.says(
        "kubectl get crd ships.charts.coracle.dev -o name",
        "customresourcedefinition.apiextensions.k8s.io/ships.charts.coracle.dev",
    );
    shell.says("kubectl get ships -o name", "");
    shell.says("kubectl get pod s-bye -o jsonpath='{.status.phase}'", "Succeeded");

    // A hook that does not end fails the release, before anything of it is made.
    let failed = shell.run("helm install b ship --set broken=true --wait --timeout 5s");
    assert!(failed.code != 0 && failed.stderr.contains("pre-install"), "{failed}");
    shell.says("kubectl get ships -o name", "");
    cluster.assert_alive();
}

/// Without the definition the chart says what is missing; with it, the second release finds it there.
#[test]
fn charts_need_their_definitions() {
    let cluster = Cluster::simulated();
    let bare = cluster.in_namespace("bare");
    // A look-up of a kind that nobody knows is an error of its own.
    chart(&bare, &["crds", "templates/log"]);
    let refused = bare.run("helm install s ship --no-hooks");
    assert!(
        refused.code != 0
            && refused.stderr.contains("no matches for kind \"Ship\" in version \"charts.coracle.dev/v1\""),
        "{refused}"
    );
    let whole = cluster.in_namespace("whole");
    chart(&whole, &[]);
    whole.ok("helm install s ship --no-hooks --wait --timeout 60s");
    bare.ok("helm install s ship --no-hooks --wait --timeout 60s");
    bare.says("kubectl get ships -A -o name | sort", "ship.charts.coracle.dev/s\nship.charts.coracle.dev/s");
    // Deleted, the definition takes the objects of all namespaces with it.
    whole.ok("kubectl delete crd ships.charts.coracle.dev --timeout=100s");
    whole.says("kubectl api-resources --api-group=charts.coracle.dev -o name", "");
    cluster.assert_alive();
}

/// The chart of dask-kubernetes: four definitions of up to half a megabyte, roles, a Deployment.
#[test]
fn a_chart_of_others() {
    let cluster = Cluster::simulated();
    let shell = cluster.in_namespace("dask");
    shell.provide("helm", &clients::helm());
    let folder = clients::definitions().join("dask-kubernetes/dask-kubernetes-operator");
    shell.shows(
        &format!("helm install dask '{}' --set image.tag=2026.3.0 --wait --timeout 90s", folder.display()),
        &["STATUS: deployed"],
    );
    shell.says("kubectl get crd -o name | grep -c kubernetes.dask.org", "4");
    shell.says("kubectl get deployments -o jsonpath='{.items[*].status.readyReplicas}'", "1");
    let account = "system:serviceaccount:dask:dask-dask-kubernetes-operator";
    shell.says(&format!("kubectl auth can-i create daskclusters.kubernetes.dask.org --as={account}"), "yes");
    let refused = shell.run(&format!("kubectl auth can-i create nodes --as={account}"));
    assert_eq!(refused.stdout.trim(), "no", "{refused}");
    shell.apply("apiVersion: kubernetes.dask.org/v1\nkind: DaskAutoscaler\nmetadata: {name: a}\nspec: {cluster: c, minimum: 1, maximum: 9}\n");
    shell.shows(
        "kubectl get daskautoscalers",
        &["NAME", "CLUSTER", "MINIMUM", "MAXIMUM", "AGE", "a", "c", "1", "9"],
    );
    shell.ok("helm uninstall dask --wait --timeout 60s");
    shell.says("kubectl get daskautoscalers -o name", "daskautoscaler.kubernetes.dask.org/a");
    cluster.assert_alive();
}
