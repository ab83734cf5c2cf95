//! Defines [`library!`](crate::library), which turns C prototypes into a table of functions.

/// Declares a library as a struct with one method for each C function.
///
/// The first successful call of `get` opens the library and looks up every function once. A
/// function that this version of the library lacks is an error of that call
/// ([`SymbolMissing`](crate::SymbolMissing)), not of the whole library, so an old library remains
/// usable for the functions that it has. `version "V"` after `since` requests the function at that
/// symbol version.
///
/// The crate documentation has an example.
#[macro_export]
macro_rules! library {
    (
        $(#[$table_meta:meta])*
        pub struct $Table:ident {
            soname: $soname:literal,
            install: $install:literal,
            release: $release:literal $(,)?
        }
        $(
            $(#[$meta:meta])*
            fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?, since $since:literal
                $(, version $version:literal)?;
        )*
    ) => {
        $(#[$table_meta])*
        pub struct $Table {
            library: $crate::Library,
            $($name: ::std::option::Option<unsafe extern "C" fn($($ty),*) $(-> $ret)?>,)*
        }

        impl $Table {
            /// The name that the dynamic linker searches for.
            pub const SONAME: &'static str = $soname;

            /// The functions of the table, each with the first release that has it.
            pub const FUNCTIONS: &'static [(&'static str, &'static str)] =
                &[$(($crate::library!(@symbol $name $($version)?), $since)),*];

            /// Returns the library. The first successful call opens it. A failure is not cached, so
            /// that a running process can use a library that was installed later.
            pub fn get() -> ::std::result::Result<&'static Self, $crate::LibraryMissing> {
                static TABLE: ::std::sync::OnceLock<$Table> = ::std::sync::OnceLock::new();
                if let Some(table) = TABLE.get() {
                    return Ok(table);
                }
                // SAFETY: the soname names the library that the prototypes below were written for.
                let table = unsafe { Self::open($soname) }?;
                Ok(TABLE.get_or_init(|| table))
            }

            /// Opens another file as this library, for tests and for installations outside the
            /// linker's search path.
            ///
            /// # Safety
            ///
            /// Each function that the file has under a name of this table has the type declared for
            /// that name. Opening the file runs its initialisers.
            pub unsafe fn open(name: &str) -> ::std::result::Result<Self, $crate::LibraryMissing> {
                // SAFETY: the caller guarantees that the library may be loaded.
                let library = unsafe { $crate::Library::open(name, $install) }?;
                Ok(Self {
                    $($name: $crate::library!(@find library $name $($version)?).map(|address| {
                        // SAFETY: the caller guarantees that the symbol has this type. A function
                        // pointer has the size of a data pointer on every platform that has
                        // `dlsym`.
                        unsafe {
                            ::std::mem::transmute::<
                                ::std::ptr::NonNull<::std::ffi::c_void>,
                                unsafe extern "C" fn($($ty),*) $(-> $ret)?,
                            >(address)
                        }
                    }),)*
                    library,
                })
            }

            /// Returns the path of the opened file, with symbolic links resolved.
            pub fn path(&self) -> &::std::path::Path {
                self.library.path()
            }

            $(
                $(#[$meta])*
                ///
                /// # Safety
                ///
                /// The contract is that of the C function.
                #[inline]
                #[allow(clippy::too_many_arguments, reason = "as many as the C function has")]
                pub unsafe fn $name(&self, $($arg: $ty),*)
                    -> ::std::result::Result<$crate::library!(@ret $($ret)?), $crate::SymbolMissing>
                {
                    match self.$name {
                        Some(function) => Ok($crate::in_call(&stringify!($name), || {
                            // SAFETY: the caller upholds the C function's contract.
                            unsafe { function($($arg),*) }
                        })),
                        None => Err($crate::SymbolMissing::new(
                            self.path().to_owned(),
                            $crate::library!(@symbol $name $($version)?),
                            $release,
                            $since,
                        )),
                    }
                }
            )*
        }

        impl ::std::fmt::Debug for $Table {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($Table)).field("path", &self.path()).finish_non_exhaustive()
            }
        }
    };

    (@ret) => { () };
    (@ret $ret:ty) => { $ret };

    (@symbol $name:ident) => { stringify!($name) };
    (@symbol $name:ident $version:literal) => { concat!(stringify!($name), "@", $version) };

    (@find $library:ident $name:ident) => { $library.symbol($crate::library!(@c stringify!($name))) };
    (@find $library:ident $name:ident $version:literal) => {
        $library.versioned_symbol($crate::library!(@c stringify!($name)), $crate::library!(@c $version))
    };

    (@c $text:expr) => {
        const {
            match ::std::ffi::CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
                Ok(text) => text,
                Err(_) => panic!("a C name contains no NUL"),
            }
        }
    };
}
