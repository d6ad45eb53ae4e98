//! Making a value what its schema says.

use super::order::Order;
use super::path::Path;
use super::{DecodeError, MAX_PROBLEMS, Problems};
use crate::meta::{go_time, time};
use crate::quantity::Quantity;
use crate::schema::{self, FieldRef, Kind, TypeRef};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// Checks every value against `ty` and brings it into the form upstream would send back: unknown fields dropped
/// (and reported), null fields absent, zeros of built-in types absent that upstream leaves out, quantities and
/// times canonical. A wrong type is an error.
///
/// Idempotent: what it leaves conforms without problems.
pub fn conform(value: &mut Value, ty: TypeRef<'_>) -> Result<Problems, DecodeError> {
    conform_in(value, ty, None)
}

/// As [`conform`], for what a strategic merge has made: upstream reads that without its JSON decoder, whose words are others.
pub fn conform_merged(value: &mut Value, ty: TypeRef<'_>) -> Result<Problems, DecodeError> {
    walk(value, ty, None, Words::Converter)
}

/// As [`conform`], for a value whose members stood in `order`: of several errors it is the first one.
pub(super) fn conform_in(
    value: &mut Value,
    ty: TypeRef<'_>,
    order: Option<&Order>,
) -> Result<Problems, DecodeError> {
    walk(value, ty, order, Words::Decoder)
}

fn walk(
    value: &mut Value,
    ty: TypeRef<'_>,
    order: Option<&Order>,
    words: Words,
) -> Result<Problems, DecodeError> {
    let mut walk = Walk { problems: Vec::new(), saved: None, owner: None, words };
    walk.value(value, Spot { ty, go: Go::Unsaid, path: &Path::Root, order })?;
    walk.saved.map_or(Ok(walk.problems), Err)
}

/// Who of upstream speaks of a value of a wrong type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Words {
    /// `encoding/json`
    Decoder,
    /// `runtime.DefaultUnstructuredConverter`
    Converter,
}

/// The rules by which an autoscaler behaves.
const SCALING_RULES: &str = "io.k8s.api.autoscaling.v2.HPAScalingRules";

pub(super) const MANAGED_FIELDS: &str = "managedFields";

/// The schema that may stand in a value of the named type, and what else may.
pub(crate) fn schema_in(name: &str) -> Option<(TypeRef<'static>, &str)> {
    let (schema, alternative) =
        name.rsplit_once("Or").filter(|(head, _)| head.ends_with(".JSONSchemaProps"))?;
    Some((schema::by_name(schema)?, alternative))
}

struct Walk<'t> {
    problems: Problems,
    /// The first value of a wrong type.
    saved: Option<DecodeError>,
    /// The struct whose field is being looked at; none at the root.
    owner: Option<TypeRef<'t>>,
    words: Words,
}

/// What Go's decoder calls a JSON value.
pub fn json_kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

/// Where the name of a type is said: by a field, or by that of which this is an item.
#[derive(Clone, Copy)]
enum Go<'g> {
    Unsaid,
    Field(FieldRef<'g>),
    Item(&'g Go<'g>),
}

impl Go<'_> {
    fn name(self) -> Option<String> {
        match self {
            Self::Unsaid => None,
            Self::Field(field) => Some(field.go_type()),
            Self::Item(of) => {
                let of = of.name()?;
                let item =
                    of.strip_prefix("[]").or_else(|| of.strip_prefix("map[")?.split_once(']').map(|p| p.1));
                item.map(|item| item.trim_start_matches('*').to_owned())
            }
        }
    }
}

/// What is being looked at: a type, what Go calls it, where it stands.
#[derive(Clone, Copy)]
struct Spot<'s, 't> {
    ty: TypeRef<'t>,
    go: Go<'s>,
    path: &'s Path<'s>,
    /// Of the members of objects; by name if nothing is known of it.
    order: Option<&'s Order>,
}

/// Visits the members of an object in the order that is known, else by name.
fn each_member<'o>(
    map: &mut Map<String, Value>,
    order: Option<&'o Order>,
    mut visit: impl FnMut(&str, &mut Value, Option<&'o Order>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let Some(order) = order else {
        return map.iter_mut().try_for_each(|(key, item)| visit(key, item, None));
    };
    order.members().iter().try_for_each(|(key, order)| match map.get_mut(key) {
        Some(item) => visit(key, item, Some(order)),
        None => Ok(()),
    })
}

impl<'t> Walk<'t> {
    fn value(&mut self, value: &mut Value, at: Spot<'_, 't>) -> Result<(), DecodeError> {
        match at.ty.kind() {
            Kind::Any => self.any(value, at),
            Kind::List => self.list(value, at),
            Kind::Map => self.map(value, at),
            Kind::Struct => self.structure(value, at),
            _ => self.scalar(value, at),
        }
    }

