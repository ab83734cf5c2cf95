//! Reads the TLS configuration of a side from a folder with three files.

use std::path::Path;

use anyhow::Result;
use farreach::{Tls, TlsParts};

/// The files in a folder: this side's certificate chain, its key, and the root certificates of the
/// peers.
const FILES: [&str; 3] = ["cert.pem", "key.pem", "ca.pem"];

/// Reads such a folder.
pub(crate) fn open(folder: &Path) -> Result<Tls> {
    let [certificate, key, roots] = FILES.map(|name| folder.join(name));
    Ok(Tls::from_files(TlsParts { certificate, key, roots })?)
}
