//! How soon a cluster can be used.

use crate::http::Call;
use crate::load::{Limit, closed_loop, median};
use crate::server::{ROOTLESS, Server};
use crate::table::{Row, figure};
use crate::writes::config_map;
use crate::{Error, Settings};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub fn size(settings: &Settings) -> Result<Vec<Row>, Error> {
    let bytes = u32::try_from(std::fs::metadata(&settings.binary)?.len())?;
    Ok(vec![figure("binary size", f64::from(bytes) / 1024.0 / 1024.0, "MiB", 1)])
}

/// From nothing at all: keys are made, the store is laid out, the first objects are written.
pub async fn cold(settings: &Settings) -> Result<Vec<Row>, Error> {
    let runs = settings.amount(11);
    let mut starts = Vec::new();
    for _ in 0..runs {
        starts.push(Server::start(&settings.binary, &ROOTLESS).await?.start_time);
    }
    let mut whole = Vec::new();
    for _ in 0..runs {
        whole.push(ci(settings)?);
    }
    Ok(vec![
        figure("cold start to /readyz", median(starts), "ms", runs),
        figure("coracle ci -- true", median(whole), "ms", runs),
    ])
}

fn ci(settings: &Settings) -> Result<Duration, Error> {
    let begun = Instant::now();
    let status = Command::new(&settings.binary).args(["ci", "--", "true"]).stdin(Stdio::null()).status()?;
    if status.success() { Ok(begun.elapsed()) } else { Err(format!("ci -- true: {status}").into()) }
}

/// On the data of an earlier run: after an orderly end, and after kill -9, when the journal has to be replayed.
pub async fn restart(settings: &Settings) -> Result<Vec<Row>, Error> {
    let (objects, runs) = (settings.amount(10_000), settings.amount(5));
    let mut server = Server::start(&settings.binary, &ROOTLESS).await?;
    let limit = Limit { time: Duration::from_secs(60), calls: u64::try_from(objects)? };
    closed_loop(&server.target, 64, limit, |n| config_map("default", &format!("restart-{n}"))).await?;
    let (mut orderly, mut killed) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        server = Server::start_in(server.kill()?, &settings.binary, &ROOTLESS).await?;
        killed.push(server.start_time);
        server = Server::start_in(server.stop()?, &settings.binary, &ROOTLESS).await?;
        orderly.push(server.start_time);
    }
    let mut connection = server.target.connect().await?;
    let left =
        connection.json(Call::get("/api/v1/namespaces/default/configmaps?labelSelector=bench")).await?;
    let found = left["items"].as_array().map_or(0, Vec::len);
    if found != objects {
        return Err(format!("{found} of {objects} objects left after the restarts").into());
    }
    let objects = if settings.quick { "2,000" } else { "10,000" };
    Ok(vec![
        figure(format!("restart with {objects} objects"), median(orderly), "ms", runs),
        figure(format!("restart with {objects} objects after kill -9"), median(killed), "ms", runs),
    ])
}
