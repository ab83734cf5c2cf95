//! `farreach devices` wherever it may run: with libraries of our own making, so that none need be installed.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::run::{Ended, FARREACH, end_of};
use crate::support::schema::assert_valid;

/// A folder that the dynamic linker searches first, with something under the name of each library.
struct Libraries(TempDir);

/// A libfabric that can make an empty question, as [`farreach_fabric`] does first, and has nobody to ask it.
const WITHOUT_GETINFO: &str = "
struct question {
    void *next;
    unsigned long caps, mode;
    unsigned address_format;
    unsigned long source_length, destination_length;
    void *source, *destination, *handle, *attributes[5], *nic;
};
unsigned fi_version(void) { return 1 << 16 | 17; }
struct question *fi_dupinfo(const struct question *from) {
    static struct question empty;
    static char attributes[5][1024];
    for (int i = 0; i < 5; i++)
        empty.attributes[i] = attributes[i];
    return &empty;
}
void fi_freeinfo(struct question *question) {}
";

const SONAMES: [&str; 2] = ["libibverbs.so.1", "libfabric.so.1"];

impl Libraries {
    /// Real libraries, without any of the functions that they should have but those of `code`.
    fn compiled(code: &str) -> Self {
        let libraries = Self(TempDir::new().expect("a temporary folder"));
        let versions = libraries.0.path().join("versions");
        fs::write(&versions, "FABRIC_1.3 { global: *; };").expect("a file of our own");
        for soname in SONAMES {
            // Whoever builds Rust has a C compiler: rustc links with it.
            let mut compiler = Command::new("cc")
                .args(["-shared", "-fPIC", "-x", "c", "-", "-o"])
                .arg(libraries.0.path().join(soname))
                .arg(format!("-Wl,--version-script={}", versions.display()))
                .stdin(Stdio::piped())
                .spawn()
                .expect("a C compiler");
            compiler.stdin.take().expect("stdin was piped").write_all(code.as_bytes()).expect("cc reads");
            assert!(compiler.wait().expect("cc ends").success(), "cc refuses {code}");
        }
        libraries
    }

    /// Files that are no libraries.
    fn garbage() -> Self {
        let libraries = Self(TempDir::new().expect("a temporary folder"));
        for soname in SONAMES {
            fs::write(libraries.0.path().join(soname), "no library\n".repeat(100))
                .expect("a file of our own");
        }
        libraries
    }

    fn path(&self, soname: &str) -> PathBuf {
        self.0.path().canonicalize().expect("the folder is there").join(soname)
    }

    fn devices(&self) -> Command {
        let mut command = Command::new(FARREACH);
        command.arg("devices").env("LD_LIBRARY_PATH", self.0.path());
        command
    }

    /// The report, twice: for a program and for a person. No library can be used; the rail shm needs none.
    fn report(&self) -> (Value, String) {
        let json = end_of(self.devices().arg("--json"));
        assert_eq!(json.code, Some(0), "{json:#?}");
        let report = json.json();
        assert_valid("devices", &report);
        assert_eq!((&report["verbs"]["devices"], &report["fabric"]["offers"]), (&json!([]), &json!([])));
        let text = end_of(&mut self.devices());
        assert_eq!((text.code, text.stderr.as_str()), (Some(0), ""), "{text:#?}");
        let end =
            "This host has no usable RDMA device and no libfabric provider; the rail shm works within it.\n";
        assert!(text.stdout.ends_with(end), "{}", text.stdout);
        (report, text.stdout)
    }
}

