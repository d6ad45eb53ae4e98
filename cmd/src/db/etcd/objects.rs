//! What stands below `/registry/`, as objects in this store's form.

use super::mvcc::{Entry, Newest};
use super::{Imported, SnapshotError};
use coracle_api::{Object, catalogue, convert, protobuf};
use coracle_apiserver::store::{KeyValue, Revision, Value};
use std::sync::Arc;

pub const PREFIX: &str = "/registry/";
/// The other server's own affairs: which addresses and ports its allocators have given away, its leases as a master, events of
/// the past, and the heartbeats of nodes. Here they follow from the objects, or begin anew.
const LEFT_OUT: [&str; 5] =
    ["ranges/", "masterleases/", "events/", "leases/kube-node-lease/", "peerserverleases/"];
const PROTOBUF: &[u8] = b"k8s\0";
const SEALED: &[u8] = b"k8s:enc:";

pub fn of(newest: Newest) -> Result<Imported, SnapshotError> {
    let (mut items, mut left_out, mut sealed) = (Vec::new(), Vec::new(), Vec::new());
    for (key, entry) in newest.present {
        let text = String::from_utf8_lossy(&key).into_owned();
        let Some(path) = text.strip_prefix(PREFIX) else {
            left_out.push(text);
            continue;
        };
        if LEFT_OUT.iter().any(|folder| path.starts_with(folder)) {
            left_out.push(text);
        } else if entry.value.starts_with(SEALED) {
            sealed.push(text);
        } else {
            let item = item(path, &entry).map_err(|why| SnapshotError::Object(format!("{text}: {why}")))?;
            items.push(item);
        }
    }
    if let Some(first) = sealed.first() {
        return Err(SnapshotError::Encrypted(first.clone(), sealed.len()));
    }
    if items.is_empty() {
        return Err(SnapshotError::Empty);
    }
    items.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(Imported { items, revision: Revision(newest.revision), left_out })
}

fn item(path: &str, entry: &Entry) -> Result<KeyValue, String> {
    let object = if entry.value.starts_with(PROTOBUF) {
        protobuf::decode(&entry.value, None).map_err(|error| error.to_string())?
    } else {
        serde_json::from_slice(&entry.value).map_err(|_| "it is neither protobuf nor JSON".to_owned())?
    };
    let (key, object) = placed(path, object)?;
    let bytes = serde_json::to_vec(&object).map_err(|error| error.to_string())?;
    let (created, modified) = (Revision(entry.created), Revision(entry.modified));
    Ok(KeyValue { key: Arc::from(key), value: Value::from(bytes), created, modified })
}

/// The key of an object here, and the object as it is stored.
fn placed(path: &str, mut object: Object) -> Result<(String, Object), String> {
    let text = |object: &Object, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object, "apiVersion"), text(&object, "kind"));
    let (group, version) = catalogue::split_api_version(&api_version).ok_or("it says no apiVersion")?;
    let metadata = object["metadata"].as_object_mut().ok_or("it has no metadata")?;
    metadata.remove("resourceVersion");
    let part = |field: &str| metadata.get(field).and_then(Object::as_str).unwrap_or_default().to_owned();
    let (namespace, name) = (part("namespace"), part("name"));
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    let folder = match catalogue::by_kind(group, version, &kind) {
        Some(resource) => {
            convert::to_storage(resource, &mut object);
            resource.storage.key.to_string()
        }
        // A custom one: its group and plural stand in the path, `acme.com/boats/harbour/one`.
        None => match path.split('/').collect::<Vec<_>>()[..] {
            [of, plural, ..] if of == group && path.ends_with(&format!("/{name}")) => {
                format!("{plural}.{group}")
            }
            _ => return Err(format!("nobody here knows the kind {kind} of {api_version}")),
        },
    };
    Ok((format!("{folder}/{namespace}/{name}"), object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn entry(value: &Object) -> Entry {
        Entry { created: 2, modified: 3, value: value.to_string().into_bytes() }
    }

    fn imported(entries: &[(&str, Entry)]) -> Result<Imported, SnapshotError> {
        let mut newest = Newest { present: BTreeMap::new(), revision: 9 };
        for (key, Entry { created, modified, value }) in entries {
            let entry = Entry { created: *created, modified: *modified, value: value.clone() };
            newest.present.insert(key.as_bytes().to_vec(), entry);
        }
        of(newest)
    }

    #[test]
    fn objects_keep_what_they_are() {
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1", "uid": "u", "resourceVersion": "1" } });
        let boat = json!({ "apiVersion": "acme.com/v1", "kind": "Boat", "metadata": { "name": "one", "namespace": "harbour" } });
        let all = [
            ("/registry/minions/n1", entry(&node)),
            ("/registry/acme.com/boats/harbour/one", entry(&boat)),
            ("/registry/ranges/serviceips", Entry::default()),
            ("compact_rev_key", Entry::default()),
        ];
        let found = imported(&all).expect("objects");
        let keys: Vec<&str> = found.items.iter().map(|item| &*item.key).collect();
        assert_eq!(keys, ["boats.acme.com/harbour/one", "nodes.//n1"]);
        let stored: Object = serde_json::from_slice(&found.items[1].value.peek()).expect("JSON");
        assert_eq!(stored["metadata"], json!({ "name": "n1", "uid": "u" }));
        assert_eq!((found.items[1].created, found.items[1].modified), (Revision(2), Revision(3)));
        assert_eq!(found.left_out, ["/registry/ranges/serviceips", "compact_rev_key"]);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let sealed = Entry { value: b"k8s:enc:aescbc:v1:k:xyz".to_vec(), ..Entry::default() };
        let error = |key: &str, entry: Entry| imported(&[(key, entry)]).map(drop).expect_err(key).to_string();
        assert!(
            error("/registry/secrets/a/b", sealed)
                .starts_with("1 values are encrypted at rest, such as /registry/secrets/a/b")
        );
        assert!(error("/other", Entry::default()).starts_with("there is nothing of Kubernetes in it"));
        let odd = json!({ "apiVersion": "v1", "kind": "Boat", "metadata": { "name": "one" } });
        assert!(
            error("/registry/boats/one", entry(&odd))
                .contains("/registry/boats/one: nobody here knows the kind Boat of v1")
        );
        let garbage = Entry { value: b"k8s\0\x0a\x7f".to_vec(), ..Entry::default() };
        assert!(error("/registry/pods/a/b", garbage).starts_with("/registry/pods/a/b: "));
    }
}
