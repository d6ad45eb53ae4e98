//! Documents, and the mistakes in them.

#[allow(dead_code, reason = "the samples of status are for others")]
#[path = "../../../../tests/tests/conformance/samples.rs"]
mod samples;

use coracle_api::protobuf;
use coracle_api::schema::{self, Kind, TypeRef};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use samples::{SAMPLES, Sample};
use serde_json::{Value, json};

/// Stands for a number that JSON's readers have no place for.
const TOO_LARGE: &str = "@1e400@";

pub struct Document {
    pub collection: String,
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

impl Document {
    pub fn shown(&self) -> String {
        let body = String::from_utf8_lossy(&self.body);
        format!("{} {}: {body:.2000}", self.collection, self.content_type)
    }
}

/// Has the good documents, from which those with mistakes are made.
pub struct Maker {
    good: Vec<(&'static Sample, Value)>,
}

impl Default for Maker {
    fn default() -> Self {
        Self { good: SAMPLES.iter().map(|sample| (sample, whole(sample))).collect() }
    }
}

fn api_version(sample: &Sample) -> String {
    match sample.group {
        "" => sample.version.to_owned(),
        group => format!("{group}/{}", sample.version),
    }
}

fn collection(sample: &Sample) -> String {
    let root = if sample.group.is_empty() { "api" } else { "apis" };
    let namespace = if sample.namespaced { "/namespaces/default" } else { "" };
    format!("/{root}/{}{namespace}/{}", api_version(sample), sample.plural)
}

fn whole(sample: &Sample) -> Value {
    let mut object: Value = serde_json::from_str(&sample.json.replace('@', "1")).expect("a sample");
    object["apiVersion"] = api_version(sample).into();
    object["kind"] = sample.kind.into();
    object
}

impl Maker {
    /// Always the same of the same seed.
    pub fn document(&self, seed: u64) -> Document {
        let mut dice = SmallRng::seed_from_u64(seed);
        let (sample, good) = self.any(&mut dice);
        let mut object = good.clone();
        if object["metadata"]["name"].is_null() {
            object["metadata"]["name"] = format!("m{seed}").into();
        }
        for _ in 0..dice.random_range(1..=2) {
            self.spoil(&mut object, sample, &mut dice);
        }
        let collection = collection(sample);
        if dice.random_ratio(1, 4)
            && let Some(body) = message(&object, &mut dice)
        {
            return Document { collection, content_type: "application/vnd.kubernetes.protobuf", body };
        }
        let mut body = object.to_string().replace(&format!("\"{TOO_LARGE}\""), "1e400");
        if dice.random_ratio(1, 20) {
            body = twice(&body, &mut dice);
        }
        // In the second form it is no JSON, so that YAML's reader has to read it.
        let (content_type, body) = match dice.random_range(0..3) {
            0 => ("application/yaml", format!("# YAML\n{body}")),
            _ => ("application/json", body),
        };
        Document { collection, content_type, body: body.into_bytes() }
    }

    fn any(&self, dice: &mut SmallRng) -> (&'static Sample, &Value) {
        let (sample, good) = &self.good[dice.random_range(0..self.good.len())];
        (sample, good)
    }

    fn spoil(&self, object: &mut Value, sample: &Sample, dice: &mut SmallRng) {
        if dice.random_ratio(1, 2)
            && let Some(ty) = schema::root(sample.group, sample.version, sample.kind)
        {
            return add(object, ty, dice);
        }
        let places = places(object);
        let place = &places[dice.random_range(0..places.len())];
        let elsewhere = self.elsewhere(dice);
        let Some((parent, last)) = place.rsplit_once('/') else { return };
        let Some(parent) = object.pointer_mut(parent) else { return };
        let last = last.replace("~1", "/").replace("~0", "~");
        let value = match dice.random_range(0..4) {
            0 => None,
            1 => Some(elsewhere),
            _ => Some(odd(dice)),
        };
        set(parent, &last, value, dice);
    }

    fn elsewhere(&self, dice: &mut SmallRng) -> Value {
        let (_, good) = self.any(dice);
        let places = places(good);
        good.pointer(&places[dice.random_range(0..places.len())]).cloned().unwrap_or_default()
    }
}

fn set(parent: &mut Value, last: &str, value: Option<Value>, dice: &mut SmallRng) {
    match parent {
        Value::Object(map) => match value {
            Some(value) => drop(map.insert(last.to_owned(), value)),
            None => drop(map.remove(last)),
        },
        Value::Array(list) => {
            let Ok(n) = last.parse::<usize>() else { return };
            match value {
                Some(value) if dice.random() => list[n] = value,
                Some(_) => list.push(list[n].clone()),
                None => drop(list.remove(n)),
            }
        }
        _ => {}
    }
}

/// As JSON pointers; not what the object is.
fn places(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(object, String::new(), &mut found);
    found.retain(|place| !matches!(place.as_str(), "" | "/kind" | "/apiVersion" | "/metadata/name"));
    if found.is_empty() { vec!["/metadata".to_owned()] } else { found }
}

fn collect(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                collect(value, format!("{at}/{key}"), found);
            }
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(n, value)| collect(value, format!("{at}/{n}"), found));
        }
        _ => {}
    }
    found.push(at);
}

/// A value of a kind that nobody thinks of.
fn odd(dice: &mut SmallRng) -> Value {
    let all = [
        Value::Null,
        json!({}),
        json!([]),
        json!(""),
        json!(" "),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(1e300),
        json!(TOO_LARGE),
        json!(true),
        json!(false),
        json!([null]),
        json!([{}]),
        json!([[]]),
        json!({ "": null }),
        json!({ "a": "b" }),
        json!("x".repeat(300)),
        json!("a/b/c"),
        json!("-a.B_"),
        json!("日本\u{1f600}\u{301}"),
        json!("\u{0}\u{7f}\u{85}\n\t\r\u{2028}"),
        json!("1Gi"),
        json!("12345678901234567890123456789m"),
        json!("2024-02-30T25:61:61Z"),
        json!("50%"),
        json!("::1"),
        json!("*"),
        json!("$(A) {{.B}} ${C}"),
    ];
    all[dice.random_range(0..all.len())].clone()
}

