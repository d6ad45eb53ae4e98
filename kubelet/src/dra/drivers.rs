//! The drivers that have registered, and whether they are there. A driver may have several plugins while it is replaced.

use super::Dra;
use super::error::DraError;
use super::messages::{HEALTH, SERVICES, Service, WatchRequest, WatchResponse};
use coracle_storage::csi::{Answers, CallError, PluginClient};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tokio_util::sync::DropGuard;

/// How long a call may take; upstream's.
const CALL_TIMEOUT: Duration = Duration::from_secs(45);
/// First and longest pause before a plugin that is not there is looked for again.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(200);
const MAX_RECONNECT_INTERVAL: Duration = Duration::from_secs(5);

/// One plugin of a driver. Cloning shares it.
#[derive(Clone)]
pub struct Plugin {
    endpoint: PathBuf,
    pub service: Service,
    pub client: PluginClient,
    connected: Arc<AtomicBool>,
    _stop: Arc<DropGuard>,
}

#[derive(Default)]
pub struct Drivers {
    /// In the order in which they came.
    plugins: BTreeMap<String, Vec<Plugin>>,
    /// Drivers whose slices are to be removed.
    wipes: HashMap<String, DropGuard>,
}

/// The newest service that both know; why there is none, in upstream's words.
fn chosen(versions: &[String]) -> Result<Service, String> {
    if versions.is_empty() {
        return Err("empty list of supported gRPC services (aka supported versions)".to_owned());
    }
    let known = SERVICES.into_iter().find(|service| versions.iter().any(|v| v == service.name));
    known.ok_or_else(|| {
        let quoted = |names: Vec<&str>| format!("{names:?}").replace(", ", " ");
        format!(
            "none of services supported by the plugin ({}) are supported by the kubelet ({})",
            quoted(versions.iter().map(String::as_str).collect()),
            quoted(SERVICES.iter().map(|service| service.name).collect())
        )
    })
}

impl Dra {
    /// Takes a plugin on; one at the same endpoint is replaced. Says why it does not, in upstream's words.
    pub fn register(
        self: &Arc<Self>,
        driver: &str,
        endpoint: &Path,
        versions: &[String],
    ) -> Result<(), String> {
        let service = chosen(versions).map_err(|why| {
            let endpoint = endpoint.display();
            format!(
                "invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {endpoint}: {why}"
            )
        })?;
        let stop = self.stop.child_token();
        let health = HEALTH.into_iter().find(|(name, _)| versions.iter().any(|v| v == name));
        let plugin = Plugin {
            endpoint: endpoint.to_owned(),
            service,
            client: PluginClient::new(endpoint, CALL_TIMEOUT).told_to(Some(self.metrics.of_dra(driver))),
            connected: Arc::default(),
            _stop: Arc::new(stop.clone().drop_guard()),
        };
        let connected = plugin.connected.clone();
        let watch = watch(
            self.clone(),
            driver.to_owned(),
            (endpoint.to_owned(), connected),
            health.map(|(_, path)| path),
        );
        {
            let mut drivers = self.drivers.lock();
            let plugins = drivers.plugins.entry(driver.to_owned()).or_default();
            plugins.retain(|known| known.endpoint != endpoint);
            plugins.push(plugin);
        }
        tokio::spawn(stop.run_until_cancelled_owned(watch));
        self.note_usable(driver);
        Ok(())
    }

    /// The plugin has taken its registration back.
    pub fn deregister(self: &Arc<Self>, driver: &str, endpoint: &Path) {
        {
            let mut drivers = self.drivers.lock();
            let Some(plugins) = drivers.plugins.get_mut(driver) else { return };
            plugins.retain(|known| known.endpoint != endpoint);
            if plugins.is_empty() {
                drivers.plugins.remove(driver);
            }
        }
        self.note_usable(driver);
    }

    /// The newest plugin that is there, else the newest.
    pub(super) fn plugin(&self, driver: &str) -> Result<Plugin, DraError> {
        let drivers = self.drivers.lock();
        let all = drivers.plugins.get(driver).into_iter().flatten();
        let best = all.max_by_key(|plugin| plugin.connected.load(Ordering::Relaxed));
        best.cloned().ok_or_else(|| DraError::NotRegistered(driver.to_owned()))
    }

