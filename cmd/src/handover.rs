//! What a further server is given: the authorities and keys that all servers of a cluster share.
//!
//! They lie in a Secret for as long as the token is good, sealed (AES-256-GCM) by a key that stands in the token and nowhere
//! else: who may read every Secret, or has a copy of the store, learns nothing of them.

use crate::join::ServerToken;
use rand::Rng;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// What no server can do without.
const NEEDED: [&str; 7] = [
    "ca.crt",
    "ca.key",
    "kubelet-serving-ca.crt",
    "kubelet-serving-ca.key",
    "front-proxy-ca.crt",
    "front-proxy-ca.key",
    "sa.key",
];
/// Shared too where they are there: the public half, and the key that the server itself has made for Secrets.
const FURTHER: [&str; 2] = ["sa.pub", "encryption-config.yaml"];
/// Of the form of what is sealed.
const VERSION: u32 = 1;
/// In the Secret.
pub const ENTRY: &str = "sealed";

#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Handover {
    version: u32,
    pub cluster_cidr: Option<String>,
    pub service_cidr: Option<String>,
    /// Names in `<data-dir>/pki`, and their texts.
    files: BTreeMap<String, String>,
}

impl Handover {
    /// Of a server's key folder.
    ///
    /// # Errors
    /// What is missing, or that the authorities are being replaced: whoever joins now would not take part in it.
    pub fn of(
        pki: &Path,
        cluster_cidr: Option<String>,
        service_cidr: Option<String>,
    ) -> Result<Self, String> {
        for file in ["ca", "kubelet-serving-ca", "front-proxy-ca"] {
            for passing in [format!("{file}-next.key"), format!("{file}-previous.crt")] {
                if pki.join(&passing).exists() {
                    return Err(format!(
                        "the cluster's authorities are being replaced ({passing}): finish that first, see coracle cert rotate-ca"
                    ));
                }
            }
        }
        let mut files = BTreeMap::new();
        for name in NEEDED.into_iter().chain(FURTHER) {
            match std::fs::read_to_string(pki.join(name)) {
                Ok(text) => drop(files.insert(name.to_owned(), text)),
                Err(error) if error.kind() == io::ErrorKind::NotFound && FURTHER.contains(&name) => {}
                Err(error) => return Err(format!("{}: {error}", pki.join(name).display())),
            }
        }
        Ok(Self { version: VERSION, cluster_cidr, service_cidr, files })
    }

    /// PEM of the cluster's authority.
    pub fn ca_pem(&self) -> &str {
        self.files.get("ca.crt").map_or("", String::as_str)
    }

    /// A nonce, and what is sealed. The key seals this alone.
    pub fn seal(&self, token: &ServerToken) -> Result<Vec<u8>, String> {
        let failed = |_| "the keys cannot be sealed".to_owned();
        let mut nonce = [0; NONCE_LEN];
        rand::rng().fill(&mut nonce[..]);
        let mut text = serde_json::to_vec(self).map_err(|e| e.to_string())?;
        let key = key(token).map_err(failed)?;
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad(token), &mut text)
            .map_err(failed)?;
        Ok([&nonce[..], &text].concat())
    }

    /// # Errors
    /// Another key has sealed it, or it was changed; or another version of this program made it.
    pub fn open(sealed: &[u8], token: &ServerToken) -> Result<Self, String> {
        let failed = || {
            "the keys in the cluster are sealed by another token, or were changed: coracle token create --server makes a new one"
                .to_owned()
        };
        let (nonce, text) = sealed.split_first_chunk::<NONCE_LEN>().ok_or_else(failed)?;
        let mut text = text.to_vec();
        let key = key(token).map_err(|_| failed())?;
        let opened = key.open_in_place(Nonce::assume_unique_for_key(*nonce), aad(token), &mut text);
        let opened = opened.map_err(|_| failed())?;
        let found: Self = serde_json::from_slice(opened)
            .map_err(|_| "another version of coracle has sealed the keys".to_owned())?;
        found.check().map(|()| found)
    }

    fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!("another version of coracle has sealed the keys ({})", self.version));
        }
        if let Some(missing) = NEEDED.iter().find(|name| !self.files.contains_key(**name)) {
            return Err(format!("{missing} is not among the keys that were handed over"));
        }
        let known = |name: &String| NEEDED.iter().chain(&FURTHER).any(|known| known == name);
        match self.files.keys().find(|name| !known(name)) {
            Some(foreign) => Err(format!("{foreign:?} is among the keys that were handed over, and is none")),
            None => Ok(()),
        }
    }

    /// Makes the key folder, whole or not at all.
    pub fn write(self, pki: &Path) -> Result<(), String> {
        let failed = |path: &Path, e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let new = pki.with_extension("joining");
        match std::fs::remove_dir_all(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&new, &error)),
            _ => {}
        }
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&new);
        made.map_err(|e| failed(&new, &e))?;
        for (name, text) in self.files {
            coracle_apiserver::pki::write_private(&new.join(name), text)
                .map_err(|e| coracle_api::error::chain(&e))?;
        }
        std::fs::rename(&new, pki).map_err(|e| failed(pki, &e))?;
        let parent = pki.parent().unwrap_or(Path::new("."));
        std::fs::File::open(parent).and_then(|dir| dir.sync_all()).map_err(|e| failed(parent, &e))
    }
}

