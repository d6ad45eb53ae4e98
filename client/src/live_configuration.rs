//! The configuration of a component in a ConfigMap of kube-system, followed as it changes.

use crate::{FollowedObject, Recorder};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

/// Where the configurations of components stand.
pub const CONFIGURATION_NAMESPACE: &str = "kube-system";

/// Follows a ConfigMap. `T` is what is read of it: the text of an entry, mostly.
pub struct LiveConfiguration<T> {
    map: FollowedObject<ConfigMap>,
    name: &'static str,
    read: fn(&ConfigMap) -> T,
    /// `None` before the first.
    last: Option<Option<T>>,
}

/// What stands in the map at one moment.
#[derive(Clone, Debug)]
pub struct Configured<T> {
    /// `None` where there is no map.
    pub read: Option<T>,
    /// What events are about, also where there is none.
    pub map: Arc<ConfigMap>,
}

impl<T: Clone + PartialEq> LiveConfiguration<T> {
    /// `name` is the map's. Other changes of it than those that `read` sees are nobody's business.
    pub fn new(client: kube::Client, name: &'static str, read: fn(&ConfigMap) -> T) -> Self {
        let path = format!("/api/v1/namespaces/{CONFIGURATION_NAMESPACE}/configmaps");
        Self { map: FollowedObject::new(client, &path, name), name, read, last: None }
    }

    /// What stands there at first, and then after each change. May be dropped and called again.
    pub async fn next(&mut self) -> Configured<T> {
        loop {
            let map = self.map.next().await;
            let read = map.as_ref().map(self.read);
            if self.last.as_ref() != Some(&read) {
                self.last = Some(read.clone());
                return Configured { read, map: Arc::new(map.unwrap_or_else(|| self.missing())) };
            }
        }
    }

    /// As [`next`](Self::next), for so long at most: components work with their defaults where nobody lets them read the map.
    pub async fn first(&mut self, patience: Duration) -> Option<Configured<T>> {
        let first = tokio::time::timeout(patience, self.next()).await;
        if first.is_err() {
            let name = self.name;
            tracing::warn!(
                "the ConfigMap {CONFIGURATION_NAMESPACE}/{name} cannot be read yet, beginning with the defaults"
            );
        }
        first.ok()
    }

    /// What comes next counts as a change, whatever it is.
    pub fn forget(&mut self) {
        self.last = None;
    }

    fn missing(&self) -> ConfigMap {
        let metadata = ObjectMeta {
            name: Some(self.name.to_owned()),
            namespace: Some(CONFIGURATION_NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        };
        ConfigMap { metadata, ..ConfigMap::default() }
    }
}

impl<T> Configured<T> {
    /// Tells people and the log that it cannot be taken in. `message` is the event's.
    pub fn refused(&self, recorder: &Recorder, why: &impl Display, message: String) {
        let configuration = self.map.metadata.name.as_deref();
        tracing::error!(configuration, %why, "configuration refused, the last one stays in force");
        recorder.warning(self.map.as_ref(), "ConfigurationRefused", message);
    }

    /// Tells people that it is in force.
    pub fn in_force(&self, recorder: &Recorder, message: String) {
        recorder.normal(self.map.as_ref(), "ConfigurationInForce", message);
    }
}
