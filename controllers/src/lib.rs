//! The controllers: each watches what is declared and brings the cluster closer to it, as a client of the API.

mod common;
pub mod deployment;
mod discovery;
pub mod endpoints;
pub mod endpointslice;
pub mod namespace;
mod podcontrol;
pub mod replicaset;
pub mod serviceaccount;

use coracle_client::{Context, Informers};
use std::sync::Arc;

/// Makes a client that acts as the service account of this name in kube-system, for example
/// `replicaset-controller`: upstream's roles are per controller.
pub type ClientFor = Arc<dyn Fn(&str) -> kube::Client + Send + Sync>;

/// What the controllers act with. Cloning is cheap.
#[derive(Clone)]
pub struct Clients {
    default: kube::Client,
    by_account: Option<ClientFor>,
    pub informers: Informers,
}

impl Clients {
    pub fn new(context: &Context, by_account: Option<ClientFor>) -> Self {
        Self { default: context.client.clone(), by_account, informers: context.informers.clone() }
    }

    /// The controller manager's own client.
    pub fn own(&self) -> kube::Client {
        self.default.clone()
    }

    /// The client of one controller, by its service account's name.
    pub fn client(&self, account: &str) -> kube::Client {
        self.by_account.as_ref().map_or_else(|| self.default.clone(), |make| make(account))
    }
}
