//! kube-rs, as operators written in Rust use it.

use coracle_tests::Cluster;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use kube::{Client, Config, ResourceExt, discovery};
use serde_json::json;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Longest wait for one thing.
const PATIENCE: Duration = Duration::from_secs(100);

async fn client(cluster: &Cluster) -> Client {
    // The second installation is refused, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = Kubeconfig::read_from(cluster.kubeconfig()).expect("the kubeconfig");
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

fn config_map(name: &str, data: &str) -> ConfigMap {
    let made = json!({"metadata": {"name": name, "labels": {"made": "here"}}, "data": {"a": data}});
    serde_json::from_value(made).expect("a ConfigMap")
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

fn run<F: Future<Output = ()>>(check: impl FnOnce(Client) -> F) {
    let cluster = Cluster::simulated();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async { check(client(&cluster).await).await });
    cluster.assert_alive();
}

#[test]
fn typed_dynamic_and_metadata_apis() {
    run(|client| async move {
        typed(&client).await;
        dynamic(&client).await;
        metadata(&client).await;
        server_side_apply(&client).await;
    });
}

async fn typed(client: &Client) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let made = maps.create(&PostParams::default(), &config_map("typed", "1")).await.expect("create");
    assert!(made.uid().is_some());
    let again = maps.create(&PostParams::default(), &config_map("typed", "1")).await;
    assert!(
        matches!(&again, Err(kube::Error::Api(s)) if s.code == 409 && s.reason == "AlreadyExists"),
        "{again:?}"
    );
    let mut changed = made.clone();
    changed.data.get_or_insert_default().insert("b".to_owned(), "2".to_owned());
    let replaced = maps.replace("typed", &PostParams::default(), &changed).await.expect("replace");
    assert_eq!(replaced.data.map(|d| d.len()), Some(2));
    let stale = maps.replace("typed", &PostParams::default(), &changed).await;
    assert!(matches!(&stale, Err(kube::Error::Api(s)) if s.reason == "Conflict"), "{stale:?}");
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch = json!({"data": {"c": "3"}});
    let tried = maps.patch("typed", &dry, &Patch::Merge(&patch)).await.expect("dry run");
    assert!(tried.data.is_some_and(|d| d.contains_key("c")));
    let page = maps.list(&ListParams::default().labels("made=here").limit(1)).await.expect("list");
    assert_eq!(page.items.len(), 1);
    assert!(!page.items[0].data.as_ref().is_some_and(|d| d.contains_key("c")));
    maps.delete("typed", &DeleteParams::default()).await.expect("delete");
    assert!(maps.get_opt("typed").await.expect("get").is_none());
}

async fn dynamic(client: &Client) {
    let kind = GroupVersionKind::gvk("apps", "v1", "Deployment");
    let (resource, capabilities) =
        discovery::pinned_kind(client, &kind).await.expect("discovery of one kind");
    assert!(capabilities.supports_operation(discovery::verbs::WATCH));
    assert!(
        capabilities.subresources.iter().any(|(r, _)| r.plural == "deployments/scale" || r.plural == "scale")
    );
    let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    let spec = json!({
        "replicas": 1,
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}},
    });
    let object = DynamicObject::new("d", &resource).data(json!({"spec": spec}));
    api.create(&PostParams::default(), &object).await.expect("create");
    let typed: Api<Deployment> = Api::default_namespaced(client.clone());
    let scale = typed.get_scale("d").await.expect("scale");
    assert_eq!(scale.spec.and_then(|s| s.replicas), Some(1));
    let patch = Patch::Merge(json!({"spec": {"replicas": 2}}));
    let scaled = typed.patch_scale("d", &PatchParams::default(), &patch).await.expect("scaling");
    assert_eq!(scaled.spec.and_then(|s| s.replicas), Some(2));
    let status = typed.get_status("d").await.expect("status");
    assert_eq!(status.name_any(), "d");
    typed.delete("d", &DeleteParams::foreground()).await.expect("delete");
    let all = discovery::Discovery::new(client.clone()).run().await.expect("discovery");
    for group in ["", "apps", "batch", "resource.k8s.io", "flowcontrol.apiserver.k8s.io"] {
        assert!(all.has_group(group), "{group}");
    }
    let aggregated = discovery::Discovery::new(client.clone()).run_aggregated().await.expect("discovery");
    assert!(aggregated.has_group("certificates.k8s.io"));
}

