//! The page for the first hour: every command of its `sh` blocks, one block after the other, on simulated nodes.

use coracle_tests::Cluster;

/// The blocks of this kind, whole: some have input of several lines.
fn blocks(page: &str) -> Vec<&str> {
    page.split("\n```sh\n").skip(1).filter_map(|rest| rest.split("\n```\n").next()).collect()
}

#[test]
fn every_command_of_the_first_hour_does_what_it_says() {
    let cluster = Cluster::simulated();
    let page = include_str!("../../../docs/first-hour.md");
    let blocks = blocks(page);
    assert!(blocks.len() >= 9, "{} blocks", blocks.len());
    for block in blocks {
        // The test's own kubeconfig stands in the place of the box's.
        let own: Vec<&str> = block.lines().filter(|line| !line.starts_with("export KUBECONFIG=")).collect();
        let lines = own.join("\n").replace("coracle status", "coracle status --kubeconfig $KUBECONFIG");
        let output = cluster.run(&format!("set -e\n{lines}"));
        assert_eq!(output.code, 0, "{block}\n{output}");
    }
    cluster.until("kubectl get deployments,persistentvolumeclaims -o name", "");
}