/// The problem of which `what` is told: its cause and fix. The text for a person has all three.
fn problem(engine: &Value, text: &str, what: &str) -> (String, String) {
    let problems = engine["problems"].as_array().expect("problems are a list");
    let Some(problem) = problems.iter().find(|problem| problem["what"] == what) else {
        panic!("{what:?} is not told: {problems:#?}");
    };
    let word =
        |key: &str| problem[key].as_str().unwrap_or_else(|| panic!("no {key}: {problem:#}")).to_owned();
    let (cause, fix) = (word("cause"), word("fix"));
    for line in [format!("  - {what}\n"), format!("    cause: {cause}\n"), format!("    fix: {fix}\n")] {
        assert!(text.contains(&line), "{line:?} is not in:\n{text}");
    }
    (cause, fix)
}

#[test]
fn a_function_that_a_library_lacks_is_named_with_the_file_and_the_fix() {
    let libraries = Libraries::compiled(WITHOUT_GETINFO);
    let (report, text) = libraries.report();
    let [verbs, fabric] = SONAMES.map(|soname| libraries.path(soname));

    assert_eq!(report["verbs"]["library"], json!(verbs));
    let what = format!("{} has no function ibv_get_device_list", verbs.display());
    let (cause, fix) = problem(&report["verbs"], &text, &what);
    assert!(cause.contains("rdma-core is older than"), "{cause}");
    assert!(fix.starts_with("ibv_get_device_list needs rdma-core"), "{fix}");

    let what = format!("{} has no function fi_getinfo@FABRIC_1.3", fabric.display());
    let (cause, fix) = problem(&report["fabric"], &text, &what);
    assert!(cause.contains("not a complete libfabric"), "{cause}");
    assert!(fix.contains("needs libfabric"), "{fix}");
}

#[test]
fn a_library_that_tells_no_version_is_no_libfabric() {
    let libraries = Libraries::compiled("int nothing;\n");
    let (report, text) = libraries.report();
    let what = format!("{} has no function fi_version", libraries.path("libfabric.so.1").display());
    assert!(problem(&report["fabric"], &text, &what).1.contains("needs libfabric"), "{text}");
}

#[test]
fn a_file_that_cannot_be_loaded_is_told_from_one_that_is_missing() {
    let libraries = Libraries::garbage();
    let (report, text) = libraries.report();
    for (engine, soname) in ["verbs", "fabric"].into_iter().zip(SONAMES) {
        assert_eq!(report[engine]["library"], Value::Null);
        let file = libraries.0.path().join(soname);
        let what = format!("cannot open {soname}: {}: invalid ELF header", file.display());
        let (cause, fix) = problem(&report[engine], &text, &what);
        assert!(cause.contains("is installed") && cause.contains("cannot"), "{cause}");
        assert!(fix.contains("repair the installation") && fix.contains("apt-get install"), "{fix}");
    }
}

#[test]
fn a_name_that_nothing_has_is_told() {
    let ended = end_of(Libraries::garbage().devices().args(["-d", "mlx5_0"]));
    assert_eq!(ended.code, Some(3), "{ended:#?}");
    assert!(ended.stdout.ends_with("No device, provider or domain is named mlx5_0.\n"), "{ended:#?}");
}

fn farreach(words: &[&str]) -> Ended {
    // Without a terminal, the width is what this says.
    end_of(Command::new(FARREACH).args(words).env("COLUMNS", "80").stdin(Stdio::null()))
}

#[test]
fn wrong_usage_ends_with_2_and_says_so_on_stderr() {
    for words in [&["devices", "--nonsense"][..], &["devices", "too", "many"], &["nonsense"], &[]] {
        let ended = farreach(words);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{words:?}: {ended:#?}");
        assert!(ended.stderr.contains("Usage: farreach"), "{words:?}: {ended:#?}");
    }
}

#[test]
fn a_reader_who_has_gone_is_no_error() {
    for words in [&["devices"][..], &["devices", "--json"], &["--help"]] {
        let with_reader = end_of(Command::new(FARREACH).args(words));
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = end_of(Command::new(FARREACH).args(words).stdout(writer));
        assert_eq!((ended.code, ended.stderr.as_str()), (with_reader.code, ""), "{words:?}: {ended:#?}");
    }
}
