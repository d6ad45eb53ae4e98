//! The stored form of objects: JSON that begins with kind, apiVersion and metadata, without a resourceVersion, in the
//! order of upstream's fields.
//!
//! The resourceVersion is the revision of the store and known only after the commit; it is put into the bytes at its
//! place in `metadata`, so a watch event or list needs no decoding.

mod in_order;
mod ordered;

pub use in_order::InOrder;
pub use ordered::Ordered;

use crate::Object;
use crate::catalogue::split_api_version;
use crate::schema::{self, TypeRef};
use ordered::members;
use serde_json::{Map, Value};

const METADATA: &[u8] = b"\"metadata\":{";

/// What stands in front of a resourceVersion in metadata; names that every stored object of a built-in kind begins with,
/// and none of another.
const BEFORE_VERSION: [&[u8]; 5] =
    [b"\"name\":\"", b"\"generateName\":\"", b"\"namespace\":\"", b"\"selfLink\":\"", b"\"uid\":\""];

/// Groups that upstream keeps as JSON. Of the others it keeps messages, in which an empty list is none at all.
const KEPT_AS_JSON: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// `{"kind":K,"apiVersion":V,"metadata":{...},...}` without `metadata.resourceVersion`. Of built-in kinds the fields
/// follow in the order of their structs, of others in that of their names. `kind` and `api_version` stand for what the
/// object says itself.
pub fn to_storage_bytes(object: &Object, api_version: &str, kind: &str) -> Vec<u8> {
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let group = split_api_version(api_version);
    let ty = group.and_then(|(group, version)| schema::root(group, version, kind));
    let layout = Layout { nil: group.is_some_and(|(group, _)| !KEPT_AS_JSON.contains(&group)) };
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(b"{\"kind\":");
    write(&mut out, &Value::from(kind));
    out.extend_from_slice(b",\"apiVersion\":");
    write(&mut out, &Value::from(api_version));
    out.push(b',');
    out.extend_from_slice(METADATA);
    let metadata_ty = ty.and_then(|ty| ty.field("metadata")).map(schema::FieldRef::ty);
    layout.write_fields(&mut out, metadata, metadata_ty, true, &["resourceVersion"]);
    out.push(b'}');
    layout.write_fields(&mut out, fields, ty, false, &["kind", "apiVersion", "metadata"]);
    out.push(b'}');
    out
}

