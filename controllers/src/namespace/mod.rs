//! Empties a namespace that is being deleted, and lets it go: the `kubernetes` finalizer in its spec.
//!
//! <https://kubernetes.io/docs/tasks/administer-cluster/namespaces/>, KEP-5080 (pods before everything else).

mod plan;

use crate::clients::Clients;
use crate::common::{code_of, message_of};
use crate::discovery::{self, Served};
use coracle_client::informer::deleting;
use coracle_client::{Action, Controller, Delta, Informer, ObjectKey, ReconcileError, Reconciler};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use plan::Findings;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "namespace-controller";
const FINALIZER: &str = "kubernetes";
/// How often a namespace is looked at whose content waits for finalizers; nothing tells of their end but looking.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

struct Namespaces {
    client: kube::Client,
    namespaces: Informer<Namespace>,
    pods: Informer<Pod>,
    /// When the content of a namespace was last told to go.
    told: Mutex<HashMap<String, Instant>>,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let namespaces = clients.informers.of::<Namespace>();
    let pods = clients.informers.of::<Pod>();
    let reconciler = Namespaces {
        client: clients.client(CONTROLLER),
        namespaces: namespaces.clone(),
        pods: pods.clone(),
        told: Mutex::default(),
    };
    let by_pod = {
        let namespaces = namespaces.clone();
        move |delta: &Delta<Pod>| emptied(delta, &namespaces)
    };
    Controller::new(reconciler).objects(&namespaces).watch(&pods, by_pod).workers(4).run(stop).await;
}

/// The namespace of a pod that went, if it is being deleted.
fn emptied(delta: &Delta<Pod>, namespaces: &Informer<Namespace>) -> Option<ObjectKey> {
    let pod = delta.old.as_ref().filter(|_| delta.new.is_none())?;
    let key = ObjectKey::new("", pod.metadata.namespace.as_deref()?);
    namespaces.get_key(&key).filter(|ns| deleting(ns.as_ref())).map(|_| key)
}

fn has_finalizer(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.as_ref().and_then(|s| s.finalizers.as_ref());
    finalizers.is_some_and(|all| all.iter().any(|f| f == FINALIZER))
}

/// Whether somebody else keeps the namespace when nothing is left in it: only then is there somebody to read that.
fn outlives(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.as_ref().and_then(|s| s.finalizers.as_ref());
    let other = finalizers.is_some_and(|all| all.iter().any(|f| f != FINALIZER));
    other || namespace.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty())
}

impl Reconciler for Namespaces {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let found = self.namespaces.get_key(key);
        let Some(namespace) = found.filter(|ns| deleting(ns.as_ref()) && has_finalizer(ns)) else {
            self.told.lock().remove(&key.name);
            return Ok(Action::AwaitChange);
        };
        if self.waits(&namespace) {
            return Ok(Action::RequeueAfter(LOOK_INTERVAL));
        }
        let findings = self.empty(&key.name).await;
        self.told.lock().insert(key.name.clone(), Instant::now());
        let api: Api<Namespace> = Api::all(self.client.clone());
        let live = self.report(&api, &key.name, &findings).await?;
        if findings.is_empty() {
            self.finalize(&api, live).await?;
            return Ok(Action::AwaitChange);
        }
        // Upstream looks again after half of the pods' grace period.
        let wait = u64::try_from(findings.grace_seconds / 2 + 1).unwrap_or(1);
        let pods_only = findings.grace_seconds > 0;
        Ok(Action::RequeueAfter(if pods_only { Duration::from_secs(wait) } else { LOOK_INTERVAL }))
    }
}

impl Namespaces {
    /// Whether pods that were told to go a moment ago are still there: one more that went changes nothing.
    fn waits(&self, namespace: &Namespace) -> bool {
        let name = namespace.name_any();
        let lately = self.told.lock().get(&name).is_some_and(|at| at.elapsed() < LOOK_INTERVAL);
        lately && self.pods.iter_in(&name).next().is_some()
    }

    /// Deletes all content: pods first, and everything else once they are gone.
    async fn empty(&self, namespace: &str) -> Findings {
        let mut findings = Findings::default();
        let served = match discovery::served(&self.client).await {
            Ok(served) => served,
            Err(error) => {
                let message = format!("Discovery failed for some groups, 1 failing: {}", message_of(&error));
                findings.discovery_failure = Some(message);
                return findings;
            }
        };
        let content = served.iter().filter(|s| s.namespaced && s.can_list() && s.can_delete());
        let (pods, others): (Vec<_>, Vec<_>) =
            content.partition(|s| s.resource.group.is_empty() && s.resource.plural == "pods");
        for batch in [pods, others] {
            for served in batch {
                if let Err(error) = self.empty_of(namespace, served, &mut findings).await {
                    findings.deletion_failures.push(message_of(&error));
                }
            }
            if !findings.is_empty() {
                break;
            }
        }
        findings
    }

    async fn empty_of(
        &self,
        namespace: &str,
        served: &Served,
        findings: &mut Findings,
    ) -> Result<(), kube::Error> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &served.resource);
        let everything = ListParams::default();
        // Nothing is created any more, so one look suffices where there is nothing: of most resources.
        if api.list_metadata(&ListParams::default().limit(1)).await?.items.is_empty() {
            return Ok(());
        }
        if served.can_delete_collection() {
            api.delete_collection(&DeleteParams::background(), &everything).await?;
        } else {
            for object in api.list_metadata(&everything).await? {
                match api.delete(&object.name_any(), &DeleteParams::background()).await {
                    Err(error) if code_of(&error) != 404 => return Err(error),
                    _ => {}
                }
            }
        }
        let left = api.list_metadata(&everything).await?.items;
        for object in &left {
            for finalizer in object.finalizers() {
                *findings.finalizers.entry(finalizer.clone()).or_default() += 1;
            }
            let grace = object.metadata.deletion_grace_period_seconds.unwrap_or(0);
            findings.grace_seconds = findings.grace_seconds.max(grace);
        }
        if !left.is_empty() {
            let name = format!("{}.{}", served.resource.plural, served.resource.group);
            findings.remaining.insert(name, left.len());
        }
        Ok(())
    }

    /// Writes the conditions, and returns the namespace as it is now.
    async fn report(
        &self,
        api: &Api<Namespace>,
        name: &str,
        findings: &Findings,
    ) -> Result<Namespace, kube::Error> {
        let mut live = api.get(name).await?;
        let old = live.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
        if old.is_empty() && findings.is_empty() && !outlives(&live) {
            return Ok(live);
        }
        let new = plan::conditions(&old, findings, Timestamp::now());
        if new == old {
            return Ok(live);
        }
        live.status.get_or_insert_default().conditions = Some(new);
        api.replace_status(name, &PostParams::default(), &live).await
    }

    async fn finalize(&self, api: &Api<Namespace>, mut live: Namespace) -> Result<(), kube::Error> {
        let name = live.name_any();
        if let Some(finalizers) = live.spec.as_mut().and_then(|s| s.finalizers.as_mut()) {
            finalizers.retain(|f| f != FINALIZER);
        }
        api.replace_subresource::<Namespace>("finalize", &name, &PostParams::default(), &live).await?;
        Ok(())
    }
}
