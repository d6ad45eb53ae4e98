//! A large ConfigMap that many pods have mounted: from the write of a change until the last of them sees it.

use super::Stage;
use crate::Error;
use crate::http::Call;
use crate::load::percentile;
use crate::pods::{NAMESPACE, PATIENCE, come, go, pods, watch};
use crate::table::{Row, figure};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PODS: usize = 50;
/// Near the most that an object may have.
const BYTES: usize = 500 << 10;
/// Where the node has its pods' files, which are those that containers see.
const PODS_DIR: &str = "/var/lib/coracle/kubelet/pods";

fn data(version: usize) -> Value {
    json!({ "version": version.to_string(), "large": version.to_string().repeat(BYTES) })
}

pub async fn run(stage: &Stage<'_>) -> Result<Vec<Row>, Error> {
    let maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    stage.post(&maps, &json!({ "metadata": { "name": "large" }, "data": data(0) })).await?;
    let volume = json!({ "name": "large", "configMap": { "name": "large" } });
    let names: Vec<String> = (0..stage.settings.amount(PODS)).map(|n| format!("sees-{n}")).collect();
    let manifests =
        names.iter().map(|name| stage.pod(name, &["sleep", "3600"], std::slice::from_ref(&volume)));
    let mut events = watch(&stage.target).await?;
    come(&stage.target, &mut events, &names, manifests.collect()).await?;
    let files = files(stage, &names).await?;
    let (mut times, mut connection) = (Vec::new(), stage.target.connect().await?);
    for version in 1..=stage.settings.amount(10).min(9) {
        let patch = json!({ "data": data(version) }).to_string();
        let begun = Instant::now();
        connection.call(Call::merge_patch(format!("{maps}/large"), patch)).await?;
        until_all_see(&files, &version.to_string(), begun).await?;
        times.push(begun.elapsed());
    }
    go(&stage.target, &mut events, &names).await?;
    times.sort_unstable();
    let pods = names.len();
    let name =
        |percent: &str| format!("500 KiB ConfigMap in {pods} pods, changed until all see it: {percent}");
    Ok(vec![
        figure(name("p50"), percentile(&times, 50), "ms", times.len()),
        figure(name("worst"), percentile(&times, 100), "ms", times.len()),
    ])
}

async fn files(stage: &Stage<'_>, names: &[String]) -> Result<Vec<PathBuf>, Error> {
    let mut connection = stage.target.connect().await?;
    let mut files = Vec::new();
    for name in names {
        let pod = connection.json(Call::get(format!("{}/{name}", pods()))).await?;
        let uid = pod["metadata"]["uid"].as_str().ok_or("a pod without a UID")?;
        let file = PathBuf::from(format!("{PODS_DIR}/{uid}/volumes/kubernetes.io~configmap/large/version"));
        std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        files.push(file);
    }
    Ok(files)
}

async fn until_all_see(files: &[PathBuf], version: &str, begun: Instant) -> Result<(), Error> {
    for file in files {
        while std::fs::read_to_string(file)? != version {
            if begun.elapsed() > PATIENCE {
                return Err(format!("{}: not version {version} after {PATIENCE:?}", file.display()).into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    Ok(())
}
