//! Expressions and what they are worth, in tables.

use super::*;
use serde_json::json;
use std::sync::Arc;

fn run(source: &str, object: &serde_json::Value) -> Result<serde_json::Value, String> {
    let env = Env::default().with_bindings().variable("self", Type::Dyn);
    let program = Program::compile(source, &env).map_err(|issues| issues.to_string())?;
    let variables = [("self", typed(object, &Type::Dyn))];
    let value = program.eval(&variables, &mut Budget::of(1_000_000)).map_err(|error| error.to_string())?;
    to_json(&value).map_err(|error| error.to_string())
}

fn value(source: &str) -> serde_json::Value {
    run(source, &json!({ "a": 1, "list": [3, 1, 2], "name": "web", "map": { "x": 1, "y": 2 }, "none": null }))
        .unwrap_or_else(|error| panic!("{source}: {error}"))
}

#[test]
fn operators_bind_as_the_language_says() {
    for source in [
        "1 + 2 * 3 == 7",
        "(1 + 2) * 3 == 9",
        "-1 - -2 == 1",
        "!false && true || false",
        "1 < 2 == true",
        "7 % 4 == 3 && -7 / 2 == -3",
        "true ? (false ? 1 == 1 : 2 == 2) : false",
        "'a' + 'b' == 'ab' && b'a' + b'b' == b'ab'",
        "[1] + [2] == [1, 2] && dyn({'a': 1}) == {'a': 1.0}",
        "2 in [1, 2] && 'x' in self.map && !('z' in self.map)",
        "1u + 2u == 3u && 1.5 * 2.0 == 3.0",
        "self.a == 1.0 && dyn(1) == 1u",
        "type(1) == int && type('a') == string && type([]) == list && type(null) == null_type",
        "has(self.name) && !has(self.nothing) && has(self.map.x)",
        "self.list[0] == 3 && self['name'] == 'web' && self.map['y'] == 2",
        "false && self.nothing || true",
        "self.nothing == 1 || true",
        "0x10 == 16 && 1e3 == 1000.0",
    ] {
        assert_eq!(value(source), json!(true), "{source}");
    }
}

#[test]
fn macros_go_through_lists_and_maps() {
    for (source, wanted) in [
        ("self.list.all(x, x > 0)", json!(true)),
        ("self.list.exists(x, x > 2)", json!(true)),
        ("self.list.exists_one(x, x > 1)", json!(false)),
        ("self.list.filter(x, x > 1)", json!([3, 2])),
        ("self.list.map(x, x * 2)", json!([6, 2, 4])),
        ("self.list.map(x, x > 1, x * 2)", json!([6, 4])),
        ("self.map.map(k, k)", json!(["x", "y"])),
        ("self.map.all(k, v, v > 0 && k != '')", json!(true)),
        ("self.list.transformList(i, v, i + v)", json!([3, 2, 4])),
        ("self.map.transformMap(k, v, v > 1, v * 10)", json!({ "y": 20 })),
        ("self.list.transformMapEntry(i, v, {string(v): i})", json!({ "3": 0, "1": 1, "2": 2 })),
        ("cel.bind(x, 2, x * x)", json!(4)),
        // An error counts only when nothing else decides.
        ("[1, 2, 3].exists(x, x / 0 == 1 || x == 2)", json!(true)),
        ("[1, 0].all(x, 1 / x > 5)", json!(false)),
    ] {
        assert_eq!(value(source), wanted, "{source}");
    }
}

#[test]
fn optionals_may_be_missing() {
    for (source, wanted) in [
        ("self.?name.orValue('none')", json!("web")),
        ("self.?nothing.deep.orValue('none')", json!("none")),
        ("self.list[?9].hasValue()", json!(false)),
        ("[?self.?name, ?self.?nothing]", json!(["web"])),
        ("{?'n': self.?name, ?'m': self.?nothing}", json!({ "n": "web" })),
        ("optional.of(2).optMap(x, x * 2).value()", json!(4)),
        ("optional.none().or(optional.of(1)).value()", json!(1)),
        ("optional.ofNonZeroValue(0).hasValue()", json!(false)),
        ("optional.of(1).orValue(1 / 0)", json!(1)),
        ("format.dns1123Label().validate('web') == null", json!(false)),
        ("optional.of('web') != null", json!(true)),
        ("self.?map.optFlatMap(m, m.?x).orValue(9)", json!(1)),
    ] {
        assert_eq!(value(source), wanted, "{source}");
    }
}

