//! Schema objects made of the facts, with descriptions where there are some.

use super::prose::Prose;
use super::values;
use coracle_api::schema::{self, FieldRef, Kind, ListType, MapType, TypeRef};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What both dialects say of the value itself, in the same words: of a schema, and in version 2 of a parameter too.
pub const OF_VALUES: [&str; 15] = [
    "type",
    "format",
    "default",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "enum",
];

/// The two versions of OpenAPI differ in how they point at definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    V2,
    V3,
}

impl Dialect {
    pub fn reference(self, name: &str) -> Value {
        match self {
            Self::V2 => json!({ "$ref": format!("#/definitions/{name}") }),
            Self::V3 => json!({ "$ref": format!("#/components/schemas/{name}") }),
        }
    }

    /// A reference beside other keywords, which OpenAPI 3.0 ignores next to a bare `$ref`.
    pub fn property(self, name: &str) -> Map<String, Value> {
        let mut property = Map::new();
        match self.reference(name) {
            Value::Object(map) if self == Self::V2 => return map,
            reference => property.insert("allOf".into(), json!([reference])),
        };
        property
    }

    /// The end of making a schema: a reference that nothing has come to stand beside is bare.
    fn settled(schema: Map<String, Value>) -> Value {
        match schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
            Some([reference]) if schema.len() == 1 => reference.clone(),
            _ => Value::Object(schema),
        }
    }
}

/// Objects of any form.
const OBJECTS: [&str; 3] = [
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
];
/// The beginning of the names of what may be any JSON.
const JSON: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";

/// The definitions of values that have a name and are no structs.
pub fn named_values(dialect: Dialect, prose: &Prose) -> impl Iterator<Item = (String, Value)> {
    let either = |a: &str, b: &str| json!([{ "type": a }, { "type": b }]);
    let (quantity, number) = match dialect {
        Dialect::V2 => (json!({ "type": "string" }), json!({ "type": "string", "format": "int-or-string" })),
        Dialect::V3 => (
            json!({ "oneOf": either("string", "number") }),
            json!({ "oneOf": either("integer", "string"), "format": "int-or-string" }),
        ),
    };
    let time = json!({ "type": "string", "format": "date-time" });
    let scalars = [(QUANTITY, quantity), (INT_OR_STRING, number), (TIME, time.clone()), (MICRO_TIME, time)];
    let scalars = scalars.into_iter().map(|(name, schema)| (name.to_owned(), schema));
    let objects = OBJECTS.iter().map(|name| ((*name).to_owned(), json!({ "type": "object" })));
    let any = ["", "SchemaPropsOrArray", "SchemaPropsOrBool", "SchemaPropsOrStringArray"];
    let any = any.map(|rest| (format!("{JSON}{rest}"), json!({})));
    scalars.chain(objects).chain(any).map(|(name, mut schema)| {
        if let Some(text) = prose.of_type(&name) {
            schema["description"] = text.into();
        }
        (name, schema)
    })
}

/// Every struct type that values of `roots` can contain, by name.
pub fn closure<'a>(roots: impl IntoIterator<Item = TypeRef<'a>>) -> BTreeMap<&'static str, TypeRef<'a>> {
    let mut found = BTreeMap::new();
    let mut open: Vec<TypeRef<'a>> = roots.into_iter().collect();
    while let Some(mut ty) = open.pop() {
        while let Some(element) = ty.element() {
            ty = element;
        }
        if ty.kind() == Kind::Struct && found.insert(ty.name(), ty).is_none() {
            open.extend(ty.fields().map(FieldRef::ty));
        }
    }
    found
}

/// The names of [`named_values`] that fields of these types refer to.
pub fn value_names(types: &BTreeMap<&'static str, TypeRef<'_>>) -> BTreeSet<&'static str> {
    let fields = types.values().flat_map(|ty| ty.fields());
    let names = fields.map(|field| {
        let mut ty = field.ty();
        while let Some(element) = ty.element() {
            ty = element;
        }
        match ty.kind() {
            Kind::Quantity => QUANTITY,
            Kind::IntOrString => INT_OR_STRING,
            Kind::Time => TIME,
            Kind::MicroTime => MICRO_TIME,
            Kind::Any => ty.any_name(),
            _ => "",
        }
    });
    names.collect()
}

/// Group, version and kind of root types, by the type's name.
pub type Identities = BTreeMap<&'static str, Vec<Value>>;

pub fn identities() -> Identities {
    let mut all = Identities::new();
    for (group, version, kind, ty) in schema::roots() {
        let identity = json!({ "group": group, "kind": kind, "version": version });
        all.entry(ty.name()).or_default().push(identity);
    }
    all
}

/// Those that a document of this group says: of types that every group has, only what they are in this one.
pub fn identities_in(group: &str) -> Identities {
    let mut all = identities();
    for of_type in all.values_mut().filter(|of_type| of_type.len() > 1) {
        of_type.retain(|identity| identity["group"] == group);
    }
    all.retain(|_, of_type| !of_type.is_empty());
    all
}

