//! Paths that name a field of a schema: `.spec.replicas`, `.labels['a.b/c']`.

use serde_json::Value;

/// The fields that a path goes through, and the schema at its end.
pub type Found<'s> = (Vec<String>, &'s Value);

/// Follows a path into a schema. `brackets`: whether a name may be quoted in brackets.
///
/// # Errors
/// What is wrong with the path, in upstream's words.
pub fn follow<'s>(path: &str, schema: &'s Value, brackets: bool) -> Result<Found<'s>, String> {
    let mut rest = path;
    let (mut names, mut here) = (Vec::new(), schema);
    while !rest.is_empty() {
        let (token, after) = next(rest);
        let (name, after) = match token {
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => quoted(after)?,
            "." if after.is_empty() => return Err("unexpected end of JSON path".to_owned()),
            "." => {
                let (name, after) = next(after);
                (name.to_owned(), after)
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        here = into(here, &name)?;
        names.push(name);
        rest = after;
    }
    Ok((names, here))
}

/// The three delimiters are tokens, and so is all text between them, a quoted one with its delimiters.
fn next(text: &str) -> (&str, &str) {
    if text.starts_with(['.', '[', ']']) {
        return text.split_at(1);
    }
    let mut escaped = false;
    let quoted = text.starts_with('\'');
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '\'' if quoted => return text.split_at(at + 1),
            '.' | '[' | ']' if !quoted => return text.split_at(at),
            _ => {}
        }
    }
    (text, "")
}

fn quoted(text: &str) -> Result<(String, &str), String> {
    if text.is_empty() {
        return Err("unexpected end of JSON path".to_owned());
    }
    let (token, rest) = next(text);
    let inner = token.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')).filter(|_| token.len() > 1);
    let inner = inner.ok_or_else(|| format!("expected single quoted string but got {token}"))?;
    match next(rest) {
        ("]", after) => Ok((inner.replace("\\'", "'").replace("\\\\", "\\"), after)),
        ("", _) => Err("unexpected end of JSON path".to_owned()),
        (other, _) => Err(format!("expected ] but got {other}")),
    }
}

fn into<'s>(schema: &'s Value, name: &str) -> Result<&'s Value, String> {
    const NOWHERE: &str = "does not refer to a valid field";
    if let Some(properties) = schema["properties"].as_object() {
        return properties.get(name).ok_or_else(|| NOWHERE.to_owned());
    }
    match &schema["additionalProperties"] {
        additional @ Value::Object(_) => Ok(additional),
        _ => Err(NOWHERE.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_to_fields() {
        let schema = json!({ "properties": { "spec": { "properties": {
            "labels": { "additionalProperties": { "type": "string" } }, "a.b": { "type": "integer" } } } } });
        for (path, brackets, want) in [
            (".spec.labels.x", false, Ok("string")),
            (".spec.labels['a.b/c']", true, Ok("string")),
            (".spec['a.b']", true, Ok("integer")),
            (".spec['a.b']", false, Err("array notation is not allowed")),
            (".spec.nothing", true, Err("does not refer to a valid field")),
            ("spec", true, Err("expected [ or . but got: spec")),
            (".spec.", true, Err("unexpected end of JSON path")),
            (".spec[0]", true, Err("expected single quoted string but got 0")),
            (".spec['a.b'", true, Err("unexpected end of JSON path")),
        ] {
            let found = follow(path, &schema, brackets).map(|(_, schema)| schema["type"].as_str().unwrap());
            assert_eq!(found, want.map_err(str::to_owned), "{path}");
        }
    }
}
