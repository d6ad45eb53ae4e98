//! Which fields a message carries although the object does not: upstream's Go structs hold most fields by value, and
//! their encoder writes those always, zeros and empty messages included. Fields that are pointers in Go are written
//! only when set, and a zero of theirs is not the same as absence.
//!
//! The facts are those of the schema ([`FieldRef::is_pointer`]). A wrong "by value" would turn an absent field into zero;
//! a wrong "pointer" would only save two bytes, so what is unknown is a pointer.

use super::{Field, Form, Kind, MESSAGES, Message};
use crate::schema::{self, FieldRef, TypeRef};
use std::collections::HashMap;

/// What is to be known of a message beside its row of the generated table. Bit n is the n-th field.
#[derive(Clone, Copy, Default)]
pub struct Presence {
    /// Written even if the object lacks it.
    pub always: u64,
    /// A zero on the wire is kept in JSON: pointers, and what upstream's JSON never leaves out.
    pub zeros: u64,
}

impl Presence {
    pub fn is_always(self, field: usize) -> bool {
        self.always >> field & 1 == 1
    }

    pub fn keeps_zero(self, field: usize) -> bool {
        self.zeros >> field & 1 == 1
    }
}

/// For every row of the table, in its order.
pub fn of_all(extra: &[Message]) -> Vec<Presence> {
    let types = types();
    let generated = MESSAGES.iter().enumerate().map(|(row, message)| of(message, types.get(&row).copied()));
    generated.chain(extra.iter().map(|message| of(message, None))).collect()
}

/// The type that has the fields of a message, by the message's row. Those of an embedded struct stand in the type that
/// embeds it.
fn types() -> HashMap<usize, TypeRef<'static>> {
    let named = |(row, message): (usize, &Message)| Some((row, schema::by_name(message.name)?));
    let mut types: HashMap<_, _> = MESSAGES.iter().enumerate().filter_map(named).collect();
    let mut open: Vec<usize> = types.keys().copied().collect();
    while let Some(row) = open.pop() {
        for embedded in MESSAGES[row].fields.iter().filter_map(embedded) {
            if !types.contains_key(&embedded) {
                types.insert(embedded, types[&row]);
                open.push(embedded);
            }
        }
    }
    types
}

fn embedded(field: &Field) -> Option<usize> {
    match field.kind {
        Kind::Message(row) if field.name.is_empty() => Some(usize::from(row)),
        _ => None,
    }
}

fn of(message: &Message, ty: Option<TypeRef<'_>>) -> Presence {
    let mut presence = Presence::default();
    for (at, field) in message.fields.iter().enumerate() {
        let fact = ty.and_then(|ty| ty.field(field.name));
        let by_value = is_by_value(field, fact);
        presence.always |= u64::from(by_value) << at;
        presence.zeros |= u64::from(!by_value || fact.is_some_and(FieldRef::required)) << at;
    }
    presence
}

fn is_by_value(field: &Field, fact: Option<FieldRef<'_>>) -> bool {
    let may_be = match field.kind {
        // A list of its own is nil or not, as all lists are.
        Kind::Bytes | Kind::Strings => false,
        // Of the few messages that no type describes: metadata alone, and the two kinds of schema-or-something.
        Kind::String | Kind::Int | Kind::Bool | Kind::Double => fact.is_none_or(|fact| !fact.is_pointer()),
        _ if embedded(field).is_some() => true,
        _ => fact.map_or(field.name == "metadata", |fact| !fact.is_pointer()),
    };
    may_be && field.form == Form::One
}