    /// Any value, but for the three in which schemas of custom resources may stand in place of something else.
    fn any(&mut self, value: &mut Value, at: Spot<'_, 't>) -> Result<(), DecodeError> {
        let Some((ty, alternative)) = schema_in(at.ty.any_name()) else { return Ok(()) };
        let go = Go::Unsaid;
        match (value, alternative) {
            (value @ Value::Object(_), _) => {
                self.structure(value, Spot { ty, go, path: at.path, order: at.order })
            }
            (Value::Array(list), "Array") => {
                let mut items = list.iter_mut().enumerate();
                items.try_for_each(|(i, item)| {
                    let order = at.order.and_then(|order| order.item(i));
                    self.element(item, Spot { ty, go, path: &Path::Index(at.path, i), order })
                })
            }
            (Value::Bool(_) | Value::Null, "Bool") | (_, "Array" | "StringArray") => Ok(()),
            _ => Err(DecodeError::Type("boolean or JSON schema expected".to_owned())),
        }
    }

    fn list(&mut self, value: &mut Value, at: Spot<'_, 't>) -> Result<(), DecodeError> {
        let Value::Array(list) = value else { return self.wrong(value, at) };
        let Some(ty) = at.ty.element() else { return Ok(()) };
        let go = Go::Item(&at.go);
        let mut items = list.iter_mut().enumerate();
        items.try_for_each(|(i, item)| {
            let order = at.order.and_then(|order| order.item(i));
            self.element(item, Spot { ty, go, path: &Path::Index(at.path, i), order })
        })
    }

    fn map(&mut self, value: &mut Value, at: Spot<'_, 't>) -> Result<(), DecodeError> {
        let Value::Object(map) = value else { return self.wrong(value, at) };
        let Some(ty) = at.ty.element() else { return Ok(()) };
        let go = Go::Item(&at.go);
        each_member(map, at.order, |key, item, order| {
            self.element(item, Spot { ty, go, path: &Path::Key(at.path, key), order })
        })
    }

    /// A null element is the type's zero value in built-in types, as Go decodes it.
    fn element(&mut self, item: &mut Value, at: Spot<'_, 't>) -> Result<(), DecodeError> {
        if !item.is_null() {
            return self.value(item, at);
        }
        if at.ty.is_built_in() {
            *item = match at.ty.kind() {
                Kind::String | Kind::Bytes => "".into(),
                Kind::Struct | Kind::Map => Value::Object(Map::new()),
                Kind::List => Value::Array(Vec::new()),
                Kind::Int32 | Kind::Int64 | Kind::IntOrString => 0.into(),
                Kind::Double => 0.0.into(),
                Kind::Bool => false.into(),
                Kind::Quantity => "0".into(),
                Kind::Any | Kind::Time | Kind::MicroTime => Value::Null,
            };
            return Ok(());
        }
        if at.ty.nullable() { Ok(()) } else { self.wrong(item, at) }
    }

    fn structure(&mut self, value: &mut Value, at: Spot<'_, 't>) -> Result<(), DecodeError> {
        let Value::Object(map) = value else { return self.wrong(value, at) };
        let mut gone = Vec::new();
        let (outer, mut fields) = (self.owner, at.ty.walk());
        each_member(map, at.order, |key, item, order| {
            // Members come by name, but for those whose order is known.
            let field = match order {
                None => fields.find(key, |_| ()),
                Some(_) => at.ty.field(key),
            };
            let stays = match field {
                Some(field) => {
                    self.owner = Some(at.ty);
                    let path = match field.embedded_in() {
                        "" => Path::Field(at.path, key),
                        inside => Path::Embedded(at.path, inside, key),
                    };
                    self.field(item, field, &path, order)?
                }
                None => at.ty.preserves_unknown_fields() || self.unknown(&Path::Field(at.path, key)),
            };
            if !stays {
                gone.push(key.to_owned());
            }
            Ok(())
        })?;
        self.owner = outer;
        gone.iter().for_each(|key| {
            map.remove(key);
        });
        Ok(())
    }

