//! A thousand watchers, each on a connection of its own, and one event for each: all of one object, and each of its
//! own by a field selector.

use crate::http::Call;
use crate::load::{count, percentile};
use crate::process::Process;
use crate::server::{ROOTLESS, Server};
use crate::table::{Row, figure};
use crate::writes::config_map;
use crate::{Error, Settings};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const WATCHERS: usize = 1000;
const NAMESPACE: &str = "crowd";
const PATH: &str = "/api/v1/namespaces/crowd/configmaps";
/// An event that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// Each watcher is a descriptor here and one in the server, which inherits the limit; 1,024 is a common default.
pub fn allow_descriptors() -> Result<(), Error> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?)
}

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    allow_descriptors()?;
    let server = Server::start(&settings.binary, &ROOTLESS).await?;
    server.namespace(NAMESPACE).await?;
    // The namespace's certificate bundle comes a moment after its service account.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = server.process().rss_mib()?;
    let mut rows = Vec::new();
    for (name, own) in [("1,000 watchers of one event", false), ("1,000 watchers, an event for each", true)] {
        rows.extend(round(&server, name, WATCHERS, own).await?);
    }
    rows.push(figure("memory before the watchers", before, "MiB", 1));
    rows.push(figure("peak memory with 1,000 watchers", server.process().peak_mib()?, "MiB", 1));
    Ok(rows)
}

async fn round(server: &Server, name: &str, watchers: usize, own: bool) -> Result<Vec<Row>, Error> {
    let mut connection = server.target.connect().await?;
    let list = connection.json(Call::get(PATH)).await?;
    let version =
        list["metadata"]["resourceVersion"].as_str().ok_or("a list without resourceVersion")?.to_owned();
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for n in 0..watchers {
        let connection = server.target.connect().await?;
        let select = if own { format!("&fieldSelector=metadata.name=own-{n}") } else { String::new() };
        let mut watch =
            connection.watch(format!("{PATH}?watch=true&resourceVersion={version}{select}")).await?;
        let arrived = arrived.clone();
        tasks.spawn(async move {
            while watch.event().await.is_ok() {
                // Nobody listens any more at the end.
                let _ = arrived.send((n, Instant::now()));
            }
        });
    }
    let open = server.process().rss_mib()?;
    let (cpu, load, begun) = (server.process().cpu()?, Process::own().cpu()?, Instant::now());
    let writes = if own { watchers } else { 1 };
    let mut sent = Vec::with_capacity(writes);
    for n in 0..writes {
        sent.push(Instant::now());
        connection.call(config_map(NAMESPACE, &format!("{}-{n}", if own { "own" } else { "one" }))).await?;
    }
    let mut latencies = Vec::with_capacity(watchers);
    while latencies.len() < watchers {
        let next = tokio::time::timeout(PATIENCE, arrivals.recv()).await;
        let (n, at) =
            next.map_err(|_| format!("{} of {watchers} events", latencies.len()))?.ok_or("no watchers")?;
        latencies.push(at - sent[if own { n } else { 0 }]);
    }
    let elapsed = begun.elapsed().as_secs_f64();
    let cpu = (server.process().cpu()? - cpu).as_secs_f64() * 1e6 / count(watchers);
    let load = (Process::own().cpu()? - load).as_secs_f64() * 1e6 / count(watchers);
    latencies.sort_unstable();
    Ok(vec![
        figure(name, count(watchers) / elapsed, "/s", watchers),
        figure(format!("{name}, p50"), percentile(&latencies, 50), "ms", watchers),
        figure(format!("{name}, p99"), percentile(&latencies, 99), "ms", watchers),
        figure(format!("{name}: server CPU each"), cpu, "us", watchers),
        figure(format!("{name}: the load's own CPU each"), load, "us", watchers),
        figure(format!("{name}: memory with open watches"), open, "MiB", 1),
    ])
}
