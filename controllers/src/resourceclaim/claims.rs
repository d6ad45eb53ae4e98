//! What the controller knows of ResourceClaims: a slim copy, kept by a watch of its own, because nobody else of the
//! controllers reads them.

use super::eviction::DeviceId;
use crate::common::tally::Tally;
use crate::metrics::{Metric, Metrics};
use coracle_client::store::Update;
use coracle_client::{ObjectKey, Reflector, Selection, Store};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub const PATH: &str = "/apis/resource.k8s.io/v1/resourceclaims";
/// Which entry of a pod's `spec.resourceClaims` a claim was made for; upstream's name.
pub const ENTRY: &str = "resource.kubernetes.io/pod-claim-name";

/// Somebody who uses a claim; an element of `status.reservedFor`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Consumer {
    #[serde(default)]
    pub api_group: String,
    pub resource: String,
    pub name: String,
    pub uid: String,
}

impl Consumer {
    pub fn is_pod(&self) -> bool {
        self.resource == "pods" && self.api_group.is_empty()
    }
}

/// A device that a claim holds, and the taints of it that it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub id: DeviceId,
    pub tolerations: Vec<Value>,
}

/// A ResourceClaim, as far as its life is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub key: ObjectKey,
    pub uid: String,
    pub version: String,
    pub deleting: bool,
    /// Name and UID of the pod that controls it.
    pub owner: Option<(String, String)>,
    /// The value of [`ENTRY`].
    pub entry: Option<String>,
    pub finalizers: Vec<String>,
    pub allocated: bool,
    pub held: Vec<Held>,
    pub consumers: Vec<Consumer>,
    /// Whether a request of it is for an administrator.
    pub admin: bool,
    /// What made it, as metrics name it; empty: somebody by hand.
    pub source: &'static str,
}

/// Says that the scheduler made a claim for a pod's extended resources.
const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";

/// Whether a claim wants access to devices that others use, for an administrator.
pub fn asks_for_admin(claim: &Value) -> bool {
    let requests = claim["spec"]["devices"]["requests"].as_array().into_iter().flatten();
    requests.into_iter().any(|request| request["exactly"]["adminAccess"] == true)
}

fn source(annotations: &Value) -> &'static str {
    match (&annotations[ENTRY], &annotations[EXTENDED]) {
        (Value::String(_), _) => "resource_claim_template",
        (_, Value::String(given)) if given == "true" => "extended_resource",
        _ => "",
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Claim {
    /// An error when its consumers cannot be read: they would be taken for none, and the claim for unused.
    pub fn of(object: &Value) -> Result<Self, String> {
        let (meta, status) = (&object["metadata"], &object["status"]);
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let owners = list(&meta["ownerReferences"]);
        let held = |result: &Value| Held {
            id: (text(&result["driver"]), text(&result["pool"]), text(&result["device"])),
            tolerations: list(&result["tolerations"]),
        };
        let results = list(&status["allocation"]["devices"]["results"]);
        let owner = owners.iter().find(|o| o["controller"] == true && o["kind"] == "Pod");
        let reserved = Option::<Vec<Consumer>>::deserialize(&status["reservedFor"]);
        let consumers = reserved.map_err(|error| format!("status.reservedFor: {error}"))?.unwrap_or_default();
        Ok(Self {
            key: ObjectKey::new(text(&meta["namespace"]), text(&meta["name"])),
            uid: text(&meta["uid"]),
            version: text(&meta["resourceVersion"]),
            deleting: !meta["deletionTimestamp"].is_null(),
            owner: owner.map(|o| (text(&o["name"]), text(&o["uid"]))),
            entry: meta["annotations"][ENTRY].as_str().map(str::to_owned),
            finalizers: list(&meta["finalizers"]).iter().map(text).collect(),
            allocated: status["allocation"].is_object(),
            held: results.iter().map(held).collect(),
            consumers,
            admin: asks_for_admin(object),
            source: source(&meta["annotations"]),
        })
    }

    fn revision(&self) -> u64 {
        self.version.parse().unwrap_or(0)
    }
}

/// A live copy of all claims. Cloning shares it.
#[derive(Clone, Default)]
pub struct Claims {
    store: Store<Claim>,
    /// How many there are of which kind.
    tally: Option<Arc<Tally>>,
}

fn labels(claim: &Claim) -> Vec<&'static str> {
    let said = |is: bool| if is { "true" } else { "false" };
    vec![said(claim.allocated), said(claim.admin), claim.source]
}

