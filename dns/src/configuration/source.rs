//! The Corefile in the ConfigMap `coredns` in `kube-system`, followed as it changes.

use super::{Configuration, Given, Mistake};
use coracle_client::{Context, FollowedObject, Recorder};
use k8s_openapi::api::core::v1::ConfigMap;
use std::time::Duration;

const MAP: &str = "coredns";
const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
/// The entry, as kubeadm names it.
const ENTRY: &str = "Corefile";
/// How long the first answer is waited for: names must be answered also where nobody lets us read the map.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

/// What is done where there is no Corefile.
pub fn default_text(domain: &str) -> String {
    include_str!("Corefile").replace("cluster.local", domain)
}

/// Follows the map.
pub struct Source {
    map: FollowedObject<ConfigMap>,
    recorder: Recorder,
    given: Given,
    node: String,
    /// The text that is in force.
    text: Option<String>,
}

impl Source {
    pub fn new(context: &Context, given: Given, node: &str) -> Self {
        Self {
            map: FollowedObject::new(context.client.clone(), MAPS, MAP),
            recorder: Recorder::new(context.client.clone(), "coredns", node),
            given,
            node: node.to_owned(),
            text: None,
        }
    }

    /// What is to be done at first: the map's, or the defaults where it cannot be read or taken in.
    pub async fn first(&mut self) -> Configuration {
        match tokio::time::timeout(FIRST_ANSWER, self.next()).await {
            Ok(Ok(configuration)) => configuration,
            Ok(Err(())) => self.defaults(),
            Err(_) => {
                tracing::warn!(
                    "the ConfigMap kube-system/coredns cannot be read yet, beginning with the defaults"
                );
                self.defaults()
            }
        }
    }

    fn defaults(&self) -> Configuration {
        Configuration::read(&default_text(&self.given.domain), &self.given).unwrap_or_default()
    }

    /// The next configuration, or that the next was refused and told of. May be dropped and called again.
    pub async fn next(&mut self) -> Result<Configuration, ()> {
        loop {
            let map = self.map.next().await;
            let said = map.as_ref().and_then(|map| map.data.as_ref()?.get(ENTRY).cloned());
            let text = said.unwrap_or_else(|| default_text(&self.given.domain));
            if self.text.as_ref() == Some(&text) {
                continue;
            }
            let read = Configuration::read(&text, &self.given);
            self.text = Some(text);
            return read.map_err(|mistakes| self.refuse(map.as_ref(), &mistakes));
        }
    }

    fn refuse(&self, map: Option<&ConfigMap>, mistakes: &[Mistake]) {
        let all: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        let why = all.join("; ");
        tracing::warn!(%why, "the Corefile in the ConfigMap kube-system/coredns was refused");
        if let Some(map) = map {
            let message = format!("node {}: {why}; the last good configuration stays in force", self.node);
            self.recorder.warning(map, "ConfigurationRefused", message);
        }
    }
}