#[test]
fn libraries_do_what_their_pages_say() {
    for (source, wanted) in [
        ("'hello'.contains('ell') && 'hello'.startsWith('he') && 'hello'.endsWith('lo')", json!(true)),
        ("'ab12'.matches('^[a-z]+[0-9]+$')", json!(true)),
        ("'a1b2'.findAll('[0-9]')", json!(["1", "2"])),
        ("'abc'.find('[bc]+')", json!("bc")),
        ("'tacocat'.indexOf('ac') + 'tacocat'.lastIndexOf('at')", json!(6)),
        ("'a,b,c'.split(',', 2)", json!(["a", "b,c"])),
        ("'abc'.split('')", json!(["a", "b", "c"])),
        ("'hello hello'.replace('he', 'we', 1)", json!("wello hello")),
        ("'tacocat'.substring(1, 4).upperAscii()", json!("ACO")),
        ("['a', 'b'].join('-') + '  x '.trim()", json!("a-bx")),
        ("strings.quote('a\\n\"')", json!("\"a\\n\\\"\"")),
        ("'%s is %d, %.2f, %x, %s'.format(['x', 3, 1.5, 255, [1, 'a']])", json!("x is 3, 1.50, ff, [1, a]")),
        ("size('héllo') == 5 && [1, 2].size() == 2", json!(true)),
        (
            "[1, 2, 2].isSorted() && [3, 1].sum() == 4 && [3, 1].min() == 1 && ['a', 'b'].max() == 'b'",
            json!(true),
        ),
        ("[1, 2, 1].indexOf(1) + [1, 2, 1].lastIndexOf(1)", json!(2)),
        (
            "sets.contains([1, 2, 3], [2]) && sets.equivalent([1, 1], [1]) && !sets.intersects([1], [2])",
            json!(true),
        ),
        ("timestamp('2024-02-29T12:30:00Z').getDayOfYear()", json!(59)),
        ("timestamp('2024-02-29T23:30:00Z').getHours('+02:00')", json!(1)),
        ("string(timestamp('2024-01-01T00:00:00Z') + duration('1h30m'))", json!("2024-01-01T01:30:00Z")),
        ("duration('90m').getHours() == 1 && duration('1h') > duration('59m')", json!(true)),
        ("url('https://a.b:80/c?x=1').getHost() + url('/p').getEscapedPath()", json!("a.b:80/p")),
        ("isURL('https://x') && !isURL('../x')", json!(true)),
        ("ip('::1').isLoopback() && ip('10.0.0.1').family() == 4 && !isIP('1.2.3')", json!(true)),
        (
            "cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')",
            json!(true),
        ),
        ("string(cidr('10.1.2.3/8').masked()) == '10.0.0.0/8'", json!(true)),
        (
            "quantity('1Gi').isGreaterThan(quantity('500M')) && isQuantity('1k') && !isQuantity('x')",
            json!(true),
        ),
        ("quantity('50k').add(20).compareTo(quantity('50020'))", json!(0)),
        ("semver('1.2.3').isLessThan(semver('1.10.0')) && semver('v1.2', true).minor() == 2", json!(true)),
        ("format.dns1123Label().validate('A').hasValue()", json!(true)),
        ("format.named('uuid').value().validate('x').orValue([]).size()", json!(1)),
        ("jsonpatch.escapeKey('a/b~c')", json!("a~1b~0c")),
        ("int('42') + int(2.9) + int(3u)", json!(47)),
        ("string(1.0) + string(true) + string(1e21)", json!("1true1e+21")),
    ] {
        assert_eq!(value(source), wanted, "{source}");
    }
}

#[test]
fn what_has_no_fields_has_none_of_any_name() {
    for source in ["has(self.a.b)", "has(self.n.b)", "self.?n.?b.hasValue()", "self.n[?'b'].hasValue()"] {
        assert_eq!(run(source, &json!({ "a": 1, "n": null })).unwrap(), json!(false), "{source}");
    }
}

