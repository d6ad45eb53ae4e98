//! Listening to one plugin, from its registration until its stream ends.

use super::Devices;
use super::messages::{self as api, Empty, ListAndWatchResponse};
use coracle_storage::csi::{CallError, PluginClient};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A plugin that has no news says nothing at all, not even that it listens.
const ENDLESS_TIMEOUT: Duration = Duration::from_secs(365 * 86_400);

impl Devices {
    pub(super) async fn follow(self: Arc<Self>, name: String, socket: PathBuf, life: u64) {
        match self.listen_to(&name, &PluginClient::new(&socket, ENDLESS_TIMEOUT), life).await {
            Ok(()) => tracing::info!(resource = name, "the device plugin is away"),
            Err(error) => tracing::warn!(resource = name, %error, "the device plugin is away"),
        }
        self.lose(&name, life).await;
    }

    async fn listen_to(&self, name: &str, client: &PluginClient, life: u64) -> Result<(), CallError> {
        let mut answers = client.stream::<_, ListAndWatchResponse>(api::LIST_AND_WATCH, Empty {}).await?;
        while let Some(said) = answers.next().await? {
            let changed = {
                let mut book = self.book.lock();
                let resource = book.resources.get_mut(name);
                let mine =
                    resource.filter(|resource| resource.plugin.as_ref().is_some_and(|p| p.life == life));
                // Another plugin has taken its place.
                let Some(resource) = mine else { return Ok(()) };
                resource.take_over(said.devices)
            };
            if changed {
                self.tell_all(name).await;
            }
        }
        Ok(())
    }

    /// What this life of a plugin gave cannot be given any more.
    pub(super) async fn lose(&self, name: &str, life: u64) {
        let lost = {
            let mut book = self.book.lock();
            let resource = book.resources.get_mut(name);
            let mine = resource.filter(|resource| resource.plugin.as_ref().is_some_and(|p| p.life == life));
            mine.map(super::book::Resource::lose).is_some()
        };
        if lost {
            self.tell_all(name).await;
        }
    }

    async fn tell_all(&self, name: &str) {
        self.note_change();
        let users = self.book.lock().users(name);
        users.iter().for_each(|uid| (self.tell)(uid));
        self.save().await;
    }
}
