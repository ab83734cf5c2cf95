//! Requests to an endpoint, and reasons for refusals.

mod refusal;
mod remote;
mod request;

pub use refusal::{PostError, Refusal};
pub use remote::{RemoteParts, RemoteRegion};
pub(crate) use request::Transmit;
pub use request::{ReceiveRequest, TransmitRequest};
