//! A configuration at work: taken up at the start, followed as its file changes, and the KMSs' health.

use super::kms::Kms;
use super::rules::Rules;
use super::{ConfigError, EncryptionConfiguration, rewrite};
use crate::{Encrypting, Store};
use coracle_component_base::config_file::{self, Apply, Reloads};
use coracle_component_base::health::{Health, Matters};
use coracle_component_base::metrics::Metrics;
use futures::FutureExt;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Upstream's name of the check, where configurations are reloaded.
const CHECK: &str = "kms-providers";
/// Upstream's names of metrics begin so.
const METRICS: &str = "apiserver_encryption_config_controller";
/// Between questions for a KMS's Status, as upstream: while it answers well, and while it does not.
const WELL_INTERVAL: Duration = Duration::from_secs(60);
const ILL_INTERVAL: Duration = Duration::from_secs(10);
/// A start waits so long for its KMSs. After that it goes on, and what they hold the keys of cannot be read until they
/// answer.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
const SOON_INTERVAL: Duration = Duration::from_millis(500);

/// Where a configuration comes from.
#[derive(Clone, Debug)]
pub struct Source {
    pub path: PathBuf,
    /// What the file said at the start.
    pub text: String,
    /// Whether changes of the file are taken up.
    pub follow: bool,
}

impl Source {
    /// Reads the file.
    ///
    /// # Errors
    /// The file's; what it says is not looked at.
    pub fn read(path: PathBuf, follow: bool) -> Result<Self, ConfigError> {
        Ok(Self { text: config_file::read(&path)?, path, follow })
    }

    /// What the file says, at work. Waits a while for its KMSs.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub async fn rules(&self) -> Result<Rules, ConfigError> {
        let rules = Rules::new(&EncryptionConfiguration::parse(&self.text, &self.path)?, None);
        for kms in rules.kms() {
            let ready = async {
                while let Err(error) = kms.probe().await {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(kms = kms.name, error, "KMS is not ready");
                    tokio::time::sleep(SOON_INTERVAL).await;
                }
            };
            if tokio::time::timeout(WAIT_TIMEOUT, ready).await.is_err() {
                tracing::error!(
                    kms = kms.name,
                    "KMS is away; what it encrypted cannot be read until it is back"
                );
            }
        }
        Ok(rules)
    }
}

/// Rewrites what is stale, follows the file and the KMSs, and reports the KMSs' health, until `stop`.
pub fn maintain(
    store: Arc<Encrypting>,
    source: Option<Source>,
    (health, metrics): (Health, Arc<Metrics>),
    stop: CancellationToken,
) -> JoinHandle<()> {
    let wake = Arc::new(Notify::new());
    let shown = Arc::downgrade(&store);
    metrics.collect_as("encryption", move |text| {
        if let Some(store) = shown.upgrade() {
            store.figures().render(text);
        }
    });
    tokio::spawn(async move {
        let rewriting = rewrite::maintain(store.clone(), wake.clone(), stop.clone());
        let probing = probe_all(&store, &wake, &health);
        let following = async {
            match source.filter(|source| source.follow) {
                Some(source) => {
                    let reloads = Reloads::begin(METRICS, &source.text, &metrics);
                    follow(store.clone(), source, reloads, wake.clone(), stop.clone()).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = rewriting => {}
            () = probing => {}
            () = following => {}
            () = stop.cancelled() => {}
        }
    })
}

async fn follow(
    store: Arc<Encrypting>,
    source: Source,
    reloads: Arc<Reloads>,
    wake: Arc<Notify>,
    stop: CancellationToken,
) {
    let path = source.path.clone();
    let apply: Box<Apply> = Box::new(move |text| {
        let (store, path, wake) = (store.clone(), path.clone(), wake.clone());
        async move { take_up(&store, &path, &text).await.inspect(|()| wake.notify_one()) }.boxed()
    });
    config_file::follow(source.path, source.text, reloads, apply, stop).await;
}

async fn take_up(store: &Encrypting, path: &Path, text: &str) -> Result<(), String> {
    let config = EncryptionConfiguration::parse(text, path).map_err(|e| coracle_api::error::chain(&e))?;
    let former = store.rules();
    let rules = Rules::new(&config, Some(&former));
    for kms in rules.kms() {
        // A configuration whose KMS does not answer could not write.
        let failed = |e| format!("KMS provider {:?}: {}", kms.name, coracle_api::error::chain(&e));
        kms.probe().await.map_err(failed)?;
    }
    store.set_rules(rules).await;
    Ok(())
}

/// Asks every KMS for its Status, again and again.
async fn probe_all(store: &Encrypting, wake: &Notify, health: &Health) {
    let mut failures = BTreeMap::new();
    let mut changes = store.rules_changes();
    loop {
        let rules = changes.borrow_and_update().clone();
        failures.retain(|name, _| rules.kms().iter().any(|kms| kms.name == *name));
        for kms in rules.kms() {
            if probe(store, kms, &mut failures).await
                || (failures.is_empty() && store.unreadable("").is_some())
            {
                wake.notify_one();
            }
        }
        if rules.kms().is_empty() {
            health.forget(CHECK);
        } else {
            let why: Vec<String> = failures.values().cloned().collect();
            let state = if why.is_empty() { Ok(()) } else { Err(why.join("; ")) };
            health.report(CHECK, Matters::Ready, state);
        }
        let later = async {
            match (rules.kms().is_empty(), failures.is_empty()) {
                (true, _) => std::future::pending().await,
                (false, true) => tokio::time::sleep(WELL_INTERVAL).await,
                (false, false) => tokio::time::sleep(ILL_INTERVAL).await,
            }
        };
        tokio::select! {
            () = later => {}
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}

/// Says whether what the KMS encrypts with has changed.
async fn probe(store: &Encrypting, kms: &Arc<Kms>, failures: &mut BTreeMap<String, String>) -> bool {
    let probed = kms.probe().await;
    store.figures().probed(&kms.name, probed.is_ok());
    match probed {
        Ok(changed) => {
            if failures.remove(&kms.name).is_some() {
                tracing::info!(kms = kms.name, "KMS is back");
            }
            changed
        }
        Err(error) => {
            let why = format!(
                "kmsv2 Provider {} is not healthy, error: {}",
                kms.name,
                coracle_api::error::chain(&error)
            );
            tracing::error!("{why}");
            failures.insert(kms.name.clone(), why);
            false
        }
    }
}
