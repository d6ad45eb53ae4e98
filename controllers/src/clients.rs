//! What the controllers act with.

use crate::metrics::Metrics;
use std::ops::Deref;
use std::sync::Arc;

/// Clients by service account, shared informers, and what is counted. Cloning is cheap.
#[derive(Clone)]
pub struct Clients {
    clients: coracle_client::Clients,
    pub metrics: Arc<Metrics>,
}

impl Clients {
    pub fn new(clients: coracle_client::Clients, metrics: Arc<Metrics>) -> Self {
        Self { clients, metrics }
    }
}

impl Deref for Clients {
    type Target = coracle_client::Clients;

    fn deref(&self) -> &coracle_client::Clients {
        &self.clients
    }
}
