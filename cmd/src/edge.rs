//! Settings of what holds requests back, of the audit log and of traces, under the names of upstream's flags.

use crate::settings::first_of;
use crate::time::Time;
use clap::Args;
use coracle_api::error::chain;
use coracle_apiserver::admission::configuration::{self, Configuration};
use coracle_apiserver::flowcontrol;
use coracle_apiserver::pki::authorities;
use coracle_apiserver::server::EdgeOptions;
use coracle_apiserver::traces;
use rustls::pki_types::CertificateDer;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// In the configuration file under `apiServer`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EdgeArgs {
    /// Requests that are read-only and served at a time; with the next one, the seats of all priority levels [default: 400]
    #[arg(long, value_name = "N")]
    pub max_requests_inflight: Option<u32>,
    /// Requests that change something and are served at a time [default: 200]
    #[arg(long, value_name = "N")]
    pub max_mutating_requests_inflight: Option<u32>,
    /// How long a request may take, unless it is a watch or a stream [default: 1m0s]
    #[arg(long, value_name = "DURATION")]
    pub request_timeout: Option<Time>,
    /// Which requests are recorded: a file with an audit.k8s.io/v1 Policy; needs --audit-log-path or
    /// --audit-webhook-config-file [default: changes, secrets and entries into pods, without bodies]
    #[arg(long, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,
    /// Where audit events go, as lines of JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub audit_log_path: Option<String>,
    /// Megabytes of an audit log before it is set aside; 0 sets none aside [default: 100]
    #[arg(long, value_name = "MB")]
    pub audit_log_maxsize: Option<u64>,
    /// Audit logs that are kept beside the present one; 0 keeps all [default: 100]
    #[arg(long, value_name = "N")]
    pub audit_log_maxbackup: Option<usize>,
    /// Days that audit logs are kept; 0 keeps them for ever [default: 366]
    #[arg(long, value_name = "DAYS")]
    pub audit_log_maxage: Option<u64>,
    /// Packs audit logs that are set aside with gzip
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub audit_log_compress: Option<bool>,
    /// How audit events are written: batch, blocking, or blocking-strict, which refuses what cannot be recorded [default: blocking]
    #[arg(long, value_name = "MODE")]
    pub audit_log_mode: Option<String>,
    /// Whether events that are too large lose their request and response [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub audit_log_truncate_enabled: Option<bool>,
    /// Largest event [default: 102400]
    #[arg(long, value_name = "BYTES")]
    pub audit_log_truncate_max_event_size: Option<usize>,
    /// Most of what is written together; lines are written one by one, so that it never matters [default: 10485760]
    #[arg(long, value_name = "BYTES")]
    pub audit_log_truncate_max_batch_size: Option<usize>,
    /// In the mode batch, audit events that may wait to be written; beyond, they are lost [default: 10000]
    #[arg(long, value_name = "N")]
    pub audit_log_batch_buffer_size: Option<usize>,
    /// Most audit events that are written together [default: 1]
    #[arg(long, value_name = "N")]
    pub audit_log_batch_max_size: Option<usize>,
    /// How long an audit event waits for others before it is written [default: 0s]
    #[arg(long, value_name = "DURATION")]
    pub audit_log_batch_max_wait: Option<Time>,
    /// Whether writing is throttled [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub audit_log_batch_throttle_enable: Option<bool>,
    /// Most batches written in a second
    #[arg(long, value_name = "N")]
    pub audit_log_batch_throttle_qps: Option<f64>,
    /// Most batches written at once after a pause
    #[arg(long, value_name = "N")]
    pub audit_log_batch_throttle_burst: Option<u32>,
    /// Where audit events are posted: a kubeconfig whose server is the collector
    #[arg(long, value_name = "FILE")]
    pub audit_webhook_config_file: Option<PathBuf>,
    /// How audit events are posted: batch, blocking or blocking-strict [default: batch]
    #[arg(long, value_name = "MODE")]
    pub audit_webhook_mode: Option<String>,
    /// Pause after a first attempt that failed; there are five [default: 10s]
    #[arg(long, value_name = "DURATION")]
    pub audit_webhook_initial_backoff: Option<Time>,
    /// Audit events that may wait to be posted; beyond, they are lost [default: 10000]
    #[arg(long, value_name = "N")]
    pub audit_webhook_batch_buffer_size: Option<usize>,
    /// Most audit events in one post [default: 400]
    #[arg(long, value_name = "N")]
    pub audit_webhook_batch_max_size: Option<usize>,
    /// How long an audit event waits for others [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub audit_webhook_batch_max_wait: Option<Time>,
    /// Whether posts are throttled [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub audit_webhook_batch_throttle_enable: Option<bool>,
    /// Most posts a second [default: 10]
    #[arg(long, value_name = "N")]
    pub audit_webhook_batch_throttle_qps: Option<f64>,
    /// Most posts at once after a pause [default: 15]
    #[arg(long, value_name = "N")]
    pub audit_webhook_batch_throttle_burst: Option<u32>,
    /// As --audit-log-truncate-enabled, of what is posted
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub audit_webhook_truncate_enabled: Option<bool>,
    /// Largest post [default: 10485760]
    #[arg(long, value_name = "BYTES")]
    pub audit_webhook_truncate_max_batch_size: Option<usize>,
    /// Largest event that is posted [default: 102400]
    #[arg(long, value_name = "BYTES")]
    pub audit_webhook_truncate_max_event_size: Option<usize>,
    /// Traces requests for OpenTelemetry: a file with an apiserver.config.k8s.io/v1 TracingConfiguration
    #[arg(long, value_name = "FILE")]
    pub tracing_config_file: Option<PathBuf>,
    /// Further authorities of kubelets' serving certificates, beside the cluster's own: a PEM file, for kubelets that have
    /// their certificate from elsewhere
    #[arg(long, value_name = "FILE")]
    pub kubelet_certificate_authority: Option<PathBuf>,
    /// Settings of admission plugins: a file with an apiserver.config.k8s.io/v1 AdmissionConfiguration
    #[arg(long, value_name = "FILE")]
    pub admission_control_config_file: Option<PathBuf>,
}

