//! How long containers' logs grow.

use super::documents::Written;
use super::reader::Reader;
use coracle_api::duration::written;
use coracle_api::quantity::Quantity;
use serde_json::json;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Bytes after which a log is rotated; upstream's 10 MiB.
    pub max_bytes: u64,
    /// Files that are kept of a container, the one that is written among them; upstream's.
    pub max_files: u32,
    /// Logs that are rotated at once; upstream's.
    pub workers: usize,
    /// Between looks at the sizes; upstream's.
    pub interval: Duration,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { max_bytes: 10 << 20, max_files: 5, workers: 1, interval: Duration::from_secs(10) }
    }
}

impl LogSettings {
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let all = Self::default();
        let size = reader.quantity("containerLogMaxSize").and_then(|size| u64::try_from(size.units()).ok());
        let interval = reader.duration("containerLogMonitorInterval").unwrap_or(all.interval);
        if interval < Duration::from_secs(3) {
            reader.mistake("containerLogMonitorInterval", "it is less than 3s");
        }
        Self {
            max_bytes: size.filter(|size| *size > 0).unwrap_or(all.max_bytes),
            max_files: reader.whole("containerLogMaxFiles", 2..=i64::from(u32::MAX)).unwrap_or(all.max_files),
            workers: reader.whole("containerLogMaxWorkers", 1..=1024).unwrap_or(all.workers),
            interval,
        }
    }

    pub fn show(&self, all: &mut Written) {
        let size = Quantity::from_bytes(i64::try_from(self.max_bytes).unwrap_or(i64::MAX)).to_string();
        let entries = [
            ("containerLogMaxSize", json!(size)),
            ("containerLogMaxFiles", json!(self.max_files)),
            ("containerLogMaxWorkers", json!(self.workers)),
            ("containerLogMonitorInterval", json!(written(self.interval))),
        ];
        all.extend(entries.map(|(name, value)| (name.to_owned(), value)));
    }
}
