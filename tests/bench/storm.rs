//! What a control plane holds of a storm of pods: a thousand nodes that nobody runs, the embedded store, five thousand pods
//! bound to them, and a minute after they were deleted. Their Events are still there then.

use crate::http::{Call, Connection, Target};
use crate::load::{Limit, closed_loop};
use crate::server::{ROOTLESS, Server};
use crate::table::{Row, figure};
use crate::{Error, Settings};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// What has not happened by then never will.
const PATIENCE: Duration = Duration::from_secs(300);
/// Checkpoints and what the allocator gives back late are over by then.
const SETTLING: u64 = 30;
/// Events last for an hour; the last ones are swept within the minutes after it.
const REST_OF_THE_HOUR: Duration = Duration::from_secs(62 * 60);

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let (nodes, pods) = (settings.amount(1000), settings.amount(5000));
    let server = Server::start(&settings.binary, &ROOTLESS).await?;
    server.namespace("default").await?;
    create(&server.target, NODES, nodes, node).await?;
    create(&server.target, PODS, pods, pod).await?;
    let mut connection = server.target.connect().await?;
    until_empty(&mut connection, &format!("{PODS}?limit=1&fieldSelector=spec.nodeName%3D")).await?;
    tokio::time::sleep(settings.time(SETTLING)).await;
    let process = server.process();
    let (held, own) = (process.rss_mib()?, process.anonymous_mib()?);
    connection.call(Call::delete(format!("{PODS}?gracePeriodSeconds=0"))).await?;
    until_empty(&mut connection, &format!("{PODS}?limit=1")).await?;
    tokio::time::sleep(settings.time(60)).await;
    let (left, own_left) = (process.rss_mib()?, process.anonymous_mib()?);
    let name = "storm of 5,000 pods, 1,000 nodes";
    let mut rows = vec![
        figure(format!("{name}: memory"), held, "MiB", pods),
        figure(format!("{name}: memory, anonymous part"), own, "MiB", pods),
        figure(format!("{name}: memory a minute after they went"), left, "MiB", pods),
        figure(format!("{name}: anonymous part a minute after they went"), own_left, "MiB", pods),
        figure(format!("{name}: peak memory"), process.peak_mib()?, "MiB", 1),
    ];
    if settings.hour {
        tokio::time::sleep(REST_OF_THE_HOUR).await;
        rows.push(figure(format!("{name}: memory an hour after they went"), process.rss_mib()?, "MiB", pods));
        let own = process.anonymous_mib()?;
        rows.push(figure(format!("{name}: anonymous part an hour after they went"), own, "MiB", pods));
    }
    Ok(rows)
}

async fn create(
    target: &Target,
    path: &'static str,
    amount: usize,
    body: fn(u64) -> Value,
) -> Result<(), Error> {
    let limit = Limit { time: PATIENCE, calls: u64::try_from(amount)? };
    closed_loop(target, 16, limit, move |n| Call::post(path, body(n).to_string())).await.map(|_| ())
}

async fn until_empty(connection: &mut Connection, path: &str) -> Result<(), Error> {
    let begun = Instant::now();
    while !connection.json(Call::get(path)).await?["items"].as_array().is_some_and(Vec::is_empty) {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{path} is not empty after {PATIENCE:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Ready for good, as nobody runs it: its heartbeat is of a time to come.
fn node(n: u64) -> Value {
    let amounts = json!({"cpu": "32", "memory": "64Gi", "pods": "110"});
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady",
        "lastHeartbeatTime": "2100-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("node-{n}"), "labels": {"kubernetes.io/hostname": format!("node-{n}")}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}})
}

fn pod(n: u64) -> Value {
    let resources = json!({"requests": {"cpu": "1m", "memory": "1Mi"}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{n}"), "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "registry.example/app:1.0", "resources": resources}]}})
}
