//! What can go wrong, what it means here, and what to do about it.

use std::path::PathBuf;

use farreach_fabric_sys as sys;
use thiserror::Error;

use crate::Version;

pub use farreach_fabric_sys::{LibraryMissing, SymbolMissing};

/// An operation on libfabric that failed, or could not be tried.
///
/// ```
/// use farreach_fabric::{Error, Hints, Info};
///
/// match Info::query(&Hints::new().provider("no such thing")) {
///     Err(Error::NoProvider { offered, .. }) => println!("there are {offered:?}"),
///     Err(error) => println!("error: {error}\ncause: {}\nfix: {}", error.cause(), error.fix()),
///     Ok(_) => unreachable!(),
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// libfabric is not there, or cannot be loaded.
    #[error(transparent)]
    LibraryMissing(#[from] LibraryMissing),
    /// libfabric is there and lacks a function.
    #[error(transparent)]
    SymbolMissing(#[from] SymbolMissing),
    /// libfabric is there and older than what this crate is written for.
    #[error("libfabric {version} is older than {}", Version::OLDEST)]
    LibraryTooOld {
        /// The file that was opened.
        path: PathBuf,
        /// Its version.
        version: Version,
    },
    /// No provider offers what was asked for.
    #[error("no libfabric provider offers {wanted}")]
    #[doc(alias = "FI_ENODATA")]
    NoProvider {
        /// What was asked for, in words.
        wanted: String,
        /// The providers that there are, by name, when nothing special is asked for.
        offered: Vec<String>,
    },
    /// A name holds a NUL byte, which C cannot take.
    #[error("the {what} holds a NUL byte")]
    InvalidName {
        /// Which name.
        what: &'static str,
    },
    /// An answer of the library lacks a part that it always has.
    #[error("{operation} gave an incomplete answer")]
    Incomplete {
        /// The C function.
        operation: &'static str,
    },
    /// This crate, or the provider, does not do it.
    #[error("{what} cannot be used: {why}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// How that is known.
        why: String,
    },
    /// Two objects were to work together that are not of the same domain.
    #[error("the {object} is not of this {of}")]
    NotOfThis {
        /// The one that was passed in.
        object: &'static str,
        /// What it should belong to.
        of: &'static str,
    },
    /// Something is still in use.
    #[error("the {object} is still in use")]
    InUse {
        /// What.
        object: &'static str,
        /// By whom, in words.
        by: &'static str,
    },
    /// The domain cannot be used any more, because an endpoint of it was closed.
    #[error("the domain is spent: its endpoint was closed")]
    DomainSpent {
        /// The provider.
        provider: String,
    },
    /// A text is not an address.
    #[error("{text:?} is not an address in hexadecimal: {why}")]
    InvalidAddress {
        /// The text, or its beginning where it is long.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The provider does not take the address.
    #[error("{address} is not an address of the provider {provider}")]
    AddressRefused {
        /// The address.
        address: String,
        /// The provider.
        provider: String,
    },
    /// Every key that fits the provider's key size was given once.
    #[error("all keys up to {last:#x} were used")]
    KeysExhausted {
        /// The last key.
        last: u64,
    },
    /// The provider registers from a cache, so that nothing can be said of who reaches what.
    #[error("memory cannot be exposed by {provider}, which registers from a cache")]
    RegistrationCache {
        /// The provider.
        provider: String,
    },
    /// A region cannot be taken back now.
    #[error("the region cannot be revoked: {why}")]
    NotRevocable {
        /// What a peer may still do.
        why: &'static str,
    },
    /// Memory could not be had, or not be registered.
    #[error("{what}")]
    Memory {
        /// What happened.
        what: String,
        /// What to do.
        fix: String,
    },
    /// A call failed.
    #[error("{operation} failed: {text} ({errno})")]
    #[doc(alias = "fi_errno")]
    Failed {
        /// The C function.
        operation: &'static str,
        /// The error number of `fi_errno(3)`, above zero.
        errno: i32,
        /// What libfabric calls it.
        #[doc(alias = "fi_strerror")]
        text: String,
    },
}

impl Error {
    /// The C function that failed, if one was called.
    pub fn operation(&self) -> Option<&'static str> {
        match self {
            Self::Failed { operation, .. } | Self::Incomplete { operation } => Some(operation),
            Self::NoProvider { .. } => Some("fi_getinfo"),
            _ => None,
        }
    }

    /// The error number of `fi_errno(3)`, if a call gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Failed { errno, .. } => Some(*errno),
            Self::NoProvider { .. } => Some(sys::FI_ENODATA),
            _ => None,
        }
    }

    /// What it means here.
    pub fn cause(&self) -> String {
        match self {
            Self::LibraryMissing(missing) if missing.is_absent() => "libfabric is not installed".to_owned(),
            Self::LibraryMissing(_) => {
                "libfabric is installed, and the dynamic linker cannot load it".to_owned()
            }
            Self::SymbolMissing(missing) => format!("{} is not a whole libfabric", missing.path.display()),
            Self::LibraryTooOld { path, .. } => format!("{} was loaded", path.display()),
            Self::NoProvider { offered, .. } if offered.is_empty() => {
                "this libfabric offers no provider at all on this machine".to_owned()
            }
            Self::NoProvider { offered, .. } => format!("the providers here are {}", offered.join(", ")),
            Self::InvalidName { .. } => "C ends a text at its first NUL byte".to_owned(),
            Self::Incomplete { .. } => "the library, or one of its providers, is broken".to_owned(),
            Self::Unsupported { why, .. } => why.clone(),
            Self::NotOfThis { of, .. } => format!("an object works only with those of its own {of}"),
            Self::InUse { by, .. } => format!("it is held by {by}"),
            Self::DomainSpent { provider } => {
                format!(
                    "{provider} remembers connections of the closed endpoint, and would look into freed memory"
                )
            }
            Self::InvalidAddress { why, .. } => (*why).to_owned(),
            Self::AddressRefused { .. } => {
                "its length, or what it says, is not what this provider reads".to_owned()
            }
            Self::KeysExhausted { .. } => {
                "a key is not used twice, so that a late write finds nothing".to_owned()
            }
            Self::RegistrationCache { .. } => {
                "a key of the cache reaches beyond the slice, and lives on when it is ended".to_owned()
            }
            Self::NotRevocable { why } => (*why).to_owned(),
            Self::Memory { what, .. } => what.clone(),
            Self::Failed { errno, text, .. } => meaning(*errno).map_or_else(|| text.clone(), str::to_owned),
        }
    }

    /// What to do about it.
    pub fn fix(&self) -> String {
        match self {
            Self::LibraryMissing(missing) => missing.fix(),
            Self::SymbolMissing(missing) => missing.fix(),
            Self::LibraryTooOld { .. } => format!("install libfabric {} or newer", Version::OLDEST),
            Self::NoProvider { .. } => {
                "ask for less, or set FI_LOG_LEVEL=info to read why each provider declined".to_owned()
            }
            Self::InvalidName { what } => format!("correct the {what}"),
            Self::Incomplete { .. } => "reinstall libfabric".to_owned(),
            Self::Unsupported { .. } => "ask with Hints::rdm(), and for what the provider has".to_owned(),
            Self::NotOfThis { object, of } => format!("make the {object} of the same {of}"),
            Self::InUse { by, .. } => format!("let go of {by} first"),
            Self::DomainSpent { .. } => "open another domain by the same offer: Domain::renew".to_owned(),
            Self::InvalidAddress { .. } => "copy the line that the peer prints, whole".to_owned(),
            Self::AddressRefused { .. } => "check that both sides use the same provider".to_owned(),
            Self::KeysExhausted { .. } => "open the domain anew".to_owned(),
            Self::RegistrationCache { .. } => {
                "set FI_MR_CACHE_MAX_COUNT=0 in the environment before the program starts".to_owned()
            }
            Self::NotRevocable { .. } => {
                "close the endpoints of the domain; the memory becomes a slice when no key is left".to_owned()
            }
            Self::Memory { fix, .. } => fix.clone(),
            Self::Failed { .. } => "set FI_LOG_LEVEL=warn to read what the provider says".to_owned(),
        }
    }
}

