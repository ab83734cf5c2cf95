//! Whom a side trusts: a folder with three files.

use std::path::Path;

use anyhow::Result;
use farreach::{Tls, TlsParts};

/// What a folder has to have: this side's certificate with those between it and its root, its key, and the roots of the others.
const FILES: [&str; 3] = ["cert.pem", "key.pem", "ca.pem"];

/// From such a folder.
pub(crate) fn open(folder: &Path) -> Result<Tls> {
    let [certificate, key, roots] = FILES.map(|name| folder.join(name));
    Ok(Tls::from_files(TlsParts { certificate, key, roots })?)
}
