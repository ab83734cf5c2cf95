//! Compares C with Rust: every size, offset and constant that the sys crates bind, in each version
//! of the headers.
//!
//! The bindings define the items. A C program and a Rust example print the same list of numbers,
//! one from a header set and one from the bindings, and the two lists are compared.

mod bound;
mod compare;
mod known;
mod measure;
mod program;
mod sys_crate;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::generated::{first_difference, headers_version, rustfmt};
use crate::headers::HeaderSet;
use crate::paths;
use crate::platform::Platform;
use bound::Bound;
use compare::{Comparison, compare};
use known::{Judged, Known};
pub(crate) use sys_crate::{Headers, SysCrate};

/// Arguments of `cargo xtask layout`.
#[derive(Debug, clap::Args)]
pub(crate) struct LayoutArgs {
    /// Compare only this crate
    #[arg(long = "crate", value_name = "CRATE", value_parser = ["verbs-sys", "fabric-sys"])]
    only: Option<String>,
}

/// Compares the bindings of each sys crate with every supported header set, with the C and Rust
/// compilers of a platform.
pub(crate) fn on(platform: &Platform) -> Result<()> {
    crates(platform, SysCrate::chosen(None))
}

/// Compares on this machine, with the arguments of the command line.
pub(crate) fn execute(args: &LayoutArgs) -> Result<()> {
    crates(&Platform::Host, SysCrate::chosen(args.only.as_deref()))
}

fn crates<'a>(platform: &Platform, crates: impl IntoIterator<Item = &'a SysCrate>) -> Result<()> {
    let mut faults = 0;
    for sys in crates {
        faults += check_crate(paths::repository(), platform, sys)
            .with_context(|| format!("layout of {}", sys.name))?;
    }
    ensure!(faults == 0, "layout: {faults} faults");
    Ok(())
}

/// Returns the Rust example that prints the numbers of these bindings.
pub(crate) fn example(root: &Path, sys: &SysCrate, bindings: &str) -> Result<String> {
    rustfmt(root, &program::rust(&bound_of(root, sys, bindings)?, sys))
}

/// A number that must be equal in C and Rust.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    /// A type, a `type.path.to.field` or a constant, by its name in C.
    name: String,
    aspect: Aspect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Aspect {
    /// The size of a type in bytes.
    Size,
    /// The offset of a field.
    Offset,
    /// The size of a field in bytes: padding can hide a larger field.
    Width,
    /// The value of a constant, extended to 64 bits.
    Value,
}

impl Aspect {
    const ALL: [Self; 4] = [Self::Size, Self::Offset, Self::Width, Self::Value];

    fn word(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Offset => "offset",
            Self::Width => "width",
            Self::Value => "value",
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.aspect.word())
    }
}

type Numbers = BTreeMap<Item, u64>;

/// Compares one crate. Returns the number of faults that it printed.
fn check_crate(root: &Path, platform: &Platform, sys: &SysCrate) -> Result<usize> {
    let directory = sys.directory(root);
    let bindings =
        std::fs::read_to_string(directory.join("src/bindings.rs")).context("cannot read src/bindings.rs")?;
    let bound = bound_of(root, sys, &bindings)?;
    let mut rust = rust_numbers(root, platform, sys, &bound)?;
    let list_path = directory.join("layout-differences.txt");
    let list = std::fs::read_to_string(&list_path)
        .with_context(|| format!("cannot read {}", list_path.display()))?;
    let origin = headers_version(&bindings)
        .context("src/bindings.rs does not name its headers: `cargo xtask bindings` regenerates it")?;
    let known = Known::parse(&list, origin)?;
    let mut starts = vec![known.measure_from_anchors(&mut rust)?];

    let mut faults = Vec::new();
    for set in [HeaderSet::Debian12, HeaderSet::Newest] {
        let headers = sys.headers(set)?;
        let probes = program::probes(&bound, set);
        let mut c = measure::c_numbers(platform, &headers.include, &directory.join("bindgen"), &probes)
            .with_context(|| format!("against {}", headers.version))?;
        let unprinted = probes.iter().find(|probe| !rust.contains_key(&probe.item));
        ensure!(unprinted.is_none(), "the Rust example does not print {unprinted:?}");
        starts.push(known.measure_from_anchors(&mut c.numbers)?);
        let comparison = compare(&rust, &c);
        let judged = known.judge(&headers.version, &comparison);
        println!("{}", summary(&headers, &comparison, &judged));
        faults.extend(judged.faults.into_iter().map(|fault| format!("{}: {fault}", headers.version)));
    }
    faults.extend(known.idle_anchors(&starts));
    for fault in &faults {
        eprintln!("{fault}");
    }
    Ok(faults.len())
}

fn summary(headers: &Headers, comparison: &Comparison, judged: &Judged) -> String {
    let Comparison { types, fields, constants, .. } = comparison;
    let Judged { excused, grown, .. } = judged;
    let mut text = format!(
        "{}: {types} types, {fields} fields, {constants} constants equal; {excused} known differences",
        headers.version
    );
    if !grown.is_empty() {
        let names = grown.join(", ");
        text.push_str(&format!("; grown since the review, add to the list: {names}"));
    }
    text
}

/// Returns what the crate binds: the generated file, and the constants that bindgen cannot read,
/// which are written by hand.
fn bound_of(root: &Path, sys: &SysCrate, bindings: &str) -> Result<Bound> {
    let mut bound = Bound::parse(bindings)?;
    let directory = sys.directory(root);
    let constants = directory.join("src/constants.rs");
    if constants.exists() {
        bound.add_constants(&std::fs::read_to_string(constants)?, None)?;
    }
    for (file, set) in sys.later {
        let source =
            std::fs::read_to_string(directory.join(file)).with_context(|| format!("cannot read {file}"))?;
        bound.add_later(&source, *set)?;
    }
    Ok(bound)
}

fn rust_numbers(root: &Path, platform: &Platform, sys: &SysCrate, bound: &Bound) -> Result<Numbers> {
    let path = sys.layout_example_path(root);
    let found = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    if let Some(difference) = first_difference(&found, &rustfmt(root, &program::rust(bound, sys))?) {
        bail!(
            "{} is older than the bindings; `cargo xtask bindings --example-only` regenerates \
             it\n{difference}",
            path.display()
        );
    }
    let output = platform
        .cargo("run")
        .args(["--quiet", "--example", &sys.layout_example(), "--package", &sys.package()])
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "the example {} failed", sys.layout_example());
    parse_numbers(&String::from_utf8(output.stdout)?)
}

/// Parses lines of `name aspect number`.
fn parse_numbers(text: &str) -> Result<Numbers> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let (name, aspect, number) = (words.next()?, words.next()?, words.next()?);
        let aspect = Aspect::ALL.into_iter().find(|known| known.word() == aspect)?;
        Some((Item { name: name.to_owned(), aspect }, number.parse().ok()?))
    };
    text.lines().map(|text| line(text).with_context(|| format!("no number in {text:?}"))).collect()
}
