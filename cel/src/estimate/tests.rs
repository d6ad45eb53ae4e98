//! The figures of upstream's tests.

use super::Sizes;
use crate::declare::declare;
use crate::sizes::Shape;
use crate::{Env, Program};
use coracle_api::structural::parse;
use serde_json::{Value, json};

/// What a rule costs that stands beside this schema.
fn cost(schema: &Value, rule: &str) -> u64 {
    let schema = parse(schema);
    let of = declare(&schema, false);
    let env = Env::default().variable("self", of.clone()).variable("oldSelf", of);
    let program = Program::compile(rule, &env).unwrap_or_else(|issues| panic!("{rule}: {issues}"));
    let shape = Shape::of(&schema);
    program.cost(Sizes { variables: Some(&shape), anywhere: true })
}

/// `number`, a format of strings, or anything in JSON.
fn of(name: &str) -> Value {
    match name {
        "duration" | "date" | "date-time" => json!({"type": "string", "format": name}),
        "int-or-string" => json!({"x-kubernetes-int-or-string": true}),
        _ => json!({"type": name}),
    }
}

fn limited(mut schema: Value, limit: &str, most: Option<u64>) -> Value {
    if let Some(most) = most {
        schema[limit] = most.into();
    }
    schema
}

fn list(of: &Value, most: Option<u64>) -> Value {
    limited(json!({"type": "array", "items": of}), "maxItems", most)
}

fn map(of: &Value, most: Option<u64>) -> Value {
    limited(json!({"type": "object", "additionalProperties": of}), "maxProperties", most)
}

fn text(most: Option<u64>) -> Value {
    limited(of("string"), "maxLength", most)
}

fn object() -> Value {
    let text = of("string");
    json!({"type": "object", "required": ["required"], "properties": {"required": text, "optional": text}})
}

type Made = fn(&Value, Option<u64>) -> Value;

/// Without a limit and with one.
#[track_caller]
fn costs(made: Made, element: &Value, rule: &str, free: u64, (most, wanted): (u64, u64)) {
    assert_eq!(cost(&made(element, None), rule), free, "{rule} of {element} without a limit");
    assert_eq!(cost(&made(element, Some(most)), rule), wanted, "{rule} of at most {most} {element}");
}

#[test]
fn lists_have_as_many_elements_as_fit_into_a_request() {
    let every = "self.all(x, true)";
    for (element, free, limited) in [
        (of("number"), 4_718_591, (10, 32)),
        (of("string"), 3_145_727, (20, 62)),
        (of("boolean"), 1_887_437, (5, 17)),
        (list(&of("number"), None), 3_145_727, (100, 302)),
        (object(), 555_128, (50, 152)),
        (of("int-or-string"), 4_718_591, (10, 32)),
        (of("duration"), 2_359_295, (5, 17)),
        (of("date"), 725_936, (15, 47)),
        (of("date-time"), 428_963, (25, 77)),
    ] {
        costs(list, &element, every, free, limited);
    }
    let twice = "self.all(x, self.all(y, true))";
    assert!(cost(&list(&of("number"), None), twice) > 10_000_000);
    assert_eq!(cost(&list(&of("number"), Some(10)), twice), 352);
    let thrice = "self.all(x, self.all(y, self.all(z, true)))";
    assert_eq!(cost(&list(&of("number"), Some(10)), thrice), 3552);
    costs(list, &of("number"), "self.all(x, x == 0.0)", 6_291_454, (3 * 1024 * 2048, 25_165_826));
}

#[test]
fn maps_have_as_many_entries_as_fit_into_a_request() {
    for (element, free, limited) in [
        (of("number"), 1_348_169, (10, 32)),
        (of("string"), 1_179_647, (3, 11)),
        (of("boolean"), 943_718, (100, 302)),
        (of("int-or-string"), 1_348_169, (15, 47)),
        (object(), 428_963, (20, 62)),
        (map(&of("number"), None), 1_179_647, (10, 32)),
        (list(&of("number"), None), 1_179_647, (25, 77)),
        (of("duration"), 1_048_577, (5, 17)),
        (of("date"), 524_288, (10, 32)),
        (of("date-time"), 349_526, (25, 77)),
    ] {
        costs(map, &element, "self.all(x, true)", free, limited);
        costs(map, &element, "has(self.x)", 1, (100, 1));
    }
    costs(map, &of("integer"), "oldSelf.size() == self.size()", 5, (10, 5));
}

