//! How soon, and how many, events reach a hundred watchers, each on a connection of its own.

use crate::http::{Call, Target};
use crate::load::{Limit, closed_loop, count, percentile};
use crate::server::{ROOTLESS, Server};
use crate::table::{Row, figure};
use crate::writes::config_map;
use crate::{Error, Settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const WATCHERS: usize = 100;
/// The controllers' own writes must not count.
const NAMESPACE: &str = "watched";
/// An event that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// Events that the watchers got, all together; each multiple of [`WATCHERS`] is told to the channel with its time.
struct Receipts {
    seen: AtomicUsize,
    complete: mpsc::UnboundedSender<Instant>,
}

impl Receipts {
    fn add(&self, events: usize) {
        let before = self.seen.fetch_add(events, Ordering::Relaxed);
        if (before + events) / WATCHERS > before / WATCHERS {
            // Nobody listens any more at the end.
            let _ = self.complete.send(Instant::now());
        }
    }
}

async fn watchers(target: &Target, receipts: &Arc<Receipts>) -> Result<JoinSet<()>, Error> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let list = target.connect().await?.json(Call::get(&path)).await?;
    let version =
        list["metadata"]["resourceVersion"].as_str().ok_or("a list without resourceVersion")?.to_owned();
    let mut tasks = JoinSet::new();
    for _ in 0..WATCHERS {
        let connection = target.connect().await?;
        let mut watch = connection.watch(format!("{path}?watch=true&resourceVersion={version}")).await?;
        let receipts = receipts.clone();
        tasks.spawn(async move {
            while let Ok(events) = watch.count().await {
                receipts.add(events);
            }
        });
    }
    Ok(tasks)
}

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let server = Server::start(&settings.binary, &ROOTLESS).await?;
    server.namespace(NAMESPACE).await?;
    // The namespace's certificate bundle comes a moment after its service account.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (complete, mut completed) = mpsc::unbounded_channel();
    let receipts = Arc::new(Receipts { seen: AtomicUsize::new(0), complete });
    let tasks = watchers(&server.target, &receipts).await?;
    let mut rows = one_at_a_time(settings, &server, &mut completed).await?;
    rows.extend(flood(settings, &server, &receipts).await?);
    if tasks.len() != WATCHERS {
        return Err("a watch ended".into());
    }
    rows.push(figure("memory with 100 watchers", server.process().rss_mib()?, "MiB", 1));
    Ok(rows)
}

/// Each write waits until everybody has seen the one before.
async fn one_at_a_time(
    settings: &Settings,
    server: &Server,
    completed: &mut mpsc::UnboundedReceiver<Instant>,
) -> Result<Vec<Row>, Error> {
    let mut writer = server.target.connect().await?;
    let (mut from_sent, mut from_acknowledged) = (Vec::new(), Vec::new());
    let (begun, time) = (Instant::now(), settings.time(10));
    while begun.elapsed() < time {
        let sent = Instant::now();
        writer.call(config_map(NAMESPACE, &format!("one-{}", from_sent.len()))).await?;
        let acknowledged = Instant::now();
        let last = tokio::time::timeout(PATIENCE, completed.recv()).await;
        let last =
            last.map_err(|_| "an event did not reach every watcher")?.ok_or("the watchers are gone")?;
        from_sent.push(last - sent);
        from_acknowledged.push(last.saturating_duration_since(acknowledged));
    }
    from_sent.sort_unstable();
    from_acknowledged.sort_unstable();
    let n = from_sent.len();
    let acknowledged = "write acknowledged to the last of 100 watchers";
    Ok(vec![
        figure(format!("{acknowledged}, p50"), percentile(&from_acknowledged, 50), "ms", n),
        figure(format!("{acknowledged}, p99"), percentile(&from_acknowledged, 99), "ms", n),
        figure("write sent to the last of 100 watchers, p50", percentile(&from_sent, 50), "ms", n),
        figure("write sent to the last of 100 watchers, p99", percentile(&from_sent, 99), "ms", n),
    ])
}

/// As many writes as 64 writers can do; it counts what arrives until every watcher has everything.
async fn flood(settings: &Settings, server: &Server, receipts: &Receipts) -> Result<Vec<Row>, Error> {
    let (begun, before, cpu) =
        (Instant::now(), receipts.seen.load(Ordering::Relaxed), server.process().cpu()?);
    let limit = Limit::time(settings.time(5));
    let writes =
        closed_loop(&server.target, 64, limit, |n| config_map(NAMESPACE, &format!("flood-{n}"))).await?;
    let wanted = before + writes.latencies.len() * WATCHERS;
    let waiting = Instant::now();
    while receipts.seen.load(Ordering::Relaxed) < wanted {
        if waiting.elapsed() > PATIENCE {
            let lost = wanted - receipts.seen.load(Ordering::Relaxed);
            return Err(format!("{lost} events did not arrive").into());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let events = wanted - before;
    let cpu = (server.process().cpu()? - cpu).as_secs_f64() * 1e6 / count(events);
    Ok(vec![
        figure("events to 100 watchers", count(events) / begun.elapsed().as_secs_f64(), "/s", events),
        figure("events to 100 watchers: server CPU each, write included", cpu, "us", events),
    ])
}
