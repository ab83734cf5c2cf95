//! How the control connection is secured: by certificates, by a shared secret, or not at all.
//!
//! Beyond this host, TLS is required unless `--insecure` is given. Flags come before the environment.

use std::env;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::Result;
use farreach::{Secret, Tls, TlsParts};
use farreach_text::shell_word;

use super::host_name;
use crate::exit::{Exit, Failure};
use crate::terminal;

/// The environment variable that has a secret.
pub(crate) const SECRET_VARIABLE: &str = "FARREACH_SECRET";

/// The name of the file with a secret in messages.
pub(crate) const SECRET_FILE: &str = "farreach.secret";

/// The folder of certificates in messages.
const TLS_FOLDER: &str = "farreach-tls";

/// The files in a folder: this side's certificate chain, its key, and the root certificates of the
/// peers.
const FILES: [&str; 3] = ["cert.pem", "key.pem", "ca.pem"];

/// Flags that secure the control connection.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct SecurityArgs {
    /// Use TLS on the control connection, with the secret in FILE, which both sides have (farreach secret new).
    /// Default: the variable FARREACH_SECRET, if it is set. The transferred data is not encrypted
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,

    /// Use TLS on the control connection, with the certificates in FOLDER (farreach tls init): cert.pem, key.pem and
    /// ca.pem. The transferred data is not encrypted
    #[arg(long, value_name = "FOLDER", conflicts_with = "secret_file")]
    pub(crate) tls: Option<PathBuf>,
}

/// How the control connection of this process is secured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Security {
    /// By certificates, in this folder.
    Certificates(PathBuf),
    /// By the secret in this file.
    SecretFile(PathBuf),
    /// By the secret in the environment.
    SecretVariable,
    /// Not at all; beyond this host only if that is allowed.
    ClearText { is_allowed: bool },
}

impl Security {
    /// Decides by the flags and the environment.
    pub(crate) fn of(args: &SecurityArgs, insecure: bool) -> Self {
        Self::chosen(args, insecure, env::var_os(SECRET_VARIABLE).is_some())
    }

    fn chosen(args: &SecurityArgs, insecure: bool, has_variable: bool) -> Self {
        match (&args.tls, &args.secret_file) {
            (Some(folder), _) => Self::Certificates(folder.clone()),
            (None, Some(file)) => Self::SecretFile(file.clone()),
            (None, None) if insecure => Self::ClearText { is_allowed: true },
            (None, None) if has_variable => Self::SecretVariable,
            (None, None) => Self::ClearText { is_allowed: false },
        }
    }

    /// Reads the certificates or the secret. Returns `None` for clear text.
    pub(crate) fn open(&self) -> Result<Option<Tls>> {
        Ok(match self {
            Self::Certificates(folder) => Some(open_folder(folder)?),
            Self::SecretFile(file) => Some(Tls::from_secret(Secret::from_file(file)?)),
            Self::SecretVariable => Some(Tls::from_secret(secret_of_environment()?)),
            Self::ClearText { .. } => None,
        })
    }

    pub(crate) fn is_tls(&self) -> bool {
        !matches!(self, Self::ClearText { .. })
    }

    /// Returns whether clear text is allowed beyond this host.
    pub(crate) fn allows_clear_text(&self) -> bool {
        matches!(self, Self::ClearText { is_allowed: true })
    }