    /// Reports a field that does not stay.
    fn unknown(&mut self, path: &Path<'_>) -> bool {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(format!("unknown field \"{path}\""));
        }
        false
    }

    /// Whether the field stays.
    fn field(
        &mut self,
        item: &mut Value,
        field: FieldRef<'t>,
        path: &Path<'_>,
        order: Option<&Order>,
    ) -> Result<bool, DecodeError> {
        let ty = field.ty();
        if item.is_null() {
            return Ok(ty.nullable());
        }
        self.value(item, Spot { ty, go: Go::Field(field), path, order })?;
        Ok(!ty.is_built_in() || !field.omits(item) || self.tells_empty(field))
    }

    /// Whether an empty list says something that an absent one does not; none is ever stored. One of owners asks to forget
    /// them, one of policies takes those away that are the default, and is refused.
    fn tells_empty(&self, field: FieldRef<'t>) -> bool {
        match field.name() {
            MANAGED_FIELDS => true,
            "policies" => self.owner.is_some_and(|owner| owner.name() == SCALING_RULES),
            _ => false,
        }
    }

    fn scalar(&mut self, value: &mut Value, at: Spot<'_, 't>) -> Result<(), DecodeError> {
        let kind = at.ty.kind();
        let fits = match (kind, &*value) {
            (Kind::String | Kind::IntOrString, Value::String(_))
            | (Kind::Bool, Value::Bool(_))
            | (Kind::Double, Value::Number(_)) => true,
            (Kind::Int32 | Kind::IntOrString, Value::Number(n)) => {
                n.as_i64().is_some_and(|n| i32::try_from(n).is_ok())
            }
            (Kind::Int64, Value::Number(n)) => n.as_i64().is_some(),
            (Kind::Quantity, Value::String(text)) if is_plain_quantity(text) => true,
            (Kind::Time, Value::String(text)) if time::is_plain_seconds(text) => true,
            (Kind::Quantity, Value::String(text)) => {
                let text = text.trim().to_owned();
                return quantity(value, &text);
            }
            // Whatever stands there is read as the text of one.
            (Kind::Quantity, other) => {
                let text = other.to_string();
                return quantity(value, &text);
            }
            (Kind::Time | Kind::MicroTime, Value::String(text)) => {
                let text = text.clone();
                return timestamp(value, kind, &text);
            }
            (Kind::Bytes, Value::String(text)) => {
                let text = text.clone();
                bytes(value, &text).unwrap_or_else(|error| self.save(error));
                return Ok(());
            }
            _ => false,
        };
        if fits { Ok(()) } else { self.wrong(value, at) }
    }

    fn save(&mut self, error: DecodeError) {
        self.saved.get_or_insert(error);
    }

    /// Go reads on behind a value of a wrong type, but for the types that read themselves.
    fn wrong(&mut self, value: &Value, at: Spot<'_, 't>) -> Result<(), DecodeError> {
        let error = self.mismatch(value, at);
        if matches!(at.ty.kind(), Kind::IntOrString | Kind::Time | Kind::MicroTime) {
            return Err(error);
        }
        self.save(error);
        Ok(())
    }

    fn mismatch(&self, value: &Value, at: Spot<'_, 't>) -> DecodeError {
        if self.words == Words::Converter
            && let Some(text) = super::converter::mismatch(value, at.ty, at.go.name())
        {
            return DecodeError::Type(text);
        }
        let what = match value {
            Value::Number(n) if matches!(at.ty.kind(), Kind::Int32 | Kind::Int64 | Kind::IntOrString) => {
                format!("number {n}")
            }
            other => json_kind(other),
        };
        let go = at.go.name().unwrap_or_else(|| at.ty.go_type());
        let owner = self.owner.map_or("", TypeRef::short_name);
        if owner.is_empty() && at.path.is_root() {
            return DecodeError::Type(format!("json: cannot unmarshal {what} into Go value of type {go}"));
        }
        let path = at.path.fields();
        DecodeError::Type(format!(
            "json: cannot unmarshal {what} into Go struct field {owner}.{path} of type {go}"
        ))
    }
}

/// Whether it is certainly canonical: most quantities are a small number with a suffix.
fn is_plain_quantity(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    (1..=3).contains(&digits)
        && (number == "0" && suffix.is_empty() || !number.starts_with('0'))
        && matches!(suffix, "" | "m" | "k" | "M" | "G" | "Ki" | "Mi" | "Gi")
}

fn quantity(value: &mut Value, text: &str) -> Result<(), DecodeError> {
    let quantity: Quantity = text.parse().map_err(|e| DecodeError::Type(format!("{e}")))?;
    *value = quantity.to_string().into();
    Ok(())
}

fn timestamp(value: &mut Value, kind: Kind, text: &str) -> Result<(), DecodeError> {
    let (layout, form) = match kind {
        Kind::MicroTime => (go_time::MICROS, time::format_micros as fn(jiff::Timestamp) -> String),
        _ => (go_time::SECONDS, time::format_seconds as fn(jiff::Timestamp) -> String),
    };
    *value = form(go_time::parse(text, layout).map_err(DecodeError::Type)?).into();
    Ok(())
}

/// Line breaks are allowed, as in Go; the result has none.
fn bytes(value: &mut Value, text: &str) -> Result<(), DecodeError> {
    let joined: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    match STANDARD.decode(&joined) {
        Ok(_) => {
            *value = joined.into();
            Ok(())
        }
        Err(error) => {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => {
                    joined.len() / 4 * 4
                }
            };
            Err(DecodeError::Type(format!("illegal base64 data at input byte {at}")))
        }
    }
}
