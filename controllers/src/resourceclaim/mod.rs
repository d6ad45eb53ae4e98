//! Makes the ResourceClaims that pods want by template, gives devices back when nobody uses them any more, deletes the
//! claims of pods that ended, and ends pods whose devices are tainted.
//!
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>

mod claims;
mod eviction;
mod plan;

use crate::clients::Clients;
use crate::common::{code_of, message_of};
use crate::metrics::{Metric, Metrics};
use claims::{Claim, Claims, PATH};
use coracle_client::informer::{Delta, uid_of};
use coracle_client::{
    Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler, Recorder, WorkQueue,
};
use eviction::{Eviction, Tainted};
use http::{Method, Request};
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use plan::{FINALIZER, MOST_CONSUMERS, Named};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "resource-claim-controller";
const EVICTION: &str = "device-taint-eviction-controller";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Pod(ObjectKey),
    Claim(ObjectKey),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(key) => write!(f, "pod {key}"),
            Self::Claim(key) => write!(f, "resourceclaim {key}"),
        }
    }
}

/// Names of the pods that use a claim, by claim.
type Users = Arc<Mutex<HashMap<ObjectKey, BTreeSet<String>>>>;

struct ResourceClaims {
    client: kube::Client,
    /// May list templates, which the controller's own account may not.
    lists: kube::Client,
    pods: Informer<Pod>,
    claims: Claims,
    recorder: Recorder,
    metrics: Arc<Metrics>,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.client(CONTROLLER);
    let (pods, claims, users) =
        (clients.informers.of::<Pod>(), Claims::counted(clients.metrics.clone()), Users::default());
    let queue: WorkQueue<Key> = WorkQueue::new();
    let reconciler = ResourceClaims {
        recorder: Recorder::new(client.clone(), CONTROLLER, ""),
        client,
        lists: clients.own(),
        pods: pods.clone(),
        claims: claims.clone(),
        metrics: clients.metrics.clone(),
    };
    let (woken, using, tainted) = (queue.clone(), users.clone(), WorkQueue::<ObjectKey>::new());
    let to_check = tainted.clone();
    let mut synced = claims.follow(clients.own(), stop.clone(), move |claim| {
        let of = |name: &str| Key::Pod(ObjectKey::new(&claim.key.namespace, name));
        claim.owner.iter().for_each(|(name, _)| woken.add(of(name)));
        let using = using.lock();
        using.get(&claim.key).into_iter().flatten().for_each(|name| woken.add(of(name)));
        woken.add(Key::Claim(claim.key.clone()));
        if !claim.held.is_empty() {
            to_check.add(claim.key.clone());
        }
    });
    let controller =
        Controller::with_queue(reconciler, queue).watch(&pods, move |delta| woken_by(delta, &users));
    let evictor = evictor(&clients, claims, &tainted, &stop);
    let evictor = Controller::with_queue(evictor, tainted).reads(&pods);
    // The lock behind the value must not outlive the wait.
    let first = async { synced.wait_for(|done| *done).await.is_ok() };
    if stop.run_until_cancelled(first).await == Some(true) {
        tokio::join!(controller.run(stop.clone()), evictor.run(stop));
    }
}

/// Looks at all claims that hold devices whenever taints of devices change.
fn evictor(
    clients: &Clients,
    claims: Claims,
    queue: &WorkQueue<ObjectKey>,
    stop: &CancellationToken,
) -> Eviction {
    let (client, tainted) = (clients.client(EVICTION), Tainted::default());
    let (woken, holding) = (queue.clone(), claims.clone());
    tainted.follow(client.clone(), stop.clone(), move || {
        holding.holding().into_iter().for_each(|key| woken.add(key));
    });
    let recorder = Recorder::new(client.clone(), EVICTION, "");
    let metrics = clients.metrics.clone();
    Eviction { client, pods: clients.informers.of::<Pod>(), claims, tainted, recorder, metrics }
}

/// The keys that a pod's change concerns; keeps `users` current.
fn woken_by(delta: &Delta<Pod>, users: &Users) -> Vec<Key> {
    let Some(pod) = delta.object() else { return Vec::new() };
    let mut names = delta.old.as_deref().map(plan::names).unwrap_or_default();
    let before = names.clone();
    let now = delta.new.as_deref().map(plan::names).unwrap_or_default();
    if names.is_empty() && now.is_empty() && plan::entries(pod).is_empty() {
        return Vec::new();
    }
    let key = ObjectKey::of(pod.as_ref());
    let claim = |name: &String| ObjectKey::new(&key.namespace, name);
    let mut users = users.lock();
    for name in before.iter().filter(|name| !now.contains(name)) {
        if let Some(pods) = users.get_mut(&claim(name)) {
            pods.remove(&key.name);
            if pods.is_empty() {
                users.remove(&claim(name));
            }
        }
    }
    for name in &now {
        users.entry(claim(name)).or_default().insert(key.name.clone());
    }
    names.extend(now);
    if delta.new.as_deref().is_none_or(plan::is_done) {
        names.sort_unstable();
        names.dedup();
        return names.iter().map(|name| Key::Claim(claim(name))).collect();
    }
    vec![Key::Pod(key)]
}

