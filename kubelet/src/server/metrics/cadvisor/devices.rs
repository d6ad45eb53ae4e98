//! What groups have read from disks and written to them, by device.

use super::Row;
use crate::server::stats::DeviceUse;
use coracle_metrics::Text;
use std::collections::HashMap;

type Field = fn(&DeviceUse) -> u64;

const FAMILIES: [(&str, &str, Field); 4] = [
    ("container_fs_reads_bytes_total", "Cumulative count of bytes read", |d| d.read_bytes),
    ("container_fs_reads_total", "Cumulative count of reads completed", |d| d.reads),
    ("container_fs_writes_bytes_total", "Cumulative count of bytes written", |d| d.written_bytes),
    ("container_fs_writes_total", "Cumulative count of writes completed", |d| d.writes),
];

pub(super) fn write(page: &mut Text, rows: &[Row]) {
    let paths = paths(rows);
    for (name, help, of) in FAMILIES {
        page.head(name, help, "counter");
        for (row, device) in uses(rows) {
            let mut labels = row.labels();
            labels.insert(1, ("device", paths.get(&device.device).map_or("", String::as_str)));
            page.sample_at(name, &labels, of(device), row.millis());
        }
        // cAdvisor says so of containers without a device, too.
        for row in rows.iter().filter(|row| row.sample.account.as_ref().is_some_and(|a| a.devices.is_empty()))
        {
            let mut labels = row.labels();
            labels.insert(1, ("device", ""));
            page.sample_at(name, &labels, 0, row.millis());
        }
    }
    blkio(page, rows, &paths);
}

fn blkio(page: &mut Text, rows: &[Row], paths: &HashMap<String, String>) {
    let name = "container_blkio_device_usage_total";
    page.head(name, "Blkio Device bytes usage", "counter");
    for (row, device) in uses(rows) {
        let (major, minor) = device.numbers();
        for (operation, bytes) in [("Read", device.read_bytes), ("Write", device.written_bytes)] {
            let mut labels = row.labels();
            labels.insert(1, ("device", paths.get(&device.device).map_or("", String::as_str)));
            labels.extend([("major", major), ("minor", minor), ("operation", operation)]);
            page.sample_at(name, &labels, bytes, row.millis());
        }
    }
}

fn uses(rows: &[Row]) -> impl Iterator<Item = (&Row, &DeviceUse)> {
    rows.iter().flat_map(|row| {
        row.sample.account.iter().flat_map(|account| &account.devices).map(move |device| (row, device))
    })
}

/// Where devices are found, by their numbers.
fn paths(rows: &[Row]) -> HashMap<String, String> {
    let mut paths = HashMap::new();
    for (_, device) in uses(rows) {
        paths.entry(device.device.clone()).or_insert_with(|| device.path());
    }
    paths
}
