//! CSI drivers.

use super::csi_node;
use super::kind::{DiscoveredPlugin, Kind, Refusal};
use crate::kubelet::Kubelet;
use async_trait::async_trait;
use coracle_storage::csi::{CALL_TIMEOUT, Driver};
use std::sync::Arc;

pub(super) struct Csi(pub Arc<Kubelet>);

#[async_trait]
impl Kind for Csi {
    fn type_name(&self) -> &'static str {
        "CSIPlugin"
    }

    async fn take_on(&self, offer: &DiscoveredPlugin) -> Result<(), Refusal> {
        if !offer.versions.iter().any(|version| is_version_1(version)) {
            return Err(Refusal::Versions(offer.versions.clone()));
        }
        csi_node::wait_until_there(&self.0).await;
        let driver = Driver::connect(
            &offer.name,
            &offer.endpoint,
            CALL_TIMEOUT,
            Some(self.0.metrics.of_csi(&offer.name)),
        )
        .await;
        let driver = driver.map_err(Refusal::Driver)?;
        csi_node::add(&self.0, &driver).await?;
        self.0.drivers.insert(driver);
        self.0.drivers_changed();
        Ok(())
    }

    async fn forget(&self, offer: &DiscoveredPlugin) {
        if !self.0.drivers.remove(&offer.name, &offer.endpoint) {
            return;
        }
        tracing::info!(plugin = offer.name, "plugin gone");
        if let Err(error) = csi_node::remove(&self.0, &offer.name).await {
            tracing::warn!(plugin = offer.name, %error, "the driver is still shown on the node");
        }
    }
}

fn is_version_1(version: &str) -> bool {
    let bare = version.trim_start_matches('v');
    bare == "1" || bare.starts_with("1.")
}

#[cfg(test)]
mod tests {
    use super::is_version_1;

    #[test]
    fn version_1_is_spoken() {
        for (version, spoken) in
            [("1.0.0", true), ("v1", true), ("1.11.0", true), ("0.3.0", false), ("10.0", false), ("", false)]
        {
            assert_eq!(is_version_1(version), spoken, "{version:?}");
        }
    }
}
