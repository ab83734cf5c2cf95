//! Checks that misuse does not compile. Each file under `misuse/` has one mistake, and the expected
//! compiler output beside it.

#[test]
fn mistakes_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
