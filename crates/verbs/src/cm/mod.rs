//! A safe API for librdmacm, the RDMA connection manager.
//!
//! Two queue pairs need each other's numbers, addresses and sequence numbers before they can
//! communicate. The connection manager exchanges these, and names the two sides by IP address and
//! port. It works with InfiniBand, RoCE and iWARP.
//!
//! ```text
//!  active side                                     passive side
//!  Connector::resolve    address, route            Listener::bind
//!  connector.prepare     queue pair to INIT
//!  connector.connect     ── connect request ────>  listener.wait_request → ConnectionRequest
//!                           (private data)         request.prepare, request.accept:
//!                                                  queue pair to RTS
//!     queue pair to RTS  <── connect response ───
//!                           (private data)
//!     Connection         ── established ────────>  Connection
//! ```
//!
//! [`Connector`], [`Listener`] and [`Connection`] do that with a deadline on each wait. Programs
//! that need another order can use the parts: an [`EventChannel`], [`CmId`]s on it, and
//! [`CmEvent`]s that answer the calls on the ids.
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//! use farreach_verbs::cm::{Connector, Error};
//!
//! let deadline = Instant::now() + Duration::from_secs(2);
//! match Connector::resolve("192.0.2.1:18520".parse().unwrap(), deadline) {
//!     Ok(connector) => println!("by {:?}", connector.id().device_name()),
//!     Err(error) => println!("error: {error}\ncause: {}\nfix: {}", error.cause(), error.fix()),
//! }
//! ```
//!
//! # Ownership
//!
//! - **The caller owns the queue pair.** The connection manager changes its state and sends its
//!   number to the peer. There is no `rdma_create_qp`, and queue pair and id may be dropped in any
//!   order.
//! - An id holds its channel; an event holds its id. They may be dropped in any order, on any
//!   thread.
//! - An event is a copy that is already acknowledged. In C, an event that is kept makes destroying
//!   its id, migrating it and leaving a multicast group wait for ever.
//! - When an id is gone, its pending events are discarded.
//! - The kernel sends no events of a request before it is accepted, not even that the peer has
//!   aborted. Accepting then fails.
//!
//! # Limits
//!
//! - There are no synchronous ids (a null channel in C), because they wait without a deadline.
//! - It creates no queue pairs, completion queues or endpoints (`rdma_create_qp`,
//!   `rdma_create_srq`, `rdma_create_ep`).
//! - It supports IP addresses, and not those of InfiniBand's own family (`AF_IB`).
//!
//! If librdmacm is missing, every call of this module returns [`Error::Verbs`]; the rest of the
//! crate works without it.

mod addrinfo;
mod channel;
mod connection;
mod contexts;
mod devices;
mod error;
mod event;
mod handle;
mod id;
mod listener;
mod multicast;
mod options;
mod parameters;
mod port_space;
mod queue_pair;
mod reject;
mod resolution;
mod route;
mod thread;
mod wait;

pub use addrinfo::{AddressHints, AddressInfo, getaddrinfo};
pub use channel::EventChannel;
pub use connection::{Connection, Connector};
pub use devices::get_devices;
pub use error::Error;
pub use event::{CmEvent, DatagramDestination, EventKind};
pub use id::CmId;
pub use listener::{ConnectionRequest, Listener};
pub use multicast::Membership;
pub use options::Ece;
pub use parameters::CmParameters;
pub use port_space::PortSpace;
pub use reject::RejectReason;
pub use route::{Path, Route};
pub use thread::EventThread;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_goes_to_any_thread() {
        fn any_thread<T: Send + Sync>() {}
        any_thread::<EventChannel>();
        any_thread::<CmId>();
        any_thread::<CmEvent>();
        any_thread::<Listener>();
        any_thread::<ConnectionRequest>();
        any_thread::<Connector>();
        any_thread::<Connection>();
        any_thread::<EventThread>();
        any_thread::<Error>();
    }
}
