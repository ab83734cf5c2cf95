//! Operations: what an endpoint is asked to do, and why it may refuse.

mod refusal;
mod remote;
mod request;

pub use refusal::{PostError, Refusal};
pub use remote::{RemoteParts, RemoteRegion};
pub(crate) use request::Transmit;
pub use request::{ReceiveRequest, TransmitRequest};
