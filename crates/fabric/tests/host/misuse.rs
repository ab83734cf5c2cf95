//! What must not compile: each file under `misuse/` holds one mistake, and beside it what the compiler says to it.

#[test]
fn mistakes_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
