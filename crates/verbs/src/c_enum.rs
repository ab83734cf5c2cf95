//! C enumerations as Rust enums that preserve unknown values.

/// Declares an enum for a C enumeration: `Variant = CONSTANT, "text for display"`.
macro_rules! c_enum {
    (
        $(#[$meta:meta])*
        pub enum $Name:ident($raw:ty) {
            $($(#[$variant_meta:meta])* $Variant:ident = $constant:expr, $text:literal;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $Name {
            $($(#[$variant_meta])* $Variant,)*
            /// A value that this crate does not know, from a newer library or kernel.
            Unknown($raw),
        }

        impl $Name {
            pub(crate) fn from_raw(raw: $raw) -> Self {
                match raw {
                    $(value if value == $constant => Self::$Variant,)*
                    value => Self::Unknown(value),
                }
            }

            /// Returns the C value.
            pub fn raw(self) -> $raw {
                match self {
                    $(Self::$Variant => $constant,)*
                    Self::Unknown(value) => value,
                }
            }
        }

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$Variant => f.pad($text),)*
                    Self::Unknown(value) => f.pad(&format!("unknown ({value})")),
                }
            }
        }
    };
}
