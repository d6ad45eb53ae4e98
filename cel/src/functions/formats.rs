//! Kubernetes' named formats.

use super::{Cost, Function, text};
use crate::error::EvalError;
use crate::value::{Format, Library, Value};
use coracle_api::validation as rules;

const FORMATS: [Format; 13] = [
    Format { name: "dns1123Label", check: rules::dns1123_label },
    Format { name: "dns1123Subdomain", check: rules::dns1123_subdomain },
    Format { name: "dns1035Label", check: rules::dns1035_label },
    Format { name: "qualifiedName", check: rules::qualified_name },
    Format { name: "dns1123LabelPrefix", check: |text| rules::dns1123_label(prefix(text)) },
    Format { name: "dns1123SubdomainPrefix", check: |text| rules::dns1123_subdomain(prefix(text)) },
    Format { name: "dns1035LabelPrefix", check: |text| rules::dns1035_label(prefix(text)) },
    Format { name: "labelValue", check: rules::label_value },
    Format { name: "uri", check: uri },
    Format { name: "uuid", check: uuid },
    Format { name: "byte", check: byte },
    Format { name: "date", check: date },
    Format { name: "datetime", check: datetime },
];

macro_rules! named {
    ($name:literal) => {
        Function {
            name: concat!("format.", $name),
            signatures: &[concat!("format.", $name, "(): kubernetes.NamedFormat")],
            run: |_| find($name).map(format_value).ok_or(EvalError::NoOverload),
            cost: Cost::Flat,
        }
    };
}

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "format.named",
        signatures: &["format.named(string): optional<kubernetes.NamedFormat>"],
        run: |args| Ok(find(text(&args[0])?).map_or(Value::Optional(None), |f| Value::some(format_value(f)))),
        cost: Cost::Flat,
    },
    named!("dns1123Label"),
    named!("dns1123Subdomain"),
    named!("dns1035Label"),
    named!("qualifiedName"),
    named!("dns1123LabelPrefix"),
    named!("dns1123SubdomainPrefix"),
    named!("dns1035LabelPrefix"),
    named!("labelValue"),
    named!("uri"),
    named!("uuid"),
    named!("byte"),
    named!("date"),
    named!("datetime"),
    Function {
        name: "validate",
        signatures: &["kubernetes.NamedFormat.validate(string): optional<list<string>>"],
        run: |args| {
            let Value::Library(library) = &args[0] else { return Err(EvalError::NoOverload) };
            let Library::Format(format) = library.as_ref() else { return Err(EvalError::NoOverload) };
            let wrong = (format.check)(text(&args[1])?);
            if wrong.is_empty() {
                return Ok(Value::Optional(None));
            }
            Ok(Value::some(Value::list(wrong.into_iter().map(Value::text).collect())))
        },
        cost: Cost::Traverse,
    },
];

fn find(name: &str) -> Option<Format> {
    FORMATS.into_iter().find(|format| format.name == name)
}

fn format_value<'a>(format: Format) -> Value<'a> {
    Value::library(Library::Format(format))
}

/// A prefix of a name may end with a dash.
fn prefix(text: &str) -> &str {
    text.strip_suffix('-').filter(|rest| !rest.is_empty()).unwrap_or(text)
}

fn uri(text: &str) -> Vec<String> {
    if crate::value::Url::parse(text).is_some() { Vec::new() } else { vec!["must be a valid URI".to_owned()] }
}

fn uuid(text: &str) -> Vec<String> {
    let bytes: Vec<char> = text.chars().filter(|c| *c != '-').collect();
    let whole = bytes.len() == 32 && bytes.iter().all(char::is_ascii_hexdigit);
    let dashes: Vec<usize> = text.match_indices('-').map(|(at, _)| at).collect();
    if whole && (dashes.is_empty() || dashes == [8, 13, 18, 23]) {
        return Vec::new();
    }
    vec!["does not match the UUID format".to_owned()]
}

fn byte(text: &str) -> Vec<String> {
    use base64::Engine;
    let good = base64::engine::general_purpose::STANDARD.decode(text).is_ok();
    if good { Vec::new() } else { vec!["invalid base64".to_owned()] }
}

fn date(text: &str) -> Vec<String> {
    let good = text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok();
    if good { Vec::new() } else { vec!["invalid date".to_owned()] }
}

fn datetime(text: &str) -> Vec<String> {
    if text.parse::<jiff::Timestamp>().is_ok() { Vec::new() } else { vec!["invalid datetime".to_owned()] }
}
