//! Get, list, create, patch and apply, each with 1, 16 and 64 clients over TLS: requests a second, latencies, and what
//! a request costs the server's processor and the load's own.

use crate::http::Call;
use crate::load::{Answers, Limit, closed_loop, count};
use crate::process::Process;
use crate::reads::{fill, pod};
use crate::server::{ROOTLESS, Server};
use crate::table::{Row, figure};
use crate::writes::config_map;
use crate::{Error, Settings};

const CLIENTS: [usize; 3] = [1, 16, 64];
const PODS: usize = 5000;

type Make = fn(u64) -> Call;

/// What is sent, and how it is called. The pods that `few` has are a fifth of all.
const OPERATIONS: [(&str, Make); 6] = [
    ("get a pod", |n| Call::get(format!("/api/v1/namespaces/few/pods/pod-{}", n % 1000))),
    ("list 1,000 pods", |_| Call::get("/api/v1/namespaces/few/pods")),
    ("list 5,000 pods", |_| Call::get("/api/v1/pods")),
    ("create a ConfigMap", |n| config_map("default", &format!("matrix-{n}"))),
    ("patch a pod", |n| {
        let body = format!("{{\"metadata\":{{\"labels\":{{\"patched\":\"{n}\"}}}}}}");
        Call::merge_patch(format!("/api/v1/namespaces/few/pods/pod-{}", n % 1000), body)
    }),
    ("apply a ConfigMap", |n| {
        let name = format!("applied-{}", n % 1000);
        let body = format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"{name}\"}},\"data\":{{\"n\":\"{n}\",\"a\":\"b\"}}}}"
        );
        Call::apply(format!("/api/v1/namespaces/default/configmaps/{name}?fieldManager=bench"), body)
    }),
];

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let server = Server::start(&settings.binary, &ROOTLESS).await?;
    for namespace in ["default", "few"] {
        server.namespace(namespace).await?;
    }
    fill(&server.target, PODS).await?;
    let mut rows = Vec::new();
    let mut names = 0;
    for (name, make) in OPERATIONS {
        for clients in CLIENTS {
            let (cpu, own) = (server.process().cpu()?, Process::own().cpu()?);
            // Names of one run must not be those of another.
            let first = names;
            let limit = Limit::time(settings.time(3));
            let done = closed_loop(&server.target, clients, limit, move |n| make(first + n)).await?;
            names += u64::try_from(done.latencies.len() + clients)?;
            let cpu = (server.process().cpu()? - cpu).as_secs_f64();
            let own = (Process::own().cpu()? - own).as_secs_f64();
            rows.extend(summary(&format!("{name}, {}", plural(clients)), &done, cpu, own));
        }
        rows.push(figure(format!("{name}: memory then"), server.process().rss_mib()?, "MiB", 1));
    }
    rows.push(figure("matrix: peak memory", server.process().peak_mib()?, "MiB", 1));
    Ok(rows)
}

fn plural(clients: usize) -> String {
    if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") }
}

/// Processor times are in seconds, of all requests together.
fn summary(name: &str, done: &Answers, cpu: f64, own: f64) -> Vec<Row> {
    let n = done.latencies.len();
    let each = |seconds: f64| seconds * 1e6 / count(n);
    vec![
        figure(name, done.per_second(), "/s", n),
        figure(format!("{name}, p50"), done.percentile(50), "ms", n),
        figure(format!("{name}, p99"), done.percentile(99), "ms", n),
        figure(format!("{name}: server CPU each"), each(cpu), "us", n),
        figure(format!("{name}: the load's own CPU each"), each(own), "us", n),
    ]
}

/// 10,000 pods of 3 KiB, and what they take of memory before and after a list of all.
pub async fn memory(settings: &Settings) -> Result<Vec<Row>, Error> {
    const POD_BYTES: usize = 3072;
    let amount = settings.amount(10_000);
    let server = Server::start(&settings.binary, &ROOTLESS).await?;
    server.namespace("default").await?;
    let empty = server.process().rss_mib()?;
    let mut connection = server.target.connect().await?;
    let bare = connection.call(pod("default", 0, 0)).await?.len();
    connection.call(Call::delete("/api/v1/namespaces/default/pods/pod-0?gracePeriodSeconds=0")).await?;
    let padding = POD_BYTES.saturating_sub(bare);
    let limit = Limit { time: std::time::Duration::from_secs(120), calls: u64::try_from(amount)? };
    let done = closed_loop(&server.target, 64, limit, move |n| pod("default", n, padding)).await?;
    if done.latencies.len() != amount {
        return Err(format!("{} of {amount} pods made", done.latencies.len()).into());
    }
    let written = server.process().rss_mib()?;
    // What the writes needed for a moment goes back.
    tokio::time::sleep(settings.time(15)).await;
    let full = server.process().rss_mib()?;
    // The first connection has been idle for long where the server is slow.
    let mut connection = server.target.connect().await?;
    let bytes = connection.call(Call::get("/api/v1/pods")).await?.len();
    let name = format!("{} pods of 3 KiB", if settings.quick { "2,000" } else { "10,000" });
    Ok(vec![
        figure(format!("{name}: weight of one"), count(bytes / amount), "B", amount),
        figure(format!("{name}: memory before"), empty, "MiB", 1),
        figure(format!("{name}: memory just written"), written, "MiB", 1),
        figure(format!("{name}: memory"), full, "MiB", 1),
        figure(format!("{name}: memory after a list of all"), server.process().rss_mib()?, "MiB", 1),
    ])
}
