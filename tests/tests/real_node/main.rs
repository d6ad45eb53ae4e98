//! One real node from nothing to nothing: `scripts/up`, real containers, `scripts/up --down`.
//!
//! It is one test of many named steps, because a machine has one node. Needs root, and takes the machine's containerd:
//! where one runs already, or a node, it says so and does nothing.
//! `CORACLE_STEPS=logs,exec` runs only these; `CORACLE_KEEP_NODE=1` leaves the node there, and a node that is there
//! from such a run is used as it is.

mod admission;
mod commands;
mod containers;
mod environment;
mod faults;
mod guarded;
mod healing;
mod images;
mod joined;
mod life;
mod network;
mod node;
mod preemption;
mod resize;
mod second;
mod storage;
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
    network::steps(&mut steps);
    commands::steps(&mut steps);
    containers::steps(&mut steps);
    admission::steps(&mut steps);
    words::steps(&mut steps);
    environment::steps(&mut steps);
    volumes::steps(&mut steps);
    storage::steps(&mut steps);
    preemption::steps(&mut steps);
    life::steps(&mut steps);
    resize::steps(&mut steps);
    healing::steps(&mut steps);
    images::steps(&mut steps);
    guarded::steps(&mut steps);
    faults::steps(&mut steps);
    joined::steps(&mut steps);
    steps.run("up-again-changes-nothing", |_| node.up_again_changes_nothing());
    let failures = steps.finish();
    let left = node.down();
    assert!(failures.is_empty() && left.is_empty(), "failed: {failures:?}\nleft behind: {left:?}");
}
