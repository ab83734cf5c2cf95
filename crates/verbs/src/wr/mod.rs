//! Work requests: what a queue pair is asked to do, with the buffers that it takes along.

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
