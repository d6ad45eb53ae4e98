//! What a watch says, applied to a copy of the objects: the one place that knows what Restart, Applied, Deleted and Synced do.
//!
//! While a new complete copy is listed, what was known stays; the new copy takes its place as a whole when it is
//! complete. An object that cannot be read is told in the log and counted, and stays as it was read last.

use crate::document::Document;
use crate::metrics;
use crate::object::ObjectKey;
use crate::reflector::Change;
use bytes::Bytes;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Between two lines about objects that cannot be read: a newer server may send thousands. The metric counts all.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// JSON of an object, as a watch brings it.
pub trait Json {
    fn json(&self) -> Cow<'_, [u8]>;
}

impl Json for Bytes {
    fn json(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }
}

impl Json for Document {
    fn json(&self) -> Cow<'_, [u8]> {
        self.bytes()
    }
}

/// What names an object, and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub key: ObjectKey,
    /// resourceVersion as a number, 0 without one.
    pub revision: u64,
}

#[derive(Deserialize)]
struct HeadJson {
    metadata: MetaJson,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetaJson {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    resource_version: String,
}

impl Head {
    /// Reads the head of an object; the rest of it is passed over.
    pub fn read(object: &impl Json) -> Result<Self, serde_json::Error> {
        let MetaJson { name, namespace, resource_version } =
            serde_json::from_slice::<HeadJson>(&object.json())?.metadata;
        Ok(Self { key: ObjectKey { namespace, name }, revision: resource_version.parse().unwrap_or(0) })
    }
}

/// An object as it was read.
#[derive(Debug)]
pub struct ReadObject<T> {
    pub key: ObjectKey,
    /// `None`: nothing of it is kept, as if it were not there.
    pub kept: Option<T>,
}

/// A complete copy.
#[derive(Debug, PartialEq, Eq)]
pub struct Listed<T> {
    pub objects: BTreeMap<ObjectKey, T>,
    /// Objects that are there and cannot be read: what is known of them is not void.
    pub unreadable: BTreeSet<ObjectKey>,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), unreadable: BTreeSet::new() }
    }
}

impl<T> Listed<T> {
    /// Whether the object is there, readable or not.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.objects.contains_key(key) || self.unreadable.contains(key)
    }
}

/// What is to be done about a change.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<T, D> {
    /// Nothing yet.
    Nothing,
    Applied(ObjectKey, T),
    /// The object is gone, or nothing of it is kept any more; the document is of its deletion.
    Deleted(ObjectKey, Option<D>),
    /// Everything that was known is void but for what is in here.
    Replace(Listed<T>),
}

/// Applies the changes of one watch. It holds no objects but those of a copy that is being listed.
pub struct Fold<T> {
    /// For the log and the metric: `pods`, `resourceclaims.resource.k8s.io`.
    resource: String,
    listed: Option<Listed<T>>,
    logged_at: Option<Instant>,
}

impl<T> Fold<T> {
    /// `path` is the watched collection's, `/api/v1/pods`.
    pub fn new(path: &str) -> Self {
        Self { resource: resource_of(path), listed: None, logged_at: None }
    }

    /// Whether a new copy is being listed.
    pub fn is_listing(&self) -> bool {
        self.listed.is_some()
    }

    /// Takes a change over; `read` reads an object that is there, and is told whether a copy is being listed.
    pub fn apply<D: Json, E: std::fmt::Display>(
        &mut self,
        change: Change<D>,
        read: impl FnOnce(&D, bool) -> Result<ReadObject<T>, E>,
    ) -> Step<T, D> {
        match change {
            Change::Restart => self.listed = Some(Listed::default()),
            Change::Synced => return Step::Replace(self.listed.take().unwrap_or_default()),
            Change::Applied(object) => match read(&object, self.listed.is_some()) {
                Ok(read) => return self.set(read),
                Err(error) => self.unreadable(&object, &error),
            },
            Change::Deleted(object) => match Head::read(&object) {
                Ok(head) => return self.gone(head.key, Some(object)),
                Err(error) => self.report_unreadable(&error),
            },
        }
        Step::Nothing
    }

    fn set<D>(&mut self, read: ReadObject<T>) -> Step<T, D> {
        let ReadObject { key, kept } = read;
        match (&mut self.listed, kept) {
            (None, Some(object)) => return Step::Applied(key, object),
            (_, None) => return self.gone(key, None),
            (Some(listed), Some(object)) => {
                listed.unreadable.remove(&key);
                listed.objects.insert(key, object);
            }
        }
        Step::Nothing
    }

