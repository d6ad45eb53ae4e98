//! Device plugins that do not register themselves.

use super::kind::{DiscoveredPlugin, Kind, Refusal};
use crate::kubelet::Kubelet;
use async_trait::async_trait;
use std::sync::Arc;

pub(super) struct Devices(pub Arc<Kubelet>);

#[async_trait]
impl Kind for Devices {
    fn type_name(&self) -> &'static str {
        "DevicePlugin"
    }

    async fn take_on(&self, offer: &DiscoveredPlugin) -> Result<(), Refusal> {
        let devices = &self.0.allocation.devices;
        devices.register(&offer.name, &offer.endpoint, &offer.versions).await.map_err(Refusal::Services)
    }

    async fn forget(&self, offer: &DiscoveredPlugin) {
        self.0.allocation.devices.deregister(&offer.name, &offer.endpoint).await;
        tracing::info!(plugin = offer.name, "plugin gone");
    }
}
