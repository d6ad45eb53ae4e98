//! Which providers each resource has.

use super::chain::{Chain, Link, Provider};
use super::cipher::Cipher;
use super::config::{EncryptionConfiguration, Keys, ProviderConfiguration};
use super::kms::Kms;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;

/// A resource of a configuration: `secrets`, `deployments.apps`, `*.` (all of the core group), `*.apps`, `*.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    pub resource: String,
    pub group: String,
}

impl Pattern {
    pub fn parse(text: &str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Self { resource: resource.to_owned(), group: group.to_owned() }
    }

    /// Whether it stands for `<plural>.<group>`, as the store's keys begin.
    fn matches(&self, stored: &str) -> bool {
        let (plural, group) = stored.split_once('.').unwrap_or((stored, ""));
        (self.resource == "*" || self.resource == plural) && (self.group == "*" || self.group == group)
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        let all = |pattern: &Self| pattern.group == "*" && pattern.resource == "*";
        all(self)
            || all(other)
            || (self.group == other.group && (self.resource == "*" || other.resource == "*"))
    }
}

/// A configuration at work.
pub struct Rules {
    /// In the configuration's order: the first that matches is a resource's.
    entries: Vec<(Pattern, Arc<Chain>)>,
    identity: Arc<Chain>,
    kms: Vec<Arc<Kms>>,
    hash: String,
}

impl Default for Rules {
    /// Nothing is encrypted.
    fn default() -> Self {
        let identity = Arc::new(Chain::identity());
        Self { entries: Vec::new(), identity, kms: Vec::new(), hash: String::new() }
    }
}

impl Rules {
    /// Of a checked configuration. KMS providers that `former` has already keep the keys they know. Within a runtime, if
    /// there are KMS providers.
    pub fn new(config: &EncryptionConfiguration, former: Option<&Self>) -> Self {
        let mut rules = Self { hash: config.hash(), ..Self::default() };
        let mut found: Vec<(Pattern, Vec<Link>)> = Vec::new();
        for part in &config.resources {
            // A chain for each resource: one that is named twice has the providers of both places.
            for pattern in part.resources.iter().map(|name| Pattern::parse(name)) {
                let links = part.providers.iter().filter_map(|p| rules.link(p, former));
                let links: Vec<Link> = links.collect();
                match found.iter_mut().find(|(known, _)| *known == pattern) {
                    Some((_, known)) => known.extend(links),
                    None => found.push((pattern, links)),
                }
            }
        }
        let entries = found.into_iter().map(|(pattern, links)| (pattern, Arc::new(Chain { links })));
        rules.entries = entries.collect();
        rules
    }

    fn link(&mut self, provider: &ProviderConfiguration, former: Option<&Self>) -> Option<Link> {
        if let Some(kms) = &provider.kms {
            let known = self.kms.iter().chain(former.into_iter().flat_map(|rules| &rules.kms));
            let same = known.into_iter().find(|other| other.serves(kms)).cloned();
            let kms = same.unwrap_or_else(|| Arc::new(Kms::new(kms)));
            if !self.kms.iter().any(|other| Arc::ptr_eq(other, &kms)) {
                self.kms.push(kms.clone());
            }
            let prefix = format!("k8s:enc:kms:v2:{}:", kms.name);
            return Some(Link { prefix, provider: Provider::Kms(kms) });
        }
        let local = |name: &str, family, found: &Keys, make: fn(&[u8]) -> Option<Cipher>| {
            let key = |key: &super::config::Key| {
                let secret = STANDARD.decode(&key.secret).ok()?;
                Some((format!("{}:", key.name), make(&secret)?))
            };
            let keys = found.keys.iter().filter_map(key).collect();
            Link { prefix: format!("k8s:enc:{name}:v1:"), provider: Provider::Keys { family, keys } }
        };
        let ProviderConfiguration { aesgcm, aescbc, secretbox, identity, .. } = provider;
        let gcm = aesgcm.as_ref().map(|keys| local("aesgcm", "AES", keys, Cipher::aes_gcm));
        let cbc = || aescbc.as_ref().map(|keys| local("aescbc", "AES", keys, Cipher::aes_cbc));
        let boxed =
            || secretbox.as_ref().map(|keys| local("secretbox", "Secretbox", keys, Cipher::secretbox));
        let plain =
            || identity.as_ref().map(|_| Link { prefix: String::new(), provider: Provider::Identity });
        gcm.or_else(cbc).or_else(boxed).or_else(plain)
    }

    /// Of `<plural>.<group>`, as the store's keys begin.
    pub fn chain(&self, resource: &str) -> &Arc<Chain> {
        let found = self.entries.iter().find(|(pattern, _)| pattern.matches(resource));
        found.map_or(&self.identity, |(_, chain)| chain)
    }

    /// Of the resource of a key.
    pub fn chain_of(&self, key: &str) -> &Arc<Chain> {
        self.chain(key.split_once('/').map_or(key, |(resource, _)| resource))
    }

    /// Whether any resource is named, be it for identity.
    pub fn encrypts(&self) -> bool {
        !self.entries.is_empty()
    }

    pub fn kms(&self) -> &[Arc<Kms>] {
        &self.kms
    }

    /// Of the configuration; empty without one.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Changes with whatever changes how values are written: the configuration, and the keys that KMSs use.
    pub fn fingerprint(&self) -> String {
        let mut text = self.hash.clone();
        for kms in &self.kms {
            text = format!("{text} {}", kms.key_hash());
        }
        text
    }
}