    /// Slices of a driver that stays away are removed after a while: pods would be put here for devices that nobody
    /// prepares.
    fn note_usable(self: &Arc<Self>, driver: &str) {
        let mut drivers = self.drivers.lock();
        let mut plugins = drivers.plugins.get(driver).into_iter().flatten();
        if plugins.any(|plugin| plugin.connected.load(Ordering::Relaxed)) {
            drivers.wipes.remove(driver);
            return;
        }
        if drivers.wipes.contains_key(driver) {
            return;
        }
        let stop = self.stop.child_token();
        drivers.wipes.insert(driver.to_owned(), stop.clone().drop_guard());
        let (this, driver) = (self.clone(), driver.to_owned());
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            tokio::time::sleep(this.patience).await;
            this.wipe(Some(&driver)).await;
            tracing::info!(driver, "the driver is away, its ResourceSlices are removed");
            this.drivers.lock().wipes.remove(&driver);
        }));
    }
}

/// Keeps a connection to the plugin, so that its end is noticed.
async fn watch(
    dra: Arc<Dra>,
    driver: String,
    (endpoint, connected): (PathBuf, Arc<AtomicBool>),
    health: Option<&'static str>,
) {
    let mut pause = RECONNECT_INTERVAL;
    loop {
        if let Ok(stream) = UnixStream::connect(&endpoint).await
            && let Ok((sender, connection)) = hyper::client::conn::http2::handshake::<
                _,
                _,
                http_body_util::Empty<bytes::Bytes>,
            >(TokioExecutor::new(), TokioIo::new(stream))
            .await
        {
            pause = RECONNECT_INTERVAL;
            connected.store(true, Ordering::Relaxed);
            dra.note_usable(&driver);
            tokio::select! {
                // However it ends, it ends.
                _ = connection => {}
                () = dra.follow_health(&driver, &endpoint, health) => {}
            }
            drop(sender);
            connected.store(false, Ordering::Relaxed);
            dra.note_usable(&driver);
            let gone = dra.health.lock().forget(&driver);
            dra.tell(&driver, &gone);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_RECONNECT_INTERVAL);
    }
}

impl Dra {
    /// Takes over what the plugin says of its devices' health, again and again; never returns. One that says nothing when it
    /// registers that it does is asked once: drivers of 1.34 and 1.35 did not have to.
    async fn follow_health(&self, driver: &str, endpoint: &Path, path: Option<&'static str>) {
        let (_, oldest) = HEALTH[HEALTH.len() - 1];
        let client = PluginClient::new(endpoint, CALL_TIMEOUT);
        loop {
            match client.stream::<_, WatchResponse>(path.unwrap_or(oldest), WatchRequest {}).await {
                Ok(mut answers) => self.hear(driver, &mut answers).await,
                Err(CallError::Failed { code: tonic::Code::Unimplemented, .. }) => {
                    return std::future::pending().await;
                }
                Err(error) => tracing::debug!(driver, %error, "the driver does not tell of health"),
            }
            tokio::time::sleep(MAX_RECONNECT_INTERVAL).await;
        }
    }

    /// Returns when the stream has ended.
    async fn hear(&self, driver: &str, answers: &mut Answers<WatchResponse>) {
        loop {
            let next = self.health.lock().next(driver);
            let expired = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let changed = tokio::select! {
                answer = answers.next() => match answer {
                    Ok(Some(answer)) => self.health.lock().update(driver, answer.devices, Instant::now()),
                    ended => {
                        if let Err(error) = ended {
                            tracing::debug!(driver, %error, "the driver's word on health has ended");
                        }
                        break;
                    }
                },
                () = expired => self.health.lock().expire(driver, Instant::now()),
            };
            self.tell(driver, &changed);
        }
        let gone = self.health.lock().forget(driver);
        self.tell(driver, &gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_service_that_both_know_is_spoken() {
        let spoken = |versions: &[&str]| {
            let versions: Vec<String> = versions.iter().map(|v| (*v).to_owned()).collect();
            chosen(&versions).map(|service| service.name)
        };
        assert_eq!(spoken(&["v1beta1.DRAPlugin", "v1.DRAPlugin"]), Ok("v1.DRAPlugin"));
        assert_eq!(spoken(&["v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"]), Ok("v1beta1.DRAPlugin"));
        let none = "empty list of supported gRPC services (aka supported versions)";
        assert_eq!(spoken(&[]).unwrap_err(), none);
        assert_eq!(
            spoken(&["1.0.0", "v2.DRAPlugin"]).unwrap_err(),
            "none of services supported by the plugin ([\"1.0.0\" \"v2.DRAPlugin\"]) are supported by the kubelet \
             ([\"v1.DRAPlugin\" \"v1beta1.DRAPlugin\"])"
        );
    }
}