#[test]
fn elements_are_as_large_as_the_schema_lets_them() {
    for (element, rule, free, limited) in [
        (of("number"), "self[1] == 0.0", 2, (5000, 2)),
        (of("number"), "self[3] == 0.0", 2, (0, 2)),
        (of("string"), "self[1] == self[1]", 314_577, (8, 314_577)),
        (of("int-or-string"), "self[0] == 5", 3, (10, 3)),
        (of("boolean"), "self[0] == false", 2, (25, 2)),
        (object(), "self[0] == null", 2, (422, 2)),
        (list(&of("number"), None), "self[0][0] == -1.0", 3, (51, 3)),
        (map(&of("number"), None), "self.all(x, x.y == 25.2)", 6_291_452, (12, 74)),
        (map(&of("number"), None), "self[0].x > 2.0", 4, (3000, 4)),
        (of("duration"), "self[0].getHours() == 2", 4, (525, 4)),
        (of("date"), "self[2].getDayOfMonth() == 13", 4, (42, 4)),
        (of("date-time"), "self[2].getMinutes() == 45", 4, (99, 4)),
    ] {
        costs(list, &element, rule, free, limited);
    }
    for (element, rule, wanted) in [
        ("number", "self['x'] == 0.0", 2),
        ("date-time", "self['a'] == self['b']", 8),
        ("duration", "self['c'] == self['d']", 8),
        ("date", "self['c'] == self['d']", 6),
    ] {
        costs(map, &of(element), rule, wanted, (7, wanted));
    }
    let nested: Made = |_, most| list(&map(&limited(object(), "maxProperties", most), most), most);
    costs(nested, &Value::Null, "self.all(x, x['y'].required == 'z')", 7_340_027, (10, 72));
    let outer: Made = |_, most| list(&map(&object(), most), None);
    costs(outer, &Value::Null, "self.all(x, x['y'].required == 'z')", 7_340_027, (10, 7_340_027));
}

#[test]
fn text_is_as_long_as_the_schema_lets_it() {
    let plain: Made = |_, most| text(most);
    for (rule, free, limited) in [
        ("self.contains('test')", 314_574, (10, 5)),
        ("self.startsWith('test')", 2, (15, 2)),
        ("self.endsWith('test')", 2, (30, 2)),
        ("size(self + 'hello') > size('hello')", 314_578, (4, 7)),
        ("self.matches('x')", 314_574, (50, 22)),
        ("''.matches('(((((((((())))))))))[0-9]')", 7, (10, 7)),
        ("self.matches('')", 1, (100, 1)),
        ("self == 'x'", 2, (0, 1)),
        ("self.find('[0-9]+') == ''", 629_147, (10, 11)),
        ("self.lowerAscii() == 'lower!'", 314_575, (10, 6)),
    ] {
        costs(plain, &Value::Null, rule, free, limited);
    }
    let bytes: Made = |_, most| limited(json!({"type": "string", "format": "byte"}), "maxLength", most);
    costs(bytes, &Value::Null, "self == b'x'", 2, (0, 1));
    let listed: Made =
        |_, most| limited(json!({"type": "string", "enum": ["A", "B", "C", "LongValue"]}), "maxLength", most);
    costs(listed, &Value::Null, "self.contains('A')", 2, (1000, 401));
}

#[test]
fn what_functions_make_is_as_large_as_they_can_make_it() {
    let names: Made = |_, most| map(&text(most), most);
    costs(names, &Value::Null, "self.all(x, x.contains(self[x]))", 2_752_507, (10, 72));
    let texts: Made = |_, most| list(&text(most), most);
    costs(texts, &Value::Null, "self.join(' ') == 'aa bb'", 329_853_068_905, (10, 43));
    costs(texts, &Value::Null, "self.isSorted() == true", 329_854_432_052, (10, 52));
    let parts: Made = |_, most| {
        json!({"type": "object", "properties": {"str": text(most), "separator": text(most),
            "before": text(Some(2)), "after": text(Some(4))}})
    };
    let replace = "self.str.replace(self.before, self.after) == 'does not matter'";
    costs(parts, &Value::Null, replace, 629_154, (4, 12));
    costs(parts, &Value::Null, "self.str.split(self.separator) == []", 629_160, (10, 22));
}

