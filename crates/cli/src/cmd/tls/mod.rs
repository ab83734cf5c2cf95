//! `farreach tls`: makes a certificate authority, and certificates for hosts.
//!
//! ```text
//! DIR/ca/cert.pem, key.pem              the CA; its key stays here
//! DIR/HOST/cert.pem, key.pem, ca.pem    what `--tls` needs on that host
//! ```
//!
//! Each folder is made under another name, checked by a TLS handshake, and renamed when it is
//! complete. Nothing is ever overwritten.

mod authority;
mod host;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Subcommand, value_parser};
use farreach_text::shell_word;

use self::authority::Authority;
use self::host::Host;
use crate::exit::{Exit, Failure};
use crate::terminal;

/// `farreach tls`
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct TlsArgs {
    #[command(subcommand)]
    command: TlsCommand,
}

#[derive(Debug, Subcommand)]
enum TlsCommand {
    /// Make a CA in DIR, unless it has one, and a certificate for each host
    Init(InitArgs),
}

#[derive(Debug, clap::Args)]
struct InitArgs {
    /// Folder of the CA and of the hosts' folders. It is made if it is missing
    dir: PathBuf,

    /// Names and addresses of a host, separated by commas: storage-7,10.0.0.7. Its folder has the first one's name
    #[arg(value_name = "HOST")]
    hosts: Vec<Host>,

    /// Days for which the hosts' certificates are valid
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = value_parser!(u32).range(1..=3650))]
    days: u32,
}

const EXAMPLES: &str = "\
Examples:
  farreach tls init farreach-tls storage-7,10.0.0.7 client-1
  farreach tls init farreach-tls client-2 --days 90     one more, of the same CA

A client connects by one of the names or addresses in the server's certificate.
Every host with a certificate of the CA may connect to every other. Nothing is
overwritten: to renew a certificate, rename its folder first. Keep the key of
the CA (DIR/ca/key.pem) on one host: who has it can make certificates.";

pub(crate) fn run(args: &TlsArgs) -> Result<Exit> {
    let TlsCommand::Init(args) = &args.command;
    init(args)
}

fn init(args: &InitArgs) -> Result<Exit> {
    check_hosts(args)?;
    make_folder(&args.dir)?;
    let folder = args.dir.join(CA);
    let (authority, is_new) = match exists(&folder) {
        true => (Authority::open(&folder)?, false),
        false => (Authority::generate()?, true),
    };
    let mut told = String::new();
    if is_new {
        let staged = Staged::new(&args.dir, CA)?;
        staged.write("key.pem", PRIVATE, &authority.key())?;
        staged.write("cert.pem", PUBLIC, authority.certificate())?;
        staged.finish()?;
    }
    let made = if is_new { "made" } else { "uses" };
    told.push_str(&format!("{made} {}: the CA \"{}\"\n", folder.display(), authority.name()));
    for host in &args.hosts {
        let issued = authority.issue(host.names(), args.days)?;
        let staged = Staged::new(&args.dir, host.folder())?;
        staged.write("key.pem", PRIVATE, &issued.key)?;
        staged.write("cert.pem", PUBLIC, &issued.certificate)?;
        staged.write("ca.pem", PUBLIC, authority.certificate())?;
        authority::check(&staged.folder, host.folder()).map_err(|cause| {
            failure(format!("cannot use the CA in {}", folder.display()), cause).fix(
                "choose another DIR: this CA was not made by farreach, or its files are not those of one CA",
            )
        })?;
        staged.finish()?;
        told.push_str(&format!(
            "made {}: for {}, valid until {}\n",
            args.dir.join(host.folder()).display(),
            host.names().join(", "),
            issued.until
        ));
    }
    told.push_str(&next(args, is_new));
    terminal::print(&told)?;
    Ok(Exit::Ok)
}

/// Tells what to copy where, and what to type there.
fn next(args: &InitArgs, is_new: bool) -> String {
    let dir = shell_word(&args.dir.display().to_string());
    if args.hosts.is_empty() {
        return format!("\nMake a certificate for each host:\nfarreach tls init {dir} HOST\n");
    }
    let mut told = "\nCopy to each host its own folder, and nothing else:\n".to_owned();
    for host in &args.hosts {
        let folder = shell_word(&args.dir.join(host.folder()).display().to_string());
        told.push_str(&format!("scp -r {folder} {}:{REMOTE}\n", host.to_copy()));
    }
    // Which of the hosts is the server is a guess, and not even that if the CA has others.
    let server = if is_new { args.hosts[0].folder() } else { "SERVER" };
    told.push_str(&format!("\nOn the server:\nfarreach serve --tls {REMOTE}\n"));
    told.push_str(&format!("\nOn a client:\nfarreach ping {server} --tls {REMOTE}\n"));
    told
}

/// The folder of the CA.
const CA: &str = "ca";

/// The name of a host's folder on that host, in messages.
const REMOTE: &str = "farreach-tls";

/// Modes of files.
const PRIVATE: u32 = 0o600;
const PUBLIC: u32 = 0o644;

/// Refuses hosts that have a folder already, before anything is made.
fn check_hosts(args: &InitArgs) -> Result<(), Failure> {
    for (number, host) in args.hosts.iter().enumerate() {
        let name = host.folder();
        if args.hosts[..number].iter().any(|other| other.folder() == name) {
            return Err(Failure::new(Exit::Usage, format!("the host {name} is named twice"))
                .fix("give all names of a host in one word, separated by commas"));
        }
        let folder = args.dir.join(name);
        if exists(&folder) {
            let shown = folder.display().to_string();
            let (from, to) = (shell_word(&shown), shell_word(&format!("{shown}.old")));
            return Err(failure(format!("cannot make {shown}"), "it exists, and nothing is overwritten")
                .fix(format!("to renew the certificate, rename the folder first:\nmv {from} {to}")));
        }
    }
    Ok(())
}

/// Returns whether there is something by this name, also a link that leads nowhere.
fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn make_folder(folder: &Path) -> Result<(), Failure> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
        failure(format!("cannot make the folder {}", folder.display()), error)
            .fix("choose a folder in which this user may write")
    })
}

fn failure(error: String, cause: impl ToString) -> Failure {
    Failure::new(Exit::Failed, error).cause(cause.to_string())
}

/// A folder that is being filled. It is removed unless it is finished.
#[derive(Debug)]
struct Staged {
    folder: PathBuf,
    target: PathBuf,
}

impl Staged {
    fn new(dir: &Path, name: &str) -> Result<Self, Failure> {
        let folder = dir.join(format!(".{name}.{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&folder).map_err(|error| {
            failure(format!("cannot make the folder {}", folder.display()), error)
                .fix("choose a folder in which this user may write")
        })?;
        Ok(Self { folder, target: dir.join(name) })
    }

    fn write(&self, name: &str, mode: u32, text: &str) -> Result<(), Failure> {
        let path = self.folder.join(name);
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let written = file.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|error| {
            failure(format!("cannot write {}", path.display()), error).fix("free space in this file system")
        })
    }

    /// Gives the folder its name. A folder that has appeared there meanwhile is kept.
    fn finish(self) -> Result<(), Failure> {
        fs::rename(&self.folder, &self.target).map_err(|error| {
            failure(format!("cannot make {}", self.target.display()), error)
                .fix("run the command again, if another one was making the same folder")
        })
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After a rename there is nothing by this name.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
