use super::jsonpath::Path;
use serde_json::json;

#[test]
fn paths_lead_to_values() {
    let object = json!({ "a": { "b.c": 1, "list": [{ "type": "Ready", "n": 1 }, { "type": "Other", "n": 5 }] },
        "deep": { "x": { "name": "here" } }, "text": "t" });
    for (path, expected) in [
        (".text", Some(json!("t"))),
        ("$.text", Some(json!("t"))),
        (".a.b\\.c", Some(json!(1))),
        (".a['b.c']", Some(json!(1))),
        (".a.list[0].n", Some(json!(1))),
        (".a.list[-1].n", Some(json!(5))),
        (".a.list[*].type", Some(json!("Ready"))),
        (".a.list[1:].type", Some(json!("Other"))),
        (".a.list[?(@.type==\"Other\")].n", Some(json!(5))),
        (".a.list[?(@.type=='Other')].n", Some(json!(5))),
        (".a.list[?(@.n > 3)].type", Some(json!("Other"))),
        (".a.list[?(@.missing)].type", None),
        ("..name", Some(json!("here"))),
        (".a.missing.deeper", None),
        (".text.no", None),
    ] {
        let found = Path::parse(path).unwrap_or_else(|| panic!("{path}"));
        assert_eq!(found.first(&object).cloned(), expected, "{path}");
    }
    for bad in [".a[", ".a[x]", ".a[?(]", ".a[1:2:0]"] {
        assert_eq!(Path::parse(bad), None, "{bad}");
    }
}

/// Requests on other threads share them.
#[test]
fn schemas_can_be_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<super::Schema>();
    shared::<super::CustomResource>();
}
