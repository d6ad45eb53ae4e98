//! Ownership of the replicas, between an object and its `scale` subresource.
//!
//! A Scale shows the owners of the object's replicas as owners of `spec.replicas` of `autoscaling/v1`. What a write to
//! the Scale does to them goes back to the object.

use super::element::Element;
use super::entry::{Entry, decode, encode};
use super::set::Set;
use serde_json::Value;

const SCALE_VERSION: &str = "autoscaling/v1";

fn path<'a>(names: &[&'a str]) -> Vec<Element<'a>> {
    names.iter().map(|name| Element::field(name)).collect()
}

fn only<'a>(path: &[Element<'a>]) -> Set<'a> {
    let mut set = Set::new();
    set.insert(path.iter().cloned());
    set
}

/// The Scale's managedFields. `replicas` is the path of the replicas in the object, whose entries of the `versions` count.
pub fn scale_from_parent(parent: &Value, replicas: &[&str], versions: &[String]) -> Option<Value> {
    let replicas = path(replicas);
    let entries = decode(parent).unwrap_or_default();
    let owners = entries.into_iter().filter(|e| knows(versions, e) && e.fields.has(&replicas));
    let in_scale = owners.map(|entry| Entry {
        fields: only(&path(&["spec", "replicas"])),
        api_version: SCALE_VERSION.into(),
        ..entry
    });
    encode(in_scale.collect())
}

/// The object's managedFields after a write to the Scale left `scale` as the Scale's. `version` is the one in which the
/// object is written.
pub fn scale_to_parent(
    parent: &Value,
    scale: &Value,
    replicas: &[&str],
    versions: &[String],
    version: &str,
) -> Option<Value> {
    let replicas = path(replicas);
    let in_scale = path(&["spec", "replicas"]);
    let mut kept = decode(parent).unwrap_or_default();
    let mut owners = decode(scale).unwrap_or_default();
    owners.retain(|entry| entry.fields.has(&in_scale));
    kept.retain(|entry| knows(versions, entry));
    for entry in &mut kept {
        // The same owner in both: nothing was taken from it.
        let still = owners.iter().position(|o| is_same(o, entry));
        match still {
            Some(at) if entry.fields.has(&replicas) => {
                owners.remove(at);
            }
            _ => entry.fields = std::mem::take(&mut entry.fields).difference(&only(&replicas)),
        }
    }
    kept.retain(|entry| !entry.fields.is_empty());
    for owner in owners {
        let made = Entry { fields: only(&replicas), api_version: version.into(), ..owner };
        match kept.iter_mut().find(|known| known.same_owner(&made)) {
            Some(known) => {
                known.fields = std::mem::take(&mut known.fields).union(made.fields);
                known.time = made.time;
            }
            None => kept.push(made),
        }
    }
    encode(kept)
}

fn knows(versions: &[String], entry: &Entry<'_>) -> bool {
    versions.iter().any(|version| *version == *entry.api_version)
}

/// Apart from the version, which the Scale replaces.
fn is_same(a: &Entry<'_>, b: &Entry<'_>) -> bool {
    a.manager == b.manager && a.operation == b.operation && a.subresource == b.subresource
}
