//! The tags of all documents, by which clients know whether what they have is still right. Made of what goes into a
//! document instead of the document, once for everything that is served at a moment; documents are not kept.

use super::Documents;
use super::operations::is_built_in;
use super::pages::pages;
use crate::discovery::{ServedApis, hex};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// Changes with the program that makes documents.
const MAKER: &str = concat!(env!("CARGO_PKG_VERSION"), " 6 ");

/// Without quotes.
pub struct ETags {
    /// By the name of the OpenAPI v3 document: `apis/apps/v1`.
    documents: BTreeMap<String, String>,
    pub index: String,
    pub v2: String,
}

impl ETags {
    pub fn of(offer: &Documents) -> &Self {
        offer.tags.get_or_init(|| Self::make(offer))
    }

    pub fn document(&self, name: &str) -> Option<&str> {
        self.documents.get(name).map(String::as_str)
    }

    pub fn documents(&self) -> impl Iterator<Item = (&str, &str)> {
        self.documents.iter().map(|(name, tag)| (name.as_str(), tag.as_str()))
    }

    fn make(offer: &ServedApis) -> Self {
        let of_pages = pages(&offer.resources).into_iter().map(|page| page.document);
        let added = offer.resources.iter().filter(|r| !is_built_in(r));
        let of_custom = added.map(|r| format!("apis/{}/{}", r.group, r.version));
        let names: BTreeSet<String> = of_pages.chain(of_custom).collect();
        let documents: BTreeMap<String, String> =
            names.into_iter().map(|name| (name.clone(), tag(&name, offer))).collect();
        let mut all = start();
        documents.iter().for_each(|(name, tag)| all.update(format!("{name} {tag} ")));
        let mut index = all.clone();
        offer.foreign.openapi_v3().iter().for_each(|(name, url)| index.update(format!("{name} {url} ")));
        offer.foreign.openapi_v2().iter().for_each(|document| all.update(document.to_string()));
        Self { documents, index: finish(index), v2: finish(all) }
    }
}

fn start() -> Sha256 {
    let mut hasher = Sha256::new();
    hasher.update(MAKER);
    hasher
}

fn finish(hasher: Sha256) -> String {
    hex(&hasher.finalize()[..16])
}

/// The group and version of a document; `None` for those that have no resources.
pub fn group_version(document: &str) -> Option<(&str, &str)> {
    let parts: Vec<&str> = document.split('/').collect();
    match parts.as_slice() {
        ["api", version] => Some(("", version)),
        ["apis", group, version] => Some((group, version)),
        _ => None,
    }
}

fn tag(document: &str, offer: &ServedApis) -> String {
    let mut hasher = start();
    hasher.update(document);
    if let Some((group, version)) = group_version(document) {
        offer.of(group, version).for_each(|resource| hasher.update(format!("{resource:?}")));
        for custom in offer.custom_of(group, version) {
            let definition = &custom.definition;
            hasher.update(format!("{} {} ", definition.uid, definition.generation));
        }
    }
    finish(hasher)
}