/// What the more frequent errors mean, where libfabric's own text does not tell.
pub(crate) fn meaning(errno: i32) -> Option<&'static str> {
    Some(match errno {
        sys::FI_ENOSYS => "the provider does not have this operation, or this version of the interface",
        sys::FI_EAGAIN => "the provider is busy: poll the completion queue and try again",
        sys::FI_ENOMEM => "memory is exhausted, or the limit on locked memory (ulimit -l) is reached",
        sys::FI_EACCES | sys::FI_EPERM => "this user may not use the device",
        sys::FI_ENODEV => "the device is gone or its driver is not loaded",
        sys::FI_EBUSY => "another object still uses this one",
        sys::FI_EINVAL => "the provider does not take one of the arguments",
        sys::FI_EADDRINUSE => "another process has this address",
        sys::FI_EADDRNOTAVAIL => "no device of this host has this address",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_provider_tells_what_there_is() {
        let error = Error::NoProvider {
            wanted: "provider efa, rdm endpoints".to_owned(),
            offered: vec!["tcp".to_owned(), "shm".to_owned()],
        };
        assert_eq!(error.to_string(), "no libfabric provider offers provider efa, rdm endpoints");
        assert_eq!(error.cause(), "the providers here are tcp, shm");
        assert_eq!((error.operation(), error.errno()), (Some("fi_getinfo"), Some(61)));
        assert!(error.fix().contains("FI_LOG_LEVEL=info"));
    }

    #[test]
    fn a_failed_call_names_itself() {
        let failed = |errno| Error::Failed { operation: "fi_getinfo", errno, text: "A text".to_owned() };
        assert_eq!(failed(12).to_string(), "fi_getinfo failed: A text (12)");
        assert!(failed(12).cause().contains("ulimit -l"));
        assert_eq!(failed(256).cause(), "A text");
    }

    #[test]
    fn an_old_library_is_told_with_its_path() {
        let error = Error::LibraryTooOld {
            path: "/usr/lib/libfabric.so.1.14.0".into(),
            version: Version { major: 1, minor: 11 },
        };
        assert_eq!(error.to_string(), "libfabric 1.11 is older than 1.17");
        assert!(error.cause().contains("1.14.0"));
        assert_eq!(error.fix(), "install libfabric 1.17 or newer");
    }
}
