//! Tests that one program runs anywhere: builds it with only rustc and a C linker, starts it there
//! and moves data within the host, and then starts the same file where the libraries are installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cell::Cell;
use crate::debian::Root;
use crate::paths;
use crate::process::run;
use crate::vm::Userland;

/// A Debian 12 with a C linker and its dependencies.
pub(crate) const BUILDER: Root<'static> = Root {
    name: "builder-debian12",
    suites: &["bookworm"],
    packages: &["coreutils", "dash", "gcc", "libc6-dev", "findutils"],
    minimum: ("gcc", "12"),
    with_dependencies: true,
    foreign: &[],
    // rustc calls the linker as `cc`.
    links: &[("usr/bin/cc", "gcc")],
};

/// Files that must be absent: compilers and generators of bindings, and any RDMA file.
const UNWANTED: [&str; 8] =
    ["clang", "cmake", "bindgen", "pkg-config", "infiniband", "libibverbs", "librdmacm", "libfabric"];

/// Builds the release in the clean root, then runs it there and in the roots with libraries.
pub(crate) fn execute() -> Result<()> {
    let root = BUILDER.get()?;
    ensure_clean(&root.path)?;
    let binary = build(&root.path)?;

    println!("── in {}, without libraries", root.origin);
    let mut cell = Cell::new(&root.path)?;
    expect_devices(&cell, &binary, 0, &["libibverbs.so.1", "libfabric.so.1", "kernel", "shm"])?;
    cell.own_network()?;
    cell.as_nobody();
    expect_transfers(&cell, &binary)?;
    for userland in Userland::BOTH {
        let root = userland.root().get()?;
        println!("── the same file in {}", root.origin);
        expect_devices(&Cell::new(&root.path)?, &binary, 0, &["tcp"])?;
    }
    Ok(())
}

fn ensure_clean(root: &Path) -> Result<()> {
    let mut folders = vec![root.join("usr/bin"), root.join("usr/lib"), root.join("usr/include")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // linux-libc-dev, on which libc6-dev depends, contains all headers of the kernel,
            // including RDMA.
            let is_kernel_header = entry.path().starts_with(root.join("usr/include/rdma"));
            if UNWANTED.iter().any(|unwanted| name.starts_with(unwanted)) && !is_kernel_header {
                bail!("the clean root is not clean: {}", entry.path().display());
            }
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}

/// Runs `cargo build --release` offline, with the toolchain of this machine and the crates that
/// cargo has fetched.
fn build(root: &Path) -> Result<PathBuf> {
    let mut cell = Cell::new(root)?;
    equip(&mut cell)?;
    println!("── cargo build --release in {}", root.display());
    let words = ["cargo", "build", "--release", "--locked"];
    run(&mut cell.command(paths::repository(), &words))?;
    Ok(target().join("release/farreach"))
}

/// Makes Rust available in a cell. Builds in the cell go to `target` of the repository; outside of
/// the cell that folder is [`target`].
pub(crate) fn equip(cell: &mut Cell) -> Result<()> {
    let (cargo_home, rustup_home) = (paths::cargo_home()?, paths::rustup_home()?);
    for (name, folder) in [("CARGO_HOME", &cargo_home), ("RUSTUP_HOME", &rustup_home)] {
        cell.show(folder);
        cell.set(name, &folder.display().to_string());
    }
    cell.set("CARGO_NET_OFFLINE", "true");
    cell.add_to_path(&cargo_home.join("bin"));
    std::fs::create_dir_all(target())?;
    cell.show_at(&target(), &paths::repository().join("target"));
    Ok(())
}

/// Returns the folder of builds in a clean root.
pub(crate) fn target() -> PathBuf {
    paths::target().join("cleanroom")
}

/// What server and clients are told in the root without libraries. Without libraries it may as well
/// be nothing.
const RAIL: &str = "-d shm";

/// Every command that moves data, with options that keep it short.
const TRANSFERS: [&str; 4] = [
    "fill localhost",
    "ping localhost -n 1000",
    "blast localhost -D 1",
    "bench localhost -D 0.1 -r 1 --warm-up 0.1",
];

/// Runs a server and its clients within one host, and checks that each client succeeds, and over shm.
fn expect_transfers(cell: &Cell, binary: &Path) -> Result<()> {
    let binary = binary.to_str().context("the path of the target folder is not valid UTF-8")?;
    // A process for each command of the script is a child of this shell, so the server is ended by
    // its id. The clients come again until it listens.
    let script = r#"
        program=$1 rail=$2; shift 2
        "$program" serve --listen 127.0.0.1 $rail &
        server=$!
        tries=100
        until "$program" ping localhost -n 1 $rail > /dev/null 2>&1; do
            tries=$((tries - 1))
            [ $tries -gt 0 ] && kill -0 $server || exit 1
            sleep 0.1
        done
        code=0
        for words in "$@"; do
            "$program" $words $rail || { echo "ended with $?: $words"; code=1; }
        done
        kill $server && wait $server || code=1
        exit $code
    "#;
    let mut words = vec!["timeout", "300", "sh", "-c", script, "sh", binary, RAIL];
    words.extend(TRANSFERS);
    let output = cell.command(Path::new("/"), &words).output()?;
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    print!("{text}");
    ensure!(output.status.success(), "the commands within one host ended with {}", output.status);
    for command in TRANSFERS.map(|words| words.split(' ').next().unwrap_or_default()) {
        let is_over_shm = |line: &str| line.starts_with(command) && line.contains(" over shm (no RDMA)");
        ensure!(text.lines().any(is_over_shm), "`farreach {command}` does not print that its rail is shm");
    }
    Ok(())
}

/// Runs `farreach devices`, and compares its exit code and the words that it must print.
fn expect_devices(cell: &Cell, binary: &Path, code: i32, words: &[&str]) -> Result<()> {
    let binary = binary.to_str().context("the path of the target folder is not valid UTF-8")?;
    let mut devices: Command = cell.command(Path::new("/"), &[binary, "devices"]);
    let output = devices.output()?;
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    print!("{text}");
    ensure!(
        output.status.code() == Some(code),
        "`farreach devices` ended with {}, expected exit code {code}",
        output.status
    );
    for word in words {
        ensure!(text.contains(word), "`farreach devices` does not print `{word}`");
    }
    Ok(())
}
