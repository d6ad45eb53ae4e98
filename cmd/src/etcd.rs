//! Settings of the etcd backend.

use crate::settings::first_of;
use clap::Args;
use coracle_apiserver::store::StoreError;
use coracle_apiserver::store::etcd::{EtcdOptions, EtcdStore, Tls};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Between two attempts of the start.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// As upstream's.
const PREFIX: &str = "/registry";

/// Flags with upstream's names.
#[derive(Args, Clone, Debug, Default)]
pub struct EtcdArgs {
    /// Servers of the etcd backend, all of one cluster
    #[arg(long, value_name = "URL,...", value_delimiter = ',')]
    pub etcd_servers: Option<Vec<String>>,
    /// Who signs the certificates of etcd's servers
    #[arg(long, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,
    /// Certificate towards etcd
    #[arg(long, value_name = "FILE")]
    pub etcd_certfile: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE")]
    pub etcd_keyfile: Option<PathBuf>,
    /// Where this cluster's keys begin in etcd [default: /registry]
    #[arg(long, value_name = "PREFIX")]
    pub etcd_prefix: Option<String>,
}

impl EtcdArgs {
    /// These, and where one is missing the other's.
    pub fn or(self, other: Self) -> Self {
        first_of!(self, other: etcd_servers, etcd_cafile, etcd_certfile, etcd_keyfile, etcd_prefix)
    }

    /// The first flag that only this backend takes.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            ("etcd-servers", self.etcd_servers.is_some()),
            ("etcd-cafile", self.etcd_cafile.is_some()),
            ("etcd-certfile", self.etcd_certfile.is_some()),
            ("etcd-keyfile", self.etcd_keyfile.is_some()),
            ("etcd-prefix", self.etcd_prefix.is_some()),
        ];
        flags.iter().find_map(|(flag, given)| given.then_some(*flag))
    }

    /// Checked, and the files read.
    pub fn options(&self, mistakes: &mut Vec<String>) -> EtcdOptions {
        let servers = self.etcd_servers.clone().unwrap_or_default();
        if servers.is_empty() {
            mistakes.push(
                "etcd-servers: the etcd backend needs at least one, such as https://127.0.0.1:2379"
                    .to_owned(),
            );
        }
        for server in servers.iter().filter(|server| !is_url(server)) {
            mistakes.push(format!("etcd-servers: \"{server}\" is no URL such as https://127.0.0.1:2379"));
        }
        if servers.iter().any(|server| server.starts_with("https://")) && self.etcd_cafile.is_none() {
            mistakes.push("etcd-cafile: servers by https need it".to_owned());
        }
        if self.etcd_certfile.is_some() != self.etcd_keyfile.is_some() {
            mistakes.push("etcd-certfile: goes with --etcd-keyfile".to_owned());
        }
        let prefix = self.etcd_prefix.clone().unwrap_or_else(|| PREFIX.to_owned());
        if prefix.trim_matches('/').is_empty() || prefix.contains("//") {
            mistakes.push(format!("etcd-prefix: \"{prefix}\" is no path such as {PREFIX}"));
        }
        let mut read = |flag: &str, path: &Option<PathBuf>| pem(flag, path.as_deref()?, mistakes);
        let ca = read("etcd-cafile", &self.etcd_cafile);
        let certificate = read("etcd-certfile", &self.etcd_certfile);
        let key = read("etcd-keyfile", &self.etcd_keyfile);
        let tls = Tls { ca, identity: certificate.zip(key) };
        EtcdOptions { servers, tls, prefix, ..EtcdOptions::default() }
    }
}

fn is_url(server: &str) -> bool {
    let rest = server.strip_prefix("https://").or_else(|| server.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.trim_end_matches('/').contains('/'))
}

fn pem(flag: &str, path: &Path, mistakes: &mut Vec<String>) -> Option<Vec<u8>> {
    match std::fs::read(path) {
        Ok(text) if text.windows(10).any(|part| part == b"-----BEGIN") => Some(text),
        Ok(_) => {
            mistakes.push(format!("{flag}: {} holds no PEM block", path.display()));
            None
        }
        Err(error) => {
            mistakes.push(format!("{flag}: {}: {error}", path.display()));
            None
        }
    }
}

/// Tries until etcd answers, and says what keeps it from that.
pub async fn open(options: &EtcdOptions) -> Result<Arc<EtcdStore>, StoreError> {
    loop {
        match EtcdStore::open(options).await {
            // Of what was to be listed somebody may have compacted the past meanwhile.
            Err(error @ (StoreError::Unavailable(_) | StoreError::Compacted { .. })) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "etcd cannot be used, trying again");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_mistakes_are_told_at_once() {
        let wrong = EtcdArgs {
            etcd_servers: Some(vec!["127.0.0.1:2379".to_owned(), "https://a:1".to_owned()]),
            etcd_certfile: Some("/nowhere/cert".into()),
            etcd_prefix: Some("/".to_owned()),
            ..EtcdArgs::default()
        };
        let mut mistakes = Vec::new();
        wrong.options(&mut mistakes);
        assert_eq!(
            mistakes,
            [
                "etcd-servers: \"127.0.0.1:2379\" is no URL such as https://127.0.0.1:2379",
                "etcd-cafile: servers by https need it",
                "etcd-certfile: goes with --etcd-keyfile",
                "etcd-prefix: \"/\" is no path such as /registry",
                "etcd-certfile: /nowhere/cert: No such file or directory (os error 2)",
            ]
        );
    }
}
