//! Generates the two programs that print the numbers: a C function for each number, and a Rust
//! example for each crate.

use std::fmt::Write;

use super::bound::{Bound, Constant, Type};
use super::sys_crate::SysCrate;
use super::{Aspect, Item};
use crate::headers::HeaderSet;

/// A query for one number in C. The forms are tried in order, because the bindings do not say
/// whether a type is a tag or a typedef.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) item: Item,
    pub(super) forms: Vec<String>,
}

/// Returns the probes for the items that these headers are expected to have.
pub(super) fn probes(bound: &Bound, set: HeaderSet) -> Vec<Probe> {
    let mut probes = Vec::new();
    let expected = |only: Option<HeaderSet>| only.is_none_or(|only| only == set);
    for ty in bound.types.iter().filter(|ty| expected(ty.only)) {
        let forms =
            [format!("{} {}", if ty.is_union { "union" } else { "struct" }, ty.c_name), ty.c_name.clone()];
        let mut probe = |name: String, aspect, form: &dyn Fn(&str) -> String| {
            let forms = forms.iter().map(|ty| form(ty)).collect();
            probes.push(Probe { item: Item { name, aspect }, forms });
        };
        probe(ty.name.clone(), Aspect::Size, &|ty| format!("sizeof({ty})"));
        for field in &ty.fields {
            let (name, path) = (format!("{}.{}", ty.name, field.path), &field.path);
            probe(name.clone(), Aspect::Offset, &|ty| format!("offsetof({ty}, {path})"));
            if field.has_width {
                probe(name, Aspect::Width, &|ty| format!("sizeof((({ty} *)0)->{path})"));
            }
        }
    }
    for constant in bound.constants.iter().filter(|constant| expected(constant.only)) {
        let item = Item { name: constant.name.clone(), aspect: Aspect::Value };
        probes.push(Probe { item, forms: vec![constant.name.clone()] });
    }
    probes
}

/// Returns a C program that prints `index number` for each of the expressions. In the compiler's
/// messages, probe `n` is line `n + 1` of a file called [`PROBES`].
pub(super) fn c(expressions: &[(usize, &str)]) -> String {
    let mut text = String::from("#include \"wrapper.h\"\n#include <stddef.h>\n#include <stdio.h>\n");
    text.push_str("typedef unsigned long long number;\n");
    // One function for each, because a compiler reports an unknown name only once per function.
    for (index, expression) in expressions {
        let line = index + 1;
        let _ = writeln!(text, "#line {line} \"{PROBES}\"");
        let _ = writeln!(text, "static number p{index}(void) {{ return (number)({expression}); }}");
    }
    text.push_str("#line 1 \"main\"\nint main(void) {\n");
    for (index, _) in expressions {
        let _ = writeln!(text, "printf(\"{index} %llu\\n\", p{index}());");
    }
    text.push_str("return 0;\n}\n");
    text
}

pub(super) const PROBES: &str = "probes";

/// Returns a Rust example that prints `name aspect number` for everything bound.
pub(super) fn rust(bound: &Bound, sys: &SysCrate) -> String {
    let types: String = bound.types.iter().map(rust_type).collect();
    let constants: String = bound
        .constants
        .iter()
        .map(|Constant { name, .. }| format!("    (\"{name}\", {name} as u64),\n"))
        .collect();
    RUST.replace("MARK", "@generated")
        .replace("CRATE", &sys.package().replace('-', "_"))
        .replace("    TYPES\n", &types)
        .replace("    CONSTANTS\n", &constants)
}

fn rust_type(ty: &Type) -> String {
    let mut text = format!("    size!({}),\n", ty.name);
    for field in &ty.fields {
        let kind = if field.has_width { "field" } else { "tail" };
        let steps: Vec<String> =
            field.steps.iter().map(|step| format!("{}.{}", step.of, step.field)).collect();
        let _ = writeln!(text, "    {kind}!(\"{}.{}\", {}),", ty.name, field.path, steps.join(", "));
    }
    text
}

/// The template of the example. The width is that of the field of the last step, determined without
/// a value of its type.
const RUST: &str = r#"// MARK by `cargo xtask bindings`. Do not edit.
//! Prints every size, offset and constant of the bindings, for `cargo xtask layout` to compare with C's.

#![allow(clippy::unnecessary_cast, reason = "a constant may already have the type that it is printed as")]
#![allow(dead_code, unused_macros, reason = "not every library has a structure with a flexible array")]

use std::io::{self, Write};
use std::mem::{offset_of, size_of};

use CRATE::*;

enum Type {
    Size(&'static str, usize),
    Field(&'static str, usize, usize),
    Tail(&'static str, usize),
}

/// The width of the field that `_reach` would lead to; it is never called.
const fn width<T, F>(_reach: fn(*const T) -> *const F) -> usize {
    size_of::<F>()
}

macro_rules! size {
    ($name:ident) => {
        Type::Size(stringify!($name), size_of::<$name>())
    };
}

/// A field and the unnamed members that it is in, outermost first.
macro_rules! field {
    (@width $of:ident.$field:ident) => {
        // SAFETY: never called, only its type is looked at.
        width(|of: *const $of| unsafe { &raw const (*of).$field })
    };
    (@width $of:ident.$field:ident, $($rest:tt)+) => { field!(@width $($rest)+) };
    ($name:literal, $($of:ident.$field:ident),+) => {
        Type::Field($name, 0 $(+ offset_of!($of, $field))+, field!(@width $($of.$field),+))
    };
}

/// A flexible array: it begins somewhere and has no width.
macro_rules! tail {
    ($name:literal, $($of:ident.$field:ident),+) => {
        Type::Tail($name, 0 $(+ offset_of!($of, $field))+)
    };
}

const TYPES: &[Type] = &[
    TYPES
];

const CONSTANTS: &[(&str, u64)] = &[
    CONSTANTS
];

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for ty in TYPES {
        match ty {
            Type::Size(name, size) => writeln!(out, "{name} size {size}")?,
            Type::Field(name, offset, width) => writeln!(out, "{name} offset {offset}\n{name} width {width}")?,
            Type::Tail(name, offset) => writeln!(out, "{name} offset {offset}")?,
        }
    }
    for (name, value) in CONSTANTS {
        writeln!(out, "{name} value {value}")?;
    }
    Ok(())
}
"#;

#[cfg(test)]
mod tests {
    use super::super::bound::{Field, Step};
    use super::*;

    #[test]
    fn a_nested_field_is_asked_of_both_languages() {
        let step = |of: &str, field: &str| Step { of: of.to_owned(), field: field.to_owned() };
        let ty = Type {
            name: "wr".to_owned(),
            c_name: "wr".to_owned(),
            is_union: false,
            only: None,
            fields: vec![Field {
                path: "wr.rdma".to_owned(),
                steps: vec![step("wr", "wr"), step("wr__bindgen_ty_1", "rdma")],
                has_width: true,
            }],
        };
        assert_eq!(
            rust_type(&ty),
            "    size!(wr),\n    field!(\"wr.wr.rdma\", wr.wr, wr__bindgen_ty_1.rdma),\n"
        );
        let bound = Bound { types: vec![ty], ..Bound::default() };
        let probes = probes(&bound, HeaderSet::Debian12);
        let forms: Vec<&str> = probes.iter().map(|probe| probe.forms[0].as_str()).collect();
        assert_eq!(
            forms,
            ["sizeof(struct wr)", "offsetof(struct wr, wr.rdma)", "sizeof(((struct wr *)0)->wr.rdma)"]
        );
    }
}
