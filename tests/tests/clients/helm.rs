//! helm 4 with charts written here: install, upgrade, rollback, test, uninstall; by server-side apply, which is its
//! default, and by patches of its own.

use coracle_tests::{Cluster, Shell, clients};

const CHART: &str = "apiVersion: v2\nname: web\nversion: 0.1.0\nappVersion: '1'\n";
const VALUES: &str = "replicas: 2\nimage: nginx:1.26\ncolour: red\n";
const TEMPLATES: &[(&str, &str)] = &[
    (
        "deployment.yaml",
        r#"apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}-web
  labels: {app.kubernetes.io/instance: {{ .Release.Name }}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      containers:
      - name: web
        image: {{ .Values.image }}
        ports: [{containerPort: 80, name: http}]
        envFrom: [{configMapRef: {name: {{ .Release.Name }}-settings}}]
"#,
    ),
    (
        "service.yaml",
        r#"apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}-web}
spec:
  selector: {app: {{ .Release.Name }}}
  ports: [{port: 80, targetPort: http, name: http}]
"#,
    ),
    (
        "settings.yaml",
        r#"apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-settings}
data:
  colour: {{ .Values.colour | quote }}
  seen: {{ (lookup "v1" "Namespace" "" "default").metadata.name | default "nothing" | quote }}
  {{- if .Capabilities.APIVersions.Has "batch/v1/CronJob" }}
  cron: "yes"
  {{- end }}
"#,
    ),
    (
        "hook.yaml",
        r#"apiVersion: v1
kind: Pod
metadata:
  name: {{ .Release.Name }}-before
  annotations:
    helm.sh/hook: pre-install,pre-upgrade
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
    simulate.coracle.local/duration: 0s
spec:
  restartPolicy: Never
  containers: [{name: before, image: busybox, command: ["true"]}]
"#,
    ),
    (
        "tests/ok.yaml",
        r#"apiVersion: v1
kind: Pod
metadata:
  name: {{ .Release.Name }}-test
  annotations:
    helm.sh/hook: test
    helm.sh/hook-delete-policy: before-hook-creation
    simulate.coracle.local/duration: 0s
spec:
  restartPolicy: Never
  containers: [{name: test, image: busybox, command: ["true"]}]
"#,
    ),
];

fn chart(shell: &Shell) {
    let dir = shell.home().join("web");
    std::fs::create_dir_all(dir.join("templates/tests")).expect("the chart's folders");
    std::fs::write(dir.join("Chart.yaml"), CHART).expect("Chart.yaml");
    std::fs::write(dir.join("values.yaml"), VALUES).expect("values.yaml");
    for (name, text) in TEMPLATES {
        std::fs::write(dir.join("templates").join(name), text).expect("a template");
    }
    shell.provide("helm", &clients::helm());
}

fn life_of_a_release(shell: &Shell, mode: &str) {
    let name = shell.home().file_name().expect("a name").to_string_lossy().into_owned();
    shell.shows(
        &format!("helm install {name} web --wait --timeout 60s {mode}"),
        &[&format!("NAME: {name}"), "STATUS: deployed", "REVISION: 1"],
    );
    shell.says(&format!("kubectl get deployment {name}-web -o jsonpath='{{.status.readyReplicas}}'"), "2");
    shell.says(
        &format!("kubectl get configmap {name}-settings -o jsonpath='{{.data}}'"),
        r#"{"colour":"red","cron":"yes","seen":"default"}"#,
    );
    shell.says(&format!("kubectl get pod {name}-before --ignore-not-found"), "");
    let again = shell.run(&format!("helm install {name} web {mode}"));
    assert!(again.code != 0 && again.stderr.contains("cannot reuse a name that is still in use"), "{again}");

    shell.shows(
        &format!("helm upgrade {name} web --set image=nginx:1.27,colour=blue --wait --timeout 60s {mode}"),
        &["has been upgraded", "REVISION: 2"],
    );
    shell.says(
        &format!(
            "kubectl get deployment {name}-web -o jsonpath='{{.spec.template.spec.containers[0].image}}'"
        ),
        "nginx:1.27",
    );
    shell.shows(&format!("helm history {name}"), &["1", "superseded", "2", "deployed", "Upgrade complete"]);
    shell.shows(&format!("helm get values {name}"), &["colour: blue", "image: nginx:1.27"]);
    shell.shows(&format!("helm get manifest {name}"), &["kind: ConfigMap", "colour: \"blue\""]);
    shell.shows("helm list", &[&name, "2", "deployed", "web-0.1.0"]);
    shell.shows(&format!("helm status {name}"), &["STATUS: deployed", "REVISION: 2"]);

    shell.shows(&format!("helm rollback {name} 1 --wait --timeout 60s"), &["Rollback was a success"]);
    shell.says(&format!("kubectl get configmap {name}-settings -o jsonpath='{{.data.colour}}'"), "red");
    shell.shows(&format!("helm history {name} --max 1"), &["3", "deployed", "Rollback to 1"]);
    shell.shows(
        &format!("helm test {name} --timeout 60s"),
        &["TEST SUITE:", &format!("{name}-test"), "Succeeded"],
    );
    shell.says(&format!("kubectl get secrets -l owner=helm,name={name} -o name | wc -l"), "3");

    shell.says(
        &format!("helm uninstall {name} --wait --timeout 60s"),
        &format!("release \"{name}\" uninstalled"),
    );
    shell.until(&format!("kubectl get deployments,services,pods -l app={name} -o name"), "");
    shell.says(&format!("kubectl get configmap {name}-settings --ignore-not-found"), "");
    shell.says("helm list -q", "");
}

#[test]
fn helm_installs_upgrades_rolls_back_tests_and_uninstalls() {
    let cluster = Cluster::simulated();
    let applied = cluster.in_namespace("helm-applied");
    chart(&applied);
    applied.shows(
        "helm template x web --validate --set replicas=1",
        &["kind: ConfigMap", "seen: \"default\"", "kind: Deployment", "replicas: 1"],
    );
    applied.shows("helm install dry web --dry-run=server", &["STATUS: pending-install", "kind: Deployment"]);
    life_of_a_release(&applied, "");
    let patched = cluster.in_namespace("helm-patched");
    chart(&patched);
    life_of_a_release(&patched, "--server-side=false");

    let invalid = patched.run("helm install wrong web --set replicas=many");
    assert!(invalid.code != 0 && invalid.stderr.contains("replicas"), "{invalid}");
    cluster.assert_alive();
}

/// Whoever changed a field by hand owns it: helm says whom it would take it from.
#[test]
fn helm_by_server_side_apply_sees_conflicts() {
    let cluster = Cluster::simulated();
    let shell = cluster.in_namespace("helm-conflict");
    chart(&shell);
    shell.ok("helm install c web --wait --timeout 60s");
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c-settings}\ndata: {colour: green}\n";
    let taken =
        shell.run_with("kubectl apply --server-side --field-manager=somebody --force-conflicts -f -", other);
    assert_eq!(taken.code, 0, "{taken}");
    let refused = shell.run("helm upgrade c web --set colour=blue");
    assert!(refused.code != 0 && refused.stderr.contains("conflict with \"somebody\""), "{refused}");
    shell.ok("helm upgrade c web --set colour=blue --force-conflicts");
    shell.says("kubectl get configmap c-settings -o jsonpath='{.data.colour}'", "blue");
}
