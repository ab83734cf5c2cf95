//! Misuse that must not compile: each file under `misuse/` contains one mistake, with the
//! compiler's message beside it.

#[test]
fn mistakes_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
