//! What the disk itself can do, to read the other figures by.

use crate::load::{count, percentile};
use crate::table::{Row, figure};
use crate::{Error, Settings};
use std::io::{Seek, SeekFrom, Write};
use std::time::Instant;

/// Overwrites a preallocated file in place, 4 KiB at a time, each made durable.
pub fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    const BLOCK: usize = 4096;
    const BLOCKS: usize = 1024;
    let mut file = tempfile::tempfile()?;
    file.write_all(&vec![0; BLOCK * BLOCKS])?;
    file.sync_all()?;
    file.seek(SeekFrom::Start(0))?;
    let (begun, time) = (Instant::now(), settings.time(3));
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
    let per_second = count(latencies.len()) / begun.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let n = latencies.len();
    Ok(vec![
        figure("reference: the disk's own 4 KiB durable writes, 1 writer", per_second, "/s", n),
        figure("reference: the disk's own 4 KiB durable writes, p50", percentile(&latencies, 50), "ms", n),
    ])
}
