//! What selectors ask of an object: its labels and its selectable fields, in one small allocation.

use coracle_strategy::SelectableFields;
use parking_lot::Mutex;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// Maps that may be long and hold nothing to select by.
const SKIPPED: [&str; 5] = ["annotations", "data", "binaryData", "stringData", "managedFields"];

/// Labels (key, value, key, value, ...) in the order of their keys, then the values of `names`. Each text stands behind
/// its length in four bytes.
pub(super) struct Index {
    texts: Box<[u8]>,
    labels: u16,
    /// The resource's selectable fields, shared by all of its objects.
    names: &'static [&'static str],
}

impl Index {
    /// `fields` names the selectable fields; without one, or one without fields, only labels are indexed.
    pub fn new(raw: &[u8], fields: Option<&dyn SelectableFields>) -> Self {
        let selectable = fields.filter(|s| !s.fields(&Value::Null).is_empty());
        let Some(selectable) = selectable else {
            let head: Head = serde_json::from_slice(raw).unwrap_or_default();
            let labels = head.metadata.labels.unwrap_or_default();
            return Self::of(labels.iter().map(|(k, v)| (&**k, &**v)), Vec::new());
        };
        let object = if selectable.selects_anywhere() {
            serde_json::from_slice(raw).unwrap_or(Value::Null)
        } else {
            let mut reader = serde_json::Deserializer::from_slice(raw);
            Sparse.deserialize(&mut reader).unwrap_or(Value::Null)
        };
        let labels = object["metadata"]["labels"].as_object();
        let labels = labels.into_iter().flatten().map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default()));
        Self::of(labels, selectable.fields(&object))
    }

    /// `labels` in the order of their keys.
    fn of<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>, fields: Vec<(&'static str, String)>) -> Self {
        let mut texts = Vec::new();
        let mut add = |text: &str| {
            texts.extend_from_slice(&u32::try_from(text.len()).unwrap_or(0).to_ne_bytes());
            texts.extend_from_slice(text.as_bytes());
        };
        let mut count = 0u16;
        for (key, value) in labels.take(usize::from(u16::MAX)) {
            add(key);
            add(value);
            count += 1;
        }
        for (_, value) in &fields {
            add(value);
        }
        let names = if fields.is_empty() { &[] } else { shared_names(&fields) };
        Self { texts: texts.into(), labels: count, names }
    }

    fn texts(&self) -> Texts<'_> {
        Texts(&self.texts)
    }

    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut texts = self.texts();
        (0..self.labels).filter_map(move |_| Some((texts.next()?, texts.next()?)))
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        let at = self.names.iter().position(|n| *n == name)?;
        self.texts().nth(usize::from(self.labels) * 2 + at)
    }

    pub fn field_count(&self) -> usize {
        self.names.len()
    }

    /// Bytes beside the struct itself.
    pub fn weight(&self) -> usize {
        self.texts.len()
    }
}

struct Texts<'a>(&'a [u8]);

impl<'a> Iterator for Texts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let (len, rest) = self.0.split_first_chunk::<4>()?;
        let (text, rest) = rest.split_at_checked(usize::try_from(u32::from_ne_bytes(*len)).ok()?)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}

/// One list of names a resource, kept for good: there are as many as resources with selectable fields.
fn shared_names(fields: &[(&'static str, String)]) -> &'static [&'static str] {
    static KNOWN: Mutex<Vec<&'static [&'static str]>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock();
    let same = |names: &&&[&str]| names.iter().eq(fields.iter().map(|(name, _)| name));
    if let Some(names) = known.iter().find(same) {
        return names;
    }
    let names: Vec<&'static str> = fields.iter().map(|(name, _)| *name).collect();
    let names: &'static [&'static str] = names.leak();
    known.push(names);
    names
}

/// The part of an object that a label selector looks at.
#[derive(Default, serde::Deserialize)]
struct Head {
    #[serde(default)]
    metadata: HeadMetadata,
}

#[derive(Default, serde::Deserialize)]
struct HeadMetadata {
    #[serde(default)]
    labels: Option<BTreeMap<Box<str>, Box<str>>>,
}

/// Reads a document without its lists and long maps, which are most of it: no selectable field lies in one.
struct Sparse;

impl<'de> DeserializeSeed<'de> for Sparse {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Sparse {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if SKIPPED.contains(&key.as_str()) {
                map.next_value::<IgnoredAny>()?;
            } else {
                let value = map.next_value_seed(Self)?;
                out.insert(key, value);
            }
        }
        Ok(Value::Object(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_strategy as strategy;
    use serde_json::json;

    #[test]
    fn labels_and_fields() {
        let pod = json!({"metadata": {"labels": {"b": "2", "a": "", "ü": "x"}, "annotations": {"long": "x"}},
            "spec": {"nodeName": "n1", "containers": [{"name": "c"}], "hostNetwork": true},
            "status": {"phase": "Running"}});
        let index = Index::new(pod.to_string().as_bytes(), Some(strategy::for_resource("", "pods")));
        assert_eq!(index.label("b"), Some("2"));
        assert_eq!((index.label("a"), index.label("c")), (Some(""), None));
        assert_eq!(index.labels().count(), 3);
        assert_eq!(index.field("spec.nodeName"), Some("n1"));
        assert_eq!(index.field("spec.hostNetwork"), Some("true"));
        assert_eq!(index.field("status.phase"), Some("Running"));
        assert_eq!((index.field("status.podIP"), index.field("x")), (Some(""), None));
        let plain = Index::new(pod.to_string().as_bytes(), None);
        assert_eq!((plain.label("b"), plain.field("spec.nodeName")), (Some("2"), None));
    }

    #[test]
    fn broken_documents_have_nothing() {
        let index = Index::new(b"{\"metadata\":", Some(strategy::for_resource("", "pods")));
        assert_eq!(index.labels().count(), 0);
        assert_eq!(index.field("spec.nodeName"), Some(""));
    }
}
