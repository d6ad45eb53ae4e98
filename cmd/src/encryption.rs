//! Settings of encryption at rest, and the verbs of the key that the server makes itself.

use crate::process::{StartError, fail};
use crate::settings::first_of;
use clap::{Args, Subcommand};
use coracle_apiserver::encryption::reload::Source;
use coracle_apiserver::encryption::{EncryptionConfiguration, Rules, made};
use coracle_apiserver::store::{Encrypting, Store};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// In the configuration file under `encryption`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EncryptionArgs {
    /// How the store encrypts which resources: a file with an apiserver.config.k8s.io/v1 EncryptionConfiguration
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,
    /// Whether changes of that file are taken up while the server runs [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub encryption_provider_config_automatic_reload: Option<bool>,
    /// Encrypt Secrets with a key of the server's own, in pki/encryption-config.yaml of the data directory; false
    /// decrypts them again [default: as the last time it was given]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub secrets_encryption: Option<bool>,
}

#[derive(Args)]
pub struct SecretsArgs {
    #[command(subcommand)]
    pub action: SecretsAction,
    /// Where state lives
    #[arg(long, value_name = "DIR", default_value = crate::settings::DEFAULT_DATA_DIR, global = true)]
    pub data_dir: PathBuf,
}

#[derive(Clone, Copy, Subcommand)]
pub enum SecretsAction {
    /// Whether Secrets are encrypted, by which key, and which older ones there are
    Status,
    /// Make a new key; a running server takes it up and rewrites all Secrets
    Rotate,
    /// Take out the older keys, once nothing in the store needs them
    Prune,
}

impl EncryptionArgs {
    /// These, and where one is missing the other's.
    pub fn or(self, other: Self) -> Self {
        first_of!(
            self, other:
            encryption_provider_config, encryption_provider_config_automatic_reload, secrets_encryption
        )
    }

    pub fn check(&self, mistakes: &mut Vec<String>) {
        let Some(path) = &self.encryption_provider_config else {
            if self.encryption_provider_config_automatic_reload == Some(true) {
                let flag = "encryption-provider-config-automatic-reload";
                mistakes.push(format!("{flag}: needs --encryption-provider-config"));
            }
            return;
        };
        if self.secrets_encryption.is_some() {
            mistakes.push("secrets-encryption: cannot be given with --encryption-provider-config".to_owned());
        }
        if let Err(error) = EncryptionConfiguration::load(path) {
            let text = coracle_api::error::chain(&error);
            mistakes.extend(text.lines().map(|line| format!("encryption-provider-config: {line}")));
        }
    }

    /// The store as the server uses it, over `inner`, and where its rules come from.
    pub async fn open(
        &self,
        pki: &Path,
        inner: Arc<dyn Store>,
    ) -> Result<(Arc<Encrypting>, Option<Source>), StartError> {
        let source = match &self.encryption_provider_config {
            Some(path) => {
                let follow = self.encryption_provider_config_automatic_reload.unwrap_or(false);
                Some((path.clone(), follow))
            }
            None => {
                let made = made::ensure(pki, self.secrets_encryption);
                let made = made.map_err(|e| StartError::new("encryption of Secrets", e))?;
                // `coracle secrets rotate` changes it.
                made.map(|path| (path, true))
            }
        };
        let wrong = |e| StartError::new("encryption configuration", e);
        let source = source.map(|(path, follow)| Source::read(path, follow)).transpose().map_err(wrong)?;
        let rules = match &source {
            Some(source) => source.rules().await.map_err(wrong)?,
            None => Rules::default(),
        };
        Ok((Encrypting::new(inner, rules), source))
    }
}

/// `coracle secrets`.
pub fn command(args: &SecretsArgs) -> ExitCode {
    let pki = args.data_dir.join("pki");
    let told = match args.action {
        SecretsAction::Status => made::status(&pki),
        SecretsAction::Rotate => made::rotate(&pki).map(|name| {
            format!(
                "{name} encrypts from now on, and a running server rewrites all Secrets. When its metric\n\
                     coracle_encryption_stale_objects is 0, coracle secrets prune takes the old keys out."
            )
        }),
        SecretsAction::Prune => {
            made::prune(&pki, &args.data_dir.join("db")).map(|gone| format!("{gone} old keys are gone"))
        }
    };
    match told {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(&coracle_api::error::chain(&error)),
    }
}
