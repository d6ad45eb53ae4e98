//! Rows of the generated table by kind, and the few messages that the OpenAPI document does not describe.

use super::presence::{self, Presence};
use super::{Field, Form, Kind, MESSAGES, Message, ROOTS};
use std::sync::LazyLock;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const META_GROUP: &str = "meta.k8s.io";

/// A message that objects of some kind are written as; free to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Type(pub(super) u16);

struct Rows {
    /// Behind the generated ones: PartialObjectMetadata, PartialObjectMetadataList.
    extra: Vec<Message>,
    presence: Vec<Presence>,
    object_meta: u16,
}

static ROWS: LazyLock<Rows> = LazyLock::new(|| {
    let metadata =
        |name: &str| Field { tag: 1, name: "metadata", form: Form::One, kind: Kind::Message(row_of(name)) };
    let first = row_at(MESSAGES.len());
    let items = Field { tag: 2, name: "items", form: Form::List, kind: Kind::Message(first) };
    // Two small lists for the life of the process.
    let single: &'static [Field] = Box::leak(Box::new([metadata(OBJECT_META)]));
    let list: &'static [Field] = Box::leak(Box::new([metadata(LIST_META), items]));
    let extra = vec![
        Message { name: "PartialObjectMetadata", fields: single },
        Message { name: "PartialObjectMetadataList", fields: list },
    ];
    let presence = presence::of_all(&extra);
    Rows { extra, presence, object_meta: row_of(OBJECT_META) }
});

fn row_at(index: usize) -> u16 {
    u16::try_from(index).unwrap_or(u16::MAX)
}

fn row_of(name: &str) -> u16 {
    row_at(MESSAGES.binary_search_by(|m| m.name.cmp(name)).unwrap_or(usize::MAX))
}

pub(super) fn message(row: u16) -> &'static Message {
    let at = usize::from(row);
    let generated = MESSAGES.len();
    if at < generated { &MESSAGES[at] } else { &ROWS.extra[at - generated] }
}

pub(super) fn presence(row: u16) -> Presence {
    ROWS.presence.get(usize::from(row)).copied().unwrap_or_default()
}

pub(super) fn object_meta() -> u16 {
    ROWS.object_meta
}

impl Type {
    /// Options of the common group are known under every group's name, as upstream registers them.
    pub fn find(api_version: &str, kind: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if group == META_GROUP && matches!(version, "v1" | "v1beta1") {
            let at = ROWS.extra.iter().position(|m| m.name == kind);
            if let Some(at) = at {
                return Some(Self(row_at(MESSAGES.len() + at)));
            }
        }
        let row = |key: (&str, &str, &str)| {
            let found = ROOTS.binary_search_by(|r| (r.0, r.1, r.2).cmp(&key)).ok()?;
            Some(ROOTS[found].3)
        };
        row((group, version, kind)).map(Self).or_else(|| {
            let common = row(("", "v1", kind))?;
            MESSAGES[usize::from(common)].name.contains(".apis.meta.").then_some(Self(common))
        })
    }
}

/// Messages that are something else than an object in JSON: a schema, or else what the variant says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Union {
    /// A list of schemas (2).
    Array,
    /// Whether anything is allowed (1); the schema is 2.
    Bool,
    /// Names of properties (2).
    Strings,
}

impl Union {
    /// With the row of the schema.
    pub(super) fn of(row: u16) -> Option<(Self, u16)> {
        let message = message(row);
        let union = match message.name.rsplit('.').next()?.strip_prefix("JSONSchemaPropsOr")? {
            "Array" => Self::Array,
            "Bool" => Self::Bool,
            "StringArray" => Self::Strings,
            _ => return None,
        };
        let schema = message.fields.iter().find_map(|f| match f.kind {
            Kind::Message(row) => Some(row),
            _ => None,
        })?;
        Some((union, schema))
    }

    /// The field number of the schema.
    pub(super) fn schema_tag(self) -> u32 {
        if self == Self::Bool { 2 } else { 1 }
    }
}
