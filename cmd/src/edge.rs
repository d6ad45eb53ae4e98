//! Settings of what holds requests back, of the audit log and of traces, under the names of upstream's flags.

use clap::Args;
use coracle_apiserver::admission::configuration;
use coracle_apiserver::admission::pod_security::Settings;
use coracle_apiserver::audit::{Log, Mode, Policy, Rotation, Sink, Target};
use coracle_apiserver::flowcontrol;
use coracle_apiserver::server::EdgeOptions;
use coracle_apiserver::traces;
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
    /// Seconds that a request may take, unless it is a watch or a stream [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub request_timeout: Option<u64>,
    /// Which requests are recorded: a file with an audit.k8s.io/v1 Policy; needs --audit-log-path
    #[arg(long, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,
    /// Where audit events go, as lines of JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub audit_log_path: Option<String>,
    /// Megabytes of an audit log before it is set aside [default: 100]
    #[arg(long, value_name = "MB")]
    pub audit_log_maxsize: Option<u64>,
    /// Audit logs that are kept beside the present one [default: all]
    #[arg(long, value_name = "N")]
    pub audit_log_maxbackup: Option<usize>,
    /// Days that audit logs are kept [default: for ever]
    #[arg(long, value_name = "DAYS")]
    pub audit_log_maxage: Option<u64>,
    /// Packs audit logs that are set aside with gzip
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub audit_log_compress: Option<bool>,
    /// How audit events are written: batch, blocking, or blocking-strict, which refuses what cannot be recorded [default: blocking]
    #[arg(long, value_name = "MODE")]
    pub audit_log_mode: Option<String>,
    /// Traces requests for OpenTelemetry: a file with an apiserver.config.k8s.io/v1 TracingConfiguration
    #[arg(long, value_name = "FILE")]
    pub tracing_config_file: Option<PathBuf>,
    /// Settings of admission plugins: a file with an apiserver.config.k8s.io/v1 AdmissionConfiguration
    #[arg(long, value_name = "FILE")]
    pub admission_control_config_file: Option<PathBuf>,
}

impl EdgeArgs {
    /// These, and where one is missing the other's.
    pub fn or(self, other: Self) -> Self {
        Self {
            max_requests_inflight: self.max_requests_inflight.or(other.max_requests_inflight),
            max_mutating_requests_inflight: self
                .max_mutating_requests_inflight
                .or(other.max_mutating_requests_inflight),
            request_timeout: self.request_timeout.or(other.request_timeout),
            audit_policy_file: self.audit_policy_file.or(other.audit_policy_file),
            audit_log_path: self.audit_log_path.or(other.audit_log_path),
            audit_log_maxsize: self.audit_log_maxsize.or(other.audit_log_maxsize),
            audit_log_maxbackup: self.audit_log_maxbackup.or(other.audit_log_maxbackup),
            audit_log_maxage: self.audit_log_maxage.or(other.audit_log_maxage),
            audit_log_compress: self.audit_log_compress.or(other.audit_log_compress),
            audit_log_mode: self.audit_log_mode.or(other.audit_log_mode),
            tracing_config_file: self.tracing_config_file.or(other.tracing_config_file),
            admission_control_config_file: self
                .admission_control_config_file
                .or(other.admission_control_config_file),
        }
    }

    /// What the file says of PodSecurity; its defaults without one.
    pub fn pod_security(&self) -> Result<Settings, String> {
        self.admission_control_config_file
            .as_deref()
            .map_or_else(|| Ok(Settings::default()), configuration::load)
    }

    fn audit_mode(&self) -> Result<Mode, String> {
        let Some(mode) = &self.audit_log_mode else { return Ok(Mode::default()) };
        Mode::parse(mode).ok_or_else(|| {
            format!("invalid audit log mode {mode}, allowed modes are \"batch,blocking,blocking-strict\"")
        })
    }

    fn traces(&self) -> Result<Option<traces::Config>, String> {
        self.tracing_config_file.as_deref().map(traces::Config::load).transpose()
    }

    pub fn check(&self, mistakes: &mut Vec<String>) {
        if let Err(mistake) = self.pod_security() {
            mistakes.push(format!("admission-control-config-file: {mistake}"));
        }
        mistakes.extend(self.audit_mode().err().map(|mistake| format!("audit-log-mode: {mistake}")));
        if let Err(mistake) = self.traces() {
            mistakes.push(format!("tracing-config-file: {mistake}"));
        }
        if self.audit_policy_file.is_some() != self.audit_log_path.is_some() {
            mistakes.push("audit-policy-file and audit-log-path: each needs the other".to_owned());
        }
        if self.max_requests_inflight == Some(0) || self.max_mutating_requests_inflight == Some(0) {
            mistakes
                .push("max-requests-inflight, max-mutating-requests-inflight: must be at least 1".to_owned());
        }
        if self.request_timeout == Some(0) {
            mistakes.push("request-timeout: must be at least 1 second".to_owned());
        }
    }

    /// Opens the audit log, if there is to be one.
    pub fn options(&self) -> Result<EdgeOptions, Box<dyn std::error::Error + Send + Sync>> {
        let request_timeout = Duration::from_secs(self.request_timeout.unwrap_or(60));
        let seats = self.max_requests_inflight.unwrap_or(400);
        let flow = flowcontrol::Options {
            total_seats: seats.saturating_add(self.max_mutating_requests_inflight.unwrap_or(200)),
            patience: request_timeout / 4,
        };
        let audit = match (&self.audit_policy_file, &self.audit_log_path) {
            (Some(policy), Some(path)) => {
                let rotation = Rotation {
                    max_bytes: self.audit_log_maxsize.unwrap_or(0) << 20,
                    max_backups: self.audit_log_maxbackup.unwrap_or(0),
                    max_age_days: self.audit_log_maxage.unwrap_or(0),
                    compress: self.audit_log_compress.unwrap_or(false),
                };
                let sink = Sink::open(Target::new(path, rotation), self.audit_mode()?)?;
                Some(Log::new(Policy::load(policy)?, sink))
            }
            _ => None,
        };
        Ok(EdgeOptions { flow, request_timeout, audit, traces: self.traces()?, front_proxy: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_and_patience_follow_the_flags() {
        let options =
            EdgeArgs { max_requests_inflight: Some(10), request_timeout: Some(20), ..EdgeArgs::default() }
                .options()
                .unwrap();
        assert_eq!((options.flow.total_seats, options.flow.patience.as_secs()), (210, 5));
        assert!(options.audit.is_none());
    }

    #[test]
    fn a_policy_alone_is_a_mistake() {
        let mut mistakes = Vec::new();
        EdgeArgs { audit_policy_file: Some("p".into()), ..EdgeArgs::default() }.check(&mut mistakes);
        assert_eq!(mistakes, ["audit-policy-file and audit-log-path: each needs the other"]);
    }
}
