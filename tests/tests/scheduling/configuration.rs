//! The ConfigMap `kube-scheduler-config`: what is in force, what is taken in, what is refused.

use super::{pod, with_priorities};

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kube-scheduler-config, namespace: kube-system}\ndata:\n  config.yaml: |\n";

/// The ConfigMap with these lines after the version and the kind.
pub fn map(lines: &str) -> String {
    let body =
        format!("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{lines}");
    let indented: String = body.lines().map(|line| format!("    {line}\n")).collect();
    format!("{MAP}{indented}")
}

#[test]
fn a_change_is_taken_in_live_and_a_mistake_is_refused() {
    let cluster = with_priorities();
    cluster.until_that(
        "kubectl get cm kube-scheduler-config -n kube-system -o jsonpath='{.data.config\\.yaml}'",
        |text| text.contains("schedulerName: default-scheduler"),
    );
    cluster.apply(&pod("mine", "low-priority", "1", "  schedulerName: packer\n"));
    cluster.apply(&map(
        "profiles:\n- schedulerName: default-scheduler\n- schedulerName: packer\n  pluginConfig:\n  \
         - {name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}\n",
    ));
    cluster.ok("kubectl wait pod/mine --for=condition=Ready --timeout=100s");
    cluster.apply(&map(
        "profiles:\n- schedulerName: packer\n  plugins: {score: {enabled: [{name: Nothing}]}}\n",
    ));
    cluster.until_that(
        "kubectl get events -n kube-system --field-selector reason=ConfigurationRefused -o jsonpath='{.items[*].message}'",
        |text| text.contains("profiles[0].plugins.score.enabled[0].name: Not found: \"Nothing\""),
    );
    cluster.apply(&map(
        "extenders:\n- {urlPrefix: 'https://127.0.0.1:9', tlsConfig: {caFile: /nowhere/ca.pem}}\n",
    ));
    cluster.until_that(
        "kubectl get events -n kube-system --field-selector reason=ConfigurationRefused -o jsonpath='{.items[*].message}'",
        |text| text.contains("extenders[0]: /nowhere/ca.pem: No such file"),
    );
    cluster.apply(&pod("still", "low-priority", "1", ""));
    cluster.ok("kubectl wait pod/still --for=condition=Ready --timeout=100s");
    cluster.apply(&map("profiles:\n- schedulerName: default-scheduler\n  plugins: {score: {enabled: [{name: LeastRequestedPriority}]}}\n"));
    cluster.until_that(
        "kubectl get events -n kube-system --field-selector reason=ConfigurationWarning -o jsonpath='{.items[*].message}'",
        |text| text.contains("LeastRequestedPriority is NodeResourcesFit now"),
    );
}

#[test]
fn a_wrong_file_ends_the_command_with_every_path() {
    let cluster = with_priorities();
    let file = cluster.data_dir().join("wrong.yaml");
    std::fs::write(
        &file,
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: 0\npercentageOfNodesToScore: 200\n",
    )
    .expect("a file");
    let binary = coracle_tests::coracle();
    let command =
        format!("{} scheduler --kubeconfig $KUBECONFIG --config {}", binary.display(), file.display());
    let refused = cluster.run(&command);
    assert_ne!(refused.code, 0);
    for path in ["parallelism: Invalid value: 0", "percentageOfNodesToScore: Invalid value: 200"] {
        assert!(refused.stderr.contains(path), "{refused}");
    }
}

#[test]
fn metrics_have_upstreams_names() {
    let cluster = with_priorities();
    cluster.apply(&pod("one", "low-priority", "1", ""));
    cluster.ok("kubectl wait pod/one --for=condition=Ready --timeout=100s");
    cluster.until_that("kubectl get --raw /metrics | grep ^scheduler_", |text| {
        text.contains(
            "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"default-scheduler\"} 1",
        ) && text.contains("scheduler_pending_pods{queue=\"active\"} 0")
    });
}
