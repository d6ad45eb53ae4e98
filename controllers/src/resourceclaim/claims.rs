//! What the controller knows of ResourceClaims: a slim copy, kept by a watch of its own, because nobody else of the
//! controllers reads them.

use super::eviction::DeviceId;
use coracle_client::{Change, ObjectKey, Reflector, Selection};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
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
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Claim {
    pub fn of(object: &Value) -> Self {
        let (meta, status) = (&object["metadata"], &object["status"]);
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let owners = list(&meta["ownerReferences"]);
        let held = |result: &Value| Held {
            id: (text(&result["driver"]), text(&result["pool"]), text(&result["device"])),
            tolerations: list(&result["tolerations"]),
        };
        let results = list(&status["allocation"]["devices"]["results"]);
        let owner = owners.iter().find(|o| o["controller"] == true && o["kind"] == "Pod");
        Self {
            key: ObjectKey::new(text(&meta["namespace"]), text(&meta["name"])),
            uid: text(&meta["uid"]),
            version: text(&meta["resourceVersion"]),
            deleting: !meta["deletionTimestamp"].is_null(),
            owner: owner.map(|o| (text(&o["name"]), text(&o["uid"]))),
            entry: meta["annotations"][ENTRY].as_str().map(str::to_owned),
            finalizers: list(&meta["finalizers"]).iter().map(text).collect(),
            allocated: status["allocation"].is_object(),
            held: results.iter().map(held).collect(),
            consumers: serde_json::from_value(status["reservedFor"].clone()).unwrap_or_default(),
        }
    }

    fn revision(&self) -> u64 {
        self.version.parse().unwrap_or(0)
    }
}

#[derive(Default)]
struct State {
    by_key: BTreeMap<ObjectKey, Arc<Claim>>,
    /// The newest resourceVersion that the watch has shown.
    revision: u64,
}

/// A live copy of all claims. Cloning shares it.
#[derive(Clone, Default)]
pub struct Claims {
    state: Arc<Mutex<State>>,
}

impl Claims {
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Claim>> {
        self.state.lock().by_key.get(&ObjectKey::new(namespace, name)).cloned()
    }

    /// Those that hold devices.
    pub fn holding(&self) -> Vec<ObjectKey> {
        let state = self.state.lock();
        let holding = state.by_key.values().filter(|claim| !claim.held.is_empty());
        holding.map(|claim| claim.key.clone()).collect()
    }

    /// The claim that was made for an entry of a pod, and that the pod's status does not name yet.
    pub fn made_for(&self, namespace: &str, uid: &str, entry: &str) -> Option<Arc<Claim>> {
        let state = self.state.lock();
        let from = ObjectKey::new(namespace, "");
        let mut own = state.by_key.range(from..).take_while(|(key, _)| key.namespace == namespace);
        let ours = |claim: &Claim| {
            claim.entry.as_deref() == Some(entry) && claim.owner.as_ref().is_some_and(|(_, u)| u == uid)
        };
        own.find(|(_, claim)| ours(claim)).map(|(_, claim)| claim.clone())
    }

    /// Takes in what a write answered, unless the watch has shown it already.
    pub fn wrote(&self, object: &Value) {
        let claim = Claim::of(object);
        let mut state = self.state.lock();
        if claim.revision() > state.revision {
            state.by_key.insert(claim.key.clone(), Arc::new(claim));
        }
    }

    fn set(&self, claim: Claim) {
        let mut state = self.state.lock();
        state.revision = state.revision.max(claim.revision());
        state.by_key.insert(claim.key.clone(), Arc::new(claim));
    }

    fn remove(&self, claim: &Claim) {
        let mut state = self.state.lock();
        state.revision = state.revision.max(claim.revision());
        state.by_key.remove(&claim.key);
    }

    /// Follows the API in a task until `stop` is cancelled, and tells of every change; the receiver turns true with
    /// the first complete copy.
    pub fn follow(
        &self,
        client: kube::Client,
        stop: CancellationToken,
        tell: impl Fn(&Claim) + Send + 'static,
    ) -> watch::Receiver<bool> {
        let (sender, receiver) = watch::channel(false);
        let claims = self.clone();
        let mut reflector = Reflector::new(client, Selection::of(PATH));
        tokio::spawn(async move {
            // Told again after a relist; keys that went meanwhile are asked for too.
            let mut copy: Option<BTreeMap<ObjectKey, Arc<Claim>>> = None;
            while let Some(change) = stop.run_until_cancelled(reflector.next()).await {
                match change {
                    Change::Restart => copy = Some(BTreeMap::new()),
                    Change::Set(bytes) => {
                        let Some(claim) = read(&bytes) else { continue };
                        match &mut copy {
                            Some(copy) => drop(copy.insert(claim.key.clone(), Arc::new(claim))),
                            None => {
                                claims.set(claim.clone());
                                tell(&claim);
                            }
                        }
                    }
                    Change::Gone(bytes) => {
                        let Some(claim) = read(&bytes) else { continue };
                        match &mut copy {
                            Some(copy) => drop(copy.remove(&claim.key)),
                            None => {
                                claims.remove(&claim);
                                tell(&claim);
                            }
                        }
                    }
                    Change::Synced => {
                        let listed = copy.take().unwrap_or_default();
                        let before = {
                            let mut state = claims.state.lock();
                            let newest = listed.values().map(|c| c.revision()).max().unwrap_or(0);
                            state.revision = state.revision.max(newest);
                            std::mem::replace(&mut state.by_key, listed.clone())
                        };
                        let gone = before.values().filter(|c| !listed.contains_key(&c.key));
                        gone.chain(listed.values()).for_each(|claim| tell(claim));
                        sender.send_replace(true);
                    }
                }
            }
        });
        receiver
    }
}

fn read(bytes: &[u8]) -> Option<Claim> {
    serde_json::from_slice::<Value>(bytes).ok().map(|object| Claim::of(&object))
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
    fn a_write_is_known_before_the_watch_shows_it_and_never_undoes_what_it_showed() {
        let claims = Claims::default();
        claims.wrote(&claim("a", "5"));
        assert!(claims.made_for("n", "u", "gpu").is_some_and(|c| c.allocated && c.consumers[0].is_pod()));
        assert!(claims.made_for("n", "u", "other").is_none());
        claims.remove(&Claim::of(&claim("a", "9")));
        claims.wrote(&claim("a", "7"));
        assert!(claims.get("n", "a").is_none());
    }
}
