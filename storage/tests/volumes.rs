//! The volumes of a node: one suite that every plugin passes, and what CSI drivers are told.

#[cfg(test)]
#[path = "driver/mod.rs"]
#[allow(dead_code, reason = "shared with the kubelet's tests, which use all of it")]
mod driver;

#[cfg(test)]
#[path = "volumes/node.rs"]
mod node;

#[cfg(test)]
#[path = "volumes/suite.rs"]
mod suite;

#[cfg(test)]
#[path = "volumes/csi.rs"]
mod csi;

#[cfg(test)]
#[path = "volumes/local_path.rs"]
mod local_path;

#[cfg(test)]
#[path = "volumes/sanity.rs"]
mod sanity;
