#![no_main]

#[path = "../src/cel.rs"]
mod cel;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cel::cel(bytes));
