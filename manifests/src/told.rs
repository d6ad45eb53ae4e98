//! How it went with each file: a ConfigMap in kube-system, and events about it.
//!
//! A definition of a kind of its own would cost every cluster its place in discovery and OpenAPI, also those without any
//! manifest; a ConfigMap is there only while its file is.

use crate::MANAGER;
use coracle_api::error::chain;
use coracle_client::{Recorder, events};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

const NAMESPACE: &str = "kube-system";
/// What such ConfigMaps are found by.
pub const LABEL: &str = "coracle.local/manifest";
/// Of a name: the readable part of the path.
const READABLE: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Applied,
    /// What it stands on is not there yet.
    Waiting,
    Failed,
    /// It cannot be read; what it made before stays.
    Broken,
    /// It is nothing that is applied here.
    Refused,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            Self::Applied => "Applied",
            Self::Waiting => "Waiting",
            Self::Failed => "Failed",
            Self::Broken => "Broken",
            Self::Refused => "Refused",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub state: State,
    pub message: String,
    pub hash: String,
    pub objects: Vec<String>,
}

pub struct Teller {
    client: Client,
    recorder: Recorder,
    /// What was said last.
    said: BTreeMap<String, Said>,
}

impl Teller {
    /// Must be called inside the tokio runtime.
    pub fn new(client: Client) -> Self {
        let recorder = Recorder::new(client.clone(), MANAGER, "");
        Self { client, recorder, said: BTreeMap::new() }
    }

    /// Says how it went with a file, where it is not as it was said last.
    pub async fn say(&mut self, file: &str, said: Said) {
        if self.said.get(file) == Some(&said) {
            return;
        }
        match self.write(file, &said).await {
            Ok(written) => {
                self.event(&written, file, &said);
                self.said.insert(file.to_owned(), said);
            }
            Err(error) => {
                tracing::warn!(file, why = %chain(&error), "the state of a manifest is not written")
            }
        }
    }

    fn event(&self, written: &ConfigMap, file: &str, said: &Said) {
        let about = events::reference(written);
        let (type_, reason) = match said.state {
            State::Applied => ("Normal", "AppliedManifest"),
            State::Waiting => ("Normal", "ManifestWaits"),
            State::Failed => ("Warning", "ManifestFailed"),
            State::Broken => ("Warning", "ManifestBroken"),
            State::Refused => ("Warning", "ManifestRefused"),
        };
        let what = if said.message.is_empty() {
            format!("{} objects", said.objects.len())
        } else {
            said.message.clone()
        };
        tracing::info!(file, state = said.state.name(), message = %said.message, "manifest");
        self.recorder.event(about, type_, reason, format!("{file}: {what}"));
    }

    async fn write(&self, file: &str, said: &Said) -> Result<ConfigMap, kube::Error> {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": name(file), "labels": { (LABEL): "true" } },
            "data": {
                "file": file,
                "state": said.state.name(),
                "message": said.message,
                "sha256": said.hash,
                "objects": said.objects.join("\n"),
            },
        });
        let params = PatchParams::apply(MANAGER).force();
        self.maps().patch(&name(file), &params, &Patch::Apply(&object)).await
    }

    /// Takes back what was said of files that are not there any more, of an earlier process too.
    pub async fn forget(&mut self, is_there: impl Fn(&str) -> bool) {
        self.said.retain(|file, _| is_there(file));
        let all = match self.maps().list(&ListParams::default().labels(LABEL)).await {
            Ok(all) => all.items,
            Err(error) => return tracing::warn!(why = %chain(&error), "states of manifests are not listed"),
        };
        for map in all {
            let file = map.data.as_ref().and_then(|data| data.get("file"));
            if file.is_some_and(|file| is_there(file) && map.name_any() == name(file)) {
                continue;
            }
            if let Err(error) = self.maps().delete(&map.name_any(), &DeleteParams::default()).await {
                tracing::debug!(why = %chain(&error), "the state of a manifest stays");
            }
        }
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }
}

/// A name that a ConfigMap may have, one for each path.
fn name(file: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let readable: String = file.chars().map(plain).take(READABLE).collect();
    let hash = coracle_api::hex::text(&Sha256::digest(file)[..4]);
    format!("manifest-{}-{hash}", readable.trim_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn every_path_has_a_name_of_its_own() {
        assert!(name("apps/Web_1.yaml").starts_with("manifest-apps-web-1-yaml-"));
        assert_ne!(name("a/b.yaml"), name("a-b.yaml"));
        let odd = name(&format!("ä/{}.yaml", "x".repeat(300)));
        assert!(
            odd.len() < 64 && odd.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
            "{odd}"
        );
    }
}
