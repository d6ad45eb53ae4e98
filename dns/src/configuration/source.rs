//! The Corefile in the ConfigMap `coredns` in `kube-system`, followed as it changes.

use super::{Configuration, Given};
use coracle_client::{Configured, Context, LiveConfiguration, Recorder};
use k8s_openapi::api::core::v1::ConfigMap;
use std::time::Duration;

const MAP: &str = "coredns";
/// The entry, as kubeadm names it.
const ENTRY: &str = "Corefile";
/// How long the first answer is waited for: names must be answered also where nobody lets us read the map.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// What is done where there is no Corefile.
pub fn default_text(domain: &str) -> String {
    include_str!("Corefile").replace("cluster.local", domain)
}

/// Follows the map.
pub struct Source {
    /// The Corefile, where the map has one.
    live: LiveConfiguration<Option<String>>,
    recorder: Recorder,
    given: Given,
    node: String,
    /// The text that is in force.
    text: Option<String>,
}

impl Source {
    pub fn new(context: &Context, given: Given, node: &str) -> Self {
        let corefile = |map: &ConfigMap| map.data.as_ref()?.get(ENTRY).cloned();
        Self {
            live: LiveConfiguration::new(context.client.clone(), MAP, corefile),
            recorder: Recorder::new(context.client.clone(), "coredns", node),
            given,
            node: node.to_owned(),
            text: None,
        }
    }

    /// What is to be done at first: the map's, or the defaults where it cannot be read or taken in.
    pub async fn first(&mut self) -> Configuration {
        let first = self.live.first(FIRST_ANSWER_TIMEOUT).await;
        let read = first.and_then(|configured| self.take(&configured)?.ok());
        read.unwrap_or_else(|| self.defaults())
    }

    fn defaults(&self) -> Configuration {
        Configuration::read(&default_text(&self.given.domain), &self.given).unwrap_or_default()
    }

    /// The next configuration, or that the next was refused and told of. May be dropped and called again.
    pub async fn next(&mut self) -> Result<Configuration, ()> {
        loop {
            let configured = self.live.next().await;
            if let Some(read) = self.take(&configured) {
                return read;
            }
        }
    }

    /// `None` if it comes to the same: no Corefile says what the default one says.
    fn take(&mut self, configured: &Configured<Option<String>>) -> Option<Result<Configuration, ()>> {
        let said = configured.read.clone().flatten();
        let text = said.unwrap_or_else(|| default_text(&self.given.domain));
        if self.text.as_ref() == Some(&text) {
            return None;
        }
        let read = Configuration::read(&text, &self.given);
        self.text = Some(text);
        Some(read.map_err(|mistakes| {
            let all: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            let why = all.join("; ");
            let message = format!("node {}: {why}; the last good configuration stays in force", self.node);
            configured.refused(&self.recorder, &why, message);
        }))
    }
}
