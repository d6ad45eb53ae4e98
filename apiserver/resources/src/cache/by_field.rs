//! The keys of objects in the order of a field by which many clients select: every kubelet asks for the pods of its node.

use super::object::CachedObject;
use imbl::OrdSet;
use std::sync::Arc;

/// Of which resource, and which field: what upstream has an index of, too.
const INDEXED: [(&str, &str); 1] = [("pods.", "spec.nodeName")];

/// Values that are not empty, each with the key of an object that has it. Cloning is O(1).
#[derive(Clone, Default)]
pub struct ByField {
    field: Option<&'static str>,
    keys: OrdSet<(Arc<str>, Arc<str>)>,
}

impl ByField {
    /// Of a resource, and empty.
    pub(super) fn of(resource: &str) -> Self {
        let field = INDEXED.iter().find(|(indexed, _)| *indexed == resource).map(|(_, field)| *field);
        Self { field, keys: OrdSet::new() }
    }

    /// An object is now this, and what was here before was that.
    pub(super) fn change(&mut self, now: Option<&CachedObject>, before: Option<&CachedObject>) {
        let Some(field) = self.field else { return };
        let (new, old) = (value_of(field, now), value_of(field, before));
        if new == old {
            return;
        }
        if let Some((value, key)) = old {
            self.keys.remove(&(Arc::from(value), key.clone()));
        }
        if let Some((value, key)) = new {
            let value = self.shared(value);
            self.keys.insert((value, key.clone()));
        }
    }

    /// Equal values are one text in memory.
    fn shared(&self, value: &str) -> Arc<str> {
        let first = (Arc::from(value), Arc::from(""));
        let known = self.keys.range(first.clone()..).next().filter(|(known, _)| **known == *value);
        known.map_or(first.0, |(known, _)| known.clone())
    }

    /// The keys of the objects whose field has this value, in their order, after one of them. `None`: that is not indexed.
    pub fn keys<'a>(
        &'a self,
        field: &str,
        value: &str,
        after: Option<&str>,
    ) -> Option<impl Iterator<Item = &'a Arc<str>> + Send + use<'a>> {
        let value: Arc<str> = Arc::from(value);
        let after: Arc<str> = Arc::from(after.unwrap_or_default());
        let start = (value.clone(), after.clone());
        (self.field == Some(field)).then(|| {
            let found = self.keys.range(start..).take_while(move |(of, _)| *of == value);
            found.map(|(_, key)| key).filter(move |key| ***key > *after)
        })
    }
}

/// The object's value, if that is not empty, and its key.
fn value_of<'o>(field: &str, object: Option<&'o CachedObject>) -> Option<(&'o str, &'o Arc<str>)> {
    let object = object?;
    let value = object.field(field).filter(|value| !value.is_empty())?;
    Some((value, &object.key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_store::{KeyValue, Revision};
    use coracle_strategy::SelectableFields;
    use serde_json::Value;

    struct NodeName;

    impl SelectableFields for NodeName {
        fn fields(&self, object: &Value) -> Vec<(&'static str, String)> {
            vec![("spec.nodeName", object["spec"]["nodeName"].as_str().unwrap_or_default().to_owned())]
        }
    }

    fn pod(name: &str, node: &str) -> CachedObject {
        let key = format!("pods./a/{name}").into();
        let value = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"nodeName":"{node}"}}}}"#);
        let stored =
            KeyValue { key, value: value.into_bytes().into(), created: Revision(1), modified: Revision(1) };
        CachedObject::new(&stored, Some(&NodeName))
    }

    fn of(index: &ByField, node: &str, after: Option<&str>) -> Vec<String> {
        let keys = index.keys("spec.nodeName", node, after).expect("it is indexed");
        keys.map(|key| key.rsplit('/').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn what_is_on_a_node_is_found_as_it_comes_moves_and_goes() {
        let mut index = ByField::of("pods.");
        for (name, node) in [("c", "one"), ("a", "one"), ("b", ""), ("d", "on"), ("e", "one-more")] {
            index.change(Some(&pod(name, node)), None);
        }
        assert_eq!(of(&index, "one", None), ["a", "c"]);
        assert_eq!(of(&index, "one", Some("pods./a/a")), ["c"]);
        assert_eq!(of(&index, "on", None), ["d"]);
        assert!(of(&index, "two", None).is_empty() && of(&index, "", None).is_empty());
        index.change(Some(&pod("b", "one")), Some(&pod("b", "")));
        index.change(Some(&pod("c", "one")), Some(&pod("c", "one")));
        assert_eq!(of(&index, "one", None), ["a", "b", "c"]);
        index.change(None, Some(&pod("a", "one")));
        index.change(Some(&pod("c", "two")), Some(&pod("c", "one")));
        assert_eq!(
            (of(&index, "one", None), of(&index, "two", None)),
            (vec!["b".to_owned()], vec!["c".to_owned()])
        );
        assert!(index.keys("status.phase", "Running", None).is_none());
        assert!(ByField::of("nodes.").keys("spec.nodeName", "one", None).is_none());
    }
}
