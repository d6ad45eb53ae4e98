//! The configuration that `--secrets-encryption` makes: one secretbox key for Secrets, in a file beside the certificates.
//!
//! secretbox rather than aesgcm, because its nonces of 24 random bytes never meet, however many writes one key sees;
//! upstream advises against aesgcm without a key rotation every 200,000 writes. A Secret of a kilobyte takes it
//! microseconds, which one sync of the journal outweighs by far.

use super::config::{
    EncryptionConfiguration, Identity, Key, Keys, ProviderConfiguration, ResourceConfiguration,
};
use super::{ConfigError, SealError};
use crate::sled::MARK;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// In the directory of certificates and keys.
pub const FILE: &str = "encryption-config.yaml";

#[derive(Debug, thiserror::Error)]
pub enum MadeError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("make a key")]
    Key(#[source] SealError),
    #[error("{path}")]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path}: cannot be written as YAML: {why}")]
    Form { path: PathBuf, why: String },
    #[error("{0}: it was not made by --secrets-encryption; use --encryption-provider-config for it")]
    Foreign(PathBuf),
    #[error("the old keys are still needed: a server with these keys has not rewritten everything yet")]
    Needed,
}

/// Makes the file say what `wanted` says: encrypt, decrypt, or leave it as it is. Returns its path, if there is one.
///
/// Keys are never taken out: what they encrypted is still to be read.
///
/// # Errors
/// The file's: one that cannot be read is not replaced, since its keys may be all that reads the Secrets.
pub fn ensure(dir: &Path, wanted: Option<bool>) -> Result<Option<PathBuf>, MadeError> {
    let path = dir.join(FILE);
    if !path.exists() {
        if wanted != Some(true) {
            return Ok(None);
        }
        let keys = vec![new_key()?];
        write(&path, &config(keys, true))?;
        return Ok(Some(path));
    }
    if let Some(encrypt) = wanted {
        let keys = keys_of(&path)?;
        let made = config(keys, encrypt);
        if EncryptionConfiguration::load(&path)?.hash() != made.hash() {
            write(&path, &made)?;
        }
    }
    Ok(Some(path))
}

/// Puts a new key first. The server takes it up, rewrites, and says when that is done.
pub fn rotate(dir: &Path) -> Result<String, MadeError> {
    let path = dir.join(FILE);
    let mut keys = keys_of(&path)?;
    let key = new_key()?;
    let name = key.name.clone();
    keys.insert(0, key);
    write(&path, &config(keys, true))?;
    Ok(name)
}

/// Whether Secrets are encrypted, and by which keys, as lines.
pub fn status(dir: &Path) -> Result<String, MadeError> {
    let path = dir.join(FILE);
    if !path.exists() {
        return Ok(
            "Secrets are not encrypted: the server has not been started with --secrets-encryption".to_owned()
        );
    }
    let keys = keys_of(&path)?;
    let encrypts = encrypts(&path)?;
    let mut lines = vec![format!("Secrets are {}", if encrypts { "encrypted" } else { "being decrypted" })];
    for (index, key) in keys.iter().enumerate() {
        let use_of = if index == 0 && encrypts { "writes and reads" } else { "reads" };
        lines.push(format!("{} {use_of}", key.name));
    }
    Ok(lines.join("\n"))
}

/// Takes all keys but the first out. `db` is the store's directory, which says for which keys everything was rewritten.
///
/// # Errors
/// `Needed` while that is not the present configuration.
pub fn prune(dir: &Path, db: &Path) -> Result<usize, MadeError> {
    let path = dir.join(FILE);
    let mut keys = keys_of(&path)?;
    let rewritten = std::fs::read_to_string(db.join(MARK)).unwrap_or_default();
    if !encrypts(&path)? || rewritten != EncryptionConfiguration::load(&path)?.hash() {
        return Err(MadeError::Needed);
    }
    let gone = keys.len().saturating_sub(1);
    keys.truncate(1);
    write(&path, &config(keys, true))?;
    Ok(gone)
}

fn keys_of(path: &Path) -> Result<Vec<Key>, MadeError> {
    let loaded = EncryptionConfiguration::load(path)?;
    let foreign = || MadeError::Foreign(path.to_owned());
    let [part] = &loaded.resources[..] else { return Err(foreign()) };
    let boxed = part.providers.iter().find_map(|provider| provider.secretbox.clone());
    let keys = boxed.filter(|_| part.resources == ["secrets"] && part.providers.len() == 2);
    keys.map(|found| found.keys).ok_or_else(foreign)
}

fn encrypts(path: &Path) -> Result<bool, MadeError> {
    let loaded = EncryptionConfiguration::load(path)?;
    let first = loaded.resources.first().and_then(|part| part.providers.first());
    Ok(first.is_some_and(|first| first.identity.is_none()))
}

fn new_key() -> Result<Key, MadeError> {
    let secret = super::cipher::random::<32>().map_err(MadeError::Key)?;
    let made = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    // Two keys of one second still have two names.
    let id = u32::from_be_bytes(super::cipher::random::<4>().map_err(MadeError::Key)?);
    Ok(Key { name: format!("key-{made}-{id:08x}"), secret: STANDARD.encode(secret) })
}

fn config(keys: Vec<Key>, encrypt: bool) -> EncryptionConfiguration {
    let boxed = ProviderConfiguration { secretbox: Some(Keys { keys }), ..Default::default() };
    let plain = ProviderConfiguration { identity: Some(Identity {}), ..Default::default() };
    let providers = if encrypt { vec![boxed, plain] } else { vec![plain, boxed] };
    EncryptionConfiguration::new(vec![ResourceConfiguration {
        resources: vec!["secrets".to_owned()],
        providers,
    }])
}

/// Whole or not at all, and only for its owner.
fn write(path: &Path, config: &EncryptionConfiguration) -> Result<(), MadeError> {
    let form = |why: serde_json::Error| MadeError::Form { path: path.to_owned(), why: why.to_string() };
    let failed = |source| MadeError::Write { path: path.to_owned(), source };
    // JSON is YAML.
    let text = serde_json::to_string_pretty(config).map_err(form)?;
    let temporary = path.with_extension("tmp");
    let written = (|| {
        if let Some(dir) = path.parent().filter(|dir| !dir.is_dir()) {
            use std::os::unix::fs::DirBuilderExt;
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        path.parent().map_or(Ok(()), |dir| std::fs::File::open(dir)?.sync_all())
    })();
    written.map_err(failed)
}
