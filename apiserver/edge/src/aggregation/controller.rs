//! Keeps APIServices as they should be: their conditions, those of custom groups, and the documents of other servers.

use super::Aggregator;
use super::automanaged::{self, Action};
use super::condition::Condition;
use super::resolve::SLICES;
use super::table::{API_SERVICES, Remote};
use super::transport::Settings;
use super::trust;
use super::{ask, openapi};
use axum::Router;
use axum::body::Body;
use coracle_api::well_known;
use coracle_api::{Object, UserInfo};
use coracle_requests::ObjectReader;
use coracle_resources::cache::{Cache, Filter, Watcher};
use coracle_resources::catalogue::Catalogue;
use coracle_strategy::apiextensions::DEFINITIONS;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use jiff::Timestamp;
use rand::Rng;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;

const CONFIG_MAPS: &str = "configmaps.";

/// Changes come in groups: a chart installs ten definitions, a Service gets its slices one by one.
const GATHER_DEBOUNCE: Duration = Duration::from_millis(50);
/// Rounds of writes in a row after which something else must be undoing them.
const MOST_ROUNDS: u32 = 20;
/// After a failed write.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// How often a server that answers is asked whether it still does, and whether it says something new. Upstream: its
/// availability every 30 s, its discovery every 60 s.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// How soon one that does not answer is asked again; doubled from the first to the last.
const RETRY_BOUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

pub struct ApiServiceController {
    pub aggregator: Arc<Aggregator>,
    pub cache: Arc<Cache>,
    pub catalogue: Arc<Catalogue>,
    /// The server's own, for writes as one of its clients.
    pub service: Router,
}

/// Longer or shorter by up to a tenth, so that servers are not asked in step.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::rng().random_range(0.9..1.1))
}

fn watch(cache: &Cache, resource: &str, namespace: &str, name: &str) -> Watcher {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let filter = Filter { namespace: some(namespace), name: some(name), ..Filter::default() };
    cache.watch(resource, filter).1
}

async fn changed(authorities: Option<&mut tokio::sync::watch::Receiver<String>>) {
    let told = match authorities {
        Some(authorities) => authorities.changed().await.is_ok(),
        None => false,
    };
    if !told {
        std::future::pending().await
    }
}

