//! Expressions, from their text to their value. Also run, with a fixed number of mutated inputs, by an ordinary test of
//! `coracle-cel`, which includes this file.

use coracle_cel::declare::declare;
use coracle_cel::sizes::Shape;
use coracle_cel::{Budget, Env, Program, Sizes, Type, Value, to_json, typed};
use serde_json::json;

/// More than any rule may cost.
const BUDGET: u64 = 100_000;

fn schema() -> serde_json::Value {
    json!({ "type": "object", "properties": {
        "name": { "type": "string", "maxLength": 20 }, "replicas": { "type": "integer" }, "ratio": { "type": "number" },
        "on": { "type": "boolean" }, "since": { "type": "string", "format": "date-time" },
        "port": { "x-kubernetes-int-or-string": true },
        "tags": { "type": "array", "maxItems": 5, "x-kubernetes-list-type": "set", "items": { "type": "string" } },
        "labels": { "type": "object", "maxProperties": 5, "additionalProperties": { "type": "string" } },
        "parts": { "type": "array", "maxItems": 5, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": { "type": "object", "properties": { "k": { "type": "string" }, "v": { "type": "integer" } } } } } })
}

fn object() -> serde_json::Value {
    json!({ "name": "w\u{e9}b", "replicas": 3, "ratio": 0.5, "on": true, "since": "2026-01-01T00:00:00Z", "port": "80%",
        "tags": ["a", "b"], "labels": { "x": "1" }, "parts": [{ "k": "a", "v": 1 }, { "k": "b" }] })
}

/// Text that is an expression has a type, a finite estimate of its cost and, twice, the same outcome.
pub fn cel(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let schema = coracle_api::structural::parse(&schema());
    let of = declare(&schema, false);
    let shape = Shape::of(&schema);
    let sizes = Sizes { variables: Some(&shape), anywhere: true };
    for of in [of, Type::Dyn] {
        let env = Env::default().variable("self", of.clone()).variable("oldSelf", of.clone());
        let program = match Program::compile(&text, &env) {
            Ok(program) => program,
            Err(issues) => {
                assert!(!issues.to_string().is_empty());
                continue;
            }
        };
        let _ = (program.cost(sizes), program.result().to_string(), program.mentions("self"));
        let object = object();
        let run = || {
            let variables = [("self", typed(&object, &of)), ("oldSelf", typed(&object, &of))];
            let value: Result<Value<'_>, _> = program.eval(&variables, &mut Budget::of(BUDGET));
            value.map(|value| to_json(&value).map_err(|e| e.to_string())).map_err(|e| e.to_string())
        };
        assert_eq!(run(), run(), "{text:?}");
    }
}

#[allow(dead_code, reason = "the program that writes the seeds calls it, the target itself does not")]
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "self.replicas <= 3 && self.tags.all(t, t.size() < 5) || has(self.labels.x)",
        "self.parts.map(p, p.k).exists_one(k, k == 'a') ? oldSelf.replicas + 1 > 2 : !self.on",
        "self.labels.map(k, self.labels[k]).join(',').split(',').size() == 1",
        "duration('1h30m') > duration('1s') && self.since < timestamp('2027-01-01T00:00:00Z')",
        "quantity('1.5Gi').isGreaterThan(quantity('1Gi')) && isQuantity('x') == false",
        "url('https://a.b:80/c?d=e').getHostname() == 'a.b' || cidr('10.0.0.0/8').containsIP('10.1.2.3')",
        "self.?parts[?0].orValue({'k': 'z'}).k.matches('^[a-z]+$')",
        "b'\\x00abc'.size() == 4u ? [1, 2.5, 'x', null, {1: true}] : dyn(1)",
        "type(self.port) == string ? int(self.ratio * 2.0) % 2 : -9223372036854775808",
        "semver('1.2.3').isLessThan(semver('2.0.0')) && 'a%sb%d'.format(['x', 3]).replace('a', 'b', 1) == ''",
        "self.tags.filter(t, t in ['a']).transformList(i, t, i > 0, t).sortBy(t, t).flatten()",
        "[[[1]]].all(x, x.all(y, y.all(z, z == 1)))",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect()
}
