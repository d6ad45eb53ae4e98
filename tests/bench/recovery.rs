//! How soon a server answers again after kill -9, by how much it holds: checkpoint and journal are read before that.

use crate::http::Call;
use crate::load::{Limit, closed_loop, median};
use crate::server::{ROOTLESS, Server};
use crate::table::{Row, figure};
use crate::{Error, Settings};
use std::time::Duration;

/// What a ConfigMap holds. Larger ones make the same data faster, smaller ones are what clusters hold.
const PAYLOAD: usize = 16 << 10;
/// Until as much is written; a slow disk takes a megabyte and more a second.
const PATIENCE: Duration = Duration::from_secs(300);

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for mib in [10, 100, 300] {
        rows.push(killed(settings, settings.amount(mib)).await?);
    }
    Ok(rows)
}

async fn killed(settings: &Settings, mib: usize) -> Result<Row, Error> {
    let (objects, runs) = ((mib << 20) / PAYLOAD, settings.amount(5));
    let mut server = Server::start(&settings.binary, &ROOTLESS).await?;
    let limit = Limit { time: PATIENCE, calls: u64::try_from(objects)? };
    closed_loop(&server.target, 16, limit, config_map).await?;
    let mut times = Vec::new();
    for _ in 0..runs {
        server = Server::start_in(server.kill()?, &settings.binary, &ROOTLESS).await?;
        times.push(server.start_time);
    }
    let last = format!("/api/v1/namespaces/default/configmaps/recovery-{}", objects - 1);
    server.target.connect().await?.call(Call::get(&last)).await?;
    Ok(figure(format!("ready after kill -9 with {mib} MiB of data"), median(times), "ms", runs))
}

/// No two alike, so that nothing that is compressed gains by it.
fn config_map(n: u64) -> Call {
    let mut state = n + 1;
    let mut payload = String::with_capacity(PAYLOAD + 16);
    while payload.len() < PAYLOAD {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        payload.push_str(&format!("{state:016x}"));
    }
    let body = serde_json::json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": format!("recovery-{n}") },
        "data": { "payload": payload },
    });
    Call::post("/api/v1/namespaces/default/configmaps".to_owned(), body.to_string())
}
