//! Debian packages of any suite, without installing them. The sources of other suites are derived
//! from those of this machine's apt. Packages are downloaded once, and unpacked into folders of the
//! cache.

mod apt;
mod packages;
mod root;
mod sources;

pub(crate) use apt::Apt;
pub(crate) use packages::Packages;
pub(crate) use root::Root;
