//! The storms. Each returns what it did, when the cluster is as it was.

use crate::Cluster;
use crate::custom::{DEFINITIONS, anything, definition, version};
use crate::load::Error;
use crate::load::wire::{Http1, Target};
use futures::future::try_join_all;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;

/// Clients that work at once: more than the server has seats for at the lowest priority would only wait.
const CLIENTS: usize = 16;
/// Longest until everything is there, or gone, in a build without optimisation on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);
/// Connections that are cut off at once.
const CUT_AT_ONCE: usize = 100;

/// A request with its body; all of them are to succeed.
struct Call {
    method: &'static str,
    path: String,
    body: Value,
}

fn post(path: impl Into<String>, body: Value) -> Call {
    Call { method: "POST", path: path.into(), body }
}

fn delete(path: String) -> Call {
    Call { method: "DELETE", path, body: json!({}) }
}

async fn send(connection: &mut Http1, call: &Call) -> Result<(), Error> {
    let body = call.body.to_string();
    let (code, text) = connection
        .send(call.method, &call.path, "content-type: application/json\r\n", body.as_bytes())
        .await?;
    // What a controller was quicker with is as good.
    if (200..300).contains(&code) || matches!(code, 404 | 409) {
        return Ok(());
    }
    Err(format!("{} {}: {code} {text}", call.method, call.path).into())
}

/// `count` times all that `calls` says, by several clients.
async fn each(target: &Target, count: usize, calls: impl Fn(usize) -> Vec<Call>) -> Result<(), Error> {
    let next = AtomicUsize::new(0);
    let work = || async {
        let mut connection = target.http1().await?;
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= count {
                return Ok::<(), Error>(());
            }
            for call in calls(n) {
                send(&mut connection, &call).await?;
            }
        }
    };
    try_join_all((0..CLIENTS).map(|_| work())).await.map(drop)
}

