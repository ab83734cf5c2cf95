//! The declarations of libibverbs and librdmacm, without the library.

mod assembly;
mod inline;
mod missing;
