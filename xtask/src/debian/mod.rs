//! Debian packages of any suite, without installing them: other suites are derived from the sources that this
//! machine's apt already uses, downloaded once, and unpacked into folders of the cache.

mod apt;
mod packages;
mod root;
mod sources;

pub(crate) use apt::Apt;
pub(crate) use packages::Packages;
pub(crate) use root::Root;