/// PartialObjectMetadata and its lists and patches.
async fn metadata(client: &Client) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &config_map("meta", "1")).await.expect("create");
    let found = maps.get_metadata("meta").await.expect("metadata");
    assert_eq!(found.types.map(|t| t.kind).as_deref(), Some("PartialObjectMetadata"));
    let list =
        maps.list_metadata(&ListParams::default().labels("made=here")).await.expect("a list of metadata");
    assert_eq!(list.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["meta"]);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"x": "y"}}}));
    let patched = maps.patch_metadata("meta", &PatchParams::default(), &patch).await.expect("patch");
    assert_eq!(patched.annotations().get("x").map(String::as_str), Some("y"));
    let params = WatchParams::default().labels("made=here");
    let mut events = maps.watch_metadata(&params, "0").await.expect("a watch of metadata").boxed();
    let first = soon("the first event", events.try_next()).await.expect("an event");
    assert!(matches!(first, Some(WatchEvent::Added(m)) if m.name_any() == "meta"));
    maps.delete_collection(&DeleteParams::default(), &ListParams::default().labels("made=here"))
        .await
        .expect("delete");
}

async fn server_side_apply(client: &Client) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let body = |data: serde_json::Value| {
        Patch::Apply(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ssa"}, "data": data}),
        )
    };
    let one = PatchParams::apply("one");
    let made = maps.patch("ssa", &one, &body(json!({"a": "1", "b": "1"}))).await.expect("apply");
    assert_eq!(made.managed_fields().len(), 1);
    let two = PatchParams::apply("two");
    let refused = maps.patch("ssa", &two, &body(json!({"a": "2"}))).await;
    assert!(
        matches!(&refused, Err(kube::Error::Api(s)) if s.code == 409 && s.message.contains("conflict with \"one\": .data.a")),
        "{refused:?}"
    );
    maps.patch("ssa", &two.clone().force(), &body(json!({"a": "2"}))).await.expect("by force");
    let left = maps.patch("ssa", &one, &body(json!({}))).await.expect("apply");
    assert_eq!(
        left.data.map(|d| d.into_iter().collect::<Vec<_>>()),
        Some(vec![("a".to_owned(), "2".to_owned())])
    );
}

#[test]
fn watchers_reflectors_and_controllers() {
    run(|client| async move {
        watchers(&client).await;
        reflectors(&client).await;
        controllers(&client).await;
    });
}

/// By list and watch, and by a streaming list (sendInitialEvents).
async fn watchers(client: &Client) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    for (name, config) in
        [("listed", watcher::Config::default()), ("streamed", watcher::Config::default().streaming_lists())]
    {
        maps.create(&PostParams::default(), &config_map(name, "0")).await.expect("create");
        let config = config.fields(&format!("metadata.name={name}"));
        let mut events = watcher(maps.clone(), config).boxed();
        let mut seen = Vec::new();
        while seen.last() != Some(&"deleted") {
            match soon("an event", events.try_next()).await.expect("no error").expect("no end") {
                watcher::Event::Init => seen.push("init"),
                watcher::Event::InitApply(_) => seen.push("found"),
                watcher::Event::InitDone => {
                    seen.push("done");
                    let patch = Patch::Merge(json!({"data": {"a": "1"}}));
                    maps.patch(name, &PatchParams::default(), &patch).await.expect("patch");
                }
                watcher::Event::Apply(_) => {
                    seen.push("changed");
                    maps.delete(name, &DeleteParams::default()).await.expect("delete");
                }
                watcher::Event::Delete(_) => seen.push("deleted"),
            }
        }
        assert_eq!(seen, ["init", "found", "done", "changed", "deleted"], "{name}");
    }
}

