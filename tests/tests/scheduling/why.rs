//! `coracle why POD`.

use super::{pod, with_priorities};

#[test]
fn every_node_and_plugin_has_its_say() {
    let cluster = with_priorities();
    let why = |pod: &str| {
        cluster.run(&format!("{} why {pod} --kubeconfig $KUBECONFIG", coracle_tests::coracle().display()))
    };
    cluster.apply(&pod("big", "low-priority", "64", ""));
    cluster.until_that(
        "kubectl get pod big -o jsonpath='{.status.conditions[?(@.type==\"PodScheduled\")].reason}'",
        |reason| reason == "Unschedulable",
    );
    let told = why("big");
    assert_eq!(told.code, 1, "{told}");
    for words in [
        "pod default/big has no node (scheduler default-scheduler)",
        "sim-0: does not fit",
        "NodeResourcesFit: Insufficient cpu",
        "to change: 64000m of cpu asked, 32000m free: lower the requests, or make room",
    ] {
        assert!(told.stdout.contains(words), "{words} in {told}");
    }
    cluster.apply(&pod("small", "low-priority", "1", ""));
    cluster.ok("kubectl wait pod/small --for=condition=Ready --timeout=100s");
    let told = why("default/small");
    assert_eq!(told.code, 0, "{told}");
    for words in ["pod default/small is on sim-0", "sim-0: fits, score ", "NodeResourcesFit", "ImageLocality"]
    {
        assert!(told.stdout.contains(words), "{words} in {told}");
    }
    assert_eq!(why("nobody").code, 2);
}
