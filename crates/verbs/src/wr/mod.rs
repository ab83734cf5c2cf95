//! Work requests, with the buffers that they hold.

mod part;
mod recv;
mod refusal;
mod remote;
mod send;

pub use farreach_memory::Buffers;
pub(crate) use part::Region;
pub use part::RegionPart;
pub use recv::RecvRequest;
pub use refusal::{PostError, Refusal};
pub use remote::RemoteRange;
pub(crate) use send::{Binding, Datagram, Extra};
pub use send::{Flush, FlushLevel, FlushPlacement, Operation, SendFlags, SendRequest};
