//! The file of `--encryption-provider-config`: kind EncryptionConfiguration of `apiserver.config.k8s.io`
//! (<https://kubernetes.io/docs/reference/config-api/apiserver-encryption.v1/>).

use super::validation;
use coracle_component_base::config_file::{self, FileError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::Duration;

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";
/// Upstream's, of a KMS provider that names none.
const KMS_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(transparent)]
    Read(#[from] FileError),
    /// Without the text around the mistake, which may be a key.
    #[error("{path}: {why}")]
    Syntax { path: PathBuf, why: String },
    #[error("{path}: encryption provider configuration file is empty")]
    Empty { path: PathBuf },
    #[error("{path}: expected {API_VERSION} {KIND}, got {got}")]
    Kind { path: PathBuf, got: String },
    /// Every mistake, with its field's path.
    #[error("{}", lines(path, mistakes))]
    Invalid { path: PathBuf, mistakes: Vec<String> },
}

fn lines(path: &Path, mistakes: &[String]) -> String {
    let lines: Vec<String> =
        mistakes.iter().map(|mistake| format!("{}: {mistake}", path.display())).collect();
    lines.join("\n")
}

#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EncryptionConfiguration {
    pub kind: String,
    pub api_version: String,
    #[serde(default)]
    pub resources: Vec<ResourceConfiguration>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceConfiguration {
    #[serde(default)]
    pub resources: Vec<String>,
    #[serde(default)]
    pub providers: Vec<ProviderConfiguration>,
}

/// Exactly one of them is given in a valid configuration.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aesgcm: Option<Keys>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aescbc: Option<Keys>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secretbox: Option<Keys>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kms: Option<KmsConfiguration>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    #[serde(default)]
    pub keys: Vec<Key>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    #[serde(default)]
    pub name: String,
    /// In base64.
    #[serde(default)]
    pub secret: String,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KmsConfiguration {
    #[serde(rename = "apiVersion", skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    #[serde(default)]
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cachesize: Option<i64>,
    #[serde(default)]
    pub endpoint: String,
    /// As Go writes durations, such as `3s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

impl KmsConfiguration {
    /// `None` if it is no positive duration.
    pub fn timeout(&self) -> Option<Duration> {
        let Some(text) = &self.timeout else { return Some(KMS_TIMEOUT) };
        duration(text).filter(|timeout| !timeout.is_zero())
    }
}

/// `1m30s`, `500ms` and the like.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let number: u32 = number.parse().ok()?;
        let unit = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let one = match &tail[..unit] {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(3600),
            _ => return None,
        };
        total = total.checked_add(one.checked_mul(number)?)?;
        rest = &tail[unit..];
    }
    (!text.is_empty()).then_some(total)
}

impl EncryptionConfiguration {
    /// Of these resources and providers.
    pub fn new(resources: Vec<ResourceConfiguration>) -> Self {
        Self { kind: KIND.to_owned(), api_version: API_VERSION.to_owned(), resources }
    }

    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(&config_file::read(path)?, path)
    }

    /// `path` is where the text comes from, for errors.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let path = path.to_owned();
        if text.trim().is_empty() {
            return Err(ConfigError::Empty { path });
        }
        let options = serde_saphyr::options! { with_snippet: false };
        let config: Self = match serde_saphyr::from_str_with_options(text, options) {
            Ok(config) => config,
            Err(error) => return Err(ConfigError::Syntax { path, why: error.to_string() }),
        };
        if config.kind != KIND || config.api_version != API_VERSION {
            return Err(ConfigError::Kind { path, got: format!("{} {}", config.api_version, config.kind) });
        }
        let mistakes = validation::mistakes(&config);
        if mistakes.is_empty() { Ok(config) } else { Err(ConfigError::Invalid { path, mistakes }) }
    }

    /// Differs between configurations that write or read differently.
    pub fn hash(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        coracle_api::hex::text(&Sha256::digest(text))
    }
}
