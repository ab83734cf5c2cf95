//! The target `names` for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| farreach_fuzz::run("names", input));
