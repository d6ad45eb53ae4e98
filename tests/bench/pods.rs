//! Real pods on the node that `KUBECONFIG` names: created to Ready, through scheduler, kubelet and runtime.

use crate::http::{Call, Target};
use crate::load::percentile;
use crate::process::Process;
use crate::table::{Row, figure, skipped};
use crate::{Error, Settings};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const NAMESPACE: &str = "coracle-bench";
/// A pod that is not Ready by then will not be.
const PATIENCE: Duration = Duration::from_secs(60);
const AT_ONCE: usize = 50;
/// Where scripts/up notes the server's process.
const PID_FILE: &str = "/run/coracle/server.pid";

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let mut rows = vec![node_memory()?];
    match prepared().await {
        Ok((target, image)) => {
            let measured = measure(settings, &target, &image).await;
            let path = format!("/api/v1/namespaces/{NAMESPACE}");
            target.connect().await?.call(Call::delete(path)).await?;
            rows.extend(measured?);
        }
        Err(why) => {
            rows.push(skipped("pod start", why.clone()));
            rows.push(skipped("50 pods at once", why));
        }
    }
    Ok(rows)
}

/// Of the node that scripts/up started.
fn node_memory() -> Result<Row, Error> {
    const NAME: &str = "memory of the whole node";
    let Ok(pid) = std::fs::read_to_string(PID_FILE) else {
        return Ok(skipped(NAME, format!("no {PID_FILE}: scripts/up started no node here")));
    };
    Ok(match Process(pid.trim().parse()?).rss_mib() {
        Ok(memory) => figure(NAME, memory, "MiB", 1),
        Err(_) => skipped(NAME, format!("the process of {PID_FILE} is gone")),
    })
}

/// The node's API and an image that the node has; or why there is none.
async fn prepared() -> Result<(Target, String), String> {
    let path = std::env::var_os("KUBECONFIG").map(PathBuf::from);
    let path = path.ok_or("KUBECONFIG names no node; scripts/up starts one")?;
    let target = Target::from_kubeconfig(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let asked = async { target.connect().await?.json(Call::get("/api/v1/nodes")).await };
    let nodes: Value = asked.await.map_err(|e: Error| format!("{}: {e}", path.display()))?;
    if let Ok(image) = std::env::var("CORACLE_BENCH_IMAGE") {
        return Ok((target, image));
    }
    let names = nodes["items"].as_array().into_iter().flatten();
    let names = names.flat_map(|node| node["status"]["images"].as_array().into_iter().flatten());
    let mut names = names.flat_map(|image| image["names"].as_array().into_iter().flatten());
    let image = names.find_map(|name| name.as_str().filter(|name| name.contains("busybox")));
    let image = image.ok_or("the node has no busybox image; name one with sleep in CORACLE_BENCH_IMAGE")?;
    Ok((target, image.to_owned()))
}

async fn measure(settings: &Settings, target: &Target, image: &str) -> Result<Vec<Row>, Error> {
    let mut connection = target.connect().await?;
    let namespace = json!({"metadata": {"name": NAMESPACE}}).to_string();
    connection.call(Call::post("/api/v1/namespaces", namespace)).await?;
    let account = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default");
    let begun = Instant::now();
    while let Err(error) = connection.call(Call::get(&account)).await {
        if begun.elapsed() > PATIENCE {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut starts = Vec::new();
    for n in 0..settings.amount(20) {
        let name = format!("one-{n}");
        starts.push(together(target, image, &[name]).await?);
    }
    starts.sort_unstable();
    let names: Vec<String> = (0..AT_ONCE).map(|n| format!("many-{n}")).collect();
    let many = together(target, image, &names).await?;
    Ok(vec![
        figure("pod start, p50", percentile(&starts, 50), "ms", starts.len()),
        figure("pod start, p99", percentile(&starts, 99), "ms", starts.len()),
        figure("50 pods at once", many.as_secs_f64() * 1000.0, "ms", AT_ONCE),
    ])
}

/// From the first creation until all are Ready; they are gone again when it returns.
async fn together(target: &Target, image: &str, names: &[String]) -> Result<Duration, Error> {
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let mut watch = target.connect().await?.watch(format!("{pods}?watch=true")).await?;
    let mut connection = target.connect().await?;
    let begun = Instant::now();
    for name in names {
        connection.call(Call::post(&pods, pod(name, image))).await?;
    }
    let mut waiting: Vec<&str> = names.iter().map(String::as_str).collect();
    while !waiting.is_empty() {
        let event = next(&mut watch).await.map_err(|e| format!("{} pods not Ready: {e}", waiting.len()))?;
        if is_ready(&event["object"]) {
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
            waiting.retain(|waited| *waited != name);
        }
    }
    let elapsed = begun.elapsed();
    for name in names {
        connection.call(Call::delete(format!("{pods}/{name}?gracePeriodSeconds=0"))).await?;
    }
    let mut left = names.len();
    while left > 0 {
        left -= usize::from(next(&mut watch).await?["type"] == "DELETED");
    }
    Ok(elapsed)
}

async fn next(watch: &mut crate::http::Watch) -> Result<Value, Error> {
    let event = tokio::time::timeout(PATIENCE, watch.event()).await;
    Ok(serde_json::from_slice(&event.map_err(|_| format!("no event for {PATIENCE:?}"))??)?)
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

fn pod(name: &str, image: &str) -> String {
    let container = json!({
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["sleep", "3600"],
    });
    let spec =
        json!({"containers": [container], "terminationGracePeriodSeconds": 0, "restartPolicy": "Never"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).to_string()
}