/// The metadata of an object, of whatever kind, in the order of its struct.
pub fn metadata(metadata: &Value) -> Option<Vec<u8>> {
    let ty = schema::by_name("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    serde_json::to_vec(&Ordered { value: metadata, ty, nil: false }).ok()
}

/// How fields are written.
#[derive(Clone, Copy)]
struct Layout {
    /// Whether empty lists and maps become null where null is what is written of absent ones.
    nil: bool,
}

impl Layout {
    fn write_fields(
        self,
        out: &mut Vec<u8>,
        fields: &Map<String, Value>,
        ty: Option<TypeRef<'_>>,
        first: bool,
        but: &[&str],
    ) {
        let mut first = first;
        for member in members(fields, ty).iter().filter(|member| !but.contains(&member.name)) {
            if !first {
                out.push(b',');
            }
            first = false;
            write(out, &member.name);
            out.push(b':');
            write(out, &member.ordered(self.nil));
        }
    }
}

fn write(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    // Writing a Value to memory cannot fail: its keys are strings and its numbers finite.
    let written = serde_json::to_writer(out, value);
    debug_assert!(written.is_ok());
}

/// Where in stored bytes the members of `metadata` begin, and where its resourceVersion belongs. A comma stands in front
/// of that place or behind what is to be put there, unless it is the end of `metadata`. `None` for what is no object of
/// the API.
///
/// `kind` and `apiVersion` stand in front of `metadata` and cannot contain the searched text, so its first occurrence is
/// the right one.
pub fn version_place(stored: &[u8]) -> Option<(usize, usize)> {
    let begin = stored.windows(METADATA.len()).take(1024).position(|w| w == METADATA)? + METADATA.len();
    let mut place = begin;
    while let Some(next) = behind_plain_member(&stored[place..]) {
        place += next;
    }
    Some((begin, place))
}

/// The length of a member that comes before the resourceVersion, with the comma behind it. Names and uids hold nothing that
/// JSON escapes.
fn behind_plain_member(rest: &[u8]) -> Option<usize> {
    let head = BEFORE_VERSION.iter().find(|head| rest.starts_with(head))?.len();
    let value = rest[head..].iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    rest[head + value..].starts_with(b"\",").then_some(head + value + 2)
}

/// Whether stored bytes have the order of upstream's fields. Built-in objects that were stored before that was so have that
/// of their names, in which something else always comes before `name`.
pub fn is_in_order(stored: &[u8]) -> bool {
    version_place(stored).is_some_and(|(begin, _)| stored[begin..].starts_with(BEFORE_VERSION[0]))
}

/// Stored bytes with the resourceVersion in its place; bytes of another form are returned unchanged.
pub fn with_resource_version(stored: &[u8], revision: u64) -> Vec<u8> {
    let Some((_, at)) = version_place(stored) else { return stored.to_vec() };
    let (head, tail) = stored.split_at(at);
    let comma = if tail.starts_with(b"}") { "" } else { "," };
    let mut out = Vec::with_capacity(stored.len() + 48);
    out.extend_from_slice(head);
    out.extend_from_slice(format!("\"resourceVersion\":\"{revision}\"{comma}").as_bytes());
    out.extend_from_slice(tail);
    out
}

/// Decodes stored bytes and sets the resourceVersion.
pub fn from_storage_bytes(stored: &[u8], revision: u64) -> Result<Object, serde_json::Error> {
    let mut object: Object = serde_json::from_slice(stored)?;
    crate::meta::set(&mut object, "resourceVersion", revision.to_string());
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn order_and_splicing() {
        let object = json!({ "apiVersion": "x", "kind": "y", "status": {}, "data": { "metadata": {} },
            "metadata": { "name": "a", "resourceVersion": "7" } });
        let stored = to_storage_bytes(&object, "v1", "ConfigMap");
        let text = String::from_utf8(stored.clone()).unwrap();
        let expected = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"metadata":{}},"status":{}}"#;
        assert_eq!(text, expected);
        let spliced = String::from_utf8(with_resource_version(&stored, 12)).unwrap();
        assert_eq!(spliced, expected.replace(r#"{"name""#, r#"{"resourceVersion":"12","name""#));
        assert_eq!(version_place(br#"{"kind":"A","metadata":{"name":"a\\"b","uid":"x"}}"#), Some((24, 24)));
        let bare = to_storage_bytes(&json!({}), "v1", "A");
        assert_eq!(
            with_resource_version(&bare, 1),
            br#"{"kind":"A","apiVersion":"v1","metadata":{"resourceVersion":"1"}}"#
        );
    }

    #[test]
    fn an_empty_list_in_place_of_any_value_stays_one() {
        let object = json!({ "metadata": { "name": "a" }, "data": [], "revision": 1 });
        let stored = to_storage_bytes(&object, "apps/v1", "ControllerRevision");
        assert!(String::from_utf8(stored).unwrap().ends_with(r#""data":[],"revision":1}"#));
    }

    #[test]
    fn built_in_kinds_have_the_order_of_their_structs() {
        let object = json!({ "status": { "phase": "Running" }, "apiVersion": "v1", "kind": "Pod",
            "spec": { "restartPolicy": "Never", "containers": [{ "resources": {}, "image": "i", "name": "c" }], "volumes": [] },
            "metadata": { "annotations": {}, "labels": {}, "uid": "u", "namespace": "n", "name": "a", "resourceVersion": "7",
                "creationTimestamp": "x" } });
        let stored = to_storage_bytes(&object, "v1", "Pod");
        let text = String::from_utf8(with_resource_version(&stored, 9)).unwrap();
        assert_eq!(
            text,
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"9","creationTimestamp":"x","labels":{},"annotations":{}},"spec":{"volumes":[],"containers":[{"name":"c","image":"i","resources":{}}],"restartPolicy":"Never"},"status":{"phase":"Running"}}"#
        );
        assert!(is_in_order(&stored));
        assert!(!is_in_order(
            br#"{"kind":"Pod","apiVersion":"v1","metadata":{"creationTimestamp":"x","name":"a"}}"#
        ));
    }

    #[test]
    fn an_empty_list_is_none_in_what_upstream_keeps_as_messages() {
        let role = json!({ "metadata": { "name": "a" }, "rules": [] });
        let text = |object: &Value, version, kind| {
            String::from_utf8(to_storage_bytes(object, version, kind)).unwrap()
        };
        assert!(text(&role, "rbac.authorization.k8s.io/v1", "ClusterRole").ends_with(r#""rules":null}"#));
        let definition = json!({ "metadata": { "name": "a" }, "status": { "conditions": [] } });
        let stored = text(&definition, "apiextensions.k8s.io/v1", "CustomResourceDefinition");
        assert!(stored.ends_with(r#""status":{"conditions":[]}}"#), "{stored}");
    }

    proptest! {
        #[test]
        fn splicing_equals_decoding(name in ".*", key in ".*", revision: u64) {
            let object = json!({ "metadata": { "name": name, "labels": { key.clone(): "v" } }, key: 1 });
            let stored = to_storage_bytes(&object, "v1", "Kind");
            let spliced: Value = serde_json::from_slice(&with_resource_version(&stored, revision)).unwrap();
            prop_assert_eq!(spliced, from_storage_bytes(&stored, revision).unwrap());
        }
    }
}
