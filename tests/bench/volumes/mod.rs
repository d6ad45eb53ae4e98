//! Volumes on the node that `KUBECONFIG` names, with real pods: claims, what objects show, many volumes of one pod, and
//! what it costs to measure them. The node is this machine's: its driver of CSI is here, and its files are looked at.

mod claims;
mod csi;
mod objects;

use crate::http::{Call, Target};
use crate::load::{count, percentile};
use crate::pods::{self, NAMESPACE, begin, come, end, go, manifest, watch};
use crate::process::Process;
use crate::table::{Row, figure, skipped};
use crate::{Error, Settings};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// The node takes some more: its own components are pods, too (`maxPods`).
const MEASURED_PODS: usize = 110;
const FILES_EACH: usize = 100;
const VOLUMES_OF_ONE: usize = 20;
/// For so long the node lets stand what it counted: upstream's `volumeStatsAggPeriod`.
const COUNTED_FOR: Duration = Duration::from_secs(60);

/// The node's API, an image, and the node's process.
struct Stage<'a> {
    settings: &'a Settings,
    target: Target,
    image: String,
    node: Process,
}

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let (node, (target, image)) = match (pods::node(), pods::prepared().await) {
        (Ok(node), Ok(there)) => (node, there),
        (Err(why), _) | (_, Err(why)) => return Ok(vec![skipped("volumes", why)]),
    };
    begin(&target).await?;
    let stage = Stage { settings, target, image, node };
    let measured = measure(&stage).await;
    end(&stage.target).await?;
    measured
}

async fn measure(stage: &Stage<'_>) -> Result<Vec<Row>, Error> {
    let mut rows = Box::pin(claims::local_path(stage)).await?;
    rows.extend(Box::pin(csi::run(stage)).await?);
    rows.extend(Box::pin(objects::run(stage)).await?);
    rows.extend(Box::pin(many_of_one(stage)).await?);
    rows.extend(Box::pin(statistics(stage)).await?);
    Ok(rows)
}

impl Stage<'_> {
    async fn post(&self, path: &str, object: &Value) -> Result<(), Error> {
        let call = Call::post(path, object.to_string());
        self.target.connect().await?.call(call).await.map(drop)
    }

    async fn delete(&self, path: &str) -> Result<(), Error> {
        self.target.connect().await?.call(Call::delete(path)).await.map(drop)
    }

    /// A pod with these volumes, each mounted at `/<name>`.
    fn pod(&self, name: &str, command: &[&str], volumes: &[Value]) -> String {
        let mounts: Vec<Value> = volumes
            .iter()
            .filter_map(|volume| volume["name"].as_str())
            .map(|name| json!({ "name": name, "mountPath": format!("/{name}") }))
            .collect();
        let container = json!({ "name": "main", "image": self.image, "imagePullPolicy": "Never",
            "command": command, "volumeMounts": mounts });
        let mut pod: Value = serde_json::from_str(&manifest(name, &container)).unwrap_or_default();
        pod["spec"]["volumes"] = volumes.into();
        pod.to_string()
    }

    /// The time until one pod of these volumes is Ready; it is gone again when this returns.
    async fn start(&self, name: &str, volumes: &[Value]) -> Result<Duration, Error> {
        let mut events = watch(&self.target).await?;
        let names = [name.to_owned()];
        let pod = self.pod(name, &["sleep", "3600"], volumes);
        let came = come(&self.target, &mut events, &names, vec![pod]).await?;
        go(&self.target, &mut events, &names).await?;
        Ok(came)
    }
}

/// A pod with many volumes against one without: half of objects, half to write in.
async fn many_of_one(stage: &Stage<'_>) -> Result<Vec<Row>, Error> {
    let map = json!({ "metadata": { "name": "shown" }, "data": { "key": "text" } });
    stage.post(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), &map).await?;
    let volumes: Vec<Value> = (0..VOLUMES_OF_ONE)
        .map(|n| match n % 2 {
            0 => json!({ "name": format!("v{n}"), "emptyDir": {} }),
            _ => json!({ "name": format!("v{n}"), "configMap": { "name": "shown" } }),
        })
        .collect();
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for n in 0..stage.settings.amount(10) {
        with.push(stage.start(&format!("with-{n}"), &volumes).await?);
        without.push(stage.start(&format!("without-{n}"), &[]).await?);
    }
    with.sort_unstable();
    without.sort_unstable();
    Ok(vec![
        figure("pod with 20 volumes: start, p50", percentile(&with, 50), "ms", with.len()),
        figure("pod without volumes: start, p50", percentile(&without, 50), "ms", without.len()),
    ])
}

/// Processor time of a summary when all volumes are counted anew, and of one that is told what was counted before.
async fn statistics(stage: &Stage<'_>) -> Result<Vec<Row>, Error> {
    let pods = stage.settings.amount(MEASURED_PODS);
    let names: Vec<String> = (0..pods).map(|n| format!("measured-{n}")).collect();
    let fill = format!("for n in $(seq {FILES_EACH}); do echo $n >/data/$n; done; sleep 3600");
    let volumes = [
        json!({ "name": "data", "emptyDir": {} }),
        json!({ "name": "shown", "configMap": { "name": "shown" } }),
    ];
    let manifests = names.iter().map(|name| stage.pod(name, &["sh", "-c", &fill], &volumes)).collect();
    let mut events = watch(&stage.target).await?;
    come(&stage.target, &mut events, &names, manifests).await?;
    let mut connection = stage.target.connect().await?;
    let nodes = connection.json(Call::get("/api/v1/nodes")).await?;
    let node = nodes["items"][0]["metadata"]["name"].as_str().ok_or("there is no node")?;
    let summary = format!("/api/v1/nodes/{node}/proxy/stats/summary");
    let mut costs = Vec::new();
    // What was counted while the pods came is no longer believed.
    sleep(COUNTED_FOR + Duration::from_secs(1)).await;
    for _ in 0..2 {
        let (cpu, began) = (stage.node.cpu()?, Instant::now());
        let told = stage.target.connect().await?.json(Call::get(&summary)).await?;
        costs.push(((stage.node.cpu()? - cpu).as_secs_f64() * 1000.0, began.elapsed()));
        let measured = told["pods"].as_array().into_iter().flatten();
        let measured = measured.filter(|pod| pod["volume"].as_array().is_some_and(|all| all.len() > 1));
        if measured.count() < pods {
            return Err("the summary lacks pods with volumes".into());
        }
    }
    go(&stage.target, &mut events, &names).await?;
    let name = |what: &str| format!("statistics of {} pods' volumes: {what}", count(pods));
    Ok(vec![
        figure(name("CPU, counted"), costs[0].0, "ms", pods),
        figure(name("answer, counted"), costs[0].1.as_secs_f64() * 1000.0, "ms", pods),
        figure(name("CPU, remembered"), costs[1].0, "ms", pods),
    ])
}
