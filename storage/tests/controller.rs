//! The controller side of CSI drivers, built in, against an API server in memory and a driver that fails, hangs and lies.

#[cfg(test)]
#[path = "../../controllers/tests/cluster/support.rs"]
#[allow(dead_code, reason = "shared with the controllers' tests, which use all of it")]
mod support;

#[cfg(test)]
#[path = "driver/mod.rs"]
#[allow(dead_code, reason = "shared with the tests of the node's side, which use all of it")]
mod driver;

#[cfg(test)]
#[path = "controller/cluster.rs"]
mod cluster;

#[cfg(test)]
#[path = "objects/snapshots.rs"]
mod objects;

#[cfg(test)]
#[path = "controller/snapshots.rs"]
mod snapshots;

#[cfg(test)]
#[path = "controller/making.rs"]
mod making;

#[cfg(test)]
#[path = "controller/using.rs"]
mod using;
