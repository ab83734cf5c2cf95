//! Errors, with their causes and remedies.

use std::path::PathBuf;

use farreach_fabric_sys as sys;
use thiserror::Error;

use crate::Version;

pub use farreach_fabric_sys::{LibraryMissing, SymbolMissing};

/// An operation on libfabric that failed, or could not be attempted.
///
/// ```
/// use farreach_fabric::{Error, Hints, Info};
///
/// match Info::query(&Hints::new().provider("no such thing")) {
///     Err(Error::NoProvider { offered, .. }) => println!("available: {offered:?}"),
///     Err(error) => println!("error: {error}\ncause: {}\nfix: {}", error.cause(), error.fix()),
///     Ok(_) => unreachable!(),
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// libfabric is missing, or cannot be loaded.
    #[error(transparent)]
    LibraryMissing(#[from] LibraryMissing),
    /// The installed libfabric lacks a function.
    #[error(transparent)]
    SymbolMissing(#[from] SymbolMissing),
    /// The installed libfabric is older than this crate supports.
    #[error("libfabric {version} is older than {}", Version::OLDEST)]
    LibraryTooOld {
        /// The file that was loaded.
        path: PathBuf,
        /// Its version.
        version: Version,
    },
    /// No provider offers what was asked for.
    #[error("no libfabric provider offers {wanted}")]
    #[doc(alias = "FI_ENODATA")]
    NoProvider {
        /// A description of the query.
        wanted: String,
        /// The names of the providers that answer a query without conditions.
        offered: Vec<String>,
    },
    /// A name contains a NUL byte, which C does not support.
    #[error("the {what} contains a NUL byte")]
    InvalidName {
        /// The kind of name.
        what: &'static str,
    },
    /// A result of the library lacks a required part.
    #[error("{operation} returned an incomplete result")]
    Incomplete {
        /// The C function.
        operation: &'static str,
    },
    /// This crate, or the provider, does not support it.
    #[error("{what} cannot be used: {why}")]
    Unsupported {
        /// The thing that was asked for.
        what: String,
        /// The reason.
        why: String,
    },
    /// Two objects of different domains were to be used together.
    #[error("the {object} does not belong to this {of}")]
    NotOfThis {
        /// The object that was passed in.
        object: &'static str,
        /// The kind of its parent.
        of: &'static str,
    },
    /// An object is still in use.
    #[error("the {object} is still in use")]
    InUse {
        /// The object.
        object: &'static str,
        /// A description of its users.
        by: &'static str,
    },
    /// The domain can no longer be used, because an endpoint of it was closed.
    #[error("the domain is spent: its endpoint was closed")]
    DomainSpent {
        /// The provider.
        provider: String,
    },
    /// A text is not an address.
    #[error("{text:?} is not an address in hexadecimal: {why}")]
    InvalidAddress {
        /// The text, shortened if it is long.
        text: String,
        /// The reason.
        why: &'static str,
    },
    /// The provider does not accept the address.
    #[error("{address} is not an address of the provider {provider}")]
    AddressRefused {
        /// The address.
        address: String,
        /// The provider.
        provider: String,
    },
    /// Every key that fits the provider's key size was used once.
    #[error("all keys up to {last:#x} were used")]
    KeysExhausted {
        /// The last key.
        last: u64,
    },
    /// The provider registers memory through a cache, so nothing is known about who can reach which
    /// memory. Such memory is not exposed, and memory from elsewhere is not registered.
    #[error("{provider} cannot register this memory: it registers through a cache")]
    RegistrationCache {
        /// The provider.
        provider: String,
    },
    /// A region cannot be revoked now.
    #[error("the region cannot be revoked: {why}")]
    NotRevocable {
        /// The access that a peer may still have.
        why: &'static str,
    },
    /// The memory can have no such key, or none now.
    #[error(transparent)]
    Key(#[from] farreach_memory::KeyError),
    /// Memory could not be allocated or registered.
    #[error("{what}")]
    Memory {
        /// A description of the error.
        what: String,
        /// A remedy.
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
        /// The text of libfabric.
        #[doc(alias = "fi_strerror")]
        text: String,
    },
}

impl Error {
    /// Returns the C function that failed, if one was called.
    pub fn operation(&self) -> Option<&'static str> {
        match self {
            Self::Failed { operation, .. } | Self::Incomplete { operation } => Some(operation),
            Self::NoProvider { .. } => Some("fi_getinfo"),
            _ => None,
        }
    }

    /// Returns the error number of `fi_errno(3)`, if a call returned one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Failed { errno, .. } => Some(*errno),
            Self::NoProvider { .. } => Some(sys::FI_ENODATA),
            _ => None,
        }
    }

    /// Returns the cause in this context.
    pub fn cause(&self) -> String {
        match self {
            Self::LibraryMissing(missing) if missing.is_absent() => "libfabric is not installed".to_owned(),
            Self::LibraryMissing(_) => {
                "libfabric is installed, but the dynamic linker cannot load it".to_owned()
            }
            Self::SymbolMissing(missing) => format!("{} is not a complete libfabric", missing.path.display()),
            Self::LibraryTooOld { path, .. } => format!("{} was loaded", path.display()),
            Self::NoProvider { offered, .. } if offered.is_empty() => {
                "this libfabric offers no provider at all on this machine".to_owned()
            }
            Self::NoProvider { offered, .. } => format!("the providers here are {}", offered.join(", ")),
            Self::InvalidName { .. } => "C ends a text at its first NUL byte".to_owned(),
            Self::Incomplete { .. } => "the library, or one of its providers, is broken".to_owned(),
            Self::Unsupported { why, .. } => why.clone(),
            Self::NotOfThis { of, .. } => format!("an object works only with objects of the same {of}"),
            Self::InUse { by, .. } => format!("it is held by {by}"),
            Self::DomainSpent { provider } => {
                format!("{provider} keeps connections of the closed endpoint, and would access freed memory")
            }
            Self::InvalidAddress { why, .. } => (*why).to_owned(),
            Self::AddressRefused { .. } => "its length or content is not valid for this provider".to_owned(),
            Self::KeysExhausted { .. } => {
                "keys are never reused, so that a late write finds nothing".to_owned()
            }
            Self::RegistrationCache { .. } => {
                "a key of the cache covers more than the slice, and stays valid after it is ended, also when the \
                 address is that of other memory"
                    .to_owned()
            }
            Self::NotRevocable { why } => (*why).to_owned(),
            Self::Key(error) => error.to_string(),
            Self::Memory { what, .. } => what.clone(),
            Self::Failed { errno, text, .. } => meaning(*errno).map_or_else(|| text.clone(), str::to_owned),
        }
    }

    /// Returns a remedy.
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
            Self::Unsupported { .. } => {
                "query with Hints::rdm(), and only for what the provider supports".to_owned()
            }
            Self::NotOfThis { object, of } => format!("create the {object} from the same {of}"),
            Self::InUse { by, .. } => format!("drop {by} first"),
            Self::DomainSpent { .. } => "open another domain with the same offer: Domain::renew".to_owned(),
            Self::InvalidAddress { .. } => "copy the whole line that the peer prints".to_owned(),
            Self::AddressRefused { .. } => "check that both sides use the same provider".to_owned(),
            Self::KeysExhausted { .. } => "open the domain again".to_owned(),
            Self::RegistrationCache { .. } => {
                "set FI_MR_CACHE_MAX_COUNT=0 in the environment before the program starts".to_owned()
            }
            Self::NotRevocable { .. } => {
                "close the endpoints of the domain; the memory becomes a slice when no key is left".to_owned()
            }
            Self::Key(error) => error.fix().to_owned(),
            Self::Memory { fix, .. } => fix.clone(),
            Self::Failed { .. } => "set FI_LOG_LEVEL=warn to see the provider's messages".to_owned(),
        }
    }
}

/// Returns the meaning of frequent errors whose text in libfabric does not explain them.
pub(crate) fn meaning(errno: i32) -> Option<&'static str> {
    Some(match errno {
        sys::FI_ENOSYS => "the provider does not support this operation, or this version of the interface",
        sys::FI_EAGAIN => "the provider is busy: poll the completion queue and try again",
        sys::FI_ENOMEM => "memory is exhausted, or the limit on locked memory (ulimit -l) is reached",
        sys::FI_EACCES | sys::FI_EPERM => "this user may not use the device",
        sys::FI_ENODEV => "the device is gone or its driver is not loaded",
        sys::FI_EBUSY => "another object still uses this one",
        sys::FI_EINVAL => "the provider does not accept one of the arguments",
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
