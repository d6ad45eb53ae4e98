//! How large a schema lets values become: what the estimate of costs looks up by the path to a value.
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#resource-use-by-validation-functions>

use crate::declare::{REQUEST_BYTES, escape, smallest};
use coracle_api::structural::{JsonType, Structural};
use std::collections::BTreeMap;

/// Bytes of the longest value of a format, by upstream's reckoning.
const DATE: u64 = 12;
const DATE_TIME: u64 = 37;
const DURATION: u64 = 32;

/// The size that a value can have at most, and the shapes of what is in it.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Bytes of text, elements or entries. Structures, numbers, bools and keys of maps have none.
    most: u64,
    parts: Parts,
}

#[derive(Clone, Debug, Default)]
enum Parts {
    #[default]
    None,
    List(Box<Shape>),
    Map {
        key: Box<Shape>,
        value: Box<Shape>,
        /// Whether an entry is found under `map.name`, too.
        named: bool,
    },
    Fields(BTreeMap<String, Shape>),
}

/// One step of a path.
#[derive(Clone, Copy, Debug)]
pub enum Step<'s> {
    /// The elements of a list or the values of a map.
    Elements,
    Keys,
    /// The numbers of a list's elements.
    Indices,
    Field(&'s str),
}

impl Shape {
    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    pub fn leaf(most: u64) -> Self {
        Self { most, parts: Parts::None }
    }

    pub fn fields(fields: impl IntoIterator<Item = (&'static str, Self)>) -> Self {
        let fields = fields.into_iter().map(|(name, shape)| (name.to_owned(), shape)).collect();
        Self { most: 0, parts: Parts::Fields(fields) }
    }

    /// A map of at most `most` entries, `named` if `map.key` finds them as `map["key"]` does.
    pub fn map(most: u64, key: Self, value: Self, named: bool) -> Self {
        Self { most, parts: Parts::Map { key: key.into(), value: value.into(), named } }
    }

    /// The shape of values of a schema.
    pub fn of(schema: &Structural) -> Self {
        Self { most: most(schema), parts: parts(schema) }
    }

    pub(crate) fn step(&self, step: Step<'_>) -> Option<&Self> {
        match (&self.parts, step) {
            (Parts::List(value) | Parts::Map { value, .. }, Step::Elements)
            | (Parts::Map { value, named: true, .. }, Step::Field(_)) => Some(value),
            (Parts::Map { key, .. }, Step::Keys) => Some(key),
            (Parts::Fields(fields), Step::Field(name)) => fields.get(name),
            _ => None,
        }
    }
}

fn most(schema: &Structural) -> u64 {
    let words = &schema.keywords;
    // A character takes up to four bytes; two are the quotes.
    let characters = words.max_length.map(|most| most.saturating_mul(4));
    let any = REQUEST_BYTES - 2;
    match schema.kind {
        _ if schema.int_or_string => characters.unwrap_or(any),
        Some(JsonType::String) => match words.format.as_str() {
            "date" => DATE,
            "date-time" => DATE_TIME,
            "duration" => DURATION,
            "byte" => words.max_length.unwrap_or(any),
            _ => characters.or_else(|| longest(schema)).unwrap_or(any),
        },
        Some(JsonType::Array) => words.max_items.unwrap_or_else(|| {
            // Brackets around, and a comma after each.
            any / (schema.items.as_deref().map_or(0, smallest) + 1)
        }),
        Some(JsonType::Object) => match &schema.additional {
            // Two quotes, a colon, a comma, and the shortest names there are.
            Some(value) => words.max_properties.unwrap_or_else(|| any / (smallest(value) + 6)),
            None => 0,
        },
        _ => 0,
    }
}

/// The longest of the values that an `enum` lists.
fn longest(schema: &Structural) -> Option<u64> {
    schema.keywords.one_of_these.iter().filter_map(|value| value.as_str()).map(|text| text.len() as u64).max()
}

fn parts(schema: &Structural) -> Parts {
    match (&schema.items, &schema.additional) {
        _ if schema.int_or_string => Parts::None,
        (Some(items), _) if schema.kind == Some(JsonType::Array) => Parts::List(Shape::of(items).into()),
        (_, Some(value)) if schema.kind == Some(JsonType::Object) => {
            // Upstream reckons with no length for names in a map, and definitions everywhere are written for that.
            Parts::Map { key: Box::default(), value: Shape::of(value).into(), named: false }
        }
        _ => {
            let properties = schema.properties.iter();
            Parts::Fields(properties.filter_map(|(name, of)| Some((escape(name)?, Shape::of(of)))).collect())
        }
    }
}
