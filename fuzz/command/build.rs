//! Compiles the part of the command that only the fuzz targets use.

fn main() {
    println!("cargo::rustc-cfg=fuzzing");
    println!("cargo::rerun-if-changed=build.rs");
}
