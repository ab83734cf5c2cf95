//! libfabric, safe: what its providers offer, as plain data.
//!
//! libfabric is one interface over many networks: AWS EFA, InfiniBand and RoCE by verbs, and tcp and shared memory
//! wherever there is no such card. This crate asks it what there is:
//!
//! ```
//! use farreach_fabric::{Capabilities, EndpointType, Hints, Info};
//!
//! let hints = Hints::new()
//!     .endpoint_type(EndpointType::ReliableDatagram)
//!     .capabilities(Capabilities::MSG | Capabilities::RMA);
//! match Info::query(&hints) {
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
//! # What it does
//!
//! - [`Info::query`] asks all providers, or those that [`Hints`] name, and gives each offer with its
//!   capabilities, order, limits, registration modes, progress, address and card.
//! - libfabric is opened when it is first asked. Where it is missing, that is an [`Error`] with the command
//!   that installs it. Releases from 1.17 to 2.x serve; [`Library`] tells which one is loaded.
//! - Values that a newer library invents are kept: as `Other`, or as a bit without a name.
//!
//! # What it does not
//!
//! It opens no endpoint and moves no data. It prints nothing and reads no environment; libfabric itself reads
//! variables such as `FI_PROVIDER` and `FI_LOG_LEVEL`. It believes what a provider says of itself:
//! [`Progress::Auto`] tells of a case where that is not the whole truth.

mod address;
mod av;
mod backoff;
mod cq;
mod domain;
mod driver;
mod ep;
mod error;
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

pub use address::Address;
pub use av::{AddressVector, Peer};
pub use cq::{
    Completion, CompletionQueue, Event, Events, Failure, OperationKind, Poller, Proof, Success, Written,
};
pub use domain::Domain;
pub use driver::Driver;
pub use ep::{Atomics, Endpoint, EndpointBuilder, Returned};
pub use error::{Error, LibraryMissing, SymbolMissing};
pub use fabric::Fabric;
pub use farreach_fabric_sys as sys;
pub use flags::{Capabilities, Mode, MrMode, Order};
pub use hints::Hints;
pub use info::Info;
pub use kinds::{AddressFormat, EndpointType, LinkState, Progress, Protocol, ResourceManagement, Threading};
pub use leak::{Leaked, leaked};
pub use library::{Library, Version};
pub use mr::{ExposedRegion, RemoteAccess};
pub use nic::{Nic, PciAddress};
pub use op::{PostError, ReceiveRequest, Refusal, RemoteRegion, TransmitRequest};
pub use profile::{KnownFrom, Profile, SameHost, WriteWithData};
