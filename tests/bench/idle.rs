//! What a control plane with one node costs while nothing happens.

use crate::load::count;
use crate::server::{ROOTLESS, Server};
use crate::table::{Row, figure};
use crate::{Error, Settings};
use std::time::Instant;

/// Memory after 20 s; CPU and disk over 30 s that begin after 10 s; the log over a minute after that, told for an hour.
pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let flags = [ROOTLESS[0], ROOTLESS[1], "--simulate-nodes", "1"];
    let server = Server::start(&settings.binary, &flags).await?;
    server.nodes_ready(1).await?;
    let process = server.process();
    tokio::time::sleep(settings.time(10)).await;
    let (begun, cpu, written) = (Instant::now(), process.cpu()?, process.written()?);
    tokio::time::sleep(settings.time(10)).await;
    let (memory, own) = (process.rss_mib()?, process.anonymous_mib()?);
    tokio::time::sleep(settings.time(20)).await;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = (process.cpu()? - cpu).as_secs_f64() * 100.0 / seconds;
    let written = f64::from(process.written()? - written) / seconds;
    let logged = server.log_lines()?;
    let minute = settings.time(60);
    tokio::time::sleep(minute).await;
    let hours = minute.as_secs_f64() / 3600.0;
    let lines = count(server.log_lines()? - logged) / hours;
    Ok(vec![
        figure("log lines in an idle hour", lines, "", 1),
        figure("idle memory", memory, "MiB", 1),
        figure("idle memory, anonymous part", own, "MiB", 1),
        figure("peak memory until then", process.peak_mib()?, "MiB", 1),
        figure("idle CPU", cpu, "% of a core", 1),
        figure("idle disk writes", written, "B/s", 1),
    ])
}
