//! Tests of the declarations of libibverbs and librdmacm, without the libraries.

mod assembly;
mod inline;
mod missing;
