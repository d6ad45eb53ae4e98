//! The fuzz target of expressions with a fixed number of inputs, mutated from its seeds in a fixed order: the same on
//! every machine. What a fuzzer has found elsewhere is added to the seeds.

#[cfg(test)]
#[path = "../../fuzz/src/cel.rs"]
mod target;

#[cfg(test)]
#[path = "../../fuzz/src/mutate.rs"]
mod mutate;

/// A few seconds in a debug build; the environment's FUZZ_RUNS may ask for more.
const RUNS: usize = 20_000;
/// The stack of the threads that serve requests, which is tokio's default.
const STACK_BYTES: usize = 2 << 20;

const WORDS: &[&str] = &[
    "self",
    "self.",
    ".all(",
    "has(",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "?",
    " : ",
    ".?",
    "[?",
    "&&",
    "||",
    "!",
    "-",
    "--",
    " in ",
    "==",
    "'",
    "\"\"\"",
    "r'",
    "b'\\xff'",
    "\\u0000",
    "\\U0010ffff",
    "9223372036854775808",
    "1u",
    "0x",
    "1e999",
    "1e-999",
    "null",
    "true",
    "dyn(",
    "type(",
    ".map(x, ",
    "x",
    "//",
    "\n",
    "a.b.c",
    "optional.none()",
    ".format([",
    "%s%d%f%e%x%b%o",
    "duration('-1ns')",
    "timestamp('9999-12-31T23:59:59Z')",
    "\u{fffd}",
];

fn with_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).expect("a thread");
    thread.join().expect("the target found something");
}

#[test]
fn mutated_expressions() {
    let runs = std::env::var("FUZZ_RUNS").map_or(RUNS, |runs| runs.parse().expect("a number"));
    with_small_stack(move || {
        let seeds = target::seeds();
        seeds.iter().for_each(|seed| target::cel(seed));
        let mut random = mutate::Random(0x9e37_79b9_7f4a_7c15);
        for _ in 0..runs {
            let input = mutate::mutated(&mut random, &seeds, WORDS);
            let outcome = std::panic::catch_unwind(|| target::cel(&input));
            assert!(outcome.is_ok(), "{:?}", String::from_utf8_lossy(&input));
        }
    });
}

#[test]
fn deep_nesting_overflows_no_stack() {
    with_small_stack(|| {
        for (open, middle, close) in [
            ("(", "1", ")"),
            ("[", "", "]"),
            ("!", "true", ""),
            ("-", "1", ""),
            ("{1:", "1", "}"),
            ("[1].all(x,", "x", ")"),
            ("true?", "1", ":2"),
            ("1+", "1", ""),
            ("self.a", "", ""),
            ("a", ".b", ""),
            ("f(", "", ")"),
            ("true&&", "true", ""),
        ] {
            for times in [100, 1_000, 100_000] {
                let text = [open.repeat(times).as_str(), middle, close.repeat(times).as_str()].concat();
                target::cel(text.as_bytes());
                target::cel([open, middle.repeat(times).as_str(), close].concat().as_bytes());
            }
        }
    });
}
