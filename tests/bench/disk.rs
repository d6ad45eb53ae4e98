//! What the disk itself can do, to read the other figures by.

use crate::load::{count, percentile};
use crate::table::{Row, figure};
use crate::{Error, Settings};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const BLOCKS: usize = 1024;

/// Overwrites a preallocated file in place, 4 KiB at a time, each made durable. Once on a machine that has nothing
/// else to do, and once with its cores kept awake: a virtual machine may learn that a write is done only when its
/// core wakes up, at worst with the next tick of its clock.
pub fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let time = settings.time(3);
    let mut rows = rows("", &synced_writes(time)?);
    let done = AtomicBool::new(false);
    let awake = std::thread::scope(|threads| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let latencies = synced_writes(time);
        done.store(true, Ordering::Relaxed);
        latencies
    })?;
    rows.extend(self::rows(", cores kept awake", &awake));
    Ok(rows)
}

/// One writer's latencies, sorted.
fn synced_writes(time: Duration) -> Result<Vec<Duration>, Error> {
    let mut file: File = tempfile::tempfile()?;
    file.write_all(&vec![0; BLOCK * BLOCKS])?;
    file.sync_all()?;
    let begun = Instant::now();
    let mut latencies = Vec::new();
    while begun.elapsed() < time {
        if latencies.len() % BLOCKS == 0 {
            file.seek(SeekFrom::Start(0))?;
        }
        let one = Instant::now();
        file.write_all(&[1; BLOCK])?;
        file.sync_data()?;
        latencies.push(one.elapsed());
    }
    latencies.sort_unstable();
    Ok(latencies)
}

fn rows(how: &str, latencies: &[Duration]) -> Vec<Row> {
    let n = latencies.len();
    let per_second = count(n) / latencies.iter().sum::<Duration>().as_secs_f64();
    let name = "reference: 4 KiB durable writes to the disk";
    vec![
        figure(format!("{name}, 1 writer{how}"), per_second, "/s", n),
        figure(format!("{name}, 1 writer{how}, p50"), percentile(latencies, 50), "ms", n),
    ]
}
