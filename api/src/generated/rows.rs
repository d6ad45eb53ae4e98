//! Rows of the table of protobuf messages.

/// A row of the generated table.
#[derive(Debug)]
pub struct Message {
    /// As in the OpenAPI document.
    pub name: &'static str,
    /// By number.
    pub fields: &'static [Field],
}

#[derive(Debug)]
pub struct Field {
    pub tag: u32,
    /// In JSON; empty for an embedded struct, whose fields stand beside their neighbours.
    pub name: &'static str,
    pub form: Form,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    One,
    List,
    Map,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    String,
    Int,
    Bool,
    Double,
    Bytes,
    /// RFC 3339, from seconds and nanoseconds.
    Time,
    MicroTime,
    /// Go's notation, from nanoseconds.
    Duration,
    Quantity,
    IntOrString,
    /// JSON in bytes: RawExtension, FieldsV1.
    Raw,
    /// A message that only wraps a list of strings.
    Strings,
    /// Row of the generated table.
    Message(u16),
    /// Row of a message that stands for the one of its fields that is set: its JSON is that field's bare value
    /// (the schema-or-bool and schema-or-list types of `JSONSchemaProps`).
    Union(u16),
}