    /// Returns the flags that choose the same in an agent, which inherits the environment.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let with = |flag: &str, value: &Path| vec![flag.into(), value.as_os_str().to_owned()];
        match self {
            Self::Certificates(folder) => with("--tls", folder),
            Self::SecretFile(file) => with("--secret-file", file),
            Self::ClearText { is_allowed: true } => vec!["--insecure".into()],
            Self::SecretVariable | Self::ClearText { is_allowed: false } => Vec::new(),
        }
    }

    /// Returns the flags for the other side, to be shown.
    pub(crate) fn shown_flags(&self) -> String {
        match self {
            Self::Certificates(_) => "--tls FOLDER".to_owned(),
            _ => format!("--secret-file {SECRET_FILE}"),
        }
    }

    /// Returns the flags for a server at this address, to be shown.
    pub(crate) fn flags_of_server(&self, ip: IpAddr) -> String {
        match self {
            Self::ClearText { is_allowed: true } => "--insecure".to_owned(),
            Self::ClearText { is_allowed: false } if is_loopback(ip) => {
                format!("--listen {}", ip.to_canonical())
            }
            _ => self.shown_flags(),
        }
    }

    /// Warns once of a certificate that expires soon.
    pub(crate) fn warn_of_certificate(tls: &Tls) {
        static WARNED: Once = Once::new();
        WARNED.call_once(|| tls.warnings().iter().for_each(terminal::warn_with_fix));
    }

    /// Refuses to connect in clear text beyond this host, or warns of it once.
    pub(crate) fn check_server(&self, addresses: &[SocketAddr], told: &str) -> Result<(), Failure> {
        static WARNED: Once = Once::new();
        let Some(beyond) = addresses.iter().find(|address| !is_loopback(address.ip())) else { return Ok(()) };
        match self {
            Self::ClearText { is_allowed: true } => {
                WARNED.call_once(|| {
                    terminal::warn(&format!(
                        "--insecure: the control connection with {told} is neither encrypted nor authenticated"
                    ));
                });
                Ok(())
            }
            Self::ClearText { is_allowed: false } => Err(Failure::new(
                Exit::Usage,
                format!("cannot connect to {told} without TLS"),
            )
            .cause(format!(
                "{} is beyond this host: in clear text, anyone on the path could answer in its place, and read the \
                 keys to the memory of this test",
                beyond.ip().to_canonical()
            ))
            .fix(format!(
                "use the secret of the server:\n{}\nor a certificate of its CA:\n{}\n\
                 or, for a test with a server that was started with --insecure, use that option here, too",
                typed_with(&format!("--secret-file {SECRET_FILE}")),
                typed_with(&format!("--tls {TLS_FOLDER}")),
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses to listen in clear text beyond this host, or warns of it. `place` is where.
    pub(crate) fn check_listener(&self, ip: IpAddr, place: &str, is_chosen: bool) -> Result<(), Failure> {
        if is_loopback(ip) {
            return Ok(());
        }
        match self {
            Self::ClearText { is_allowed: true } => {
                terminal::warn(
                    "--insecure: anyone who reaches this server can run tests on this host, and its control \
                     connections are not encrypted",
                );
                Ok(())
            }
            Self::ClearText { is_allowed: false } => {
                let mut fix = format!(
                    "make a secret, copy it to the clients, and use it on both sides:\n\
                     farreach secret new {SECRET_FILE}\n{}\n\
                     or make certificates, copy them, and use them on both sides:\n\
                     farreach tls init {TLS_FOLDER} {host} CLIENT\n{}\n",
                    typed_with(&format!("--secret-file {SECRET_FILE}")),
                    typed_with(&format!("--tls {TLS_FOLDER}/{host}", host = host_name())),
                    host = host_name(),
                );
                if !is_chosen {
                    fix += &format!("or serve this host only:\n{}\n", typed_with("--listen 127.0.0.1"));
                }
                fix += &format!(
                    "or, in a network that you trust, use clear text:\n{}",
                    typed_with("--insecure")
                );
                Err(Failure::new(Exit::Usage, format!("cannot listen on {place} without TLS"))
                    .cause(
                        "other hosts can reach it: in clear text, anyone could run tests on this host, and read and \
                         change what the control connections carry",
                    )
                    .fix(fix))
            }
            _ => Ok(()),
        }
    }
}

/// Reads the certificates in a folder.
pub(crate) fn open_folder(folder: &Path) -> Result<Tls, farreach::Error> {
    let [certificate, key, roots] = FILES.map(|name| folder.join(name));
    Tls::from_files(TlsParts { certificate, key, roots })
}

fn secret_of_environment() -> Result<Secret, Failure> {
    let digits = env::var(SECRET_VARIABLE).unwrap_or_else(|_| "-".to_owned());
    digits.parse::<Secret>().map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot use the secret in {SECRET_VARIABLE}"))
            .cause(error.cause())
            .fix(error.fix())
    })
}

/// Returns whether an address leads to this host only.
pub(crate) fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Returns the command as it was typed, with more flags at its end, to be copied.
pub(crate) fn typed_with(more: &str) -> String {
    let words = env::args().skip(1).map(|word| shell_word(&word));
    ["farreach".to_owned()].into_iter().chain(words).chain([more.to_owned()]).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_come_before_the_environment() {
        let none = SecurityArgs::default();
        let file = SecurityArgs { secret_file: Some("s".into()), tls: None };
        let folder = SecurityArgs { secret_file: None, tls: Some("t".into()) };
        for has_variable in [false, true] {
            assert_eq!(Security::chosen(&file, false, has_variable), Security::SecretFile("s".into()));
            assert_eq!(Security::chosen(&folder, false, has_variable), Security::Certificates("t".into()));
            let clear = Security::chosen(&none, true, has_variable);
            assert_eq!(clear, Security::ClearText { is_allowed: true });
        }
        assert_eq!(Security::chosen(&none, false, true), Security::SecretVariable);
        assert_eq!(Security::chosen(&none, false, false), Security::ClearText { is_allowed: false });
    }

    /// An agent decides as its server did.
    #[test]
    fn an_agent_gets_the_same_by_its_flags() {
        for (security, has_variable) in [
            (Security::Certificates("t".into()), true),
            (Security::SecretFile("s".into()), true),
            (Security::SecretVariable, true),
            (Security::ClearText { is_allowed: true }, true),
            (Security::ClearText { is_allowed: false }, false),
        ] {
            let flags = security.flags();
            let value = |flag: &str| {
                let place = flags.iter().position(|it| it == flag)?;
                Some(PathBuf::from(&flags[place + 1]))
            };
            let args = SecurityArgs { secret_file: value("--secret-file"), tls: value("--tls") };
            let insecure = flags.iter().any(|it| it == "--insecure");
            assert_eq!(Security::chosen(&args, insecure, has_variable), security);
        }
    }
}
