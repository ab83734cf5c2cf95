//! The README's first program is the one that is compiled and run.

const README: &str = include_str!("../../../README.md");
const SIDES: [(&str, &str); 2] =
    [("receive", include_str!("../examples/receive.rs")), ("send", include_str!("../examples/send.rs"))];

#[test]
fn the_readme_shows_both_sides_as_they_are_and_each_is_short() {
    for (name, program) in SIDES {
        let (_, shown) = program.split_once("\n\n").expect("its documentation comes first");
        assert!(README.contains(&format!("```rust\n{shown}```")), "README.md and examples/{name}.rs differ");
        assert!(program.lines().count() < 40, "{name} has {} lines", program.lines().count());
    }
}
