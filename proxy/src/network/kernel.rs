//! What the kernel has of the plan: the device, and the routes.

use super::plan::{Routes, Tunnel, Way};
use super::routes::{self, RouteError};
use super::vxlan;

/// The routes that are written, and the device where one is.
#[derive(Default)]
pub struct Kernel {
    /// What the kernel has of ours.
    written: Routes,
    /// What it would not take; said once, and tried again when the nodes change or time has passed.
    refused: Routes,
    /// Why there is no device, as it was told.
    told: Option<String>,
}

/// What of the device matters to pods' own links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrapping {
    /// Packets to other nodes are wrapped, as far as they have this many bytes at most.
    Mtu(u32),
    /// None is any more; this was the most.
    Ended(u32),
    None,
}

impl Kernel {
    /// Looks what there is.
    pub async fn look(&mut self) -> Result<(), RouteError> {
        self.written = routes::present().await?;
        Ok(())
    }

    /// Whether there is anything that somebody could take away.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty() && self.refused.is_empty()
    }

    /// Sees to the device, before routes that need it.
    ///
    /// # Errors
    /// `ip` could not be run.
    pub async fn wrap(&mut self, tunnel: Option<&Tunnel>) -> Result<Wrapping, RouteError> {
        let Some(tunnel) = tunnel else {
            let was = vxlan::remove().await?;
            if was.is_some() {
                self.look().await?;
            }
            self.told = None;
            return Ok(was.map_or(Wrapping::None, Wrapping::Ended));
        };
        match vxlan::ensure(tunnel).await {
            Ok((mtu, is_new)) => {
                if is_new {
                    tracing::info!(device = vxlan::DEVICE, local = %tunnel.local, mtu, "packets to pods of other nodes are wrapped");
                    self.look().await?;
                }
                self.told = None;
                Ok(Wrapping::Mtu(mtu))
            }
            Err(RouteError::Refused { what, why }) => {
                if self.told.replace(why.clone()).as_ref() != Some(&why) {
                    tracing::warn!(
                        device = vxlan::DEVICE,
                        what,
                        why,
                        "no device that wraps packets to pods of other nodes"
                    );
                }
                Ok(Wrapping::None)
            }
            Err(error) => Err(error),
        }
    }

    /// Brings the routes from what is written to what is wanted.
    ///
    /// # Errors
    /// `ip` could not be run.
    pub async fn lead(&mut self, wanted: Routes) -> Result<(), RouteError> {
        let stale: Vec<String> =
            self.written.keys().filter(|range| !wanted.contains_key(*range)).cloned().collect();
        for range in stale {
            routes::remove(&range).await?;
            self.forget(&range).await?;
        }
        self.refused.retain(|range, way| wanted.get(range) == Some(way));
        for (range, way) in wanted {
            if self.written.get(&range) != Some(&way) {
                // The route is replaced in one step; only where its packets went is forgotten.
                self.forget(&range).await?;
                self.add(range, way).await?;
            }
        }
        Ok(())
    }

    /// What is beside a route that goes, or goes another way.
    async fn forget(&mut self, range: &str) -> Result<(), RouteError> {
        let Some(Way::Wrapped(_, mac)) = self.written.remove(range) else { return Ok(()) };
        let Some(gateway) = routes::gateway_of(range) else { return Ok(()) };
        let others = self.written.values().any(|way| matches!(way, Way::Wrapped(_, other) if *other == mac));
        vxlan::displace(gateway, mac, !others).await
    }

    async fn add(&mut self, range: String, way: Way) -> Result<(), RouteError> {
        match routes::replace(&range, way).await {
            Ok(()) => {
                tracing::info!(%range, %way, "route to a node's pods");
                self.refused.remove(&range);
                self.written.insert(range, way);
            }
            Err(RouteError::Refused { why, .. }) => {
                if self.refused.insert(range.clone(), way).is_none() {
                    tracing::warn!(%range, %way, why, "no route of ours to a node's pods: the node is not on a network of this machine, and something between must know the range, or packets be wrapped (annotation coracle.io/pod-network)");
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
