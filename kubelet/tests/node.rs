//! The kubelet against an API server in memory and a runtime that keeps state, with the rights of a node.

#[cfg(test)]
#[path = "node/away.rs"]
mod away;
#[cfg(test)]
#[path = "node/claims.rs"]
mod claims;
#[cfg(test)]
#[path = "node/components.rs"]
mod components;
#[cfg(test)]
#[path = "node/cri_socket.rs"]
mod cri_socket;
#[cfg(test)]
#[path = "node/details.rs"]
mod details;
#[cfg(test)]
#[path = "node/device_plugin.rs"]
mod device_plugin;
#[cfg(test)]
#[path = "node/devices.rs"]
mod devices;
#[cfg(test)]
#[path = "node/dra_driver.rs"]
mod dra_driver;
#[cfg(test)]
#[path = "../../storage/tests/driver/mod.rs"]
#[allow(dead_code, reason = "shared with the tests of volumes, which use all of it")]
mod driver;
#[cfg(test)]
#[path = "node/ends.rs"]
mod ends;
#[cfg(test)]
#[path = "node/fake_logind.rs"]
mod fake_logind;
#[cfg(test)]
#[path = "node/fake_runtime.rs"]
mod fake_runtime;
#[cfg(test)]
#[path = "node/lifecycle.rs"]
mod lifecycle;
#[cfg(test)]
#[path = "node/logind.rs"]
mod logind;
#[cfg(test)]
#[path = "node/resizes.rs"]
mod resizes;
#[cfg(test)]
#[path = "node/support.rs"]
mod support;
#[cfg(test)]
#[path = "node/volumes.rs"]
mod volumes;
