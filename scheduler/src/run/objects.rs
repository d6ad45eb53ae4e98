//! The cluster as plugins look it up: shared informers for what other components read too, and slim copies of the rest.

use super::Event;
use crate::framework::{Cluster, ObjectKind};
use coracle_client::store::Update;
use coracle_client::{Context, Informer, ObjectKey, Reflector, Selection, Store};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long the first lists of kinds that a server may not have are waited for.
const OPTIONAL_TIMEOUT: Duration = Duration::from_secs(5);

type Table = Store<Value>;

/// What is kept of an object; `None` keeps nothing.
type Keep = fn(&Value) -> Value;

/// A kind that is followed.
struct Followed {
    kind: ObjectKind,
    path: &'static str,
    keep: Keep,
    table: Table,
}

fn whole(object: &Value) -> Value {
    let mut kept = object.clone();
    if let Some(metadata) = kept["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    kept
}

fn labels(object: &Value) -> Value {
    object["metadata"]["labels"].clone()
}

fn budget(object: &Value) -> Value {
    json!({
        "metadata": { "namespace": object["metadata"]["namespace"], "name": object["metadata"]["name"] },
        "spec": { "selector": object["spec"]["selector"] },
        "status": {
            "disruptionsAllowed": object["status"]["disruptionsAllowed"],
            "disruptedPods": object["status"]["disruptedPods"],
        },
    })
}

/// Watched objects do not always say their kind; it is told apart by the path.
fn selecting(kind: &str, object: &Value) -> Value {
    json!({ "kind": kind, "name": object["metadata"]["name"], "selector": object["spec"]["selector"] })
}

pub struct Objects {
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    changes: watch::Sender<u64>,
    csi_nodes: Table,
    csi_drivers: Table,
    capacities: Table,
    namespaces: Table,
    selecting: [Table; 4],
    budgets: Table,
    resource_claims: Table,
    resource_slices: Table,
    device_classes: Table,
}

impl Objects {
    /// Starts following; changes reach `events` until `stop` is cancelled.
    pub async fn start(
        context: &Context,
        events: &UnboundedSender<Event>,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        let objects = Arc::new(Self {
            claims: context.informers.of(),
            volumes: context.informers.of(),
            classes: context.informers.of(),
            changes: watch::channel(0).0,
            csi_nodes: Table::default(),
            csi_drivers: Table::default(),
            capacities: Table::default(),
            namespaces: Table::default(),
            selecting: Default::default(),
            budgets: Table::default(),
            resource_claims: Table::default(),
            resource_slices: Table::default(),
            device_classes: Table::default(),
        });
        objects.listen(events, stop);
        let mut synced = Vec::new();
        for followed in objects.followed() {
            let changes = objects.changes.clone();
            synced.push(follow(context.client.clone(), followed, events.clone(), changes, stop.clone()));
        }
        let informers = futures::future::join3(
            objects.claims.synced(),
            objects.volumes.synced(),
            objects.classes.synced(),
        );
        // The lock behind the value must not outlive the wait.
        let tables = synced.iter_mut().map(|s| async { s.wait_for(|done| *done).await.is_ok() });
        let tables = futures::future::join_all(tables);
        let all = futures::future::join(informers, tokio::time::timeout(OPTIONAL_TIMEOUT, tables));
        if let Some((_, Err(_))) = stop.run_until_cancelled(all).await {
            tracing::warn!("some kinds of objects cannot be listed; plugins that read them see none");
        }
        objects
    }

    fn followed(&self) -> Vec<Followed> {
        let followed =
            |kind, path, keep: Keep, table: &Table| Followed { kind, path, keep, table: table.clone() };
        let [services, controllers, sets, stateful] = &self.selecting;
        use ObjectKind as Kind;
        vec![
            followed(Kind::CsiNode, "/apis/storage.k8s.io/v1/csinodes", whole, &self.csi_nodes),
            followed(Kind::CsiDriver, "/apis/storage.k8s.io/v1/csidrivers", whole, &self.csi_drivers),
            followed(
                Kind::CsiStorageCapacity,
                "/apis/storage.k8s.io/v1/csistoragecapacities",
                whole,
                &self.capacities,
            ),
            followed(Kind::Namespace, "/api/v1/namespaces", labels, &self.namespaces),
            followed(Kind::Workload, "/api/v1/services", |o| selecting("Service", o), services),
            followed(
                Kind::Workload,
                "/api/v1/replicationcontrollers",
                |o| selecting("ReplicationController", o),
                controllers,
            ),
            followed(Kind::Workload, "/apis/apps/v1/replicasets", |o| selecting("ReplicaSet", o), sets),
            followed(Kind::Workload, "/apis/apps/v1/statefulsets", |o| selecting("StatefulSet", o), stateful),
            followed(
                Kind::PodDisruptionBudget,
                "/apis/policy/v1/poddisruptionbudgets",
                budget,
                &self.budgets,
            ),
            followed(
                Kind::ResourceClaim,
                "/apis/resource.k8s.io/v1/resourceclaims",
                whole,
                &self.resource_claims,
            ),
            followed(
                Kind::ResourceSlice,
                "/apis/resource.k8s.io/v1/resourceslices",
                whole,
                &self.resource_slices,
            ),
            followed(
                Kind::DeviceClass,
                "/apis/resource.k8s.io/v1/deviceclasses",
                whole,
                &self.device_classes,
            ),
        ]
    }

    fn listen(self: &Arc<Self>, events: &UnboundedSender<Event>, stop: &CancellationToken) {
        fn tell<K: coracle_client::informer::Kind>(
            informer: &Informer<K>,
            kind: ObjectKind,
            events: UnboundedSender<Event>,
            stop: CancellationToken,
            also: impl Fn() + Send + Sync + 'static,
        ) {
            informer.on_change_while(move |delta| {
                also();
                if let Some(object) = delta.object() {
                    let key = ObjectKey::of(object.as_ref());
                    // Nobody listens when the scheduler has ended.
                    let _ = events.send(Event::Object(kind, key));
                }
                !stop.is_cancelled()
            });
        }
        let (changes, again) = (self.changes.clone(), self.changes.clone());
        tell(&self.claims, ObjectKind::PersistentVolumeClaim, events.clone(), stop.clone(), move || {
            changes.send_modify(|n| *n = n.wrapping_add(1));
        });
        tell(&self.volumes, ObjectKind::PersistentVolume, events.clone(), stop.clone(), move || {
            again.send_modify(|n| *n = n.wrapping_add(1));
        });
        tell(&self.classes, ObjectKind::StorageClass, events.clone(), stop.clone(), || {});
    }
}

/// Keeps a table current in a task of its own; the receiver turns true with the first complete copy.
fn follow(
    client: kube::Client,
    followed: Followed,
    events: UnboundedSender<Event>,
    changes: watch::Sender<u64>,
    stop: CancellationToken,
) -> watch::Receiver<bool> {
    let Followed { kind, path, keep, table } = followed;
    let tell = move |update: Update<Value>| {
        if kind == ObjectKind::ResourceClaim {
            changes.send_modify(|n| *n = n.wrapping_add(1));
        }
        let all = update.synced.then(ObjectKey::default);
        let each = update.changed.into_iter().filter(|_| all.is_none()).map(|changed| changed.key);
        for key in each.chain(all.clone()) {
            // Nobody listens when the scheduler has ended.
            let _ = events.send(Event::Object(kind, key));
        }
    };
    let reflector = Reflector::new(client, Selection::of(path));
    table.follow(reflector, move |object| Ok(Some(keep(object))), tell, stop)
}

fn get(table: &Table, namespace: &str, name: &str) -> Option<Arc<Value>> {
    table.get(&ObjectKey::new(namespace, name))
}

fn map(labels: &Value) -> Arc<BTreeMap<String, String>> {
    let nothing = Map::new();
    let labels = labels.as_object().unwrap_or(&nothing);
    Arc::new(labels.iter().filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect())
}

impl Cluster for Objects {
    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn claim(&self, namespace: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        self.claims.get(namespace, name)
    }

    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.volumes.get("", name)
    }

    fn volumes(&self) -> Vec<Arc<PersistentVolume>> {
        self.volumes.list()
    }

    fn storage_class(&self, name: &str) -> Option<Arc<StorageClass>> {
        self.classes.get("", name)
    }

    fn csi_node(&self, node: &str) -> Option<Arc<Value>> {
        get(&self.csi_nodes, "", node)
    }

    fn csi_driver(&self, name: &str) -> Option<Arc<Value>> {
        get(&self.csi_drivers, "", name)
    }

    fn csi_storage_capacities(&self) -> Vec<Arc<Value>> {
        self.capacities.list()
    }

    fn namespace_labels(&self, name: &str) -> Option<Arc<BTreeMap<String, String>>> {
        get(&self.namespaces, "", name).map(|labels| map(&labels))
    }

    fn namespaces(&self) -> Vec<(String, Arc<BTreeMap<String, String>>)> {
        self.namespaces.entries().into_iter().map(|(key, labels)| (key.name, map(&labels))).collect()
    }

    fn selectors(&self, namespace: &str) -> Vec<Arc<Value>> {
        self.selecting.iter().flat_map(|table| table.list_in(namespace)).collect()
    }

    fn disruption_budgets(&self) -> Vec<Arc<Value>> {
        self.budgets.list()
    }

    fn resource_claim(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        get(&self.resource_claims, namespace, name)
    }

    fn resource_claims(&self) -> Vec<Arc<Value>> {
        self.resource_claims.list()
    }

    fn resource_slices(&self) -> Vec<Arc<Value>> {
        self.resource_slices.list()
    }

    fn device_class(&self, name: &str) -> Option<Arc<Value>> {
        get(&self.device_classes, "", name)
    }

    fn device_classes(&self) -> Vec<Arc<Value>> {
        self.device_classes.list()
    }
}
