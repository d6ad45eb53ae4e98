//! Scheduling onto simulated nodes, with the store in memory so that the disk has no say.

use crate::http::{Call, Target};
use crate::load::{Limit, closed_loop, count};
use crate::server::{ROOTLESS, Server};
use crate::table::{Row, figure};
use crate::{Error, Settings};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Pods that are not bound by then never will be.
const PATIENCE: Duration = Duration::from_secs(30);

async fn server(settings: &Settings, nodes: usize) -> Result<Server, Error> {
    let number = nodes.to_string();
    let flags = [ROOTLESS[0], ROOTLESS[1], "--storage-backend", "memory", "--simulate-nodes", &number];
    let server = Server::start(&settings.binary, &flags).await?;
    server.namespace("default").await?;
    server.nodes_ready(nodes).await?;
    Ok(server)
}

fn pod_spec() -> Value {
    let resources = json!({"requests": {"cpu": "1m", "memory": "1Mi"}});
    json!({"containers": [{"name": "main", "image": "registry.example/app:1.0", "resources": resources}]})
}

/// The time at which as many pods are bound, seen by a watch that only bound pods enter.
async fn bound(target: &Target, wanted: usize) -> Result<JoinHandle<Result<Instant, Error>>, Error> {
    let path = "/api/v1/namespaces/default/pods?watch=true&fieldSelector=spec.nodeName%21%3D";
    let mut watch = target.connect().await?.watch(path).await?;
    Ok(tokio::spawn(async move {
        let mut seen = 0;
        while seen < wanted {
            let event = tokio::time::timeout(PATIENCE, watch.event()).await;
            let event = event
                .map_err(|_| format!("{seen} of {wanted} pods bound, then nothing for {PATIENCE:?}"))??;
            seen += usize::from(event.starts_with(b"{\"type\":\"ADDED\""));
        }
        Ok(Instant::now())
    }))
}

/// From the first pod's creation to the last one's binding, creation by 64 clients included.
async fn pods(settings: &Settings, nodes: usize, label: &str) -> Result<Vec<Row>, Error> {
    let amount = settings.amount(5000);
    let server = server(settings, nodes).await?;
    let all_bound = bound(&server.target, amount).await?;
    let (begun, cpu) = (Instant::now(), server.process().cpu()?);
    let limit = Limit { time: PATIENCE, calls: u64::try_from(amount)? };
    let made = closed_loop(&server.target, 64, limit, |n| {
        let name = format!("pod-{n}");
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec()});
        Call::post("/api/v1/namespaces/default/pods", pod.to_string())
    });
    let made = made.await?;
    let elapsed = (all_bound.await?? - begun).as_secs_f64();
    let cpu = (server.process().cpu()? - cpu).as_secs_f64() * 1000.0 / count(amount);
    let memory = server.process().rss_mib()?;
    let after = after_the_storm(settings, &server).await?;
    Ok(vec![
        figure(format!("memory a minute after the pods went, {label} nodes"), after, "MiB", 1),
        figure(format!("pods bound, {label} nodes"), count(amount) / elapsed, "/s", amount),
        figure(format!("pods created meanwhile, {label} nodes"), made.per_second(), "/s", amount),
        figure(format!("pods bound, {label} nodes: server CPU each, run included"), cpu, "ms", amount),
        figure(format!("memory with {label} nodes and the pods"), memory, "MiB", 1),
    ])
}

/// Memory a minute after all pods were deleted. Their Events are still there.
async fn after_the_storm(settings: &Settings, server: &Server) -> Result<f64, Error> {
    let mut connection = server.target.connect().await?;
    let path = "/api/v1/namespaces/default/pods";
    connection.call(Call::delete(format!("{path}?gracePeriodSeconds=0"))).await?;
    let begun = Instant::now();
    loop {
        let list = connection.json(Call::get(format!("{path}?limit=1"))).await?;
        if list["items"].as_array().is_some_and(Vec::is_empty) {
            break;
        }
        if begun.elapsed() > PATIENCE {
            return Err("deleted pods stay".into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    tokio::time::sleep(settings.time(60)).await;
    server.process().rss_mib()
}

/// From the Deployment's creation until its status says that every replica is ready.
async fn deployment(settings: &Settings) -> Result<Vec<Row>, Error> {
    let replicas = settings.amount(2000);
    let server = server(settings, 100).await?;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let watch = server.target.connect().await?;
    let mut watch = watch.watch(format!("{path}?watch=true&fieldSelector=metadata.name%3Dload")).await?;
    let labels = json!({"app": "load"});
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "load"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec()},
        },
    });
    let (begun, cpu) = (Instant::now(), server.process().cpu()?);
    server.target.connect().await?.call(Call::post(path, deployment.to_string())).await?;
    let mut ready = 0;
    while ready < replicas {
        let event = tokio::time::timeout(PATIENCE, watch.event()).await;
        let event = event.map_err(|_| format!("{ready} of {replicas} replicas ready, then nothing"))??;
        let event: Value = serde_json::from_slice(&event)?;
        let said = event["object"]["status"]["readyReplicas"].as_u64().unwrap_or(0);
        ready = usize::try_from(said)?;
    }
    let elapsed = begun.elapsed().as_secs_f64() * 1000.0;
    let cpu = (server.process().cpu()? - cpu).as_secs_f64() * 1000.0 / count(replicas);
    let name =
        if settings.quick { "Deployment of 400 to all ready" } else { "Deployment of 2,000 to all ready" };
    Ok(vec![
        figure(name, elapsed, "ms", replicas),
        figure(format!("{name}: server CPU a pod"), cpu, "ms", replicas),
    ])
}

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let mut rows = pods(settings, 100, "100").await?;
    rows.extend(pods(settings, 1000, "1,000").await?);
    rows.extend(deployment(settings).await?);
    Ok(rows)
}