impl Reconciler for ResourceClaims {
    type Key = Key;

    fn name(&self) -> &'static str {
        "resource_claim"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, ReconcileError> {
        match key {
            Key::Pod(key) => self.pod(key).await?,
            Key::Claim(key) => {
                if let Some(claim) = self.claims.get(&key.namespace, &key.name) {
                    self.claim(&claim).await?;
                }
            }
        }
        Ok(Action::AwaitChange)
    }
}

fn path(key: &ObjectKey) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}", key.namespace, key.name)
}

impl ResourceClaims {
    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Value, kube::Error> {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let request = request.body(body.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }

    /// Changes a claim that is still as `claim` shows it.
    async fn patch(&self, claim: &Claim, at: &str, mut body: Value) -> Result<Claim, ReconcileError> {
        body["metadata"]["resourceVersion"] = json!(claim.version);
        body["metadata"]["uid"] = json!(claim.uid);
        let written = self.send(Method::PATCH, &format!("{}{at}", path(&claim.key)), &body).await?;
        self.claims.wrote(&written);
        Claim::of(&written).map_err(ReconcileError::Other)
    }

    async fn pod(&self, key: &ObjectKey) -> Result<(), ReconcileError> {
        let Some(pod) = self.pods.get_key(key) else { return Ok(()) };
        if pod.metadata.deletion_timestamp.is_some() || plan::is_done(&pod) {
            return Ok(());
        }
        let mut made = Vec::new();
        for entry in plan::entries(&pod) {
            match self.ensure(&pod, entry).await {
                Ok(Some(name)) => made.push(json!({ "name": entry.name, "resourceClaimName": name })),
                Ok(None) => {}
                Err(why) => {
                    let text = format!("PodResourceClaim {}: {why}", entry.name);
                    self.recorder.warning(pod.as_ref(), "FailedResourceClaimCreation", text.clone());
                    return Err(ReconcileError::Other(text));
                }
            }
        }
        if !made.is_empty() {
            let body = json!({ "metadata": { "uid": uid_of(pod.as_ref()) },
                "status": { "resourceClaimStatuses": made } });
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
            let parameters = kube::api::PatchParams::default();
            api.patch_status(&key.name, &parameters, &kube::api::Patch::Strategic(body)).await?;
        }
        if pod.spec.as_ref().is_some_and(|s| s.node_name.is_some()) {
            self.reserve(&pod).await?;
        }
        Ok(())
    }

    /// The claim that was made for an entry, when the pod's status does not name it yet.
    async fn ensure(&self, pod: &Pod, entry: &PodResourceClaim) -> Result<Option<String>, String> {
        let namespace = pod.namespace().unwrap_or_default();
        match plan::name_of(pod, entry) {
            Named::NotNeeded => return Ok(None),
            Named::Is(name, own) => {
                if let Some(claim) = self.claims.get(&namespace, name) {
                    let ours = claim.owner.as_ref().is_some_and(|(_, uid)| *uid == uid_of(pod));
                    if own && !ours {
                        return Err(format!(
                            "ResourceClaim {namespace}/{name} was not created for pod {namespace}/{} (pod is not owner)",
                            pod.name_any()
                        ));
                    }
                    return Ok(None);
                }
            }
            Named::Nothing => {}
        }
        let Some(template) = &entry.resource_claim_template_name else { return Ok(None) };
        if let Some(claim) = self.claims.made_for(&namespace, &uid_of(pod), &entry.name) {
            return Ok(Some(claim.key.name.clone()));
        }
        let template = self.template(&namespace, template).await?;
        let claim = plan::claim_of(&template, pod, &entry.name);
        let collection = PATH.replace("v1/", &format!("v1/namespaces/{namespace}/"));
        let made = self.send(Method::POST, &collection, &claim).await;
        let status = if made.is_ok() { "success" } else { "failure" };
        let admin = if claims::asks_for_admin(&claim) { "true" } else { "false" };
        self.metrics.add(Metric::ClaimCreates, &[status, admin], 1);
        let made = made.map_err(|error| format!("create ResourceClaim: {}", message_of(&error)))?;
        self.claims.wrote(&made);
        Ok(made["metadata"]["name"].as_str().map(str::to_owned))
    }

    async fn template(&self, namespace: &str, name: &str) -> Result<Value, String> {
        let path = format!(
            "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates?fieldSelector=metadata.name%3D{name}"
        );
        let told = |why: String| format!("resource claim template {name:?}: {why}");
        let request = Request::get(path).body(Vec::new()).map_err(|e| told(e.to_string()))?;
        let list: Result<Value, kube::Error> = self.lists.request(request).await;
        let mut list = list.map_err(|error| told(message_of(&error)))?;
        let found = list["items"].as_array_mut().and_then(Vec::pop);
        found.ok_or_else(|| told(format!("resourceclaimtemplate.resource.k8s.io {name:?} not found")))
    }

    /// A pod that got its node without the scheduler uses its claims all the same, if they are allocated.
    async fn reserve(&self, pod: &Pod) -> Result<(), ReconcileError> {
        let namespace = pod.namespace().unwrap_or_default();
        for name in plan::names(pod) {
            let Some(claim) = self.claims.get(&namespace, &name) else { continue };
            let uses = claim.consumers.iter().any(|c| c.uid == uid_of(pod));
            if !claim.allocated || uses || claim.consumers.len() >= MOST_CONSUMERS {
                continue;
            }
            let mut consumers = listed(&claim, &(0..claim.consumers.len()).collect::<Vec<_>>());
            consumers.push(json!({ "resource": "pods", "name": pod.name_any(), "uid": uid_of(pod) }));
            self.patch(&claim, "/status", json!({ "status": { "reservedFor": consumers } })).await?;
        }
        Ok(())
    }

    async fn claim(&self, claim: &Claim) -> Result<(), ReconcileError> {
        let mut left = Vec::new();
        for (i, consumer) in claim.consumers.iter().enumerate() {
            if !consumer.is_pod() {
                let name = format!("{}.{}", consumer.resource, consumer.api_group);
                return Err(ReconcileError::Other(format!("unsupported ReservedFor entry: {name}")));
            }
            if !self.is_done(&claim.key.namespace, &consumer.name, &consumer.uid).await? {
                left.push(i);
            }
        }
        let owner_done = match &claim.owner {
            // A pod that is gone takes its claims along by itself.
            Some((name, uid)) => {
                let pod = self.pods.get(&claim.key.namespace, name);
                pod.is_some_and(|pod| uid_of(pod.as_ref()) == *uid && plan::is_done(&pod))
            }
            None => false,
        };
        let plan = plan::plan(claim, left, owner_done);
        let mut current = claim.clone();
        if let Some(left) = &plan.status {
            let mut status = json!({ "reservedFor": listed(claim, left) });
            if plan.deallocate {
                status["allocation"] = Value::Null;
                status["devices"] = Value::Null;
            }
            current = self.patch(&current, "/status", json!({ "status": status })).await?;
        }
        if plan.unprotect {
            let kept: Vec<&String> = current.finalizers.iter().filter(|f| *f != FINALIZER).collect();
            current = self.patch(&current, "", json!({ "metadata": { "finalizers": kept } })).await?;
        }
        if plan.delete {
            let body = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": { "uid": current.uid } });
            match self.send(Method::DELETE, &path(&current.key), &body).await {
                Err(error) if code_of(&error) != 404 => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a pod uses nothing any more. One that is not known here is asked for: its consumer may be news.
    async fn is_done(&self, namespace: &str, name: &str, uid: &str) -> Result<bool, ReconcileError> {
        if let Some(pod) = self.pods.get(namespace, name).filter(|pod| uid_of(pod.as_ref()) == uid) {
            return Ok(plan::is_done(&pod));
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pod = api.get_opt(name).await?.filter(|pod| uid_of(pod) == uid);
        Ok(pod.as_ref().is_none_or(plan::is_done))
    }
}

/// Consumers in the API's form.
fn listed(claim: &Claim, which: &[usize]) -> Vec<Value> {
    let form = |i: &usize| {
        let consumer = &claim.consumers[*i];
        let mut value = json!({ "resource": consumer.resource, "name": consumer.name, "uid": consumer.uid });
        if !consumer.api_group.is_empty() {
            value["apiGroup"] = json!(consumer.api_group);
        }
        value
    };
    which.iter().map(form).collect()
}
