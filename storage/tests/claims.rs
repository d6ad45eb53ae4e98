//! Claims and volumes against an API server in memory, with the rights that upstream's roles give the controllers.

#[cfg(test)]
#[path = "../../controllers/tests/cluster/support.rs"]
#[allow(dead_code, reason = "shared with the controllers' tests, which use all of it")]
mod support;

#[cfg(test)]
#[path = "objects/snapshots.rs"]
#[allow(dead_code, reason = "shared with the tests of CSI, which use all of it")]
mod snapshots;

#[cfg(test)]
#[path = "claims/cluster.rs"]
mod cluster;

#[cfg(test)]
#[path = "claims/life.rs"]
mod life;

#[cfg(test)]
#[path = "claims/local_path.rs"]
mod local_path;

#[cfg(test)]
#[path = "claims/moving.rs"]
mod moving;

#[cfg(test)]
#[path = "claims/nodes.rs"]
mod nodes;

#[cfg(test)]
#[path = "claims/recycling.rs"]
mod recycling;
