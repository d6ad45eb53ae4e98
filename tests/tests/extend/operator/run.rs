//! One replica of the operator: it leads while it holds the Lease, and reconciles while it leads.

use super::types::{Site, SiteStatus};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Error as FinalizerError, Event, finalizer};
use kube::runtime::{Controller, watcher};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

pub const FINALIZER: &str = "sites.coracle.dev/farewell";
/// What a dead leader costs. Seconds, so that it is not lost to a busy machine.
const LEASE_SECONDS: i32 = 3;
const RENEW: Duration = Duration::from_millis(500);

struct Context {
    client: Client,
    name: String,
}

/// Runs until it is aborted, whatever becomes of the server meanwhile.
pub async fn replica(client: Client, name: &'static str) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    let mut leading: Option<tokio::task::JoinHandle<()>> = None;
    // Aborted with this task.
    let mut guard = None;
    loop {
        match hold(&leases, name).await {
            Ok(true) if leading.is_none() => {
                let context = Arc::new(Context { client: client.clone(), name: name.to_owned() });
                let task = tokio::spawn(lead(context));
                guard = Some(AbortOnDrop(task.abort_handle()));
                leading = Some(task);
            }
            Ok(false) if leading.is_some() => {
                guard = None;
                leading = None;
            }
            // While the server is away nobody else can take the lease either.
            Ok(_) | Err(_) => {}
        }
        let _ = &guard;
        tokio::time::sleep(RENEW).await;
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Takes or renews the lease; whether it is ours now.
async fn hold(leases: &Api<Lease>, name: &str) -> Result<bool, kube::Error> {
    let now = Timestamp::now();
    let found = leases.get_opt("sites").await?;
    let old = found.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
    let ours = old.holder_identity.as_deref() == Some(name);
    let renewed = old.renew_time.as_ref().map(|time| time.0);
    let expired = renewed.is_none_or(|at| now.duration_since(at).as_secs() >= i64::from(LEASE_SECONDS));
    if !ours && !expired {
        return Ok(false);
    }
    let spec = LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: Some(LEASE_SECONDS),
        renew_time: Some(MicroTime(now)),
        ..old
    };
    let written = match found {
        Some(lease) => {
            leases.replace("sites", &PostParams::default(), &Lease { spec: Some(spec), ..lease }).await
        }
        None => {
            let metadata = ObjectMeta { name: Some("sites".to_owned()), ..ObjectMeta::default() };
            leases.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await
        }
    };
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

async fn lead(context: Arc<Context>) {
    let sites: Api<Site> = Api::all(context.client.clone());
    let owned = watcher::Config::default().labels("app.kubernetes.io/managed-by=sites");
    Controller::new(sites, watcher::Config::default())
        .owns(Api::<Deployment>::all(context.client.clone()), owned.clone())
        .owns(Api::<ConfigMap>::all(context.client.clone()), owned)
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(500)), context)
        .for_each(|_| async {})
        .await;
}

async fn reconcile(site: Arc<Site>, context: Arc<Context>) -> Result<Action, FinalizerError<kube::Error>> {
    let sites: Api<Site> = Api::namespaced(context.client.clone(), &site.namespace().unwrap_or_default());
    finalizer(&sites, FINALIZER, site, |event| async {
        match event {
            Event::Apply(site) => apply(&site, &context).await,
            Event::Cleanup(site) => farewell(&site, &context).await,
        }
    })
    .await
}

async fn apply(site: &Site, context: &Context) -> Result<Action, kube::Error> {
    let (name, namespace) = (site.name_any(), site.namespace().unwrap_or_default());
    let owner = site.controller_owner_ref(&()).expect("a stored object has a uid");
    let metadata = json!({"name": name, "labels": {"app.kubernetes.io/managed-by": "sites"}, "ownerReferences": [owner]});
    let manager = PatchParams::apply("sites").force();
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"host": site.spec.host}});
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace);
    maps.patch(&name, &manager, &Patch::Apply(settings)).await?;
    let labels = json!({"site": name});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}});
    let servers = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {"replicas": site.spec.replicas, "selector": {"matchLabels": labels}, "template": template},
    });
    let deployments: Api<Deployment> = Api::namespaced(context.client.clone(), &namespace);
    let servers = deployments.patch(&name, &manager, &Patch::Apply(servers)).await?;
    let ready = servers.status.and_then(|status| status.ready_replicas).unwrap_or_default();
    let status = SiteStatus {
        phase: if ready == site.spec.replicas { "Ready" } else { "Progressing" }.to_owned(),
        ready,
        observed_generation: site.meta().generation.unwrap_or_default(),
        leader: context.name.clone(),
    };
    let sites: Api<Site> = Api::namespaced(context.client.clone(), &namespace);
    sites.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
    Ok(Action::await_change())
}

/// What the finalizer is for: something that outlives the site.
async fn farewell(site: &Site, context: &Context) -> Result<Action, kube::Error> {
    let name = format!("farewell-{}", site.name_any());
    let note = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"host": site.spec.host}});
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &site.namespace().unwrap_or_default());
    maps.patch(&name, &PatchParams::apply("sites").force(), &Patch::Apply(note)).await?;
    Ok(Action::await_change())
}
