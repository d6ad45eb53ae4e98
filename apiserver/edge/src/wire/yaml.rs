//! YAML as upstream writes it: keys sorted, two spaces, lists not indented, plain scalars where they stay what they
//! are.

use serde_json::Value;

/// A document with its last line break.
pub fn print(value: &Value) -> Vec<u8> {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => mapping(&mut out, value, 0),
        Value::Array(list) if !list.is_empty() => sequence(&mut out, list, 0),
        scalar => {
            write_scalar(&mut out, scalar, 0);
            out.push('\n');
        }
    }
    out.into_bytes()
}

fn indent(out: &mut String, depth: usize) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

fn mapping(out: &mut String, value: &Value, depth: usize) {
    let mut first = true;
    for (key, value) in value.as_object().into_iter().flatten() {
        // The first key of a list's element stands behind the dash.
        if !(first && out.ends_with("- ")) {
            indent(out, depth);
        }
        first = false;
        string(out, key, depth, true);
        out.push(':');
        member(out, value, depth);
    }
}

fn member(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            mapping(out, value, depth + 1);
        }
        Value::Array(list) if !list.is_empty() => {
            out.push('\n');
            sequence(out, list, depth);
        }
        scalar => {
            out.push(' ');
            write_scalar(out, scalar, depth + 1);
            out.push('\n');
        }
    }
}

fn sequence(out: &mut String, list: &[Value], depth: usize) {
    let mut first = true;
    for item in list {
        if !(first && out.ends_with("- ")) {
            indent(out, depth);
        }
        first = false;
        out.push_str("- ");
        match item {
            Value::Object(map) if !map.is_empty() => mapping(out, item, depth + 1),
            Value::Array(inner) if !inner.is_empty() => sequence(out, inner, depth + 1),
            scalar => {
                write_scalar(out, scalar, depth + 1);
                out.push('\n');
            }
        }
    }
}

fn write_scalar(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::String(text) => string(out, text, depth, false),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
        other => out.push_str(&other.to_string()),
    }
}

fn string(out: &mut String, text: &str, depth: usize, key: bool) {
    let unusual = |c: char| {
        (c.is_control() && c != '\n' && c != '\t') || matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}')
    };
    let odd = text.chars().any(unusual);
    if !odd && text.contains('\n') && !key {
        block(out, text, depth);
    } else if odd || text.contains(['\n', '\t']) || is_other_scalar(text) {
        quoted(out, text);
    } else if is_plain(text) {
        out.push_str(text);
    } else {
        out.push('\'');
        out.push_str(&text.replace('\'', "''"));
        out.push('\'');
    }
}

/// In JSON's quotes, which YAML has too; without the characters that YAML does not allow, or takes for line breaks.
fn quoted(out: &mut String, text: &str) {
    for c in Value::from(text).to_string().chars() {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => {
                out.push_str(&format!("\\u{:04X}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
}

/// A literal block. Leading space needs its indentation said; the line breaks at the end their number.
fn block(out: &mut String, text: &str, depth: usize) {
    out.push('|');
    if text.starts_with([' ', '\n', '\t']) {
        out.push('2');
    }
    let body = text.trim_end_matches('\n');
    match text.len() - body.len() {
        0 => out.push('-'),
        1 if !body.is_empty() => {}
        _ => out.push('+'),
    }
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        out.push('\n');
        if !line.is_empty() {
            indent(out, depth);
            out.push_str(line);
        }
    }
}

/// Whether a reader would take the text for something else than a string: YAML 1.1's words, numbers and times.
fn is_other_scalar(text: &str) -> bool {
    const WORDS: &[&str] = &[
        "", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", ".nan", ".inf", "+.inf",
        "-.inf", "<<",
    ];
    if WORDS.contains(&text.to_ascii_lowercase().as_str()) {
        return true;
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text).replace('_', "");
    let radix = |prefix: &str, radix| {
        digits.strip_prefix(prefix).is_some_and(|d| u64::from_str_radix(d, radix).is_ok())
    };
    let number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.contains(|c: char| c.is_ascii_digit())
        && digits.parse::<f64>().is_ok();
    number || radix("0x", 16) || radix("0o", 8) || radix("0b", 2) || is_sexagesimal(&digits) || is_date(text)
}

fn is_sexagesimal(text: &str) -> bool {
    text.contains(':')
        && text
            .split(':')
            .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits =
        |range: std::ops::Range<usize>| bytes.get(range).is_some_and(|b| b.iter().all(u8::is_ascii_digit));
    digits(0..4) && bytes.get(4) == Some(&b'-') && bytes[5..].first().is_some_and(u8::is_ascii_digit)
}

fn is_plain(text: &str) -> bool {
    let start = text.as_bytes().first().copied().unwrap_or(b' ');
    let next_is_space = matches!(text.as_bytes().get(1), None | Some(b' '));
    let bad_start = match start {
        b'-' | b'?' | b':' => next_is_space || text == "---",
        b',' | b'[' | b']' | b'{' | b'}' | b'#' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\'' | b'"' | b'%'
        | b'@' | b'`' | b' ' => true,
        _ => false,
    };
    !(bad_start
        || text.ends_with([' ', ':'])
        || text.contains(": ")
        || text.contains(" #")
        || text.starts_with("---")
        || text.starts_with("..."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document() {
        let value = json!({"b": [], "a": {"list": [{"x": 1, "w": ["z"]}, [1, [2]], "s"], "o": {}}, "c": null, "t": true});
        let text = "a:\n  list:\n  - w:\n    - z\n    x: 1\n  - - 1\n    - - 2\n  - s\n  o: {}\nb: []\nc: null\nt: true\n";
        assert_eq!(String::from_utf8(print(&value)).unwrap(), text);
    }

    #[test]
    fn strings_stay_strings() {
        for (text, want) in [
            ("plain", "plain"),
            ("", "\"\""),
            ("true", "\"true\""),
            ("1", "\"1\""),
            ("0x1f", "\"0x1f\""),
            ("1e3", "\"1e3\""),
            ("2004-01-01T01:01:01Z", "\"2004-01-01T01:01:01Z\""),
            ("12:30", "\"12:30\""),
            ("1.2.3", "1.2.3"),
            ("a: b", "'a: b'"),
            ("it's #1", "'it''s #1'"),
            ("*", "'*'"),
            ("- a", "'- a'"),
            ("-a", "-a"),
            ("a\nb\n", "|\n  a\n  b"),
            ("a\n\nb", "|-\n  a\n\n  b"),
            ("a\n\n", "|+\n  a\n"),
            (" a\n", "|2\n   a"),
            ("tab\t", "\"tab\\t\""),
            ("\u{1}", "\"\\u0001\""),
            ("\u{7f}\u{85}", "\"\\u007F\\u0085\""),
        ] {
            let printed = String::from_utf8(print(&json!({"k": text}))).unwrap();
            assert_eq!(printed, format!("k: {want}\n"), "{text:?}");
            let back = coracle_api::yaml::document(printed.as_bytes()).unwrap().value;
            assert_eq!(back["k"], *text, "{printed}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_printed_is_read(text in "[ -~\n\t:#'\"\\-é]{0,12}", key in "[ -~]{0,6}") {
            let value = json!({ key.clone(): [text.clone(), { key: text }] });
            let printed = String::from_utf8(print(&value)).unwrap();
            let back = coracle_api::yaml::document(printed.as_bytes()).unwrap().value;
            proptest::prop_assert_eq!(back, value);
        }
    }
}
