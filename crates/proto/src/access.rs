//! Who may open a publication.

use std::collections::BTreeSet;

/// The peers that may open a publication.
///
/// ```
/// use farreach_proto::access::Access;
///
/// let mut access = Access::only(["trainer-1.example"]);
/// assert!(access.permits(&["Trainer-1.example".to_owned()]));
/// assert!(!access.permits(&[]));
/// access.admit("trainer-2.example");
/// assert!(access.permits(&["trainer-2.example".to_owned()]));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Every peer that knows the token.
    Anyone,
    /// Peers that know the token and whose certificate has one of these names, in lower case and without
    /// a dot at the end.
    Only(BTreeSet<String>),
}

impl Access {
    /// Permits peers whose certificate has one of these names.
    pub fn only<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Self {
        Self::Only(names.into_iter().map(|name| canonical(name.as_ref())).collect())
    }

    /// Returns whether a peer is permitted whose certificate has these names. Names of hosts have no
    /// case, and a name with an asterisk stands for itself only.
    pub fn permits(&self, names: &[String]) -> bool {
        match self {
            Self::Anyone => true,
            Self::Only(permitted) => names.iter().any(|name| permitted.contains(&canonical(name))),
        }
    }

    /// Permits a further name. Returns `false` if everybody is permitted.
    pub fn admit(&mut self, name: &str) -> bool {
        match self {
            Self::Anyone => false,
            Self::Only(permitted) => {
                permitted.insert(canonical(name));
                true
            }
        }
    }
}

/// Returns a name as names are compared: in lower case, and without the dot that ends an absolute name.
pub(crate) fn canonical(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}
