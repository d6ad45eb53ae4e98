//! Attacks, carried out as an attacker would, against the real binary. Needs kubectl and curl, and no root.

mod admission;
mod authorization;

use coracle_tests::Cluster;

/// The command fails, and says this among other things.
#[track_caller]
fn fails(cluster: &Cluster, line: &str, part: &str) {
    let output = cluster.run(line);
    assert_ne!(output.code, 0, "{line} must fail\n{output}");
    assert!(output.stderr.contains(part), "{line}\nno {part:?} in:\n{}", output.stderr);
}
