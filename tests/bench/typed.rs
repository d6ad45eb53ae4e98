//! What it costs a pod's creation that objects pass through their types: all that it adds to the decoding and encoding of
//! JSON, as a share of the processor time that the server takes for one creation over TLS.
//!
//! The passage is timed in this process on the object that the server answers, so both must be built alike.

use crate::load::{Limit, closed_loop, count};
use crate::reads::pod;
use crate::server::{ROOTLESS, Server};
use crate::table::{Row, figure};
use crate::{Error, Settings};
use coracle_api::decode::settle;
use coracle_api::{encode, schema};
use serde_json::Value;
use std::hint::black_box;
use std::time::{Duration, Instant};

const PODS: usize = 10_000;
/// A create settles its object twice: before anybody comes to own a field, and after the server has prepared it.
const SETTLED: u32 = 2;
const BATCHES: usize = 51;
/// Calls that are timed together: some hundred times the clock's own cost.
const BATCH: u32 = 100;

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let server = Server::start(&settings.binary, &ROOTLESS).await?;
    server.namespace("default").await?;
    let mut connection = server.target.connect().await?;
    let stored = connection.json(pod("default", u64::MAX, 0)).await?;
    let pods = settings.amount(PODS);
    let limit = Limit { time: Duration::from_secs(120), calls: u64::try_from(pods)? };
    let before = server.process().cpu()?;
    let done = closed_loop(&server.target, 1, limit, |n| pod("default", n, 0)).await?;
    let created = done.latencies.len();
    let create = (server.process().cpu()? - before).as_secs_f64() * 1e6 / count(created);
    let ty = schema::of_object(&stored).ok_or("no type for a pod")?;
    let settling =
        micros(|| settle(&mut black_box(stored.clone()), ty)) - micros(|| drop(black_box(stored.clone())));
    let settling = settling * f64::from(SETTLED);
    let ordering = micros(|| drop(black_box(encode::to_storage_bytes(&stored, "v1", "Pod"))))
        - micros(|| drop(black_box(sorted(&stored))));
    let share = (settling + ordering.max(0.0)) / create * 100.0;
    Ok(vec![
        figure("create a pod: server CPU each", create, "us", created),
        figure("create a pod: settling its fields", settling, "us", BATCHES),
        figure("create a pod: their order", ordering, "us", BATCHES),
        figure("create a pod: passage through its types", share, "%", BATCHES),
    ])
}

/// As an object is written whose members follow by name.
fn sorted(object: &Value) -> Vec<u8> {
    serde_json::to_vec(object).unwrap_or_default()
}

/// The time of a call in microseconds, where nobody else had the processor.
fn micros(mut call: impl FnMut()) -> f64 {
    let batches = (0..BATCHES).map(|_| {
        let begun = Instant::now();
        (0..BATCH).for_each(|_| call());
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(BATCH)
    });
    batches.fold(f64::INFINITY, f64::min)
}
