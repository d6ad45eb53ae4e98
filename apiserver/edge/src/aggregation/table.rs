//! The APIServices as they are, ready to be asked by every request.

use super::identity::FrontProxy;
use super::transport::{Settings, Transport};
use crate::discovery::Ranking;
use coracle_api::Object;
use coracle_requests::ObjectReader;
use coracle_requests::value::{list_at, name, str_at};
use coracle_resources::cache::Cache;
use coracle_store::Revision;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

pub(super) const API_SERVICES: &str = "apiservices.apiregistration.k8s.io";

/// A group and version that another server answers for.
pub struct Remote {
    /// Of the APIService.
    pub name: String,
    pub group: String,
    pub version: String,
    /// What its condition says.
    pub available: bool,
    /// Or why there can be no connection.
    pub transport: Result<Arc<Transport>, String>,
}

impl Remote {
    /// Where the group and version begin.
    pub fn path(&self) -> String {
        match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }
}

/// All APIServices at one revision.
#[derive(Default)]
pub struct Table {
    pub revision: Revision,
    pub ranking: Arc<Ranking>,
    remotes: HashMap<(String, String), Arc<Remote>>,
}

impl Table {
    pub fn find(&self, group: &str, version: &str) -> Option<&Arc<Remote>> {
        if self.remotes.is_empty() {
            return None;
        }
        self.remotes.get(&(group.to_owned(), version.to_owned()))
    }

    pub fn remotes(&self) -> impl Iterator<Item = &Arc<Remote>> {
        self.remotes.values()
    }

    /// Connections whose settings are as before stay.
    fn new(
        revision: Revision,
        objects: &[Arc<Object>],
        before: &Self,
        identity: Option<&Arc<FrontProxy>>,
    ) -> Self {
        let ranking = Ranking::new(objects.iter().map(|object| &**object));
        let ranking = if ranking == *before.ranking { before.ranking.clone() } else { Arc::new(ranking) };
        let remote = |object: &Arc<Object>| {
            let settings = Settings::of(object)?;
            let (group, version) = (str_at(object, "spec.group"), str_at(object, "spec.version"));
            let known = before.find(group, version).and_then(|known| known.transport.as_ref().ok());
            let transport = match known.filter(|known| known.settings == settings) {
                Some(known) => Ok(known.clone()),
                None => Transport::new(settings, identity),
            };
            let (group, version) = (group.to_owned(), version.to_owned());
            let key = (group.clone(), version.clone());
            let available = is_available(object);
            Some((
                key,
                Arc::new(Remote { name: name(object).to_owned(), group, version, available, transport }),
            ))
        };
        Self { revision, ranking, remotes: objects.iter().filter_map(remote).collect() }
    }
}

pub(super) fn is_available(api_service: &Object) -> bool {
    let conditions = list_at(api_service, "status.conditions").iter();
    conditions.into_iter().any(|c| str_at(c, "type") == "Available" && str_at(c, "status") == "True")
}

/// Makes the table anew when an APIService has changed, and only then.
pub struct Tables {
    cache: Arc<Cache>,
    identity: Option<Arc<FrontProxy>>,
    current: Mutex<Arc<Table>>,
}

impl Tables {
    pub fn new(cache: Arc<Cache>, identity: Option<Arc<FrontProxy>>) -> Self {
        Self { cache, identity, current: Mutex::default() }
    }

    pub fn current(&self) -> Arc<Table> {
        let revision = self.cache.changed_at(API_SERVICES);
        let mut current = self.current.lock();
        if current.revision < revision {
            // Read after the revision, so it may be newer, but never older than it says.
            let objects = self.cache.list(API_SERVICES, "");
            *current = Arc::new(Table::new(revision, &objects, &current, self.identity.as_ref()));
        }
        current.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn api_service(version: &str, service: &str, status: &str) -> Arc<Object> {
        let mut object = json!({
            "metadata": { "name": format!("{version}.g") },
            "spec": { "group": "g", "version": version, "groupPriorityMinimum": 5, "versionPriority": 5,
                "insecureSkipTLSVerify": true },
            "status": { "conditions": [{ "type": "Other", "status": "True" }, { "type": "Available", "status": status }] },
        });
        if !service.is_empty() {
            object["spec"]["service"] = json!({ "namespace": "n", "name": service, "port": 443 });
        }
        Arc::new(object)
    }

    #[test]
    fn connections_stay_as_long_as_their_settings() {
        let table = |objects: &[Arc<Object>], before: &Table| Table::new(Revision(1), objects, before, None);
        let first =
            table(&[api_service("v1", "", "True"), api_service("v2", "a", "False")], &Table::default());
        assert!(first.find("g", "v1").is_none() && first.find("h", "v2").is_none());
        let transport = |table: &Table| table.find("g", "v2").unwrap().transport.clone().ok().unwrap();
        assert!(!first.find("g", "v2").unwrap().available);
        let second = table(&[api_service("v2", "a", "True")], &first);
        assert!(second.find("g", "v2").unwrap().available);
        assert!(Arc::ptr_eq(&transport(&first), &transport(&second)));
        let third = table(&[api_service("v2", "b", "True")], &second);
        assert!(!Arc::ptr_eq(&transport(&second), &transport(&third)));
        assert!(!Arc::ptr_eq(&first.ranking, &second.ranking));
        assert!(Arc::ptr_eq(&second.ranking, &third.ranking));
    }
}
