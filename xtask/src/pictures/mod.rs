//! Images of the command's screens for the documentation, each from a real run in a terminal.

pub(crate) mod svg;
mod terminal;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use crate::binaries;
use crate::cell::Cell;
use crate::paths;
use crate::vm::Userland;

/// One image.
struct Picture {
    /// `docs/screens/NAME.svg`
    name: &'static str,
    /// The command that is typed. A server is running, except for the image of the server itself.
    command: &'static str,
    /// Commands that run in the background, outside of the image.
    beside: &'static str,
}

const fn of(name: &'static str, command: &'static str) -> Picture {
    Picture { name, command, beside: "" }
}

const PICTURES: [Picture; 8] = [
    of("devices", "farreach devices"),
    of("doctor", "farreach doctor --from rack7.json"),
    of("doctor-peer", "farreach doctor 10.0.0.7"),
    Picture {
        name: "serve",
        command: "farreach serve",
        beside: "farreach ping 10.0.0.7 -n 2000; farreach fill 10.0.0.7 -d tcp; farreach blast 10.0.0.7 -n 100; kill -INT $typed",
    },
    of("ping", "farreach ping 10.0.0.7"),
    of("blast", "farreach blast 10.0.0.7 -D 5 --bidirectional"),
    of("fill", "farreach fill 10.0.0.7 --pages 48 --page-size 1M -v"),
    of("bench", "farreach bench 10.0.0.7 --op write,read -s 8,4K,64K,1M --depths 1,16"),
];

/// A recorded guest with Soft-RoCE and some faults: locked memory is limited, a firewall rule drops
/// packets, there are no huge pages.
const PACK: &str = "crates/doctor/tests/packs/broken/soft-roce.json";

/// The secret of server and clients.
const SECRET: &str = "5f1d7a9c03e2b846d1f0a37c9be4582610cc47e39a5d8b71f2640e9d3ab8c75e";

/// Arguments of `cargo xtask pictures`.
#[derive(Debug, clap::Args)]
pub(crate) struct PicturesArgs {
    /// Regenerate only these images.
    names: Vec<String>,

    /// The number of columns of the terminal.
    #[arg(long, default_value_t = 80)]
    columns: u16,
}

/// Regenerates the images.
pub(crate) fn execute(args: &PicturesArgs) -> Result<()> {
    if let Some(name) = args.names.iter().find(|name| PICTURES.iter().all(|it| it.name != name.as_str())) {
        let known: Vec<&str> = PICTURES.iter().map(|it| it.name).collect();
        bail!("there is no image {name}\nfix: use one of {}", known.join(", "));
    }
    let command = binaries::release_command()?;
    let root = Userland::Newest.root().get()?;
    let mut cell = Cell::new(&root.path)?;
    cell.own_network()?;
    cell.set("TERM", "xterm-256color");
    // Server and clients use an address beyond loopback, which needs TLS.
    cell.set("FARREACH_SECRET", SECRET);
    cell.add_to_path(command.parent().context("the command is in a folder")?);
    fs::create_dir_all(folder())?;
    let wanted =
        |picture: &&Picture| args.names.is_empty() || args.names.iter().any(|name| name == picture.name);
    for picture in PICTURES.iter().filter(wanted) {
        let script = format!("cp {PACK} /tmp/rack7.json; cd /tmp; {}", script(picture));
        let mut run = cell.command(paths::repository(), &["sh", "-c", &script]);
        let screen = terminal::screen_of(&mut run, args.columns)?;
        ensure!(!screen.rows.is_empty(), "the screen of {} is empty", picture.name);
        let file = folder().join(format!("{}.svg", picture.name));
        fs::write(&file, svg::render(picture.command, &screen))?;
        println!("{}: {} lines", file.display(), screen.rows.len());
    }
    Ok(())
}

fn folder() -> PathBuf {
    paths::repository().join("docs/screens")
}

/// Returns the script: it starts a server, and then the command whose screen is shown.
fn script(picture: &Picture) -> String {
    let Picture { command, beside, .. } = picture;
    let wait = "until grep -q listening /tmp/serve; do sleep 0.1; done";
    if beside.is_empty() {
        format!("farreach serve > /tmp/serve 2>&1 & server=$!; {wait}; {command}; kill $server")
    } else {
        // The command writes its process id, which the background commands use to end it.
        format!(
            "(sleep 1; typed=$(cat /tmp/typed); {{ {beside}; }} > /dev/null 2>&1) & \
             sh -c 'echo $$ > /tmp/typed; exec {command}'; wait"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_picture_has_its_file_and_each_file_its_picture() {
        let mut files: Vec<String> = fs::read_dir(folder())
            .expect("docs/screens")
            .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
            .collect();
        files.sort();
        let mut pictures: Vec<String> = PICTURES.iter().map(|it| format!("{}.svg", it.name)).collect();
        pictures.sort();
        assert_eq!(files, pictures, "`cargo xtask pictures` regenerates them");
        for picture in &PICTURES {
            let text =
                fs::read_to_string(folder().join(format!("{}.svg", picture.name))).expect("it is there");
            assert!(text.contains(&svg::escaped(picture.command)), "{} is of another command", picture.name);
        }
    }
}
