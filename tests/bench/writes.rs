//! Durable writes through the API: ConfigMaps of 1 KB over TLS, each on the disk before it is acknowledged.

use crate::http::Call;
use crate::load::{Limit, closed_loop, count};
use crate::server::{ROOTLESS, Server};
use crate::table::{Row, figure};
use crate::{Error, Settings};

/// A ConfigMap whose JSON is about 1 KB as sent.
pub fn config_map(namespace: &str, name: &str) -> Call {
    let body = serde_json::json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"bench": "true"}},
        "data": {"payload": "0123456789abcdef".repeat(56)},
    });
    Call::post(format!("/api/v1/namespaces/{namespace}/configmaps"), body.to_string())
}

/// One writer and 64, on a server of its own each.
pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for (writers, label) in [(1, "1 writer"), (64, "64 writers")] {
        let server = Server::start(&settings.binary, &ROOTLESS).await?;
        let process = server.process();
        let (cpu, written) = (process.cpu()?, process.written()?);
        let limit = Limit::time(settings.time(10));
        let done =
            closed_loop(&server.target, writers, limit, |n| config_map("default", &format!("w-{n}"))).await?;
        let n = done.latencies.len();
        let cpu = (process.cpu()? - cpu).as_secs_f64() * 1000.0 / count(n);
        let written = f64::from(process.written()? - written) / 1024.0 / count(n);
        rows.extend([
            figure(format!("durable writes, {label}"), done.per_second(), "/s", n),
            figure(format!("durable writes, {label}, p50"), done.percentile(50), "ms", n),
            figure(format!("durable writes, {label}, p99"), done.percentile(99), "ms", n),
            figure(format!("durable writes, {label}: server CPU each"), cpu, "ms", n),
            figure(format!("durable writes, {label}: to the disk each"), written, "KiB", n),
        ]);
        if writers > 1 {
            rows.push(figure("memory after the writes", process.rss_mib()?, "MiB", n));
        }
    }
    Ok(rows)
}
