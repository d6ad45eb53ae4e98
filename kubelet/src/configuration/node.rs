//! What the Node object says, and how often.

use super::documents::Written;
use super::reader::Reader;
use coracle_api::duration::written;
use k8s_openapi::api::core::v1::Taint;
use serde_json::json;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// Whether the kubelet makes the Node where there is none.
    pub register: bool,
    /// What a Node that it makes has.
    pub taints: Vec<Taint>,
    /// Likewise: the machine's name at whoever rents it out.
    pub provider_id: Option<String>,
    /// How often the status is looked at; upstream's 10 s.
    pub status_update: Duration,
    /// How often it is written though nothing changed; upstream's 5 minutes.
    pub status_report: Duration,
    /// After so long without renewal the Lease is over. It is renewed four times as often; upstream's 40 s.
    pub lease: Duration,
}

impl Default for Registration {
    fn default() -> Self {
        Self {
            register: true,
            taints: Vec::new(),
            provider_id: None,
            status_update: Duration::from_secs(10),
            status_report: Duration::from_secs(300),
            lease: Duration::from_secs(40),
        }
    }
}

impl Registration {
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let all = Self::default();
        let update = reader.duration("nodeStatusUpdateFrequency");
        let report = reader.duration("nodeStatusReportFrequency");
        let lease: Option<u32> = reader.whole("nodeLeaseDurationSeconds", 0..=i64::from(i32::MAX));
        let taints: Vec<Taint> = reader.get("registerWithTaints").unwrap_or_default();
        for taint in &taints {
            let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            if taint.key.is_empty() || !known.contains(&taint.effect.as_str()) {
                let known = known.join(", ");
                reader.mistake("registerWithTaints", format!("a taint needs a key and an effect of {known}"));
            }
        }
        Self {
            register: reader.get("registerNode").unwrap_or(all.register),
            taints,
            provider_id: reader.text("providerID"),
            status_update: update.unwrap_or(all.status_update),
            // Upstream's default, for who had set only the one before there were two.
            status_report: report.or(update).unwrap_or(all.status_report),
            lease: lease.filter(|s| *s > 0).map_or(all.lease, |s| Duration::from_secs(s.into())),
        }
    }

    pub fn show(&self, all: &mut Written) {
        let entries = [
            ("registerNode", json!(self.register)),
            ("nodeStatusUpdateFrequency", json!(written(self.status_update))),
            ("nodeStatusReportFrequency", json!(written(self.status_report))),
            ("nodeLeaseDurationSeconds", json!(self.lease.as_secs())),
        ];
        all.extend(entries.map(|(name, value)| (name.to_owned(), value)));
        if !self.taints.is_empty() {
            all.insert("registerWithTaints".to_owned(), json!(self.taints));
        }
        if let Some(id) = &self.provider_id {
            all.insert("providerID".to_owned(), json!(id));
        }
    }
}
