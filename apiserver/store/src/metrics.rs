//! What the embedded store tells of itself on the metrics page.

use super::{SledStore, Store};
use coracle_component_base::metrics::{Metrics, Text};
use std::sync::Weak;

/// Shows the figures of a store for as long as it lives; the page does not keep it open.
pub fn collect(metrics: &Metrics, store: Weak<SledStore>) {
    metrics.collect(move |text| {
        if let Some(store) = store.upgrade() {
            render(&store, text);
        }
    });
}

fn render(store: &SledStore, text: &mut Text) {
    let report = store.report();
    let counters = [
        ("coracle_store_commits_total", "Transactions committed.", report.commits),
        ("coracle_store_groups_total", "Durable groups, each one sync of the journal.", report.groups),
        ("coracle_store_journal_bytes_total", "Bytes written to the journal.", report.journal_bytes_written),
        ("coracle_store_checkpoints_total", "Checkpoints written to sled.", report.checkpoints),
        ("coracle_store_checkpoint_failures_total", "Checkpoints that failed.", report.checkpoint_failures),
        ("coracle_store_snapshots_total", "Snapshots written.", report.snapshots),
        (
            "coracle_store_verifications_total",
            "Times that all of the store's files were read again to find damage.",
            report.verifications,
        ),
    ];
    for (name, help, value) in counters {
        text.single(name, help, "counter", value);
    }
    let name = "coracle_store_incidents_total";
    text.head(name, "What happened to the store since the start, by the reason of its event.", "counter");
    for (kind, count) in &report.incident_totals {
        text.sample(name, &[("reason", kind.reason())], count);
    }
    let errors = report.incidents.iter().filter(|incident| incident.kind.is_error()).count() as u64;
    let disk_bytes = store.disk_bytes();
    let gauges = [
        ("coracle_store_objects", "Keys in the store.", report.objects),
        (
            "coracle_store_history_revisions",
            "Commits that watches can resume from.",
            report.history_revisions,
        ),
        ("coracle_store_history_bytes", "Memory that only these commits keep.", store.history_bytes() as u64),
        ("coracle_store_live_bytes", "Keys and values at the last checkpoint.", report.live_bytes),
        ("coracle_store_sled_bytes", "sled's files at the last checkpoint.", report.tree_bytes),
        (
            "coracle_store_disk_bytes",
            "All of the store's files, journal and space set aside too.",
            disk_bytes,
        ),
        ("coracle_store_incidents", "Damage, failures and refusals since the start.", errors),
        ("coracle_store_read_only", "1 while writes are refused.", u64::from(store.read_only().is_some())),
    ];
    for (name, help, value) in gauges {
        text.single(name, help, "gauge", value);
    }
    let name = "apiserver_storage_size_bytes";
    text.head(name, "Size of the store's files.", "gauge");
    text.sample(name, &[("storage_cluster_id", "etcd-0")], disk_bytes);
}