impl Claims {
    pub fn counted(metrics: Arc<Metrics>) -> Self {
        let tally = Some(Arc::new(Tally::new(metrics, Metric::Claims)));
        Self { tally, ..Self::default() }
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Claim>> {
        self.store.get(&ObjectKey::new(namespace, name))
    }

    /// Those that hold devices.
    pub fn holding(&self) -> Vec<ObjectKey> {
        let holding = self.store.list().into_iter().filter(|claim| !claim.held.is_empty());
        holding.map(|claim| claim.key.clone()).collect()
    }

    /// The claim that was made for an entry of a pod, and that the pod's status does not name yet.
    pub fn made_for(&self, namespace: &str, uid: &str, entry: &str) -> Option<Arc<Claim>> {
        let ours = |claim: &Arc<Claim>| {
            claim.entry.as_deref() == Some(entry) && claim.owner.as_ref().is_some_and(|(_, u)| u == uid)
        };
        self.store.list_in(namespace).into_iter().find(ours)
    }

    /// Takes in what a write answered, unless the watch has shown it already.
    pub fn wrote(&self, object: &Value) {
        // One that cannot be read comes by the watch too, which tells of it.
        if let Ok(claim) = Claim::of(object) {
            self.tally.iter().for_each(|tally| tally.set(&claim.key, Some(labels(&claim))));
            self.store.put_newer(claim.key.clone(), claim.revision(), claim);
        }
    }

    /// Follows the API in a task until `stop` is cancelled, and tells of every change; the receiver turns true with
    /// the first complete copy.
    pub fn follow(
        &self,
        client: kube::Client,
        stop: CancellationToken,
        tell: impl Fn(&Claim) + Send + 'static,
    ) -> watch::Receiver<bool> {
        let reflector = Reflector::new(client, Selection::of(PATH));
        let tally = self.tally.clone();
        let tell_all = move |update: Update<Claim>| {
            for changed in &update.changed {
                let now = changed.new.as_deref().map(labels);
                tally.iter().for_each(|tally| tally.set(&changed.key, now.clone()));
            }
            update
                .changed
                .iter()
                .filter_map(|c| c.new.as_ref().or(c.old.as_ref()))
                .for_each(|claim| tell(claim));
        };
        self.store.follow(reflector, |object| Claim::of(object).map(Some), tell_all, stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(name: &str, version: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": version,
            "annotations": {ENTRY: "gpu"},
            "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "u", "controller": true}]},
            "status": {"allocation": {}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}})
    }

    #[test]
    fn claims_that_were_made_for_pods_are_found() {
        let claims = Claims::default();
        claims.wrote(&claim("a", "5"));
        assert!(claims.made_for("n", "u", "gpu").is_some_and(|c| c.allocated && c.consumers[0].is_pod()));
        assert!(claims.made_for("n", "u", "other").is_none());
    }

    #[test]
    fn a_claim_whose_consumers_cannot_be_read_is_not_taken_for_unused() {
        let mut odd = claim("a", "5");
        odd["status"]["reservedFor"] = json!([{ "resource": "pods", "name": "p" }]);
        let error = Claim::of(&odd).unwrap_err();
        assert!(error.starts_with("status.reservedFor: missing field `uid`"), "{error}");
        odd["status"]["reservedFor"] = Value::Null;
        assert_eq!(Claim::of(&odd).unwrap().consumers, []);
    }
}
