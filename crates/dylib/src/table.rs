//! The macro that turns C prototypes into a table of functions.

/// Declares a library as a struct with one method for each C function.
///
/// The first call of `get` opens the library and looks every function up, once. A function that this version of the
/// library lacks is an error of that one call ([`SymbolMissing`](crate::SymbolMissing)), not of the whole library, so an
/// old library serves for all that it has. `version "V"` after `since` takes the function at that symbol version.
///
/// The crate documentation shows an example.
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
            /// The name that the dynamic linker looks for.
            pub const SONAME: &'static str = $soname;

            /// Every function of the table, with the first release that has it.
            pub const FUNCTIONS: &'static [(&'static str, &'static str)] =
                &[$(($crate::library!(@symbol $name $($version)?), $since)),*];

            /// The library, opened at the first call. A failure is not remembered, so that installing
            /// it helps a process that is already running.
            pub fn get() -> ::std::result::Result<&'static Self, $crate::LibraryMissing> {
                static TABLE: ::std::sync::OnceLock<$Table> = ::std::sync::OnceLock::new();
                if let Some(table) = TABLE.get() {
                    return Ok(table);
                }
                // SAFETY: the soname is that of the library which the prototypes below were written for.
                let table = unsafe { Self::open($soname) }?;
                Ok(TABLE.get_or_init(|| table))
            }

            /// Opens another file as this library: for tests, and for installations that the linker does not search.
            ///
            /// # Safety
            ///
            /// Whatever functions the file has under the names of this table have the types declared in it.
            pub unsafe fn open(name: &str) -> ::std::result::Result<Self, $crate::LibraryMissing> {
                // SAFETY: passed on to the caller.
                let library = unsafe { $crate::Library::open(name, $install) }?;
                Ok(Self {
                    $($name: $crate::library!(@find library $name $($version)?).map(|address| {
                        // SAFETY: the caller vouches that this name has this type; a function pointer is
                        // as wide as a data pointer on every platform that has dlsym.
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

            /// The file that was opened, with symbolic links followed.
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
                #[allow(clippy::too_many_arguments)] // as many as C has
                pub unsafe fn $name(&self, $($arg: $ty),*)
                    -> ::std::result::Result<$crate::library!(@ret $($ret)?), $crate::SymbolMissing>
                {
                    match self.$name {
                        // SAFETY: passed on to the caller.
                        Some(function) => Ok(unsafe { function($($arg),*) }),
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
                Err(_) => panic!("a C name holds no NUL"),
            }
        }
    };
}