impl EdgeArgs {
    /// These, and where one is missing the other's.
    pub fn or(self, other: Self) -> Self {
        first_of!(
            self, other:
            max_requests_inflight, max_mutating_requests_inflight, request_timeout, audit_policy_file,
            audit_log_path, audit_log_maxsize, audit_log_maxbackup, audit_log_maxage, audit_log_compress,
            audit_log_mode, audit_log_truncate_enabled, audit_log_truncate_max_event_size,
            audit_log_truncate_max_batch_size, audit_log_batch_buffer_size, audit_log_batch_max_size,
            audit_log_batch_max_wait, audit_log_batch_throttle_enable, audit_log_batch_throttle_qps,
            audit_log_batch_throttle_burst, audit_webhook_config_file, audit_webhook_mode,
            audit_webhook_initial_backoff, audit_webhook_batch_buffer_size, audit_webhook_batch_max_size,
            audit_webhook_batch_max_wait, audit_webhook_batch_throttle_enable,
            audit_webhook_batch_throttle_qps, audit_webhook_batch_throttle_burst,
            audit_webhook_truncate_enabled, audit_webhook_truncate_max_batch_size,
            audit_webhook_truncate_max_event_size, tracing_config_file, admission_control_config_file,
            kubelet_certificate_authority
        )
    }

    /// What the file says of admission plugins; their defaults without one.
    pub fn admission(&self) -> Result<Configuration, String> {
        self.admission_control_config_file
            .as_deref()
            .map_or_else(|| Ok(Configuration::default()), configuration::load)
    }

    /// Whom kubelets' ports are believed by beside the cluster's own authority.
    pub fn kubelet_authorities(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let named = self.kubelet_certificate_authority.as_deref();
        let found = named.map(|path| authorities(path).map_err(|error| chain(&error)));
        found.unwrap_or_else(|| Ok(Vec::new()))
    }

    fn traces(&self) -> Result<Option<traces::Config>, String> {
        self.tracing_config_file.as_deref().map(traces::Config::load).transpose()
    }

    pub fn check(&self, mistakes: &mut Vec<String>) {
        if let Err(mistake) = self.admission() {
            mistakes.push(format!("admission-control-config-file: {mistake}"));
        }
        if let Err(mistake) = self.kubelet_authorities() {
            mistakes.push(format!("kubelet-certificate-authority: {mistake}"));
        }
        self.check_audit(mistakes);
        if let Err(mistake) = self.traces() {
            mistakes.push(format!("tracing-config-file: {mistake}"));
        }
        if self.max_requests_inflight == Some(0) || self.max_mutating_requests_inflight == Some(0) {
            mistakes
                .push("max-requests-inflight, max-mutating-requests-inflight: must be at least 1".to_owned());
        }
        if self.request_timeout.is_some_and(|time| time.0 < Duration::from_secs(1)) {
            mistakes.push("request-timeout: must be at least 1 second".to_owned());
        }
    }

    /// Opens the audit log, if there is to be one.
    pub async fn options(&self) -> Result<EdgeOptions, Box<dyn std::error::Error + Send + Sync>> {
        let request_timeout = self.request_timeout.map_or(Duration::from_secs(60), |time| time.0);
        let seats = self.max_requests_inflight.unwrap_or(400);
        let flow = flowcontrol::Options {
            total_seats: seats.saturating_add(self.max_mutating_requests_inflight.unwrap_or(200)),
            patience: request_timeout / 4,
        };
        let audit = self.audit_log().await?;
        Ok(EdgeOptions { flow, request_timeout, audit, traces: self.traces()?, ..EdgeOptions::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn seats_and_patience_follow_the_flags() {
        let args = EdgeArgs {
            max_requests_inflight: Some(10),
            request_timeout: Some("20s".parse().unwrap()),
            ..EdgeArgs::default()
        };
        let options = args.options().await.unwrap();
        assert_eq!((options.flow.total_seats, options.flow.patience.as_secs()), (210, 5));
        assert!(options.audit.is_none());
    }
}
