//! The proxy's two ports, where the configuration wants them: health and metrics.

use super::Error;
use crate::configuration::Configuration;
use crate::health::{self, LastSync};
use crate::metrics::{self, Shown};
use std::net::SocketAddr;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

struct Served {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub struct Ports {
    shown: Shown,
    health: Option<Served>,
    metrics: Option<Served>,
}

impl Ports {
    /// Nothing is served yet.
    pub fn new(shown: Shown) -> Self {
        Self { shown, health: None, metrics: None }
    }

    /// Serves where the configuration says, and no longer where it said before.
    ///
    /// # Errors
    /// An address cannot be had, and `bindAddressHardFail` is set; else that is told in the log.
    pub async fn open(&mut self, configuration: &Configuration, last: &LastSync) -> Result<(), Error> {
        let hard = configuration.bind_address_hard_fail;
        let address = configuration.health_address;
        if self.health.as_ref().is_none_or(|served| served.address != address) {
            self.health = None;
            if let Some(listener) = bind("health", address, hard).await? {
                let task = tokio::spawn(health::serve(listener, last.clone(), CancellationToken::new()));
                self.health = Some(Served { address, task });
            }
        }
        let address = configuration.metrics_address;
        if self.metrics.as_ref().is_none_or(|served| served.address != address) {
            self.metrics = None;
            if let Some(listener) = bind("metrics", address, hard).await? {
                let task = tokio::spawn(metrics::serve(listener, self.shown.clone()));
                self.metrics = Some(Served { address, task });
            }
        }
        Ok(())
    }
}

async fn bind(
    what: &'static str,
    address: SocketAddr,
    hard: bool,
) -> Result<Option<tokio::net::TcpListener>, Error> {
    match metrics::bind(address).await {
        Ok(listener) => Ok(Some(listener)),
        Err(source) if hard => Err(Error::Bind { what, address, source }),
        Err(error) => {
            tracing::warn!(what, %address, %error, "a port of the proxy is not served");
            Ok(None)
        }
    }
}