async fn reflectors(client: &Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let (reader, writer) = reflector::store();
    let stream = watcher(nodes, watcher::Config::default().streaming_lists());
    let mirror =
        tokio::spawn(stream.default_backoff().reflect(writer).applied_objects().for_each(|_| async {}));
    soon("the reflector", reader.wait_until_ready()).await.expect("ready");
    let mut names: Vec<_> = reader.state().iter().map(|n| n.name_any()).collect();
    names.sort();
    assert_eq!(names, ["sim-0", "sim-1"]);
    mirror.abort();
}

/// A controller that owns ConfigMaps for Namespaces, by server-side apply; a deleted child comes back.
async fn controllers(client: &Client) {
    let reconciled = Arc::new(AtomicUsize::new(0));
    let context = Arc::new((client.clone(), reconciled.clone()));
    let parents: Api<Namespace> = Api::all(client.clone());
    let children: Api<ConfigMap> = Api::all(client.clone());
    let controller = Controller::new(parents, watcher::Config::default().labels("controlled=yes"))
        .owns(children, watcher::Config::default().labels("child=yes"))
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(1)), context)
        .for_each(|_| async {});
    let task = tokio::spawn(controller);
    let namespace = json!({"metadata": {"name": "controlled", "labels": {"controlled": "yes"}}});
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(namespace).expect("a namespace");
    namespaces.create(&PostParams::default(), &namespace).await.expect("create");
    let children: Api<ConfigMap> = Api::namespaced(client.clone(), "controlled");
    let first = existing(&children, None).await;
    children.delete("child", &DeleteParams::default()).await.expect("delete");
    existing(&children, Some(first)).await;
    assert!(reconciled.load(Ordering::Relaxed) >= 2);
    task.abort();
}

async fn existing(children: &Api<ConfigMap>, not: Option<String>) -> String {
    soon("the child", async {
        loop {
            match children.get_opt("child").await.expect("get").and_then(|c| c.uid()) {
                Some(uid) if Some(&uid) != not.as_ref() => return uid,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    })
    .await
}

async fn reconcile(
    parent: Arc<Namespace>,
    context: Arc<(Client, Arc<AtomicUsize>)>,
) -> Result<Action, kube::Error> {
    use kube::Resource;
    context.1.fetch_add(1, Ordering::Relaxed);
    let owner = parent.controller_owner_ref(&()).expect("a stored object has a uid");
    let child = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "child", "labels": {"child": "yes"}, "ownerReferences": [owner]},
    });
    let api: Api<ConfigMap> = Api::namespaced(context.0.clone(), &parent.name_any());
    api.patch("child", &PatchParams::apply("controller").force(), &Patch::Apply(child)).await?;
    Ok(Action::await_change())
}

#[test]
fn pods_run_are_evicted_and_take_ephemeral_containers() {
    run(|client| async move {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let pod =
            json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
        pods.create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod"))
            .await
            .expect("create");
        let running = kube::runtime::wait::await_condition(
            pods.clone(),
            "p",
            kube::runtime::wait::conditions::is_pod_running(),
        );
        soon("a running pod", Box::pin(running)).await.expect("no error");
        let debug = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "busybox"}]}});
        let patched =
            pods.patch_ephemeral_containers("p", &PatchParams::default(), &Patch::Strategic(debug)).await;
        let count = patched.expect("patch").spec.and_then(|s| s.ephemeral_containers).map(|c| c.len());
        assert_eq!(count, Some(1));
        pods.evict("p", &kube::api::EvictParams::default()).await.expect("eviction");
        let gone = async {
            while pods.get_opt("p").await.expect("get").is_some() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        soon("the end of the pod", Box::pin(gone)).await;
    });
}
