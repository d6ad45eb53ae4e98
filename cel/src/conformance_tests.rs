//! Cases by the areas of the language's public conformance suite (<https://github.com/google/cel-spec>), in our own words:
//! each line is true, or fails as cel-go words it.

use super::*;

fn run(source: &str) -> Result<Value<'static>, String> {
    let program =
        Box::leak(Box::new(Program::compile(source, &Env::default()).map_err(|issues| issues.to_string())?));
    let nothing: [(&str, Value<'_>); 0] = [];
    program.eval(&nothing, &mut Budget::of(1_000_000)).map_err(|error| error.to_string())
}

fn all_true(sources: &[&str]) {
    for source in sources {
        assert_eq!(run(source), Ok(Value::Bool(true)), "{source}");
    }
}

fn all_fail(cases: &[(&str, &str)]) {
    for (source, wanted) in cases {
        match run(source) {
            Err(error) => assert!(error.contains(wanted), "{source}: {error}"),
            Ok(value) => panic!("{source} is {value:?}"),
        }
    }
}

#[test]
fn literals() {
    all_true(&[
        "0x7fffffffffffffff == 9223372036854775807 && -0x1 == -1 && 0xFFu == 255u",
        "-9223372036854775808 < 0 && 18446744073709551615u > 0u",
        "1e-3 == 0.001 && .5 == 0.5 && 1.5E2 == 150.0",
        r#"'\x41\u0041\U00000041\101' == 'AAAA' && "\a\b\f\v".size() == 4"#,
        r#"r'\n' == '\\n' && r"\'".size() == 2 && R'a' == 'a'"#,
        "'''a\nb''' == 'a\\nb' && \"\"\"say \"hi\" \"\"\" == 'say \"hi\" '",
        r"b'\xff' == b'\377' && b'é' == b'\xc3\xa9' && size(b'é') == 2 && size('é') == 1",
        "!!true && --1 == 1 && !(false) && -(-1) == 1",
        "true ? true : false ? false : true",
        "((((((((((((((((((((((((((((((((7)))))))))))))))))))))))))))))))) == 7",
        "[[[[[[[[[[[[0]]]]]]]]]]]][0][0][0][0][0][0][0][0][0][0][0][0] == 0",
        "// a comment\n true // another\n",
        "[1, 2,] == [1, 2] && {'a': 1,} == {'a': 1}",
    ]);
    all_fail(&[
        ("9223372036854775808", "invalid int literal"),
        ("18446744073709551616u", "invalid uint literal"),
        (r"'\u00'", "unable to unescape string"),
        (r"'\ud800'", "unable to unescape string"),
        ("'a\nb'", "token recognition error"),
        ("'a\rb'", "token recognition error"),
        ("1 2", "Syntax error"),
        ("a.in", "reserved identifier"),
        ("for", "reserved identifier: for"),
        ("[1, 'a']", "expected type 'int' but found 'string'"),
        ("[dyn(1), 1]", "expected type 'dyn' but found 'int'"),
        ("[1, dyn(1)]", "expected type 'int' but found 'dyn'"),
        ("{'a': [1], 'b': [dyn(1)]}", "expected type 'list(int)' but found 'list(dyn)'"),
        ("cel.bind(x, 1, x) == 1", "undeclared reference to 'cel' (in container '')"),
        ("'ab'.reverse() == 'ba'", "found no matching overload for 'reverse' applied to 'string.()'"),
        ("{'a': 1, 2: 2}", "expected type 'string' but found 'int'"),
        ("'a'.matches('(')", "invalid matches argument"),
        ("timestamp('yesterday')", "invalid timestamp argument"),
        ("duration('1 hour')", "invalid duration argument"),
    ]);
}

#[test]
fn numbers() {
    all_true(&[
        "7 / 2 == 3 && -7 / 2 == -3 && 7 % 3 == 1 && -7 % 3 == -1 && 7u / 2u == 3u",
        "1.0 / 0.0 > 1e300 && -1.0 / 0.0 < -1e300 && 0.0 / 0.0 != 0.0 / 0.0",
        "dyn(1) == dyn(1.0) && dyn(1u) == dyn(1) && dyn(1) != dyn('1')",
        "1 < 2.5 && 2u > 1 && 1.5 < 2u && dyn(9007199254740993) > dyn(9007199254740992.0)",
        "int(-2.9) == -2 && uint(3.99) == 3u && double(3) == 3.0 && int('-5') == -5",
        "double('1e3') == 1000.0 && string(1.5) == '1.5' && string(-0.0) == '-0' && string(100000.0) == '100000'",
        "int(timestamp('1970-01-01T00:01:00Z')) == 60 && string(18446744073709551615u) == '18446744073709551615'",
        "bool('t') && bool('TRUE') && !bool('0')",
        "{1: 'a'}[dyn(1.0)] == 'a' && dyn(1u) in {1: 'a'}",
    ]);
    all_fail(&[
        ("1 / 0", "division by zero"),
        ("1 % 0", "modulus by zero"),
        ("1u / 0u", "division by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("-9223372036854775808 - 1", "integer overflow"),
        ("9223372036854775807 * 2", "integer overflow"),
        ("-(-9223372036854775808)", "integer overflow"),
        ("-9223372036854775808 / -1", "integer overflow"),
        ("0u - 1u", "unsigned integer overflow"),
        ("18446744073709551615u + 1u", "unsigned integer overflow"),
        ("int(1e99)", "integer overflow"),
        ("uint(-1)", "unsigned integer overflow"),
        ("int('x')", "type conversion error from 'string' to 'int'"),
        ("bool('yes')", "type conversion error from 'string' to 'bool'"),
        ("1 + 1u", "found no matching overload for '_+_' applied to '(int, uint)'"),
        ("dyn(1) + dyn('a')", "no such overload"),
        ("dyn('a') - dyn('a')", "no such overload: _-_"),
        ("dyn(1) < dyn('a')", "no such overload"),
        ("dyn([1]) < dyn(1)", "no such overload: _<_"),
        ("dyn(1) in dyn(1)", "no such overload"),
        ("!dyn(1)", "no such overload"),
        ("-dyn('a')", "no such overload: -_"),
    ]);
}

#[test]
fn logic_forgives_what_it_need_not_know() {
    all_true(&[
        "true || 1 / 0 == 1",
        "1 / 0 == 1 || true",
        "!(false && 1 / 0 == 1) && !(1 / 0 == 1 && false)",
        "true ? true : 1 / 0 == 1",
        "[0, 1].exists(x, 1 / x == 1)",
        "![1, 0].all(x, x == 0 || 1 / x > 1)",
        "[1, 2, 3].exists_one(x, x == 2) && ![1, 2, 2].existsOne(x, x == 2)",
        "{'a': 1}.exists(k, k == 'a') && {'a': 1}.all(k, v, v == 1 && k == 'a') && [5].exists(i, v, i == 0 && v == 5)",
        "[1, 2].map(x, [x, x].map(y, x * y)) == [[1, 1], [4, 4]]",
        "[1, 2, 3].transformList(i, v, i > 0, v * i) == [2, 6]",
        "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
        "[1, 2].transformMapEntry(i, v, {string(v): i}) == {'1': 0, '2': 1}",
        "has({'a': 1}.a) && !has({'a': 1}.b)",
        "type([1]) == list && type({}) == map && type(1u) == uint && type(type(1)) == type",
    ]);
    all_fail(&[
        ("false || 1 / 0 == 1", "division by zero"),
        ("dyn(1) && true", "no such overload"),
        ("[1].map(1, 2)", "argument must be a simple name"),
        ("[1].transformList(a, a, a)", "duplicate iteration variable"),
        ("{'a': 1}.b", "no such key: b"),
        ("{'a': 1}['b']", "no such key: b"),
        ("[1][1]", "index out of bounds: 1"),
        ("[1][-1]", "index out of bounds: -1"),
        ("1.all(x, true)", "cannot be range of a comprehension"),
        ("size(1)", "found no matching overload for 'size' applied to '(int)'"),
    ]);
}

#[test]
fn texts() {
    all_true(&[
        "'tacocat'.charAt(3) == 'o' && 'tacocat'.charAt(7) == ''",
        "'tacocat'.indexOf('none') == -1 && 'tacocat'.indexOf('a', 3) == 5 && 'tacocat'.lastIndexOf('a', 4) == 1",
        "'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 0) == ''",
        "'ta©o©αT'.indexOf('©', 3) == 4 && 'ta©o©αT'.substring(2, 3) == '©'",
        "'hello'.split('') == ['h', 'e', 'l', 'l', 'o'] && 'a b c'.split(' ', 0) == [] && 'a b'.split(' ', 1) == ['a b']",
        "'hello hello'.replace('', '_') == '_h_e_l_l_o_ _h_e_l_l_o_' && 'aa'.replace('a', 'b', 0) == 'aa'",
        "' \\f\\n\\r\\t\\v\\u0085\\u00a0x\\u2003 '.trim() == 'x'",
        "['x', 'y'].join() == 'xy' && [].join('-') == '' && 'aB'.lowerAscii() + 'É'.lowerAscii() == 'abÉ'",
        r#"strings.quote('a"b\n\a') == '"a\\"b\\n\\a"'"#,
        "'%s %s %s'.format([null, true, b'x']) == 'null true x' && '%%'.format([]) == '%'",
        "'%b %o %x %X %d'.format([-5, 8, 255, 'Hi', 7u]) == '-101 10 ff 4869 7'",
        "'%.3f %e %d'.format([1.2345, 1052.032911275, double('Infinity')]) == '1.234 1.052033e+03 Infinity'",
        "'%s'.format([{'b': 1, 'a': [1.5, double('NaN')]}]) == '{a: [1.5, NaN], b: 1}'",
        "'%s'.format([duration('1h45m47s')]) == '6347s' && '%s'.format([type('a')]) == 'string'",
    ]);
    all_fail(&[
        ("'a'.charAt(2)", "index out of range: 2"),
        ("'tacocat'.indexOf('a', 30)", "index out of range: 30"),
        ("'tacocat'.substring(49, 50)", "index out of range: 49"),
        ("'tacocat'.substring(4, 3)", "invalid substring range. start: 4, end: 3"),
        ("'%a'.format([1])", "unrecognized formatting clause \"a\""),
        ("'%d %d'.format([1])", "index 1 out of range"),
        ("'%d'.format(['a'])", "decimal clause can only be used on integers, was given string"),
        (
            "'%x'.format([0.5])",
            "only integers, byte buffers, and strings can be formatted as hex, was given double",
        ),
        ("string(b'\\xff')", "invalid UTF-8"),
    ]);
}

#[test]
fn times() {
    all_true(&[
        "timestamp('2009-02-13T23:31:30Z') + duration('10s') == timestamp('2009-02-13T23:31:40Z')",
        "timestamp('2009-02-13T23:31:30Z') - timestamp('2009-02-13T23:31:00Z') == duration('30s')",
        "timestamp('2009-02-13T23:31:30Z').getDate() == 13 && timestamp('2009-02-13T23:31:30Z').getFullYear('UTC') == 2009",
        "timestamp('2009-02-13T23:31:30Z').getDayOfMonth('+11:00') == 13 && timestamp('2009-02-13T23:31:30Z').getDate('+11:00') == 14 && timestamp('2009-02-13T23:31:30Z').getHours('-02:30') == 21",
        "timestamp('2009-02-13T23:31:30Z').getMinutes('-02:30') == 1 && timestamp('2009-02-13T23:31:30Z').getMonth() == 1",
        "timestamp('2009-02-13T23:31:20.123456789Z').getMilliseconds() == 123",
        "timestamp('2009-02-13T23:31:30+01:00') == timestamp('2009-02-13T22:31:30Z')",
        "string(timestamp('2009-02-13T23:31:30.5Z')) == '2009-02-13T23:31:30.5Z' && string(timestamp(0)) == '1970-01-01T00:00:00Z'",
        "duration('1h1m1s1ms').getSeconds() == 3661 && duration('90m').getHours() == 1 && duration('1.5s').getMilliseconds() == 1500",
        "duration('-1.5h') == duration('-90m') && string(duration('1.5s')) == '1.5s' && duration('1us') > duration('1ns')",
        "timestamp('0001-01-01T00:00:00Z') < timestamp('9999-12-30T21:59:59Z')",
    ]);
    all_fail(&[
        ("timestamp('9999-12-30T21:59:59Z') + duration('48h')", "overflow"),
        ("timestamp(dyn('0000-01-01T00:00:00Z'))", "type conversion error"),
        ("timestamp(dyn('2009-02-13 23:31:30Z'))", "type conversion error from 'string'"),
        ("timestamp('2009-02-13T23:31:30Z').getDate('Nowhere/City')", "unknown time zone"),
    ]);
}

#[test]
fn lists_of_kubernetes_and_extended_ones() {
    all_true(&[
        "[1, 2, 3, 4].slice(1, 3) == [2, 3] && [1].slice(0, 0) == []",
        "[[1, 2], [3]].flatten() == [1, 2, 3] && [dyn(1), dyn([dyn(2), dyn([dyn(3)])])].flatten(2) == [1, 2, 3]",
        "[1, 2, 2, 1].distinct() == [1, 2] && lists.range(3) == [0, 1, 2]",
        "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sort() == ['a', 'b'] && [1, 2].reverse() == [2, 1]",
        "[{'n': 2}, {'n': 1}].sortBy(e, e.n) == [{'n': 1}, {'n': 2}]",
        "[1, 2].first().value() == 1 && [1, 2].last().value() == 2 && ![].first().hasValue()",
        "optional.unwrap([optional.of(1), optional.none()]) == [1] && [optional.of(2)].unwrapOpt() == [2]",
        "[1, 1, 2].isSorted() && ![2, 1].isSorted() && [duration('1s'), duration('2s')].sum() == duration('3s')",
        "sets.contains([1], []) && sets.intersects([1, 2], [2, 3]) && sets.equivalent([1, 2], [2, 1, 1])",
        "2 in [1, 2] && !('x' in {'y': 1}) && 1.0 in [1.0] && dyn(1) in [1u, 2u]",
        "[1] + [2] == [1, 2] && [] + [1] == [1] && size([] + []) == 0",
        "(true ? [1] : []) == [1] && (false ? {'a': 1} : {}) == {}",
    ]);
    all_fail(&[
        ("[1].slice(0, 2)", "cannot slice(0, 2), list is length 1"),
        ("[1].slice(-1, 0)", "cannot slice(-1, 0), negative indexes not supported"),
        ("dyn([1, 'a']).sort()", "expected type 'int' but found 'string'"),
        ("[].min()", "min called on empty list"),
        ("lists.range(100000000)", "cost limit exceeded"),
        ("[[1]].sort()", "must be comparable"),
    ]);
}

#[test]
fn optionals() {
    all_true(&[
        "optional.of(1) == optional.of(1) && optional.none() == optional.none() && optional.of(1) != optional.of(2)",
        "{'a': {'b': 1}}.?a.?b.value() == 1 && !{'a': {'b': 1}}.?a.?c.hasValue()",
        "[1, 2][?1].orValue(0) == 2 && [1][?5].orValue(9) == 9",
        "{?'a': optional.none()} == {} && [?optional.of(1), 2] == [1, 2]",
        "optional.of([1]).optMap(l, l[0] + 1).value() == 2 && optional.of(1).optFlatMap(x, optional.none()).orValue(7) == 7",
        "optional.ofNonZeroValue('').or(optional.of('x')).value() == 'x'",
        "has(optional.of({'a': 1}).a) && !has(optional.of({'a': 1}).b)",
    ]);
    all_fail(&[
        ("optional.none().value()", "optional.none() dereference"),
        ("[?1]", "expected type 'optional_type'"),
        ("optional.of(1).optMap(1, 2)", "argument must be a simple name"),
    ]);
}

#[test]
fn hostile_texts_end_in_errors() {
    let deep = [
        format!("{}1{}", "[".repeat(20_000), "]".repeat(20_000)),
        format!("{}1", "-!".repeat(20_000)),
        format!("{}1", "1 ? 1 : ".repeat(20_000)),
        format!("a{}", ".b".repeat(20_000)),
        format!("a{}", "[0]".repeat(20_000)),
        format!("{}x{}", "[1].map(x, ".repeat(2_000), ")".repeat(2_000)),
        format!("{}1{}", "{1: ".repeat(20_000), "}".repeat(20_000)),
        format!("{}1{}", "size(".repeat(20_000), ")".repeat(20_000)),
        "(".repeat(100_000),
        format!("'{}", "\\".repeat(9_999)),
    ];
    let large = run(&format!("'{}'", "a".repeat(100_000))).unwrap_err();
    assert!(
        large.contains("expression code point size exceeds limit: size: 100002, limit 100000"),
        "{}",
        &large[..200]
    );
    for source in deep {
        assert!(Program::compile(&source, &Env::default()).is_err(), "{}", &source[..20]);
    }
    // As deep as it may be: compiling, running and estimating stay within a small stack.
    let runs = || {
        let nested = format!("{}1{}", "[".repeat(60), "]".repeat(60));
        let long = format!("true{}", " && true".repeat(290));
        for source in [nested, long] {
            let program = Program::compile(&source, &Env::default()).unwrap();
            let nothing: [(&str, Value<'_>); 0] = [];
            assert!(program.eval(&nothing, &mut Budget::of(1_000_000)).is_ok());
            assert!(program.cost(crate::Sizes::default()) < 1_000_000);
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(runs).unwrap().join().unwrap();
}

#[test]
fn costs_are_upstreams() {
    let object = serde_json::json!({ "name": "0123456789", "list": [1, 2, 3] });
    let cost = |source: &str| {
        let env = Env::default().variable("self", Type::Dyn);
        let program = Program::compile(source, &env).unwrap();
        let mut budget = Budget::of(1_000_000);
        let _ = program.eval(&[("self", typed(&object, &Type::Dyn))], &mut budget);
        budget.spent
    };
    for (source, wanted) in [
        ("true", 0),
        ("self.name", 2),
        ("has(self.name)", 1),
        ("1 + 1 == 2", 2),
        ("[1, 2]", 10),
        ("{'a': 1}", 30),
        ("self.name.startsWith('x')", 2 + 1),
        ("self.name.startsWith('0123456789a')", 2 + 2),
        ("{'a': 1}.transformMapEntry(k, v, {v: k})", 30 + 31 + 2 + 32),
        ("self.name == 'abc'", 3),
        ("self.name + 'x'", 4),
        ("self.name.matches('^[0-9]+$')", 2 + 2 * 2),
        ("1 in self.list", 2 + 3),
        // Range, beginning and end of the accumulator, three rounds of three and their bodies.
        ("self.list.all(x, x > 0)", 2 + 1 + 3 * (3 + 2)),
        ("self.list.map(x, x)", 2 + 11 + 3 * (12 + 1)),
        ("self.name.replace('1', '2')", 2 + 2),
    ] {
        assert_eq!(cost(source), wanted, "{source}");
    }
}

const PIECES: [&str; 40] = [
    "self",
    ".a",
    "[0]",
    "?",
    ":",
    "||",
    "&&",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    "==",
    "<",
    "in ",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    "1",
    "2u",
    "1.5",
    "'x'",
    "b'\\xff'",
    "r'\\d'",
    "true",
    "null",
    ".map(x, x)",
    ".all(k, v, k == v)",
    ".?b",
    "has(self.a)",
    "size(self)",
    ".matches('a+')",
    "timestamp('2024-01-01T00:00:00Z')",
    "optional.of(1)",
    ".format([1])",
];

/// Texts made of pieces of good ones, and good ones with bytes changed: whatever they are, they end in a value or an error.
#[test]
fn mutated_texts_never_panic() {
    let object = serde_json::json!({ "a": [1, "x", null, { "b": 2 }], "b": 1e300 });
    let env = Env::default().variable("self", Type::Dyn);
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % 1_000_003).unwrap() % below
    };
    let mut compiled = 0;
    for _ in 0..20_000 {
        let mut text: String = (0..=random(12)).map(|_| PIECES[random(PIECES.len())]).collect();
        if random(4) == 0 && !text.is_empty() {
            let at = random(text.len());
            if text.is_char_boundary(at) {
                text.insert(at, ['\\', '\'', '"', 'é', '\0', '.', '`', '@'][random(8)]);
            }
        }
        let Ok(program) = Program::compile(&text, &env) else { continue };
        compiled += 1;
        program.cost(crate::Sizes::default());
        let value = program.eval(&[("self", typed(&object, &Type::Dyn))], &mut Budget::of(10_000));
        let _ = value.map(|value| to_json(&value));
    }
    assert!(compiled > 100, "only {compiled} of the texts were expressions");
}