/// The schema of a struct type.
pub fn definition(ty: TypeRef<'_>, dialect: Dialect, prose: &Prose, identities: &Identities) -> Value {
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    if let Some(text) = prose.of_type(ty.name()) {
        schema.insert("description".into(), text.into());
    }
    let properties: Map<String, Value> =
        ty.fields().map(|f| (f.name().to_owned(), property(ty, f, dialect, prose))).collect();
    if !properties.is_empty() {
        schema.insert("properties".into(), properties.into());
    }
    let required: Vec<&str> = ty.fields().filter(|f| f.required()).map(FieldRef::name).collect();
    if !required.is_empty() {
        schema.insert("required".into(), json!(required));
    }
    insert_map_type(&mut schema, ty.map_type());
    if let Some((discriminator, members)) = ty.union() {
        let members: Map<String, Value> =
            members.map(|(field, value)| (field.to_owned(), value.into())).collect();
        let mut union = json!({ "fields-to-discriminateBy": members });
        if !discriminator.is_empty() {
            union["discriminator"] = discriminator.into();
        }
        schema.insert("x-kubernetes-unions".into(), json!([union]));
    }
    if let Some(list) = identities.get(ty.name()) {
        schema.insert("x-kubernetes-group-version-kind".into(), json!(list));
    }
    Value::Object(schema)
}

fn property(owner: TypeRef<'_>, field: FieldRef<'_>, dialect: Dialect, prose: &Prose) -> Value {
    let values: Vec<&str> = field.values().collect();
    let mut property = value(field.ty(), dialect, &values);
    let of_values =
        if field.ty().kind() == Kind::String { values::described(&values) } else { String::new() };
    let text = prose.of_field(owner.name(), field.name()).unwrap_or_default() + &of_values;
    if !text.is_empty() {
        property.insert("description".into(), text.into());
    }
    if dialect == Dialect::V3
        && let Some(default) = values::default_of(field)
    {
        property.insert("default".into(), default);
    }
    insert_merge_facts(&mut property, field);
    Dialect::settled(property)
}

/// `values` are those that a string, or the strings in a list or map, may have.
fn value(ty: TypeRef<'_>, dialect: Dialect, values: &[&str]) -> Map<String, Value> {
    let typed = |kind: &str| Map::from_iter([("type".to_owned(), Value::from(kind))]);
    let formatted = |kind: &str, format: &str| {
        let mut map = typed(kind);
        map.insert("format".into(), format.into());
        map
    };
    match ty.kind() {
        Kind::Any if ty.any_name().is_empty() => typed("object"),
        Kind::Any => dialect.property(ty.any_name()),
        Kind::String if values.is_empty() => typed("string"),
        Kind::String => {
            let mut map = typed("string");
            map.insert("enum".into(), json!(values));
            map
        }
        Kind::Bool => typed("boolean"),
        Kind::Int32 => formatted("integer", "int32"),
        Kind::Int64 => formatted("integer", "int64"),
        Kind::Double => formatted("number", "double"),
        Kind::Bytes => formatted("string", "byte"),
        Kind::Quantity => dialect.property(QUANTITY),
        Kind::IntOrString => dialect.property(INT_OR_STRING),
        Kind::Time => dialect.property(TIME),
        Kind::MicroTime => dialect.property(MICRO_TIME),
        Kind::Struct => dialect.property(ty.name()),
        Kind::List | Kind::Map => {
            let (kind, of) =
                if ty.kind() == Kind::List { ("array", "items") } else { ("object", "additionalProperties") };
            let mut map = typed(kind);
            map.insert(of.into(), ty.element().map_or(json!({}), |ty| element(ty, dialect, values)));
            map
        }
    }
}

/// What a list or map holds. Go holds it by value, so that one that is left out is zero.
fn element(ty: TypeRef<'_>, dialect: Dialect, values: &[&str]) -> Value {
    let mut element = value(ty, dialect, values);
    if dialect == Dialect::V3
        && let Some(zero) = values::zero(ty)
    {
        element.insert("default".into(), zero);
    }
    Dialect::settled(element)
}

fn insert_merge_facts(property: &mut Map<String, Value>, field: FieldRef<'_>) {
    let strategies =
        [("merge", field.merges()), ("replace", field.replaces()), ("retainKeys", field.retains_keys())];
    let strategy: Vec<&str> = strategies.into_iter().filter(|s| s.1).map(|s| s.0).collect();
    if !strategy.is_empty() {
        property.insert("x-kubernetes-patch-strategy".into(), strategy.join(",").into());
    }
    if let Some(key) = field.merge_key() {
        property.insert("x-kubernetes-patch-merge-key".into(), key.into());
    }
    if let Some(list_type) = field.list_type() {
        let name = match list_type {
            ListType::Atomic => "atomic",
            ListType::Set => "set",
            ListType::Map => "map",
        };
        property.insert("x-kubernetes-list-type".into(), name.into());
    }
    let keys = field.map_keys();
    if !keys.is_empty() {
        property.insert("x-kubernetes-list-map-keys".into(), json!(keys));
    }
    // What the type says stands in its own definition.
    insert_map_type(property, field.map_type().filter(|t| field.ty().map_type() != Some(*t)));
}

fn insert_map_type(schema: &mut Map<String, Value>, map_type: Option<MapType>) {
    let name = match map_type {
        Some(MapType::Atomic) => "atomic",
        Some(MapType::Granular) => "granular",
        None => return,
    };
    schema.insert("x-kubernetes-map-type".into(), name.into());
}