impl ApiServiceController {
    /// Runs until `stop`. Each server of somebody else's has a task of its own: one that hangs holds up nothing.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut attended: HashMap<String, DropGuard> = HashMap::new();
        let mut rounds = 0;
        while !stop.is_cancelled() {
            let mut services = watch(&self.cache, API_SERVICES, "", "");
            let mut definitions = watch(&self.cache, DEFINITIONS, "", "");
            let mut trusted = watch(&self.cache, CONFIG_MAPS, trust::NAMESPACE, trust::NAME);
            let mut authorities = self.aggregator.identity.as_ref().map(|identity| identity.changes());
            self.attend(&mut attended, &stop);
            let settled = self.settle().await.inspect_err(|error| tracing::warn!(error, "APIServices"));
            rounds = if settled == Ok(0) { 0 } else { rounds + 1 };
            if settled.is_err() || rounds > MOST_ROUNDS {
                // The store refuses, or something else undoes what is written.
                rounds = 0;
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(RETRY_INTERVAL) => continue,
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                _ = services.next() => {}
                _ = definitions.next() => {}
                _ = trusted.next() => {}
                () = changed(authorities.as_mut()) => {}
            }
            tokio::time::sleep(GATHER_DEBOUNCE).await;
        }
    }

    /// One task for each server there is, none for those that have gone.
    fn attend(self: &Arc<Self>, attended: &mut HashMap<String, DropGuard>, stop: &CancellationToken) {
        let table = self.aggregator.table();
        let is_there = |name: &str| table.remotes().any(|remote| remote.name == name);
        attended.retain(|name, _| is_there(name));
        self.aggregator.library.retain(is_there);
        for remote in table.remotes() {
            attended.entry(remote.name.clone()).or_insert_with(|| {
                let end = stop.child_token();
                let work = self.clone().look_after(remote.group.clone(), remote.version.clone());
                tokio::spawn(end.clone().run_until_cancelled_owned(work));
                end.drop_guard()
            });
        }
    }

    /// The APIServices of custom groups, the conditions of local ones, and whom to trust. Returns how much it wrote.
    async fn settle(&self) -> Result<usize, String> {
        let snapshot = self.catalogue.snapshot();
        let of =
            |resource: &coracle_api::Resource| (resource.group.to_string(), resource.version.to_string());
        let custom = snapshot.resources().map(|custom| of(&custom.resource)).collect();
        let present = self.cache.list(API_SERVICES, "");
        let actions = automanaged::plan(&custom, &present, Timestamp::now());
        for action in &actions {
            self.execute(action).await?;
        }
        let Some(identity) = &self.aggregator.identity else { return Ok(actions.len()) };
        let present = self.cache.get(CONFIG_MAPS, trust::NAMESPACE, trust::NAME);
        let Some(mended) = trust::mended(present.as_deref(), identity) else { return Ok(actions.len()) };
        let path = format!("/api/v1/namespaces/{}/configmaps", trust::NAMESPACE);
        match present {
            None => self.send(Method::POST, &path, Some(&mended)).await?,
            Some(_) => self.send(Method::PUT, &format!("{path}/{}", trust::NAME), Some(&mended)).await?,
        }
        Ok(actions.len() + 1)
    }

    /// Follows one server until its task is ended.
    async fn look_after(self: Arc<Self>, group: String, version: String) {
        let (mut pause, mut known) = (RETRY_BOUNDS.0, Known::default());
        loop {
            let remote = self.aggregator.table().find(&group, &version).cloned();
            let object = remote.as_ref().and_then(|remote| self.cache.get(API_SERVICES, "", &remote.name));
            let (Some(remote), Some(settings)) = (remote, object.as_deref().and_then(Settings::of)) else {
                // It has gone, and so will this task, unless it comes back at once.
                tokio::time::sleep(RETRY_BOUNDS.0).await;
                continue;
            };
            let mut watchers = self.watchers(&remote, &settings);
            let condition = self.examine(&remote, &settings).await;
            let asked_in_vain = condition.reason == "FailedDiscoveryCheck";
            let wait = if asked_in_vain { jittered(pause) } else { jittered(CHECK_INTERVAL) };
            pause = if asked_in_vain { (pause * 2).min(RETRY_BOUNDS.1) } else { RETRY_BOUNDS.0 };
            self.publish(&remote.name, &condition).await;
            if condition.status == "True" {
                self.read_openapi(&remote, &mut known).await;
            }
            if let Ok(transport) = &remote.transport {
                transport.prune();
            }
            tokio::select! {
                () = news(&mut watchers, &settings) => tokio::time::sleep(GATHER_DEBOUNCE).await,
                () = doubt(&remote) => tokio::time::sleep(RETRY_BOUNDS.0).await,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Subscribed before anything is read, so that nothing is missed.
    fn watchers(&self, remote: &Remote, settings: &Settings) -> [Watcher; 3] {
        let service = &settings.service;
        let name = service.name.clone();
        let filter = Filter {
            namespace: Some(service.namespace.clone()),
            selects: Some(Box::new(move |slice| slice.label(well_known::SERVICE_NAME) == Some(&name))),
            ..Filter::default()
        };
        [
            watch(&self.cache, API_SERVICES, "", &remote.name),
            watch(&self.cache, "services.", &service.namespace, &service.name),
            self.cache.watch(SLICES, filter).1,
        ]
    }

    async fn examine(&self, remote: &Remote, settings: &Settings) -> Condition {
        let library = &self.aggregator.library;
        let unreachable = || library.unreachable(&remote.name, &remote.group, &remote.version);
        if let Some(condition) = Condition::before_asking(&*self.cache, &settings.service) {
            unreachable();
            return condition;
        }
        let list = match ask::get(remote, &*self.cache, &remote.path(), "").await {
            Ok(list) => list,
            Err(error) => {
                unreachable();
                return Condition::failed("FailedDiscoveryCheck", error);
            }
        };
        // A server that answers, whatever it says, is available; upstream does not look at the answer here either.
        let discovered = match list.json().await {
            Ok(list) => library.discovered(&remote.name, &remote.group, &remote.version, &list),
            Err(error) => Err(error),
        };
        if let Err(error) = discovered {
            tracing::warn!(api_service = remote.name, error, "discovery of an aggregated server");
            unreachable();
        }
        Condition::passed()
    }

    async fn publish(&self, name: &str, condition: &Condition) {
        self.aggregator.count(name, condition);
        let Some(object) = self.cache.get(API_SERVICES, "", name) else { return };
        if condition.stands_in(&object) {
            return;
        }
        tracing::info!(
            api_service = name,
            available = condition.status,
            reason = condition.reason,
            "availability changed"
        );
        let action = Action::Status(condition.written_into(&object, Timestamp::now()));
        if let Err(error) = self.execute(&action).await {
            tracing::warn!(error, "condition of an APIService");
        }
    }

    /// The index of v3 says by its hashes whether anything is new; servers without it are asked for v2 with its tag.
    async fn read_openapi(&self, remote: &Remote, known: &mut Known) {
        let key = openapi::key(&remote.group, &remote.version);
        let index = match ask::get(remote, &*self.cache, "/openapi/v3", "").await {
            Ok(index) => index.json().await.ok(),
            Err(_) => None,
        };
        let v3 = index.and_then(|index| openapi::address(&index, &key));
        if v3.is_some() && v3 == known.v3 {
            return;
        }
        known.v3.clone_from(&v3);
        let v2 = match ask::get(remote, &*self.cache, "/openapi/v2", &known.v2_etag).await {
            Ok(document) if !document.unchanged => {
                known.v2_etag.clone_from(&document.etag);
                let document = document.json().await.ok();
                let own = document.and_then(|d| openapi::reduced(&d, &remote.group, &remote.version));
                own.map(|own| own.to_string().into())
            }
            _ => None,
        };
        self.aggregator.library.openapi(&remote.name, v3, v2);
    }

    async fn execute(&self, action: &Action) -> Result<(), String> {
        const PATH: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
        let name = |object: &Object| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let (method, path, body) = match action {
            Action::Create(object) => (Method::POST, PATH.to_owned(), Some(object)),
            Action::Replace(object) => (Method::PUT, format!("{PATH}/{}", name(object)), Some(object)),
            Action::Status(object) => (Method::PUT, format!("{PATH}/{}/status", name(object)), Some(object)),
            Action::Delete(name) => (Method::DELETE, format!("{PATH}/{name}"), None),
        };
        self.send(method, &path, body).await
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Object>) -> Result<(), String> {
        let body = body.map_or_else(Body::empty, |object| Body::from(object.to_string()));
        let request = Request::builder().method(&method).uri(path).header("content-type", "application/json");
        let mut request =
            request.header("user-agent", "kube-aggregator").body(body).map_err(|e| e.to_string())?;
        let myself = UserInfo::authenticated("system:apiserver", &[coracle_access::authz::MASTERS]);
        request.extensions_mut().insert(myself);
        let Ok(response) = self.service.clone().oneshot(request).await;
        let status = response.status();
        // Somebody else was quicker: the event of that leads back here.
        if status.is_success() || matches!(status, StatusCode::CONFLICT | StatusCode::NOT_FOUND) {
            return Ok(());
        }
        let text = response.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes();
        Err(format!("{method} {path}: {status}: {}", String::from_utf8_lossy(&text)))
    }
}

/// Returns when a client's request could not reach the server.
async fn doubt(remote: &Remote) {
    match &remote.transport {
        Ok(transport) => transport.doubt.notified().await,
        Err(_) => std::future::pending().await,
    }
}

/// What was read already.
#[derive(Default)]
struct Known {
    v3: Option<String>,
    v2_etag: String,
}

/// Returns when the Service, its endpoints or what the APIService asks for has changed; conditions alone are no news.
async fn news(watchers: &mut [Watcher; 3], settings: &Settings) {
    let [own, service, slices] = watchers;
    loop {
        let item = tokio::select! {
            item = own.next() => item,
            _ = service.next() => return,
            _ = slices.next() => return,
        };
        let Some((_, event)) = item else { return };
        let now = event.current.as_ref().and_then(|object| Settings::of(&object.decode()));
        if now.as_ref() != Some(settings) {
            return;
        }
    }
}
