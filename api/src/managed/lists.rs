//! How lists and maps are treated, and what identifies their items.

use super::element::Element;
use crate::schema::{Dynamic, FieldRef, Kind, ListType, MapType, TypeRef};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::LazyLock;

/// What stands where no schema says anything.
static ANYTHING: LazyLock<Dynamic> =
    LazyLock::new(|| Dynamic { nullable: true, preserve_unknown_fields: true, ..Dynamic::of(Kind::Any) });

fn anything<'t>() -> Place<'t> {
    Place::root(TypeRef::dynamic(&ANYTHING))
}

/// A type with the facts of the field that it was reached by.
#[derive(Clone, Copy)]
pub(super) struct Place<'t> {
    pub ty: TypeRef<'t>,
    pub field: Option<FieldRef<'t>>,
}

/// What a value is for ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Scalar,
    /// Owned as a whole.
    Atomic,
    /// Its fields or keys are owned one by one.
    Granular,
    Set,
    Keyed,
}

impl<'t> Place<'t> {
    pub fn root(ty: TypeRef<'t>) -> Self {
        Self { ty, field: None }
    }

    pub fn of(field: FieldRef<'t>) -> Self {
        Self { ty: field.ty(), field: Some(field) }
    }

    /// The place of an item of this list or an entry of this map.
    pub fn element(self) -> Option<Self> {
        self.ty.element().map(Self::root)
    }

    /// By the schema; where that allows anything, by the value.
    pub fn shape(self, value: &Value) -> Shape {
        match self.ty.kind() {
            Kind::Any => match value {
                Value::Object(_) => Shape::Granular,
                Value::Array(_) => Shape::Atomic,
                _ => Shape::Scalar,
            },
            Kind::Struct | Kind::Map => {
                let map_type = self.field.and_then(FieldRef::map_type).or_else(|| self.ty.map_type());
                if map_type == Some(MapType::Atomic) { Shape::Atomic } else { Shape::Granular }
            }
            Kind::List => match self.field.and_then(FieldRef::list_type).or_else(|| self.ty.list_type()) {
                Some(ListType::Map) => Shape::Keyed,
                Some(ListType::Set) => Shape::Set,
                Some(ListType::Atomic) | None => Shape::Atomic,
            },
            _ => Shape::Scalar,
        }
    }

    /// Where a key of this struct or map leads; `None` for a field that the schema does not know.
    pub fn child(self, key: &str) -> Option<Place<'t>> {
        match self.ty.kind() {
            Kind::Struct => match self.ty.field(key) {
                Some(field) => Some(Place::of(field)),
                None if self.ty.preserves_unknown_fields() => Some(anything()),
                None => None,
            },
            Kind::Map => Some(self.element().unwrap_or_else(anything)),
            _ => Some(anything()),
        }
    }

    /// Whether `key` is a field that the schema names, not an entry of a map.
    pub fn names(self, key: &str) -> bool {
        self.ty.kind() == Kind::Struct && self.ty.field(key).is_some()
    }
}

/// Identifies the items of one list: the facts are looked up once for all of them.
pub(super) enum Items<'t> {
    Set,
    Keyed(Vec<Key<'t>>),
}

pub(super) struct Key<'t> {
    name: &'t str,
    default: Option<Cow<'t, Value>>,
}

impl<'t> Items<'t> {
    pub fn of(place: Place<'t>, shape: Shape) -> Self {
        match shape {
            Shape::Keyed => {
                let element = place.ty.element();
                let key = |name: &'t str| {
                    let default = element.and_then(|ty| ty.field(name)).and_then(FieldRef::default);
                    Key { name, default }
                };
                let names = place.field.map(FieldRef::map_keys).filter(|names| !names.is_empty());
                Self::Keyed(names.unwrap_or_else(|| place.ty.map_keys()).into_iter().map(key).collect())
            }
            _ => Self::Set,
        }
    }

    /// What identifies `item`, or why nothing does.
    pub fn identify(&self, item: &Value) -> Result<Element<'static>, String> {
        match self {
            Self::Set => set_element(item),
            Self::Keyed(keys) => keyed_element(keys, item),
        }
    }
}

fn set_element(item: &Value) -> Result<Element<'static>, String> {
    match item {
        Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
        Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
        Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
        scalar => Ok(Element::value(scalar)),
    }
}

fn keyed_element(keys: &[Key<'_>], item: &Value) -> Result<Element<'static>, String> {
    let map = match item {
        Value::Object(map) => map,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut fields = Map::new();
    for Key { name, default } in keys {
        let value = match (map.get(*name), default) {
            (Some(value), _) => value.clone(),
            (None, Some(default)) => (**default).clone(),
            (None, None) => {
                return Err(format!(
                    "associative list with keys has an element that omits key field {name:?} (and doesn't have \
                     default value)"
                ));
            }
        };
        fields.insert((*name).to_owned(), value);
    }
    Ok(Element::key(&fields))
}
