//! When the certificates of this machine end, and how full its disk is: looked at when somebody asks for metrics.

use super::check::in_directory;
use super::found::in_file;
use coracle_apiserver::metrics::Metrics;
use coracle_metrics::Text;
use nix::sys::statvfs::statvfs;
use std::collections::BTreeMap;
use std::path::Path;

const EXPIRES: &str = "coracle_certificate_expiration_timestamp_seconds";

/// Puts them on the page of `metrics`.
pub fn show(metrics: &Metrics, data_dir: &Path, kubeconfig: &Path) {
    let (data_dir, kubeconfig) = (data_dir.to_owned(), kubeconfig.to_owned());
    metrics.collect_as("machine", move |text| {
        certificates(&data_dir, &kubeconfig, text);
        disk(&data_dir, text);
    });
}

fn certificates(data_dir: &Path, kubeconfig: &Path, text: &mut Text) {
    let mut files = in_directory(&data_dir.join("pki")).unwrap_or_default();
    files.push(kubeconfig.to_owned());
    let mut ends = BTreeMap::new();
    for file in files {
        let first = in_file(&file).unwrap_or_default().iter().map(|found| found.not_after.as_second()).min();
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned());
        if let (Some(name), Some(first)) = (name, first) {
            ends.insert(name, first);
        }
    }
    text.head(EXPIRES, "When a certificate of the data directory, or the administrator's, ends.", "gauge");
    for (name, end) in &ends {
        text.sample(EXPIRES, &[("certificate", name)], end);
    }
}

fn disk(data_dir: &Path, text: &mut Text) {
    let Ok(found) = statvfs(data_dir) else { return };
    let unit = found.fragment_size();
    // As df counts it: what is reserved for root is neither used nor free.
    let used = found.blocks().saturating_sub(found.blocks_free());
    let free = found.blocks_available() * unit;
    text.single("coracle_data_dir_free_bytes", "Room on the data directory's file system.", "gauge", free);
    let all = used * unit + free;
    text.single("coracle_data_dir_bytes", "Size of the data directory's file system.", "gauge", all);
}