fn key(token: &ServerToken) -> Result<LessSafeKey, ring::error::Unspecified> {
    UnboundKey::new(&AES_256_GCM, &token.key).map(LessSafeKey::new)
}

/// One token's keys are of no use in the place of another's.
fn aad(token: &ServerToken) -> Aad<String> {
    Aad::from(format!("coracle server keys of {}", token.token.id))
}

/// The Secret in kube-system; the Role and its binding have the same name.
pub fn name(token_id: &str) -> String {
    format!("coracle-server-{token_id}")
}

/// Who may read it, besides those who may read all Secrets.
pub fn group(token_id: &str) -> String {
    format!("system:bootstrappers:coracle:server:{token_id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("temporary directory");
        for name in NEEDED {
            std::fs::write(dir.path().join(name), format!("text of {name}")).expect("written");
        }
        dir
    }

    fn token(byte: u8) -> ServerToken {
        let token = crate::join::Token::parse("abcdef.0123456789abcdef").expect("a token");
        ServerToken { token, key: [byte; 32] }
    }

    #[test]
    fn only_the_tokens_key_opens_what_it_sealed() {
        let dir = folder();
        let given = Handover::of(dir.path(), Some("10.42.0.0/16".to_owned()), None).expect("whole");
        let sealed = given.seal(&token(1)).expect("sealed");
        assert_eq!(Handover::open(&sealed, &token(1)), Ok(given));
        let mut changed = sealed.clone();
        *changed.last_mut().expect("a byte") ^= 1;
        let mut other = token(1);
        other.token.id = "bbbbbb".to_owned();
        for (bytes, by) in [(&sealed, &token(2)), (&changed, &token(1)), (&sealed, &other)] {
            assert!(Handover::open(bytes, by).expect_err("another").contains("sealed by another token"));
        }
        assert!(Handover::open(b"", &token(1)).is_err());
        assert!(!sealed.windows(7).any(|part| part == b"text of"));
    }

    #[test]
    fn a_folder_is_made_of_it_or_refused() {
        let dir = folder();
        let given = Handover::of(dir.path(), None, None).expect("whole");
        let target = tempfile::tempdir().expect("temporary directory");
        given.write(&target.path().join("pki")).expect("written");
        let text = std::fs::read_to_string(target.path().join("pki/sa.key")).expect("there");
        assert_eq!(text, "text of sa.key");
        let mut foreign = Handover::of(dir.path(), None, None).expect("whole");
        foreign.files.insert("../../etc/passwd".to_owned(), String::new());
        let sealed = foreign.seal(&token(1)).expect("sealed");
        assert!(Handover::open(&sealed, &token(1)).expect_err("foreign").contains("passwd"));
        std::fs::write(dir.path().join("ca-next.key"), "").expect("written");
        let why = Handover::of(dir.path(), None, None).expect_err("in between");
        assert!(why.contains("are being replaced"), "{why}");
        std::fs::remove_file(dir.path().join("ca-next.key")).expect("gone");
        std::fs::remove_file(dir.path().join("sa.key")).expect("gone");
        assert!(Handover::of(dir.path(), None, None).expect_err("missing").contains("sa.key"));
    }
}
