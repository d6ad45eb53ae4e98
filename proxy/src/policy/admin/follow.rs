//! Follows the definitions, and the policies of each while it is served.

use super::read::read;
use crate::policy::model::{AdminKind, AdminPolicy, GROUP};
use coracle_client::{Reflector, Selection, Store};
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

/// So long is waited for what is there at the start: a server that does not let this node read definitions must not keep
/// NetworkPolicies out of force.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// All policies of administrators. Cloning shares them.
#[derive(Clone)]
pub struct AdminPolicies {
    kinds: Arc<Mutex<[Option<Served>; 3]>>,
    settled: watch::Receiver<bool>,
}

/// The policies of a kind that is served.
struct Served {
    version: String,
    policies: Store<AdminPolicy>,
    /// True with the first complete copy.
    synced: watch::Receiver<bool>,
    /// Ends the watch.
    _stop: DropGuard,
}

/// A definition: the version of it that is read.
type Definition = Store<String>;

impl AdminPolicies {
    /// Follows definitions and policies until `stop`. Every change wakes `changed`.
    pub fn follow(client: kube::Client, changed: Arc<Notify>, stop: CancellationToken) -> Self {
        let (sender, settled) = watch::channel(false);
        let all = Self { kinds: Arc::default(), settled };
        tokio::spawn(all.clone().keep(client, changed, sender, stop));
        all
    }

    /// Returns when everything that is there is known, or after a time in which it should have been.
    pub async fn settled(&self) {
        let mut settled = self.settled.clone();
        if tokio::time::timeout(SETTLE_TIMEOUT, settled.wait_for(|settled| *settled)).await.is_err() {
            tracing::warn!(
                "whether there are policies of administrators is not known, NetworkPolicies are brought into force without them"
            );
        }
    }

    /// In the order in which they count.
    pub fn list(&self) -> Vec<Arc<AdminPolicy>> {
        let kinds = self.kinds.lock();
        let mut all: Vec<_> = kinds.iter().flatten().flat_map(|served| served.policies.list()).collect();
        all.sort_by(|a, b| a.order().cmp(&b.order()));
        all
    }

    pub fn is_empty(&self) -> bool {
        self.kinds.lock().iter().flatten().all(|served| served.policies.list().is_empty())
    }

    async fn keep(
        self,
        client: kube::Client,
        changed: Arc<Notify>,
        settled: watch::Sender<bool>,
        stop: CancellationToken,
    ) {
        let defined = Arc::new(Notify::new());
        let definitions = AdminKind::ALL.map(|kind| define(&client, kind, defined.clone(), stop.clone()));
        for (_, synced) in &definitions {
            let mut synced = synced.clone();
            if synced.wait_for(|synced| *synced).await.is_err() {
                return;
            }
        }
        loop {
            for (at, (definition, _)) in definitions.iter().enumerate() {
                self.adjust(at, definition, &client, &changed, &stop);
            }
            if !*settled.borrow() {
                self.synced().await;
                settled.send_replace(true);
            }
            changed.notify_one();
            if stop.run_until_cancelled(defined.notified()).await.is_none() {
                return;
            }
        }
    }

    /// Begins to follow a kind that is served, and forgets one that no longer is.
    fn adjust(
        &self,
        at: usize,
        definition: &Definition,
        client: &kube::Client,
        changed: &Arc<Notify>,
        stop: &CancellationToken,
    ) {
        let version = definition.list().first().map(|version| version.to_string());
        let mut kinds = self.kinds.lock();
        if kinds[at].as_ref().map(|served| &served.version) == version.as_ref() {
            return;
        }
        let kind = AdminKind::ALL[at];
        tracing::info!(kind = kind.name(), version, "policies of administrators");
        kinds[at] = version.map(|version| serve(kind, version, client, changed, stop));
    }

    async fn synced(&self) {
        let waiting: Vec<_> =
            self.kinds.lock().iter().flatten().map(|served| served.synced.clone()).collect();
        for mut synced in waiting {
            let _ = synced.wait_for(|synced| *synced).await;
        }
    }
}

fn serve(
    kind: AdminKind,
    version: String,
    client: &kube::Client,
    changed: &Arc<Notify>,
    stop: &CancellationToken,
) -> Served {
    let path = format!("/apis/{GROUP}/{version}/{}", kind.plural());
    let reflector = Reflector::new(client.clone(), Selection::of(path));
    let (policies, wake) = (Store::<AdminPolicy>::default(), changed.clone());
    let api_version = format!("{GROUP}/{version}");
    let transform = move |object: &Value| read(kind, &api_version, object).map(Some);
    let stop = stop.child_token();
    let synced = policies.follow(reflector, transform, move |_| wake.notify_one(), stop.clone());
    Served { version, policies, synced, _stop: stop.drop_guard() }
}

fn define(
    client: &kube::Client,
    kind: AdminKind,
    defined: Arc<Notify>,
    stop: CancellationToken,
) -> (Definition, watch::Receiver<bool>) {
    let selection = Selection::of("/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    let selection = selection.fields(format!("metadata.name={}.{GROUP}", kind.plural()));
    let definition = Definition::default();
    let transform = move |object: &Value| Ok(version_of(kind, object));
    let reflector = Reflector::new(client.clone(), selection);
    let synced = definition.follow(reflector, transform, move |_| defined.notify_one(), stop);
    (definition, synced)
}

/// The version in which a definition's objects are read; `None` while it is not served.
fn version_of(kind: AdminKind, definition: &Value) -> Option<String> {
    let conditions = definition["status"]["conditions"].as_array()?;
    let is_established = |c: &Value| c["type"] == "Established" && c["status"] == "True";
    if !conditions.iter().any(is_established) || !definition["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let versions = definition["spec"]["versions"].as_array()?;
    let is_served = |name: &&str| versions.iter().any(|v| v["name"] == **name && v["served"] == true);
    kind.versions().iter().copied().find(|name| is_served(name)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_definition_is_read_in_the_best_version_that_it_serves() {
        let version = |kind, established: &str, versions: &[(&str, bool)]| {
            let versions: Vec<_> =
                versions.iter().map(|(name, served)| json!({ "name": name, "served": served })).collect();
            let conditions = json!([{ "type": "Established", "status": established }]);
            version_of(
                kind,
                &json!({ "spec": { "versions": versions }, "status": { "conditions": conditions } }),
            )
        };
        let (cluster, admin) = (AdminKind::Cluster, AdminKind::Admin);
        assert_eq!(version(admin, "True", &[("v1alpha1", true)]).as_deref(), Some("v1alpha1"));
        assert_eq!(version(admin, "False", &[("v1alpha1", true)]), None);
        assert_eq!(version(admin, "True", &[("v1alpha1", false), ("v9", true)]), None);
        let both = [("v1alpha2", true), ("v1beta1", true)];
        assert_eq!(version(cluster, "True", &both).as_deref(), Some("v1beta1"));
        assert_eq!(version(cluster, "True", &both[..1]).as_deref(), Some("v1alpha2"));
        assert_eq!(
            version_of(admin, &json!({ "spec": { "versions": [{ "name": "v1alpha1", "served": true }] } })),
            None
        );
    }
}
