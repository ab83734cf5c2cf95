//! A safe API for libfabric: reliable datagrams with messages, one-sided access and atomics, over
//! any provider.
//!
//! libfabric is one interface to many networks: AWS EFA, InfiniBand and RoCE through verbs, and tcp
//! and shared memory where there is no such card. A program first queries the providers:
//!
//! ```
//! use farreach_fabric::{Hints, Info};
//!
//! match Info::query(&Hints::rdm()) {
//!     Ok(offers) => {
//!         for info in &offers {
//!             println!(
//!                 "{}: writes ordered: {}, immediate {} B",
//!                 info.provider(),
//!                 info.writes_ordered(),
//!                 info.immediate_size()
//!             );
//!         }
//!     }
//!     Err(error) => println!("error: {error}\ncause: {}\nfix: {}", error.cause(), error.fix()),
//! }
//! ```
//!
//! An endpoint can then communicate with any peer whose address it is given:
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//! use farreach_fabric::{Address, Driver, EndpointBuilder, Event, Fabric, Hints, Info, TransmitRequest};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let info = Info::query(&Hints::rdm().provider("tcp"))?.swap_remove(0);
//! let domain = Fabric::open(&info)?.open_domain(&info)?;
//! let (cq, av) = (domain.open_cq()?, domain.open_av()?);
//! let endpoint = EndpointBuilder::new(&cq, &av).build(&domain)?;
//! println!("own address: {}", endpoint.address().to_hex());
//!
//! let peer = av.insert(&Address::parse_hex(info.address_format(), &std::env::args().nth(1).unwrap())?)?;
//! let mut slice = domain.allocate(4096)?;
//! slice[..5].copy_from_slice(b"hello");
//! let deadline = Instant::now() + Duration::from_secs(5);
//! let mut driver = Driver::new(&cq);
//! driver.post(&endpoint, TransmitRequest::send(slice, &peer), deadline)?;
//! if let Some(Event::Completed(completion)) = driver.next(deadline)? {
//!     let _slice_again = completion.into_buffers();
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What it does
//!
//! - [`Info::query`] asks all providers, or those that [`Hints`] name, and returns each offer with
//!   its capabilities, order, limits, registration modes, progress, address and card. [`Profile`]
//!   contains properties that no offer states.
//! - [`Fabric`], [`Domain`], [`CompletionQueue`], [`AddressVector`], [`Endpoint`]: children hold
//!   their parents, so they can be dropped in any order, on any thread. An object that its provider
//!   does not close stays until the process ends, with its parents, and is [counted](leaked).
//! - Memory is that of [`farreach_memory`]: a [`TransmitRequest`] or [`ReceiveRequest`] takes
//!   ownership of slices, and the [`Completion`] returns them, after success or failure. While an
//!   operation is in flight, no reference to its bytes exists. A refused request is returned
//!   completely, and a full queue is an ordinary result; [`Driver`] waits for room.
//! - [`Domain::expose`] gives peers access to a slice, with a key of its own.
//!   [`ExposedRegion::revoke`] returns the slice when the key has ended. Memory that peers reach
//!   over several domains has a [key](ExposedKey) for each.
//! - A completion states what it proves: that the bytes were [sent](Proof::Sent), or that they were
//!   [delivered](Proof::Delivered).
//! - libfabric is loaded on first use. If it is missing, the result is an [`Error`] with the
//!   command that installs it. Releases from 1.17 to 2.x are supported; [`Library`] returns the
//!   version that is loaded.
//! - Values that are unknown to this crate are kept: as `Other`, or as a bit without a name.
//!
//! # What it does not do
//!
//! It has no connected endpoints, tagged messages, counters or collectives. It prints nothing,
//! starts no thread and reads no environment variable; libfabric itself reads variables such as
//! `FI_PROVIDER`, `FI_LOG_LEVEL` and `FI_MR_CACHE_MAX_COUNT`. It relies on the properties that a
//! provider reports; [`Progress::Auto`] documents a case where they are not accurate. Operations of
//! peers advance only while this side polls.

mod address;
mod av;
mod backoff;
mod cq;
mod domain;
mod driver;
mod ep;
mod error;
mod exposed_key;
mod fabric;
mod flags;
mod handle;
mod hints;
mod info;
mod kinds;
mod leak;
mod library;
mod mr;
mod nic;
mod op;
mod profile;
mod raw;
mod version;

pub use address::Address;
pub use av::{AddressVector, Peer};
pub use cq::{
    Completion, CompletionQueue, Event, Events, Failure, OperationKind, Poller, Proof, Success, Written,
};
pub use domain::Domain;
pub use driver::Driver;
pub use ep::{Atomics, Endpoint, EndpointBuilder, Returned};
pub use error::{Error, LibraryMissing, SymbolMissing};
pub use exposed_key::ExposedKey;
pub use fabric::Fabric;
pub use farreach_fabric_sys as sys;
pub use flags::{Capabilities, Mode, MrMode, Order};
pub use hints::Hints;
pub use info::Info;
pub use kinds::{
    AddressFormat, EndpointType, LinkState, Progress, Protocol, ResourceManagement, Threading, TrafficClass,
};
pub use leak::{Leaked, leaked};
pub use library::Library;
pub use mr::{ExposedRegion, RemoteAccess};
pub use nic::{Nic, PciAddress};
pub use op::{PostError, ReceiveRequest, Refusal, RemoteParts, RemoteRegion, TransmitRequest};
pub use profile::{KnownFrom, Profile, SameHost, WriteWithData};
pub use version::Version;
