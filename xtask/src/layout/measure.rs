//! Determines the numbers with a C compiler and a header set.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::program::{self, PROBES, Probe};
use super::{Item, Numbers};
use crate::paths;
use crate::platform::Platform;

/// The numbers of one header set.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) numbers: Numbers,
    /// The items that it does not have.
    pub(super) absent: BTreeSet<Item>,
}

/// Returns the numbers. `wrapper` is the folder of `wrapper.h`, which includes the headers.
pub(super) fn c_numbers(
    platform: &Platform,
    include: &Path,
    wrapper: &Path,
    probes: &[Probe],
) -> Result<Measured> {
    // Below the target folder, which is visible on every platform.
    let directory = tempfile::tempdir_in(paths::target())?;
    let mut form_of = vec![0; probes.len()];
    // Each round moves every refused probe to its next form, so there is at most one round more
    // than forms.
    let rounds_max = 1 + probes.iter().map(|probe| probe.forms.len()).max().unwrap_or(0);
    for _ in 0..rounds_max {
        let asked = asked(probes, &form_of);
        let compiler = Compiler { platform, include, wrapper, directory: directory.path() };
        match compiler.compile(&program::c(&asked))? {
            Outcome::Built => return collect(platform, directory.path(), probes, &asked),
            Outcome::Refused(refused) => refused.into_iter().for_each(|index| form_of[index] += 1),
        }
    }
    bail!("the C compiler rejects probes that it accepted before");
}

/// Returns the probes that have a form left, each with its index.
fn asked<'a>(probes: &'a [Probe], form_of: &[usize]) -> Vec<(usize, &'a str)> {
    let form = |(index, probe): (usize, &'a Probe)| Some((index, probe.forms.get(form_of[index])?.as_str()));
    probes.iter().enumerate().filter_map(form).collect()
}

struct Compiler<'a> {
    platform: &'a Platform,
    include: &'a Path,
    wrapper: &'a Path,
    directory: &'a Path,
}

enum Outcome {
    Built,
    Refused(BTreeSet<usize>),
}

impl Compiler<'_> {
    fn compile(&self, source: &str) -> Result<Outcome> {
        let file = self.directory.join("layout.c");
        std::fs::write(&file, source)?;
        let output = self
            .platform
            .c_compiler(&["-O0", "-w", "-fmax-errors=0", "-fdiagnostics-color=never", "-I"])
            .arg(self.include)
            .arg("-I")
            .arg(self.wrapper)
            .arg(&file)
            .arg("-o")
            .arg(self.directory.join("layout"))
            .env("LC_ALL", "C")
            .output()
            .context("cannot run the C compiler: apt-get install gcc")?;
        if output.status.success() {
            return Ok(Outcome::Built);
        }
        let messages = String::from_utf8_lossy(&output.stderr);
        let refused = refused_probes(&messages);
        ensure!(!refused.is_empty(), "the C compiler failed:\n{}", messages.trim());
        Ok(Outcome::Refused(refused))
    }
}

/// Returns the probes for which the compiler printed an error: `probes:LINE:COLUMN: error: …`.
fn refused_probes(messages: &str) -> BTreeSet<usize> {
    let probe = |line: &str| {
        let (place, _) = line.strip_prefix(PROBES)?.strip_prefix(':')?.split_once(": error: ")?;
        place.split(':').next()?.parse::<usize>().ok()?.checked_sub(1)
    };
    messages.lines().filter_map(probe).collect()
}

fn collect(
    platform: &Platform,
    directory: &Path,
    probes: &[Probe],
    asked: &[(usize, &str)],
) -> Result<Measured> {
    let output =
        platform.program(&directory.join("layout"), &[])?.output().context("cannot run the C program")?;
    ensure!(output.status.success(), "the C program failed");
    let mut measured = Measured::default();
    for line in String::from_utf8(output.stdout)?.lines() {
        let (index, number) =
            line.split_once(' ').context("the output of the C program is not an index and a number")?;
        let probe = probes.get(index.parse::<usize>()?).context("the C program printed an unknown index")?;
        measured.numbers.insert(probe.item.clone(), number.parse()?);
    }
    ensure!(measured.numbers.len() == asked.len(), "the C program did not print all numbers");
    let items = probes.iter().map(|probe| &probe.item);
    measured.absent = items.filter(|item| !measured.numbers.contains_key(item)).cloned().collect();
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::super::bound::Bound;
    use super::*;
    use crate::headers::HeaderSet;

    fn measure(directory: &Path, bindings: &str) -> Result<Measured> {
        let probes = program::probes(&Bound::parse(bindings)?, HeaderSet::Debian12);
        c_numbers(&Platform::Host, directory, directory, &probes)
    }

    #[test]
    fn a_header_set_is_measured_and_what_it_lacks_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let header = "struct tag { char a; union { int b; }; };\ntypedef struct { short c; } typedefed;\n\
                      enum { RED = -1 };\n#define BLUE (1ULL << 63)\n";
        std::fs::write(directory.path().join("wrapper.h"), header).unwrap();
        let bindings =
            "pub struct tag { pub a: c_char, pub __bindgen_anon_1: tag__bindgen_ty_1, pub newer: u8 }
             pub union tag__bindgen_ty_1 { pub b: c_int }
             pub struct typedefed { pub c: i16 }
             pub struct newer { pub d: i16 }
             pub const RED: c_int = -1;
             pub const BLUE: u64 = 9223372036854775808;
             pub const GREEN: u64 = 1;";
        let measured = measure(directory.path(), bindings).unwrap();
        let numbers: Vec<String> =
            measured.numbers.iter().map(|(item, number)| format!("{item} {number}")).collect();
        assert_eq!(
            numbers,
            [
                "BLUE value 9223372036854775808",
                "RED value 18446744073709551615",
                "tag size 8",
                "tag.a offset 0",
                "tag.a width 1",
                "tag.b offset 4",
                "tag.b width 4",
                "typedefed size 2",
                "typedefed.c offset 0",
                "typedefed.c width 2",
            ]
        );
        let absent: Vec<String> = measured.absent.iter().map(ToString::to_string).collect();
        assert_eq!(
            absent,
            [
                "GREEN value",
                "newer size",
                "newer.d offset",
                "newer.d width",
                "tag.newer offset",
                "tag.newer width"
            ]
        );
    }

    #[test]
    fn a_broken_header_is_not_taken_for_absent_fields() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("wrapper.h"), "#include <no/such/header.h>\n").unwrap();
        let error = measure(directory.path(), "pub const RED: u32 = 1;").unwrap_err();
        assert!(error.to_string().contains("no/such/header.h"), "{error}");
    }
}
