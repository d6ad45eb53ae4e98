//! What Go's types say beside the published schema: the order of fields, what is written when it is zero, and how the
//! decoder names a type.

use super::{FIELDS, FieldNode, FieldRef, GO, Kind, TYPES, TypeRef, string};
use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::LazyLock;

// The bits of a row of `GO`; `api/go_types.py` has the same.
const POINTER: u8 = 1;
const KEPT: u8 = 2;

static NULL: Value = Value::Null;
static FALSE: Value = Value::Bool(false);
static EMPTY_TEXT: Value = Value::String(String::new());
static ZERO: LazyLock<Value> = LazyLock::new(|| 0.into());
static ZERO_QUANTITY: LazyLock<Value> = LazyLock::new(|| "0".into());
static EMPTY_STRUCT: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

impl<'a> TypeRef<'a> {
    /// A walk over the fields of a struct.
    pub fn walk(self) -> Walk<'a> {
        let (first, count) = self.row().map_or((0, 0), |row| (TYPES[row].1, TYPES[row].2));
        Walk { ty: self, rows: first..first + count }
    }

    /// What Go calls the type, where a field does not say otherwise.
    pub fn go_type(self) -> String {
        let element = || self.element().map(TypeRef::go_type).unwrap_or_default();
        match self.kind() {
            Kind::Any => "interface {}".to_owned(),
            Kind::Int32 | Kind::IntOrString => "int32".to_owned(),
            Kind::Int64 => "int64".to_owned(),
            Kind::Bool => "bool".to_owned(),
            Kind::Double => "float64".to_owned(),
            Kind::Bytes => "[]uint8".to_owned(),
            Kind::List => format!("[]{}", element()),
            Kind::Map => format!("map[string]{}", element()),
            Kind::Struct => {
                let name = self.name();
                let package = name.rmatch_indices('.').nth(1).map_or(0, |(at, _)| at + 1);
                name[package..].to_owned()
            }
            Kind::String | Kind::Quantity | Kind::Time | Kind::MicroTime => "string".to_owned(),
        }
    }
}

/// Finds the fields of a struct by names that come in their order, as the members of an object do, in one walk over the
/// facts.
pub struct Walk<'a> {
    ty: TypeRef<'a>,
    /// Rows of a built-in struct.
    rows: Range<u16>,
}

impl<'a> Walk<'a> {
    /// `passed` is told of the built-in fields between the last name and this one that are written even if they are zero.
    pub fn find(&mut self, name: &str, mut passed: impl FnMut(FieldRef<'a>)) -> Option<FieldRef<'a>> {
        if !self.ty.is_built_in() {
            return self.ty.field(name);
        }
        while let Some(row) = self.rows.clone().next() {
            let order = string(FIELDS[usize::from(row)].0).cmp(name);
            if order == Ordering::Greater {
                return None;
            }
            self.rows.start += 1;
            let field = FieldRef(FieldNode::Built(row));
            if order == Ordering::Equal {
                return Some(field);
            }
            if field.is_kept() {
                passed(field);
            }
        }
        None
    }

    /// The rest of those.
    pub fn pass(self, passed: impl FnMut(FieldRef<'a>)) {
        let fields = self.rows.map(|row| FieldRef(FieldNode::Built(row)));
        fields.filter(|field| field.is_kept()).for_each(passed);
    }
}

impl FieldRef<'_> {
    fn go(self) -> (u8, u8, u16, u16) {
        match self.0 {
            FieldNode::Built(row) => GO[usize::from(row)],
            FieldNode::Dynamic(_) => (0, 0, 0, 0),
        }
    }

    /// Of a built-in field, where among those of its struct upstream writes it.
    pub fn place(self) -> u8 {
        self.go().0
    }

    /// Whether Go holds a pointer, so that a zero is not the same as absence.
    pub fn is_pointer(self) -> bool {
        self.go().1 & POINTER != 0
    }

    /// Whether the field is written even if it is zero (it has no `omitempty`, or is a struct held by value).
    pub fn is_kept(self) -> bool {
        self.go().1 & KEPT != 0
    }

    /// What Go calls the type of the field.
    pub fn go_type(self) -> String {
        match self.go().2 {
            0 => self.ty().go_type(),
            text => string(text).to_owned(),
        }
    }

    /// The structs without a name in JSON in which the field stands: `RuleWithOperations.Rule`, mostly none.
    pub fn embedded_in(self) -> &'static str {
        string(self.go().3)
    }

    /// What a built-in field is if nothing is said, as JSON. Of a struct held by value an empty object stands for it.
    pub fn zero(self) -> &'static Value {
        match self.ty().kind() {
            _ if self.is_pointer() => &NULL,
            Kind::String => &EMPTY_TEXT,
            Kind::Int32 | Kind::Int64 | Kind::Double | Kind::IntOrString => &ZERO,
            Kind::Bool => &FALSE,
            Kind::Quantity => &ZERO_QUANTITY,
            Kind::Struct => &EMPTY_STRUCT,
            Kind::Any | Kind::Time | Kind::MicroTime | Kind::Bytes | Kind::List | Kind::Map => &NULL,
        }
    }

    /// Whether upstream leaves a built-in field out that has this value.
    pub fn omits(self, value: &Value) -> bool {
        if self.is_kept() {
            return false;
        }
        match value {
            Value::Null => true,
            _ if self.is_pointer() => false,
            Value::Bool(flag) => !flag && self.ty().kind() == Kind::Bool,
            Value::Number(number) => number.as_f64() == Some(0.0) && is_number(self.ty().kind()),
            Value::String(text) => text.is_empty() && matches!(self.ty().kind(), Kind::String | Kind::Bytes),
            Value::Array(list) => list.is_empty() && self.ty().kind() == Kind::List,
            Value::Object(map) => map.is_empty() && self.ty().kind() == Kind::Map,
        }
    }
}

fn is_number(kind: Kind) -> bool {
    matches!(kind, Kind::Int32 | Kind::Int64 | Kind::Double)
}
