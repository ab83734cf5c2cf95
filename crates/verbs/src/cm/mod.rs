//! The connection manager, safe: librdmacm.
//!
//! Two queue pairs that are to talk must know each other: numbers, addresses, sequence numbers. The connection manager carries
//! these over, as TCP does its own, and names the two ends by IP address and port. It works for InfiniBand, RoCE and iWARP alike.
//!
//! ```text
//!  active side                                     passive side
//!  Connector::resolve    address, route            Listener::bind
//!  connector.prepare     queue pair to INIT
//!  connector.connect     ── connect request ────>  listener.wait_request → ConnectionRequest
//!                           (private data)         request.prepare, request.accept: queue pair to RTS
//!     queue pair to RTS  <── connect response ───
//!                           (private data)
//!     Connection         ── established ────────>  Connection
//! ```
//!
//! [`Connector`], [`Listener`] and [`Connection`] do that with a deadline on each wait. Beneath are the parts, for programs
//! with an order of their own: an [`EventChannel`], [`CmId`]s on it, and [`CmEvent`]s that answer what the ids were asked to do.
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//! use farreach_verbs::cm::{Connector, Error};
//!
//! match Connector::resolve("192.0.2.1:18520".parse().unwrap(), Instant::now() + Duration::from_secs(2)) {
//!     Ok(connector) => println!("by {:?}", connector.id().device_name()),
//!     Err(error) => println!("error: {error}\ncause: {}\nfix: {}", error.cause(), error.fix()),
//! }
//! ```
//!
//! # Who owns what
//!
//! - **The queue pair is yours.** The connection manager moves it from state to state and tells the other side its number;
//!   `rdma_create_qp` has no place here, and in which order the two are dropped does not matter.
//! - An id holds its channel; an event holds its id. They may be dropped in any order, on any thread.
//! - An event is a copy, acknowledged already. In C, an event that somebody keeps makes destroying its id, migrating it and
//!   leaving a multicast group wait for ever.
//! - When an id is gone its events are too: what the kernel still had for it is thrown away.
//! - A request belongs to nobody until it is accepted: the kernel sends no events of it before, not even that the other side gave up.
//!   Accepting then fails.
//!
//! # What it does not do
//!
//! - It has no synchronous ids (a null channel in C): waiting without a deadline is what makes programs hang.
//! - It makes no queue pairs, completion queues or endpoints (`rdma_create_qp`, `rdma_create_srq`, `rdma_create_ep`).
//! - It knows addresses of IP, not those of InfiniBand's own family (`AF_IB`).
//!
//! Where librdmacm is missing every call here says so ([`Error::Verbs`]), and the rest of the crate works without it.

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
