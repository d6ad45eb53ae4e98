//! Whether an applied configuration is what its schema says, in the words of upstream's typed values.

use super::element::{Element, Tag};
use super::lists::{Items, Place, Shape};
use super::show::go_wrapped;
use crate::go;
use crate::schema::{Kind, TypeRef};
use serde_json::Value;
use std::borrow::Cow;

/// At most so many mistakes are named; a configuration of a few MiB could have as many fields.
const MAX_ERRORS: usize = 100;

/// The mistakes of `value`: unknown fields, wrong types, items that nothing or the same thing identifies. `None` if
/// there are none.
pub fn validate(value: &Value, ty: TypeRef<'_>) -> Option<String> {
    let mut walk = Walk { path: Vec::new(), errors: Vec::new() };
    walk.value(value, Place::root(ty));
    match walk.errors.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(many.iter().fold("errors:".to_owned(), |text, error| format!("{text}\n  {error}"))),
    }
}

struct Walk<'v> {
    /// Written out for mistakes only.
    path: Vec<Element<'v>>,
    errors: Vec<String>,
}

impl<'v> Walk<'v> {
    fn error(&mut self, text: &str) {
        if self.errors.len() < MAX_ERRORS {
            let path: String = self.path.iter().map(ToString::to_string).collect();
            let at = if path.is_empty() { path } else { format!("{path}: ") };
            self.errors.push(format!("{at}{text}"));
        }
    }

    fn below(&mut self, element: Element<'v>, value: &'v Value, place: Place<'_>) {
        self.path.push(element);
        self.value(value, place);
        self.path.pop();
    }

    fn value(&mut self, value: &'v Value, place: Place<'_>) {
        if value.is_null() {
            return;
        }
        match place.ty.kind() {
            Kind::Any => {}
            Kind::Struct | Kind::Map => self.map(value, place),
            Kind::List => self.list(value, place),
            kind => {
                if let Some(text) = scalar_error(kind, value) {
                    self.error(&text);
                }
            }
        }
    }

    fn map(&mut self, value: &'v Value, place: Place<'_>) {
        let Value::Object(map) = value else {
            self.error(&format!("expected map, got &{{{}}}", go::value(value)));
            return;
        };
        for (key, item) in map {
            let element = Element::field(key);
            let Some(child) = place.child(key) else {
                self.path.push(element);
                self.error("field not declared in schema");
                self.path.pop();
                // As upstream, which looks no further in this map.
                return;
            };
            self.below(element, item, child);
        }
    }

    fn list(&mut self, value: &'v Value, place: Place<'_>) {
        let Value::Array(list) = value else {
            self.error(&format!("expected list, got &{{{}}}", go::value(value)));
            return;
        };
        let Some(element) = place.element() else { return };
        let shape = place.shape(value);
        let items = matches!(shape, Shape::Set | Shape::Keyed).then(|| Items::of(place, shape));
        let mut seen = std::collections::HashSet::new();
        for (i, item) in list.iter().enumerate() {
            let identity = match items.as_ref().map(|items| items.identify(item)) {
                None => Element { tag: Tag::Index, text: Cow::Owned(i.to_string()) },
                Some(Ok(identity)) => identity,
                Some(Err(why)) => {
                    self.error(&format!("element {i}: {why}"));
                    return;
                }
            };
            if items.is_some() && !seen.insert(identity.clone()) {
                self.error(&format!("duplicate entries for key {identity}"));
            }
            self.below(identity, item, element);
        }
    }
}

fn scalar_error(kind: Kind, value: &Value) -> Option<String> {
    let is_scalar = !value.is_array() && !value.is_object();
    match kind {
        Kind::Int32 | Kind::Int64 | Kind::Double if !value.is_number() => {
            Some(format!("expected numeric (int or float), got {}", go::type_name(value)))
        }
        Kind::Bool if !value.is_boolean() => Some(format!("expected boolean, got &{{{}}}", go::value(value))),
        Kind::String | Kind::Bytes if !value.is_string() => {
            Some(format!("expected string, got {}", go_wrapped(value)))
        }
        // Text with a format may be any scalar here; its type knows better.
        Kind::Quantity | Kind::IntOrString | Kind::Time | Kind::MicroTime if !is_scalar => {
            Some(format!("expected any scalar, got &{{{}}}", go::value(value)))
        }
        _ => None,
    }
}
