//! CSI on the node: drivers that are programs of their own, called over unix sockets.
//!
//! <https://github.com/container-storage-interface/spec/blob/master/spec.md>

mod calls;
mod client;
mod controller;
pub mod controller_messages;
mod drivers;
pub mod messages;
mod plugin;
mod selinux;
pub(crate) mod source;

pub use client::{Answers, CallError, CallListener, Called, PluginClient};
pub use controller::ControllerService;
pub use drivers::{CALL_TIMEOUT, Driver, Drivers};
pub use plugin::Csi;

use crate::volumes::digest;

/// The name of the VolumeAttachment of a volume on a node, which upstream's sidecars and kubelets compute alike.
pub fn attachment_name(driver: &str, handle: &str, node: &str) -> String {
    format!("csi-{}", digest(&format!("{handle}{driver}{node}")))
}

/// What nodes and the attach/detach controller call the volume.
pub fn unique_name(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn attachments_are_named_as_upstream_names_them() {
        // sha256 of "vol-1" + "d.example" + "node-1".
        let name = super::attachment_name("d.example", "vol-1", "node-1");
        assert_eq!(name, "csi-566e4f8372914fa858a970755d61eacfdaedcedddce9ada63afb2eff55df1291");
    }
}
