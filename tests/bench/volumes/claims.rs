//! Claims: made with a pod until it is Ready, and a hundred at once until all are bound.

use super::Stage;
use crate::Error;
use crate::http::Call;
use crate::load::percentile;
use crate::pods::{NAMESPACE, PATIENCE};
use crate::table::{Row, figure};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const AT_ONCE: usize = 100;

fn claims() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims")
}

fn claim(name: &str, class: &str, node: Option<&str>) -> Value {
    let annotations: Value =
        node.map_or(Value::Null, |node| json!({ "volume.kubernetes.io/selected-node": node }));
    json!({ "metadata": { "name": name, "annotations": annotations }, "spec": { "storageClassName": class,
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Mi" } } } })
}

/// The default class.
pub async fn local_path(stage: &Stage<'_>) -> Result<Vec<Row>, Error> {
    let nodes = stage.target.connect().await?.json(Call::get("/api/v1/nodes")).await?;
    // As the scheduler notes it for the claim of a pod.
    let node = nodes["items"][0]["metadata"]["name"].as_str().ok_or("there is no node")?;
    let mut rows = one_by_one(stage, "local-path", "local-path").await?;
    rows.push(at_once(stage, "local-path", "local-path", Some(node)).await?);
    Ok(rows)
}

/// Claim and pod, created together, until the pod is Ready; one after the other.
pub async fn one_by_one(stage: &Stage<'_>, kind: &str, class: &str) -> Result<Vec<Row>, Error> {
    let mut times = Vec::new();
    for n in 0..stage.settings.amount(20) {
        let name = format!("{class}-{n}");
        let volume = json!({ "name": "data", "persistentVolumeClaim": { "claimName": name } });
        let begun = Instant::now();
        stage.post(&claims(), &claim(&name, class, None)).await?;
        let made = begun.elapsed();
        times.push(made + stage.start(&name, &[volume]).await?);
        stage.delete(&format!("{}/{name}", claims())).await?;
    }
    times.sort_unstable();
    let name = |percent: &str| format!("claim and pod to Ready, {kind}: {percent}");
    Ok(vec![
        figure(name("p50"), percentile(&times, 50), "ms", times.len()),
        figure(name("p99"), percentile(&times, 99), "ms", times.len()),
    ])
}

/// From the first creation until the last is bound.
pub async fn at_once(stage: &Stage<'_>, kind: &str, class: &str, node: Option<&str>) -> Result<Row, Error> {
    let count = stage.settings.amount(AT_ONCE);
    let mut connection = stage.target.connect().await?;
    let mut events = stage.target.connect().await?.watch(format!("{}?watch=true", claims())).await?;
    let begun = Instant::now();
    for n in 0..count {
        let claim = claim(&format!("at-once-{class}-{n}"), class, node);
        connection.call(Call::post(claims(), claim.to_string())).await?;
    }
    let (mut bound, mut took) = (std::collections::BTreeSet::new(), Duration::ZERO);
    while bound.len() < count {
        let event = tokio::time::timeout(PATIENCE, events.event()).await;
        let event: Value =
            serde_json::from_slice(&event.map_err(|_| format!("{} claims bound", bound.len()))??)?;
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        if event["object"]["status"]["phase"] == "Bound" && name.starts_with("at-once-") {
            bound.insert(name.to_owned());
            took = begun.elapsed();
        }
    }
    for n in 0..count {
        connection.call(Call::delete(format!("{}/at-once-{class}-{n}", claims()))).await?;
    }
    Ok(figure(format!("{count} claims at once, {kind}"), took.as_secs_f64() * 1000.0, "ms", count))
}
