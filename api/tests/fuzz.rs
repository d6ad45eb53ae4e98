//! The fuzz targets with a fixed number of inputs, mutated from their seeds in a fixed order: the same on every
//! machine, and a few seconds in all. What a fuzzer has found elsewhere is added to the seeds.

#[cfg(test)]
#[path = "../../fuzz/src/lib.rs"]
mod targets;

#[cfg(test)]
#[path = "../../fuzz/src/mutate.rs"]
mod mutate;

#[cfg(test)]
#[path = "../../fuzz/src/mutate_json.rs"]
mod mutate_json;

/// Runs of each target, a few seconds in a debug build; the environment's FUZZ_RUNS may ask for more.
const RUNS: usize = 4_000;
/// The stack of the threads that serve requests, which is tokio's default.
const STACK_BYTES: usize = 2 << 20;

/// What tends to make decoders stumble.
const WORDS: &[&str] = &[
    "null",
    "{}",
    "[]",
    "\"\"",
    "{\"a\":",
    "[[[[",
    "]",
    "}",
    ",",
    ":",
    "\\u0000",
    "\\ud800",
    "\u{0}",
    "-",
    "1e999",
    "-0",
    "9223372036854775808",
    "18446744073709551616",
    "0.1",
    "true",
    "$patch",
    "\"name\":\"c\"",
    "\n",
    "  ",
    "&a ",
    "*a",
    "~1",
    "/-",
    "in (",
    "!",
    "=",
    "Ki",
    "\u{fffd}",
];

/// As a request would: with the stack of a server's thread.
fn with_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).expect("a thread");
    thread.join().expect("the target found something");
}

#[test]
fn seeds_are_taken() {
    for (name, target) in targets::TARGETS {
        let seeds = targets::seeds(name);
        assert!(!seeds.is_empty(), "{name}");
        seeds.iter().for_each(|seed| target(seed));
        targets::run(name, b"");
    }
}

#[test]
fn mutated_seeds() {
    let runs = std::env::var("FUZZ_RUNS").map_or(RUNS, |runs| runs.parse().expect("a number"));
    with_small_stack(move || {
        for (number, (name, target)) in targets::TARGETS.iter().enumerate() {
            let seeds = targets::seeds(name);
            let mut random = mutate::Random(0x9e37_79b9_7f4a_7c15 ^ number as u64);
            for _ in 0..runs {
                let input = mutate::mutated(&mut random, &seeds, WORDS);
                let outcome = std::panic::catch_unwind(|| target(&input));
                assert!(outcome.is_ok(), "{name}: {:?}", String::from_utf8_lossy(&input));
            }
        }
    });
}

/// Bytes changed at random are seldom a configuration.
#[test]
fn configurations_of_all_sorts_are_applied() {
    let runs = std::env::var("FUZZ_RUNS").map_or(RUNS, |runs| runs.parse().expect("a number"));
    let words = serde_json::json!([null, true, {}, [], "", "c", "d", "E", 0, 80, -1, "100m", "TCP", "a/b", "v1", [[]],
        [null], { "name": "c" }, { "name": "c", "image": null }, { "containerPort": 80 }, { "key": "a" }, { "app": "web" },
        [{ "manager": "one", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": { "f:spec": { "f:containers": { "k:{\"name\":\"d\"}": { ".": {}, "f:image": {} } } } } }]]);
    let words = words.as_array().cloned().unwrap_or_default();
    with_small_stack(move || {
        let (mut random, seeds) = (mutate::Random(0x9e37_79b9_7f4a_7c15), targets::apply::seeds());
        for _ in 0..runs {
            let seed = &seeds[random.below(seeds.len())];
            let input = mutate_json::mutated_json(&mut |limit| random.below(limit), seed, &words).to_string();
            let outcome = std::panic::catch_unwind(|| targets::apply::apply(input.as_bytes()));
            assert!(outcome.is_ok(), "{input}");
        }
    });
}

#[test]
fn deep_nesting_overflows_no_stack() {
    with_small_stack(|| {
        let deep = |open: &str, close: &str| [open.repeat(100_000), close.repeat(100_000)].concat();
        let mut inputs = vec![
            deep("[", "]"),
            deep("{\"a\":", "}"),
            "[".repeat(100_000),
            "- ".repeat(100_000),
            "a: {".repeat(100_000),
            "(".repeat(100_000),
            "!".repeat(100_000),
        ];
        inputs.push(format!(
            "{{\"metadata\":{{\"managedFields\":[{{\"fieldsV1\":{}}}]}}}}",
            deep("{\"f:a\":", "}")
        ));
        // Each operation nests what the one before has made.
        let mut path = String::new();
        let nested = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        let operations: Vec<String> = (0..300)
            .map(|_| {
                let operation = format!("{{\"op\":\"add\",\"path\":\"/x{path}\",\"value\":{nested}}}");
                path.push_str(&"/0".repeat(100));
                operation
            })
            .collect();
        inputs.push(format!("[{}]", operations.join(",")));
        for (_, target) in targets::TARGETS {
            inputs.iter().for_each(|input| target(input.as_bytes()));
        }
    });
}

#[test]
fn messages_inside_themselves() {
    with_small_stack(|| {
        // A schema (1) in versions (7) of a definition's spec (2), and its own negation (28) inside it.
        let mut message = Vec::new();
        let wrap = |tag: &[u8], inner: Vec<u8>| {
            let mut out = tag.to_vec();
            coracle_api::protobuf::put::varint(&mut out, inner.len() as u64);
            out.extend(inner);
            out
        };
        for _ in 0..2_000 {
            message = wrap(&[0xe2, 1], message);
        }
        for tag in [&[0x0a][..], &[0x22], &[0x3a], &[0x12]] {
            message = wrap(tag, message);
        }
        targets::run("protobuf_decode", &message);
    });
}