#[test]
fn libraries_cost_what_they_say() {
    const V4: &str = "ip('192.168.0.1')";
    const NET: &str = "cidr('192.168.0.0/16')";
    for (source, wanted) in [
        ("[1, 2, 3, 4, 5].sum()", 15),
        ("[1.0, 2.0, 3.0, 4.0, 5.0].max()", 15),
        ("[1, 2, 3, 4, 5].indexOf(3)", 15),
        ("'01234567890123456789012345678901234567890123456789'.indexOf('123')", 5),
        ("url('https:://kubernetes.io/').getHost()", 4),
        ("url('https:://kubernetes.io/') == url('https:://kubernetes.io/')", 9),
        ("url('https:://kubernetes.io/') == url('http://x.b')", 5),
        (&format!("{V4}.family()"), 3),
        (&format!("{V4} == {V4}"), 5),
        ("ip('2001:db8:3333:4444:5555:6666:7777:8888')", 4),
        ("ip.isCanonical('2001:db8:3333:4444:5555:6666:7777:8888')", 8),
        (&format!("{NET}.ip()"), 3),
        (&format!("{NET}.containsCIDR(cidr('192.0.0.0/30'))"), 11),
        (&format!("{NET}.containsCIDR('192.0.0.0/30')"), 11),
        (&format!("{NET}.containsIP(ip('192.0.0.1'))"), 7),
        (&format!("{NET}.containsIP('192.169.0.1')"), 8),
        ("'ABCDEFGHIJ abcdefghij'.lowerAscii() == 'abcdefghij ABCDEFGHIJ'.lowerAscii()", 9),
        ("strings.quote('ABCDEFGHIJ abcdefghij') == strings.quote('ABCDEFGHIJ abcdefghij')", 11),
        ("'abc 123 def 123'.replace('123', '456')", 3),
        ("'abc 123 def 123'.split(' ', 1)", 3),
        ("'abc 123 def 123'.substring(5, 8)", 2),
        ("'abc 123 def 123'.findAll('123', 1)", 2),
        ("quantity('12Mi')", 1),
        ("quantity('200M') == quantity('200M')", 3),
        ("quantity('50k').add(20).sub(quantity('100k')).sub(-50000).asInteger() > 0", 7),
        ("quantity('50.703k').asApproximateFloat() > 0.0", 3),
        ("format.named('dns1123Label').value().validate('my-name')", 34),
        ("format.named('dns1123Label').value() == format.named('dns1123Label').value()", 11),
        ("semver('1234.56789012345.67890123456789')", 4),
        ("sets.contains([], [])", 21),
        ("sets.contains([1, 2, 3, 4], [2, 3])", 29),
        ("!sets.equivalent([1], [1, 2])", 26),
        ("sets.intersects([1, 1], [1])", 23),
    ] {
        assert_eq!(cost(&of("string"), source), wanted, "{source}");
    }
}

#[test]
fn macros_of_two_variables_cost_what_they_expand_to() {
    for (source, wanted) in [
        ("{'a': 1, 'b': 2}.all(k, v, v > 0)", 41),
        ("{'a': 1, 'b': 2}.exists(k, v, v > 0)", 43),
        ("{'a': 1, 'b': 2}.existsOne(k, v, v > 0)", 40),
        ("{'a': 1, 'b': 2}.transformMap(k, v, v + 1)", 71),
        ("{'a': 1, 'b': 2}.transformMap(k, v, v < 5, v + 1)", 75),
        ("{'a': 1, 'b': 2}.transformMapEntry(k, v, {k: v + 1})", 131),
        ("{'a': 1, 'b': 2}.transformMapEntry(k, v, v < 5, {k: v + 1})", 135),
        ("[1, 2].all(i, v, v > 0)", 21),
        ("[1, 2].exists(i, v, v > 0)", 23),
        ("[1, 2].existsOne(i, v, v > 0)", 20),
        ("[1, 2].transformList(i, v, v + 1)", 49),
        ("[1, 2].transformList(i, v, v < 5, v + 1)", 53),
    ] {
        assert_eq!(cost(&of("boolean"), source), wanted, "{source}");
    }
}

/// By the expansion of the macros and the model's rules, where upstream's tests have no figure.
#[test]
fn what_has_no_path_is_taken_for_self() {
    let parts = text(Some(25));
    // The pieces of a text are at most as long as the text.
    assert_eq!(cost(&parts, "self.split('.').all(x, x.matches('abcd'))"), 1 + 20 + 1 + 100 * (3 + 1 + 11));
    // What is known of an optional is nothing.
    let object = json!({"type": "object", "properties": {"n": {"type": "integer"}, "s": parts}});
    assert_eq!(cost(&object, "self.?n.orValue(1) == 1"), 2 + 1 + 1);
    assert_eq!(cost(&object, "self.?s.orValue('') == 'ab'"), 2 + 1 + 1);
    assert!(cost(&object, "self.?s.orValue('').matches('ab')") > 10_000_000);
    // `hasValue`, a list for the binding, `value`, `optional.of`, and the body.
    assert_eq!(
        cost(&object, "self.?n.optMap(n, n + 1) == optional.of(2)"),
        (2 + 1) + (10 + 3 + 2 + 1) + 1 + 1
    );
}