/// Waits until a list with this query is empty.
async fn until_none(cluster: &Cluster, path: &str) -> Result<(), Error> {
    let begun = Instant::now();
    loop {
        let separator = if path.contains('?') { '&' } else { '?' };
        let answer = cluster.raw("GET", &format!("{path}{separator}limit=1"), "");
        let list: Value = serde_json::from_str(&answer.text)?;
        if answer.code == 200 && list["items"].as_array().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("{path}: {} still there", list["items"][0]["metadata"]["name"]).into());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// So many pods are created, scheduled and run on simulated nodes, and deleted.
pub async fn pods(cluster: &Cluster, admin: &Target, count: usize) -> Result<String, Error> {
    const PODS: &str = "/api/v1/namespaces/default/pods";
    let begun = Instant::now();
    let spec = json!({"containers": [{"name": "main", "image": "registry.example/app:1.0",
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}]});
    let pod = |n: usize| {
        json!({"apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {"name": format!("storm-{n}"), "labels": {"app": "storm"}}})
    };
    each(admin, count, |n| vec![post(PODS, pod(n))]).await?;
    until_none(cluster, &format!("{PODS}?fieldSelector=status.phase%21%3DRunning")).await?;
    each(admin, count, |n| vec![delete(format!("{PODS}/storm-{n}?gracePeriodSeconds=0"))]).await?;
    until_none(cluster, PODS).await?;
    Ok(format!("{count} pods in {:.0} s", begun.elapsed().as_secs_f64()))
}

/// So many namespaces with something of everything in them, and their end.
pub async fn namespaces(cluster: &Cluster, admin: &Target, count: usize) -> Result<String, Error> {
    let begun = Instant::now();
    let named = |n: usize| format!("/api/v1/namespaces/storm-{n}");
    let made = |n: usize| {
        let meta = |name: &str| json!({"name": name});
        let (core, apps) = (named(n), format!("/apis/apps/v1/namespaces/storm-{n}"));
        let labels = json!({"app": "storm"});
        let container = json!({"name": "main", "image": "registry.example/app:1.0"});
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
        vec![
            post("/api/v1/namespaces", json!({"metadata": meta(&format!("storm-{n}"))})),
            post(
                format!("{core}/configmaps"),
                json!({"metadata": meta("one"), "data": {"a": "b".repeat(500)}}),
            ),
            post(format!("{core}/secrets"), json!({"metadata": meta("one"), "stringData": {"a": "b"}})),
            post(format!("{core}/serviceaccounts"), json!({"metadata": meta("one")})),
            post(
                format!("{core}/services"),
                json!({"metadata": meta("one"), "spec": {"selector": labels, "ports": [{"port": 80}]}}),
            ),
            post(
                format!("{apps}/deployments"),
                json!({"metadata": meta("one"), "spec": {"replicas": 1, "selector": {"matchLabels": labels},
                    "template": template}}),
            ),
        ]
    };
    each(admin, count, made).await?;
    each(admin, count, |n| vec![delete(named(n))]).await?;
    until_none(cluster, "/api/v1/namespaces?fieldSelector=status.phase%3DTerminating").await?;
    Ok(format!("{count} namespaces in {:.0} s", begun.elapsed().as_secs_f64()))
}

/// The group of the definitions that [`definitions`] makes.
pub const GROUP: &str = "storm.example.com";

/// So many definitions, an object of each, and their end.
pub async fn definitions(cluster: &Cluster, admin: &Target, count: usize) -> Result<String, Error> {
    let begun = Instant::now();
    let plural = |n: usize| format!("things{n}");
    each(admin, count, |n| {
        vec![post(
            DEFINITIONS,
            definition(GROUP, &plural(n), &format!("Thing{n}"), &[version("v1", anything())]),
        )]
    })
    .await?;
    each(admin, count, |n| {
        let path = format!("/apis/{GROUP}/v1/namespaces/default/{}", plural(n));
        let kind = format!("Thing{n}");
        vec![post(
            path,
            json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": "one"}}),
        )]
    })
    .await?;
    each(admin, count, |n| vec![delete(format!("{DEFINITIONS}/{}.{GROUP}", plural(n)))]).await?;
    until_none(cluster, DEFINITIONS).await?;
    Ok(format!("{count} definitions in {:.0} s", begun.elapsed().as_secs_f64()))
}

/// So many watches and as many exec sessions, each cut off by its client without a word.
pub async fn cut_off(cluster: &Cluster, admin: &Target, count: usize) -> Result<String, Error> {
    const POD: &str = "/api/v1/namespaces/default/pods";
    let begun = Instant::now();
    let pod =
        json!({"metadata": {"name": "cut"}, "spec": {"containers": [{"name": "main", "image": "i:1"}]}});
    each(admin, 1, |_| vec![post(POD, pod.clone())]).await?;
    until_none(cluster, &format!("{POD}?fieldSelector=status.phase%21%3DRunning")).await?;
    let upgrade = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
        sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: v5.channel.k8s.io\r\n";
    let requests = [
        ("/api/v1/configmaps?watch=1".to_owned(), ""),
        (format!("{POD}/cut/exec?command=cat&stdin=true&stdout=true&container=main"), upgrade),
    ];
    for _ in 0..count.div_ceil(CUT_AT_ONCE) {
        let open = |(path, more): (String, &'static str)| async move {
            let mut connection = admin.http1().await?;
            let head = connection.head("GET", &path, more);
            connection.stream.write_all(head.as_bytes()).await?;
            connection.stream.flush().await?;
            Ok::<_, Error>(connection)
        };
        let all = (0..CUT_AT_ONCE.min(count)).flat_map(|_| requests.clone()).map(open);
        let held = try_join_all(all).await?;
        // They are to be served before they are cut.
        tokio::time::sleep(Duration::from_millis(200)).await;
        drop(held);
    }
    each(admin, 1, |_| vec![delete(format!("{POD}/cut?gracePeriodSeconds=0"))]).await?;
    until_none(cluster, POD).await?;
    Ok(format!("{count} watches and {count} sessions in {:.0} s", begun.elapsed().as_secs_f64()))
}
