//! Real pods on the node that `KUBECONFIG` names: created to Ready, through scheduler, kubelet and runtime.

use crate::http::{Call, Target, Watch};
use crate::load::percentile;
use crate::process::Process;
use crate::table::{Row, figure, skipped};
use crate::{Error, Settings};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::time::sleep;

pub const NAMESPACE: &str = "coracle-bench";
/// A pod that is not Ready by then will not be.
pub const PATIENCE: Duration = Duration::from_secs(60);
const AT_ONCE: usize = 50;
/// The node has to take some more: its own components are pods, too (`maxPods`).
const AT_REST: usize = 110;
/// Where scripts/up notes the server's process.
const PID_FILE: &str = "/run/coracle/server.pid";

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let mut rows = vec![node_memory()?];
    match prepared().await {
        Ok((target, image)) => {
            let measured = measure(settings, &target, &image).await;
            end(&target).await?;
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
    Ok(match node() {
        Ok(node) => figure(NAME, node.rss_mib()?, "MiB", 1),
        Err(why) => skipped(NAME, why),
    })
}

/// The process of the node that scripts/up started, or why there is none.
pub fn node() -> Result<Process, String> {
    let pid = std::fs::read_to_string(PID_FILE).ok().and_then(|pid| pid.trim().parse().ok());
    let node = Process(pid.ok_or_else(|| format!("no {PID_FILE}: scripts/up started no node here"))?);
    node.rss_mib().map(|_| node).map_err(|_| format!("the process of {PID_FILE} is gone"))
}

/// What pods cost that do nothing but answer a probe a second, and how long they take to come and to go together.
pub async fn resting(settings: &Settings) -> Result<Vec<Row>, Error> {
    const NAME: &str = "110 pods with a probe a second";
    let (node, (target, image)) = match (node(), prepared().await) {
        (Ok(node), Ok(there)) => (node, there),
        (Err(why), _) | (_, Err(why)) => return Ok(vec![skipped(NAME, why)]),
    };
    begin(&target).await?;
    let measured = rest(settings, node, &target, &image).await;
    end(&target).await?;
    let [come, go, cpu, memory] = measured?;
    Ok(vec![
        figure("110 pods at once", come, "ms", AT_REST),
        figure("110 pods gone", go, "ms", AT_REST),
        figure("110 pods with a probe a second: CPU", cpu, "% of a core", AT_REST),
        figure("110 pods with a probe a second: memory more", memory, "MiB", AT_REST),
    ])
}

/// Milliseconds to come and to go, the share of a core and the memory beyond what there was before.
async fn rest(settings: &Settings, node: Process, target: &Target, image: &str) -> Result<[f64; 4], Error> {
    let before = (share(node, settings).await?, node.rss_mib()?);
    let names: Vec<String> = (0..AT_REST).map(|n| format!("resting-{n}")).collect();
    let manifests: Vec<String> = names.iter().map(|name| probed(name, image)).collect();
    let mut watch = watch(target).await?;
    let come = come(target, &mut watch, &names, manifests).await?;
    // What starting them took comes to rest first.
    sleep(settings.time(30)).await;
    let after = (share(node, settings).await?, node.rss_mib()?);
    let go = go(target, &mut watch, &names).await?;
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    Ok([millis(come), millis(go), after.0 - before.0, after.1 - before.1])
}

/// Per cent of a core over half a minute.
async fn share(node: Process, settings: &Settings) -> Result<f64, Error> {
    let (begun, cpu) = (Instant::now(), node.cpu()?);
    sleep(settings.time(30)).await;
    Ok((node.cpu()? - cpu).as_secs_f64() * 100.0 / begun.elapsed().as_secs_f64())
}

/// The node's API and an image that the node has; or why there is none.
pub async fn prepared() -> Result<(Target, String), String> {
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

/// Makes the namespace, with the account that its pods run as.
pub async fn begin(target: &Target) -> Result<(), Error> {
    let mut connection = target.connect().await?;
    let namespace = json!({"metadata": {"name": NAMESPACE}}).to_string();
    connection.call(Call::post("/api/v1/namespaces", namespace)).await?;
    let account = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default");
    let begun = Instant::now();
    while let Err(error) = connection.call(Call::get(&account)).await {
        if begun.elapsed() > PATIENCE {
            return Err(error);
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Returns when the namespace is gone, so that the next benchmark can make it.
pub async fn end(target: &Target) -> Result<(), Error> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}");
    let mut connection = target.connect().await?;
    connection.call(Call::delete(&path)).await?;
    let begun = Instant::now();
    while connection.call(Call::get(&path)).await.is_ok() {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{path} is not gone after {PATIENCE:?}").into());
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn measure(settings: &Settings, target: &Target, image: &str) -> Result<Vec<Row>, Error> {
    begin(target).await?;
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
    let mut watch = watch(target).await?;
    let manifests = names.iter().map(|name| pod(name, image)).collect();
    let elapsed = come(target, &mut watch, names, manifests).await?;
    go(target, &mut watch, names).await?;
    Ok(elapsed)
}

pub fn pods() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}

pub async fn watch(target: &Target) -> Result<Watch, Error> {
    target.connect().await?.watch(format!("{}?watch=true", pods())).await
}

/// Creates the pods; the time until all are Ready.
pub async fn come(
    target: &Target,
    watch: &mut Watch,
    names: &[String],
    manifests: Vec<String>,
) -> Result<Duration, Error> {
    let mut connection = target.connect().await?;
    let begun = Instant::now();
    for manifest in manifests {
        connection.call(Call::post(pods(), manifest)).await?;
    }
    let mut waiting: Vec<&str> = names.iter().map(String::as_str).collect();
    while !waiting.is_empty() {
        let event = next(watch).await.map_err(|e| format!("{} pods not Ready: {e}", waiting.len()))?;
        if is_ready(&event["object"]) {
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
            waiting.retain(|waited| *waited != name);
        }
    }
    Ok(begun.elapsed())
}

/// Deletes the pods; the time until all are gone.
pub async fn go(target: &Target, watch: &mut Watch, names: &[String]) -> Result<Duration, Error> {
    let mut connection = target.connect().await?;
    let begun = Instant::now();
    for name in names {
        connection.call(Call::delete(format!("{}/{name}?gracePeriodSeconds=0", pods()))).await?;
    }
    let mut left = names.len();
    while left > 0 {
        left -= usize::from(next(watch).await?["type"] == "DELETED");
    }
    Ok(begun.elapsed())
}

async fn next(watch: &mut Watch) -> Result<Value, Error> {
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
    manifest(name, &container)
}

/// A pod that is asked by HTTP every second whether it is ready.
fn probed(name: &str, image: &str) -> String {
    let container = json!({
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["httpd", "-f", "-p", "8080"],
        "readinessProbe": {"httpGet": {"port": 8080, "path": "/etc/hostname"}, "periodSeconds": 1},
    });
    manifest(name, &container)
}

pub fn manifest(name: &str, container: &Value) -> String {
    let spec =
        json!({"containers": [container], "terminationGracePeriodSeconds": 0, "restartPolicy": "Never"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).to_string()
}