#[test]
fn what_fails_while_it_runs_says_why() {
    for (source, wanted) in [
        ("self.nothing", "no such key: nothing"),
        ("[1][5]", "index out of bounds: 5"),
        ("1 / 0", "division by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("self.a.b", "no such key: b"),
        ("self.n.b.c", "no such key: b"),
        ("has(self.n.b.c)", "no such key: b"),
        ("self.n['b']", "no such key: b"),
        ("self.l.b", "unsupported index type 'string' in list"),
        ("has(self.l.b)", "unsupported index type 'string' in list"),
        ("self.l['b']", "unsupported index type 'string' in list"),
        ("optional.none().value()", "optional.none() dereference"),
        ("{'a': 1, 'a': 2}", "insert failed: key already exists"),
        ("quantity('x')", "error parsing quantity"),
    ] {
        let error = run(source, &json!({ "a": 1, "n": null, "l": [1] })).unwrap_err();
        assert!(error.contains(wanted), "{source}: {error}");
    }
}

fn schema() -> Env {
    let field = |json: &str, of: Type| (json.to_owned(), Field { json: json.to_owned(), of });
    let names = Type::List(Arc::new(ListType {
        element: Type::String(Some(10)),
        kind: ListKind::Set,
        max_items: Some(5),
    }));
    let fields = [
        field("replicas", Type::Int),
        field("name", Type::String(Some(63))),
        field("names", names),
        field("free", Type::list(Type::STRING)),
    ];
    let object = ObjectType { name: "selfType".to_owned(), fields: fields.into_iter().collect() };
    Env::default().variable("self", Type::Object(Arc::new(object)))
}

#[test]
fn mistakes_are_found_before_anything_runs() {
    for (source, wanted) in [
        ("self.replica > 1", "undefined field 'replica'"),
        ("self.replicas > 'a'", "found no matching overload for '_>_' applied to '(int, string)'"),
        ("self.replicas == 'a'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("other", "undeclared reference to 'other'"),
        ("self.name.foo()", "undeclared reference to 'foo'"),
        ("self.name.size(1)", "found no matching overload for 'size' applied to 'string.(int)'"),
        ("self.replicas.all(x, true)", "cannot be range of a comprehension"),
        ("self.names.all(x, 1)", "expected type 'bool' but found 'int'"),
        (
            "self.replicas >",
            "Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true',",
        ),
        ("10.0.0.1", "1:5: Syntax error: mismatched input '.0' expecting <EOF>"),
        ("1h", "1:2: Syntax error: extraneous input 'h' expecting <EOF>"),
        ("x y!", "1:3: Syntax error: mismatched input 'y' expecting <EOF>"),
        ("/etc", "1:1: Syntax error: extraneous input '/' expecting {'[',"),
        ("*/5 * * * *", "1:1: Syntax error: mismatched input '*' expecting {'[',"),
        ("@daily", "1:1: Syntax error: token recognition error at: '@'"),
        ("1 = 2", "1:3: Syntax error: token recognition error at: '= '"),
        ("has(self)", "invalid argument to has() macro"),
        ("1 + 1.0", "found no matching overload for '_+_' applied to '(int, double)'"),
    ] {
        let error = Program::compile(source, &schema()).unwrap_err().to_string();
        assert!(error.contains(wanted) && error.starts_with("ERROR: <input>:1:"), "{source}: {error}");
    }
}

#[test]
fn deep_nesting_ends_in_an_error() {
    let deep = format!("{}1{}", "(".repeat(5000), ")".repeat(5000));
    let long = vec!["1"; 5000].join(" + ");
    for source in [deep, long] {
        let error = Program::compile(&source, &Env::default()).unwrap_err().to_string();
        assert!(error.contains("recursion limit"), "{error}");
    }
    assert!(Program::compile(&vec!["true"; 200].join(" && "), &Env::default()).is_ok());
}

#[test]
fn sets_are_equal_in_any_order() {
    let env = schema();
    let Some(own) = env.type_of("self").cloned() else { panic!("declared above") };
    let object = json!({ "names": ["a", "b"] });
    let other = json!({ "names": ["b", "a"] });
    let env = env.variable("oldSelf", own.clone());
    let program =
        Program::compile("self.names == oldSelf.names && self.names + ['a'] == self.names", &env).unwrap();
    let variables = [("self", typed(&object, &own)), ("oldSelf", typed(&other, &own))];
    assert_eq!(program.eval(&variables, &mut Budget::of(1000)), Ok(Value::Bool(true)));
}

#[test]
fn a_run_ends_where_its_budget_does() {
    let program = Program::compile("[1, 2, 3].all(x, [1, 2, 3].all(y, x + y > 0))", &Env::default()).unwrap();
    let nothing: [(&str, Value<'_>); 0] = [];
    assert_eq!(program.eval(&nothing, &mut Budget::of(20)), Err(EvalError::CostLimit));
    let mut enough = Budget::of(1000);
    assert!(program.eval(&nothing, &mut enough).is_ok() && enough.spent > 50);
}
