//! What strict decoding finds, in the order of the document.

use super::MAX_PROBLEMS;
use crate::schema::{Kind, TypeRef};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;

/// The unknown and duplicate fields of a body that is known to be JSON of the type `ty`, in the order in which they
/// stand there and each once, as upstream's decoder reports them. What is inside an unknown field is not looked at.
///
/// A second pass over the body, for those that have such fields.
pub(super) fn problems_in_order(body: &[u8], ty: TypeRef<'_>) -> Vec<String> {
    let mut found = Found { path: String::new(), problems: Vec::new() };
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    // The body has been parsed before: what can fail has failed then.
    let _ = Seed { found: &mut found, ty }.deserialize(&mut deserializer);
    found.problems
}

/// In which order the members of a document's objects stand.
pub(super) enum Order {
    Leaf,
    List(Vec<Order>),
    Map(Vec<(String, Order)>),
}

impl Order {
    /// Of a body that is known to be JSON.
    pub fn of(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or(Self::Leaf)
    }

    pub fn item(&self, index: usize) -> Option<&Self> {
        match self {
            Self::List(list) => list.get(index),
            _ => None,
        }
    }

    /// The members of an object.
    pub fn members(&self) -> &[(String, Self)] {
        match self {
            Self::Map(members) => members,
            _ => &[],
        }
    }
}

impl<'de> Deserialize<'de> for Order {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OrderVisitor)
    }
}

struct OrderVisitor;

impl<'de> Visitor<'de> for OrderVisitor {
    type Value = Order;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Order, E> {
        Ok(Order::Leaf)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Order, E> {
        Ok(Order::Leaf)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Order, E> {
        Ok(Order::Leaf)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Order, E> {
        Ok(Order::Leaf)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Order, E> {
        Ok(Order::Leaf)
    }

    fn visit_str<E>(self, _: &str) -> Result<Order, E> {
        Ok(Order::Leaf)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Order, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = access.next_element()? {
            list.push(item);
        }
        Ok(Order::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Order, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = access.next_entry()? {
            members.push(member);
        }
        Ok(Order::Map(members))
    }
}

struct Found {
    path: String,
    problems: Vec<String>,
}

impl Found {
    fn report(&mut self, what: &str) {
        let text = format!("{what} field \"{}\"", self.path);
        if self.problems.len() < MAX_PROBLEMS && !self.problems.contains(&text) {
            self.problems.push(text);
        }
    }
}

struct Seed<'s, 't> {
    found: &'s mut Found,
    ty: TypeRef<'t>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.ty.kind() {
            Kind::List | Kind::Map | Kind::Struct => deserializer.deserialize_any(self),
            _ => deserializer.deserialize_ignored_any(IgnoredAny).map(|_| ()),
        }
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let length = self.found.path.len();
        let mut index = 0;
        let Some(element) = self.ty.element() else {
            while access.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        loop {
            self.found.path.push_str(&format!("[{index}]"));
            let more = access.next_element_seed(Seed { found: self.found, ty: element })?;
            self.found.path.truncate(length);
            if more.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Self { found, ty } = self;
        let length = found.path.len();
        let mut seen = HashSet::new();
        while let Some(key) = access.next_key::<String>()? {
            if length > 0 {
                found.path.push('.');
            }
            found.path.push_str(&key);
            let below = if ty.kind() == Kind::Struct { ty.field(&key).map(|f| f.ty()) } else { ty.element() };
            match below {
                Some(below) => {
                    if !seen.insert(key) {
                        found.report("duplicate");
                    }
                    access.next_value_seed(Seed { found, ty: below })?;
                }
                None => {
                    if !ty.preserves_unknown_fields() {
                        found.report("unknown");
                    } else if !seen.insert(key) {
                        found.report("duplicate");
                    }
                    access.next_value::<IgnoredAny>()?;
                }
            }
            found.path.truncate(length);
        }
        Ok(())
    }
}
