//! The node's address, as it changes while the server runs: certificates and the objects that name it first, so that what
//! begins anew with it is believed and found; then the components that listen on it or tell it to others. The API itself
//! goes on: it listens on all addresses.

use super::control_plane::{first_objects, found_at};
use super::identity::Clients;
use crate::address::{Choice, NodeIps, follow};
use crate::config::Config;
use crate::node::regarding;
use coracle_api::error::chain;
use coracle_apiserver::authn::ServiceAccountTokens;
use coracle_apiserver::bootstrap;
use coracle_apiserver::pki::Pki;
use coracle_apiserver::server::ApiServer;
use coracle_client::Recorder;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch::Sender;
use tokio_util::sync::CancellationToken;

/// What stands on the node's address.
pub struct Following {
    pub pki: Arc<Pki>,
    pub api: ApiServer,
    pub tokens: Arc<ServiceAccountTokens>,
    /// As it was at the start.
    pub config: Arc<Config>,
    pub port: u16,
    /// Tells the components, which begin anew.
    pub addresses: Sender<NodeIps>,
}

impl Following {
    /// Follows until `stop`.
    ///
    /// # Errors
    /// A certificate or an object could not be written. The address counts as the old one then: a further run tries again.
    pub async fn run(&self, choice: &Choice, stop: CancellationToken) -> Result<(), String> {
        let client = Clients::new(self.api.clone()).privileged("system:coracle:node-address");
        let recorder = Recorder::new(client, "kube-apiserver", &self.config.node_name);
        loop {
            let before = *self.addresses.borrow();
            let changed = follow::changed(choice, before);
            let Some(now) = stop.run_until_cancelled(changed).await else { return Ok(()) };
            tracing::info!(before = before.shown(), now = now.shown(), "the node has another address");
            self.take(now).await?;
            let text = follow::told(before, now);
            recorder.event(regarding(&self.config.node_name), "Normal", follow::REASON, text);
        }
    }

    async fn take(&self, ips: NodeIps) -> Result<(), String> {
        let (pki, names) = (self.pki.clone(), ips.all().map(|ip| ip.to_string()).collect());
        let made = tokio::task::spawn_blocking(move || pki.be_known_as(names)).await;
        made.map_err(|e| e.to_string())?.map_err(|e| chain(&e))?;
        let url = found_at(ips.first, self.port);
        self.api.move_to(SocketAddr::new(ips.first, self.port).to_string());
        self.tokens.move_jwks(self.config.access.issuing(&url).jwks_uri);
        let objects = first_objects(&self.config.at(ips), &self.pki, self.port);
        bootstrap::apply(self.api.registry(), &objects).await.map_err(|e| chain(&e))?;
        self.addresses.send_replace(ips);
        Ok(())
    }
}
