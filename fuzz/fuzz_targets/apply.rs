#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_fuzz::run("apply", bytes));