    fn gone<D>(&mut self, key: ObjectKey, document: Option<D>) -> Step<T, D> {
        let Some(listed) = &mut self.listed else { return Step::Deleted(key, document) };
        listed.objects.remove(&key);
        listed.unreadable.remove(&key);
        Step::Nothing
    }

    fn unreadable(&mut self, object: &impl Json, error: &dyn std::fmt::Display) {
        self.report_unreadable(error);
        if let (Some(listed), Ok(head)) = (&mut self.listed, Head::read(object)) {
            listed.objects.remove(&head.key);
            listed.unreadable.insert(head.key);
        }
    }

    /// Tells of an object that turned out to be unreadable.
    pub fn report_unreadable(&mut self, error: &dyn std::fmt::Display) {
        metrics::unreadable(&self.resource);
        let now = Instant::now();
        if self.logged_at.is_some_and(|at| now.duration_since(at) < LOG_INTERVAL) {
            return;
        }
        self.logged_at = Some(now);
        tracing::warn!(resource = self.resource, %error, "an object could not be read, what was known of it stays");
    }
}

/// `pods` of `/api/v1/namespaces/a/pods`, `leases.coordination.k8s.io` of its collection.
fn resource_of(path: &str) -> String {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let plural = parts.last().copied().unwrap_or_default();
    match parts.as_slice() {
        ["apis", group, ..] => format!("{plural}.{group}"),
        _ => plural.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(name: &str, size: Value) -> Bytes {
        json!({ "metadata": { "namespace": "a", "name": name, "resourceVersion": "7" }, "size": size })
            .to_string()
            .into()
    }

    /// Keeps the size of objects that have one above zero.
    fn size(object: &Bytes, _: bool) -> Result<ReadObject<u64>, String> {
        let value: Value = serde_json::from_slice(object).map_err(|e| e.to_string())?;
        let size = value["size"].as_u64().ok_or("the size is no number")?;
        let key = Head::read(object).map_err(|e| e.to_string())?.key;
        Ok(ReadObject { key, kept: (size > 0).then_some(size) })
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("a", name)
    }

    fn steps(changes: Vec<Change>) -> Vec<Step<u64, Bytes>> {
        let mut fold = Fold::new("/apis/test.io/v1/namespaces/a/things");
        changes.into_iter().map(|change| fold.apply(change, size)).collect()
    }

    #[tokio::test]
    async fn a_copy_is_told_when_it_is_complete() {
        let gone = object("c", json!(1));
        let steps = steps(vec![
            Change::Restart,
            Change::Applied(object("a", json!(1))),
            Change::Applied(object("b", json!(2))),
            Change::Applied(object("c", json!(3))),
            Change::Applied(object("d", json!("much"))),
            Change::Applied(object("a", json!(0))),
            Change::Deleted(gone.clone()),
            Change::Synced,
            Change::Applied(object("b", json!(4))),
            Change::Applied(object("b", json!("much"))),
            Change::Applied(object("b", json!(0))),
            Change::Deleted(gone.clone()),
        ]);
        let listed = Listed { objects: [(key("b"), 2)].into(), unreadable: [key("d")].into() };
        assert!(steps[..7].iter().all(|step| *step == Step::Nothing), "{steps:?}");
        assert_eq!(
            steps[7..],
            [
                Step::Replace(listed),
                Step::Applied(key("b"), 4),
                Step::Nothing,
                Step::Deleted(key("b"), None),
                Step::Deleted(key("c"), Some(gone)),
            ]
        );
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_counted() {
        steps(vec![Change::Applied(object("d", json!("much"))), Change::Deleted(Bytes::from_static(b"{}"))]);
        let mut page = coracle_metrics::Text::default();
        metrics::render(&mut page);
        let page = page.finish();
        let sample = "coracle_unreadable_objects_total{resource=\"things.test.io\"} ";
        let line = page.lines().find(|line| line.starts_with(sample)).expect("the sample");
        assert!(line[sample.len()..].parse::<u64>().unwrap() >= 2, "{line}");
    }

    #[test]
    fn resources_are_named_by_their_paths() {
        for (path, expected) in [
            ("/api/v1/pods", "pods"),
            ("/api/v1/namespaces/a/secrets", "secrets"),
            ("/apis/apps/v1/replicasets", "replicasets.apps"),
        ] {
            assert_eq!(resource_of(path), expected);
        }
    }
}
