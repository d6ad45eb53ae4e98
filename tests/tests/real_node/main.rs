//! One real node from nothing to nothing: `scripts/up`, real containers, `scripts/up --down`.
//!
//! It is one test of many named steps, because a machine has one node; several of them run at a time. Needs root, and takes the machine's containerd:
//! where one runs already, or a node, it says so and does nothing.
//! `CORACLE_STEPS=logs,exec` runs only these; `CORACLE_KEEP_NODE=1` leaves the node there, and a node that is there
//! from such a run is used as it is.

mod admission;
mod cgroups;
mod claims;
mod commands;
mod containers;
mod csi;
mod details;
#[cfg(test)]
#[path = "../../../storage/tests/driver/mod.rs"]
#[allow(dead_code, reason = "shared with the tests of volumes, which use all of it")]
mod driver;
mod endings;
mod environment;
mod families;
mod faults;
mod figures;
mod full;
mod guarded;
mod healing;
mod images;
mod joined;
mod life;
mod network;
mod node;
mod policies;
mod preemption;
mod reboot;
mod resize;
mod second;
mod storage;
mod swapped;
mod volumes;
mod words;

use coracle_tests::skipped;
use node::{Node, Steps};

#[test]
fn a_node_from_nothing_to_nothing() {
    if let Err(reason) = node::possible() {
        return skipped(&reason);
    }
    let node = Node::up();
    let mut steps = Steps::new(&node);
    // The longest first, so that the others run beside it.
    healing::steps(&mut steps);
    network::steps(&mut steps);
    policies::steps(&mut steps);
    commands::steps(&mut steps);
    containers::steps(&mut steps);
    details::steps(&mut steps);
    admission::steps(&mut steps);
    words::steps(&mut steps);
    environment::steps(&mut steps);
    figures::steps(&mut steps);
    volumes::steps(&mut steps);
    storage::steps(&mut steps);
    claims::steps(&mut steps);
    csi::steps(&mut steps);
    preemption::steps(&mut steps);
    life::steps(&mut steps);
    resize::steps(&mut steps);
    images::steps(&mut steps);
    guarded::steps(&mut steps);
    cgroups::steps(&mut steps);
    faults::steps(&mut steps);
    full::steps(&mut steps);
    reboot::steps(&mut steps);
    joined::steps(&mut steps);
    swapped::steps(&mut steps);
    endings::steps(&mut steps);
    families::steps(&mut steps);
    steps.alone("up-again-changes-nothing", |_| node.up_again_changes_nothing());
    let kept = std::env::var_os("CORACLE_KEEP_NODE").is_some();
    let forced = steps.is_chosen("forced-down") && !kept;
    let failures = steps.finish();
    if forced {
        node.hang_a_shim();
    }
    let left = node.down(forced);
    assert!(failures.is_empty() && left.is_empty(), "failed: {failures:?}\nleft behind: {left:?}");
}
