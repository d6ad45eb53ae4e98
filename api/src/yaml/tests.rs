use super::*;
use std::fmt::Write;

/// Text, what upstream makes of it, and what becomes of it here where that differs.
const TABLE: &str = include_str!("table.txt");

fn answer(text: &str) -> String {
    match document(text.as_bytes()) {
        Ok(document) => document.value.to_string(),
        Err(error) => format!("! {error}"),
    }
}

#[test]
fn texts_are_read_as_upstream_reads_them() {
    let mut wrong = String::new();
    let mut count = 0;
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let text: String = serde_json::from_str(columns.next().unwrap()).unwrap();
        let upstream = columns.next().unwrap();
        let wanted = columns.next().unwrap_or(upstream);
        let (given, same) = (answer(&text), |a: &str, b: &str| {
            let (a, b) = (serde_json::from_str::<Value>(a), serde_json::from_str::<Value>(b));
            matches!((a, b), (Ok(a), Ok(b)) if a == b)
        });
        if given != wanted && !same(&given, wanted) {
            writeln!(wrong, "{text:?}\n  wanted {wanted}\n  given  {given}").unwrap();
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count > 300, "{count}");
}

#[test]
fn keys_that_are_given_twice_are_told_with_the_line_of_the_later_value() {
    for (text, wanted) in [
        ("a: 1\nb: 2\na: 3\n", vec!["line 3: key \"a\" already set in map"]),
        ("a: 1\na:\n  b: 2\n", vec!["line 3: key \"a\" already set in map"]),
        ("a: 1\na:\n- 2\n", vec!["line 3: key \"a\" already set in map"]),
        ("a: 1\n9: 2\n9: 4", vec!["line 3: key 9 already set in map"]),
        ("1: a\n'1': b\n", vec![]),
        ("true: a\nyes: b\n", vec!["line 2: key true already set in map"]),
        ("1.5: a\n1.50: b\n", vec!["line 2: key 1.5 already set in map"]),
        ("a: &x {b: 1}\nc:\n  <<: *x\n  b: 2\n", vec!["line 4: key \"b\" already set in map"]),
        ("{\"a\": 1, \"a\": 2}", vec!["line 1: key \"a\" already set in map"]),
        (
            "a: {b: 1, b: 2}\nc: {d: 1,\n d: 2}\n",
            vec!["line 1: key \"b\" already set in map", "line 3: key \"d\" already set in map"],
        ),
    ] {
        let Document { repeated, .. } = document(text.as_bytes()).unwrap();
        assert_eq!(repeated, wanted, "{text}");
    }
    assert_eq!(document(b"a: 1\na: 2").unwrap().value["a"], 2);
    let strict = Document::strict_error(&["line 1: x".to_owned(), "line 2: y".to_owned()]).unwrap();
    assert_eq!(strict, "yaml: unmarshal errors:\n  line 1: x\n  line 2: y");
}

#[test]
fn bytes_are_characters_first() {
    let utf_16 = |bytes: fn(u16) -> [u8; 2]| {
        "\u{feff}ñ: very yes 🟔\n".encode_utf16().flat_map(bytes).collect::<Vec<u8>>()
    };
    for bytes in [utf_16(u16::to_le_bytes), utf_16(u16::to_be_bytes)] {
        assert_eq!(document(&bytes).unwrap().value["ñ"], "very yes 🟔");
    }
    for (bytes, problem) in [
        (&b"a: \xff"[..], "invalid leading UTF-8 octet"),
        (b"a: \xc3", "incomplete UTF-8 octet sequence"),
        (b"a: \xc3x", "invalid trailing UTF-8 octet"),
        (b"a: \xe0\x80\x80", "invalid length of a UTF-8 sequence"),
        (b"a: \xed\xa0\x80", "invalid Unicode character"),
        (b"a: \x01", "control characters are not allowed"),
        (b"a: \x7f", "control characters are not allowed"),
    ] {
        assert_eq!(document(bytes).unwrap_err().to_string(), format!("yaml: {problem}"));
    }
}

/// Ten of the anchor before, so many times over.
fn laughs(levels: usize) -> String {
    let mut text = "l0: &l0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for level in 1..=levels {
        let before = format!("*l{}", level - 1);
        writeln!(text, "l{level}: &l{level} [{}]", [before.as_str(); 10].join(", ")).unwrap();
    }
    text
}

/// One long scalar, and so many aliases of it.
fn copies(bytes: usize, aliases: usize) -> String {
    let list = "- *a\n".repeat(aliases);
    format!("a: &a {}\nlist:\n{list}", "x".repeat(bytes))
}

#[test]
fn bombs_are_refused() {
    for bomb in [laughs(9), laughs(6), copies(1 << 20, 50), copies(60_000, 1_000), copies(3, 110_000)] {
        assert_eq!(document(bomb.as_bytes()).unwrap_err(), YamlError::Aliases, "{} bytes", bomb.len());
    }
}

#[test]
fn bombs_are_refused_long_before_they_are_large() {
    let text = laughs(9);
    let nodes = tree::parse(&text).unwrap();
    let mut reader = value::Reader::new(&nodes);
    assert_eq!(reader.value(0), Err(YamlError::Aliases));
    assert!(reader.seen() < 110_000, "{}", reader.seen());
}

#[test]
fn aliases_within_reason_are_replaced() {
    let value = document(copies(1000, 500).as_bytes()).unwrap().value;
    assert_eq!(value["list"].as_array().unwrap().len(), 500);
    assert_eq!(value["list"][499].as_str().unwrap().len(), 1000);
    assert_eq!(document(laughs(2).as_bytes()).unwrap().value["l2"][9][9][9], "lol");
}

#[test]
fn comments_may_be_as_many_as_they_like() {
    let text = format!("{}a: 1\n{}", "# a line\n".repeat(5_000), "  # another\n".repeat(5_000));
    assert_eq!(document(text.as_bytes()).unwrap().value["a"], 1);
}

#[test]
fn what_is_deep_is_refused() {
    let aliases =
        (1..200).fold("a0: &a0 [1]\n".to_owned(), |text, n| format!("{text}a{n}: &a{n} [*a{}]\n", n - 1));
    for deep in ["[".repeat(100_000), "- ".repeat(100_000), "{\"a\":".repeat(100_000), aliases] {
        assert_eq!(document(deep.as_bytes()).unwrap_err(), YamlError::Depth(MAX_DEPTH));
    }
}

#[test]
fn json_is_read_as_yaml_reads_it() {
    let value = document(br#" {"a": 1.0, "b": [2.50, 1e3, -0.0], "c": "1.0"}"#).unwrap().value;
    assert_eq!(value.to_string(), r#"{"a":1,"b":[2.5,1000,0],"c":"1.0"}"#);
}

#[test]
fn nothing_is_null() {
    for text in ["", "\n", "# only\n", "---\n", "---\n---\na: 1", "null", "~"] {
        assert_eq!(document(text.as_bytes()).unwrap().value, Value::Null, "{text:?}");
    }
}

proptest::proptest! {
    #[test]
    fn nothing_panics(text in "[ \\n\\t:?\\-&*!|>'\"%@`{}\\[\\],#a-c0-9.~<=+_xé\u{2028}]{0,40}") {
        let _ = document(text.as_bytes());
    }
}
