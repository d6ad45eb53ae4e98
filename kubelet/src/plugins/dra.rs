//! Drivers of dynamic resource allocation.

use super::kind::{DiscoveredPlugin, Kind, Refusal};
use crate::kubelet::Kubelet;
use async_trait::async_trait;
use std::sync::Arc;

pub(super) struct Dra(pub Arc<Kubelet>);

#[async_trait]
impl Kind for Dra {
    fn type_name(&self) -> &'static str {
        "DRAPlugin"
    }

    async fn take_on(&self, offer: &DiscoveredPlugin) -> Result<(), Refusal> {
        let taken = self.0.dra.register(&offer.name, &offer.endpoint, &offer.versions);
        taken.map_err(Refusal::Services)?;
        self.0.claims_changed();
        Ok(())
    }

    async fn forget(&self, offer: &DiscoveredPlugin) {
        self.0.dra.deregister(&offer.name, &offer.endpoint);
        tracing::info!(plugin = offer.name, "plugin gone");
    }
}