/// Sets a field that the type has, somewhere in the object.
fn add(object: &mut Value, ty: TypeRef<'_>, dice: &mut SmallRng) {
    match (ty.kind(), object) {
        (Kind::Struct, Value::Object(map)) => {
            let fields: Vec<_> = ty.fields().filter(|f| !matches!(f.name(), "kind" | "apiVersion")).collect();
            if fields.is_empty() {
                return;
            }
            // Rather where something is already.
            let given: Vec<_> = fields.iter().filter(|f| map.contains_key(f.name())).collect();
            let field = match given.is_empty() || dice.random_ratio(1, 2) {
                true => &fields[dice.random_range(0..fields.len())],
                false => given[dice.random_range(0..given.len())],
            };
            match map.get_mut(field.name()) {
                Some(inner @ (Value::Object(_) | Value::Array(_))) => add(inner, field.ty(), dice),
                Some(_) if field.name() == "name" => {}
                _ => drop(map.insert(field.name().to_owned(), typed(field.ty(), 3, dice))),
            }
        }
        (Kind::List, Value::Array(list)) => {
            let Some(element) = ty.element() else { return };
            if list.is_empty() || dice.random_ratio(1, 4) {
                return list.push(typed(element, 3, dice));
            }
            let n = dice.random_range(0..list.len());
            add(&mut list[n], element, dice);
        }
        (Kind::Map, Value::Object(map)) => {
            let Some(element) = ty.element() else { return };
            map.insert("added".to_owned(), typed(element, 2, dice));
        }
        _ => {}
    }
}

/// A value that the type allows, mostly; `depth` is how many levels it may have.
fn typed(ty: TypeRef<'_>, depth: usize, dice: &mut SmallRng) -> Value {
    if dice.random_ratio(1, 25) {
        return odd(dice);
    }
    let of = |dice: &mut SmallRng, all: &[Value]| all[dice.random_range(0..all.len())].clone();
    match ty.kind() {
        Kind::Any => of(dice, &[json!({ "a": 1 }), json!({}), json!([1]), Value::Null]),
        Kind::String => {
            of(dice, &["", "a", "web", "TCP", "Always", "a.example.com", "/a/b", "10.0.0.1"].map(Value::from))
        }
        Kind::Int32 | Kind::Int64 => of(dice, &[0, 1, 80, -1, 65_536, i64::from(i32::MAX)].map(Value::from)),
        Kind::Bool => dice.random::<bool>().into(),
        Kind::Double => of(dice, &[json!(0), json!(0.5), json!(1)]),
        Kind::Quantity => of(
            dice,
            &[json!("1"), json!("100m"), json!("0.1"), json!("1Gi"), json!(2), json!("-1"), json!("1e3")],
        ),
        Kind::IntOrString => of(dice, &[json!(0), json!(80), json!("http"), json!("25%"), json!("")]),
        Kind::Time | Kind::MicroTime => of(
            dice,
            &[
                json!("2024-01-01T00:00:00Z"),
                json!("2024-01-01T01:00:00.5+01:00"),
                Value::Null,
                json!("0001-01-01T00:00:00Z"),
            ],
        ),
        Kind::Bytes => of(dice, &[json!(""), json!("AAE="), Value::Null]),
        Kind::List | Kind::Map | Kind::Struct if depth == 0 => of(dice, &[Value::Null, json!({}), json!([])]),
        Kind::List => {
            let element = ty.element();
            (0..dice.random_range(0..3)).filter_map(|_| Some(typed(element?, depth - 1, dice))).collect()
        }
        Kind::Map => match ty.element() {
            Some(element) if dice.random() => json!({ "k": typed(element, depth - 1, dice) }),
            _ => json!({}),
        },
        Kind::Struct => {
            let likely = |required: bool, dice: &mut SmallRng| required || dice.random_ratio(1, 3);
            let fields = ty.fields().filter(|field| likely(field.required(), dice)).collect::<Vec<_>>();
            fields.into_iter().map(|f| (f.name().to_owned(), typed(f.ty(), depth - 1, dice))).collect()
        }
    }
}

/// As protobuf, if it can be said in it; every other time with bytes that fell out, came twice or changed on the way.
fn message(object: &Value, dice: &mut SmallRng) -> Option<Vec<u8>> {
    let mut body = protobuf::encode(object).ok()?;
    if dice.random() {
        return Some(body);
    }
    for _ in 0..dice.random_range(1..=3) {
        let at = dice.random_range(0..body.len());
        match dice.random_range(0..3) {
            0 => body[at] ^= 1 << dice.random_range(0..8),
            1 => drop(body.drain(at..(at + dice.random_range(1..8)).min(body.len()))),
            _ => body.insert(at, body[at]),
        }
        if body.is_empty() {
            return None;
        }
    }
    Some(body)
}

/// One key stands there twice.
fn twice(body: &str, dice: &mut SmallRng) -> String {
    let keys: Vec<usize> = body.match_indices("\":").map(|(at, _)| at).collect();
    if keys.is_empty() {
        return body.to_owned();
    }
    let end = keys[dice.random_range(0..keys.len())];
    let Some(start) = body[..end].rfind('"') else { return body.to_owned() };
    format!("{}\"{}\":null,{}", &body[..start], &body[start + 1..end], &body[start..])
}
