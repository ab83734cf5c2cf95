//! How to do common tasks, each with a complete example. This module has no items.
//!
//! | task | section |
//! |---|---|
//! | two processes meet | [Connect](#connect) |
//! | put bytes into memory of a peer | [Write](#write) |
//! | get bytes of a peer's memory | [Read](#read) |
//! | move scattered pages | [Pages](#pages) |
//! | know that bytes have arrived | [Count](#count) |
//! | send a request or a token | [Message](#message) |
//! | locks and tickets in shared memory | [Atomics](#atomics) |
//! | move ranges of several memories at once | [Lists](#lists) |
//! | repeat a transfer | [Prepared transfers](#prepared-transfers) |
//! | let every peer access memory | [Publish](#publish) |
//! | take memory back | [Revoke](#revoke) |
//! | connect beyond this host | [TLS](#tls) |
//! | use a card, tcp or shared memory | [Choose rails](#choose-rails) |
//! | use tasks instead of threads | [Async](#async) |
//! | serve many peers | [Many peers](#many-peers) |
//! | handle a failure | [Errors](#errors) |
//! | choose the memory of transfers | [Memory](#memory) |
//! | end in order | [Close](#close) |
//!
//! # Connect
//!
//! Each process opens one [`Engine`]. One side [listens](Engine::listen), the other one
//! [connects](Engine::connect), and each gets a [`Peer`]. After that both sides are equal: either may
//! grant memory, write, read and send.
//!
//! Every operation returns a [`Pending`]. The operation has started then. [`Pending::wait`] waits for
//! its result for a given time, or a task [awaits](#async) it. A connection lasts as long as the program
//! has a handle of the peer, or a [`Grant`] for it.
//!
//! ```
//! use std::time::Duration;
//! use farreach::Engine;
//!
//! const SOON: Duration = Duration::from_secs(20);
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // In the process of the server. Port 0 lets the system choose a free port.
//!     let server = Engine::new()?;
//!     let address = server.listen("127.0.0.1:0")?;
//!
//!     // In the process of the client.
//!     let client = Engine::new()?;
//!     let to_server = client.connect(address)?.wait(SOON)?;
//!
//!     // In the process of the server.
//!     let to_client = server.accept().wait(SOON)?;
//!     println!("{} is connected over {:?}", to_client.name(), to_client.rails());
//!     # drop(to_server);
//!     Ok(())
//! }
//! ```
//!
//! The other examples of this page begin with these lines. They continue in `main`, with the engines
//! `server` and `client` and the peers `to_client` and `to_server`. An example has both sides in one
//! process only so that it is short and can be tested: the calls are the same in two processes. What one
//! side has to know of the other, such as a token, goes through a [message](#message). `SOON` is a
//! time after which the other side is taken to hang.
//!
//! **What goes wrong.** [`ErrorKind::Connect`]: nobody listens there, or the two sides have no rail in
//! common. [`ErrorKind::Insecure`]: the address is beyond this host, and there is no [TLS](#tls).
//! [`ErrorKind::NoRail`]: no rail could be [opened](#choose-rails).
//!
//! # Write
//!
//! Use a write to put bytes where a peer wants them, without work of the peer's program. The owner of the
//! memory [grants](Peer::grant) it, and sends the token. The writer gets the memory as a
//! [`RemoteSlice`], selects a part of it and [writes](Peer::write). The source may be a `Vec<u8>`, or
//! a [`Slice`](#memory). It comes back with the result.
//!
//! ```
//! # use std::time::Duration;
//! # use farreach::Engine;
//! # const SOON: Duration = Duration::from_secs(20);
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server, client) = (Engine::new()?, Engine::new()?);
//! # let to_server = client.connect(server.listen("127.0.0.1:0")?)?.wait(SOON)?;
//! # let to_client = server.accept().wait(SOON)?;
//! use farreach::Rights;
//!
//! // The server lets the client write to 1 MiB.
//! let memory = server.allocate(1 << 20).wait(SOON)?;
//! let grant = to_client.grant(memory, Rights::WRITE).wait(SOON)?;
//! to_client.send(grant.token().to_string()).wait(SOON)?;
//!
//! // The client writes from offset 4096 on.
//! let token = String::from_utf8(to_server.recv().wait(SOON)?)?;
//! let remote = to_server.remote(token.parse()?).wait(SOON)?;
//! let done = to_server.write(b"hello".to_vec(), &remote.at(4096)).wait(SOON)?;
//! println!("{}", done.stats);
//! to_server.send("written").wait(SOON)?;
//!
//! // The server copies the bytes out of the granted memory.
//! assert_eq!(to_client.recv().wait(SOON)?, b"written");
//! let mut bytes = [0; 5];
//! grant.read_at(4096, &mut bytes);
//! assert_eq!(&bytes, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! The grant ends when [`Grant`] is dropped, so keep it as long as the peer writes. Granted memory does
//! not deref to bytes, because the peer may change it at any time. [Revoke](#revoke) the grant to
//! get it back.
//!
//! **What goes wrong.** [`ErrorKind::Argument`]: the source is longer than the part of the remote
//! memory. [`ErrorKind::NotGranted`]: the memory was granted without [`Rights::WRITE`], or the grant has
//! ended. [`ErrorKind::Revoked`]: it ended during the transfer. The error of a transfer, a
//! [`TransferError`], has the source as well.
//!
//! # Read
//!
//! Use a read to get bytes of a peer's memory without work of the peer's program. [`Peer::read`] fills
//! the memory that it is given. The result returns it.
//!
//! ```
//! # use std::time::Duration;
//! # use farreach::Engine;
//! # const SOON: Duration = Duration::from_secs(20);
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server, client) = (Engine::new()?, Engine::new()?);
//! # let to_server = client.connect(server.listen("127.0.0.1:0")?)?.wait(SOON)?;
//! # let to_client = server.accept().wait(SOON)?;
//! use farreach::Rights;
//!
//! let mut memory = server.allocate(1 << 20).wait(SOON)?;
//! memory[4096..4101].copy_from_slice(b"hello");
//! let grant = to_client.grant(memory, Rights::READ).wait(SOON)?;
//!
//! let remote = to_server.remote(grant.token()).wait(SOON)?;
//! let done = to_server.read(&remote.range(4096..4101), vec![0; 5]).wait(SOON)?;
//! assert_eq!(done.buffer, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! A read is not atomic: if the owner or another peer writes the same bytes at the same time, some of
//! them may be old and others new. Put a version and a digest beside the bytes and read again if they do
//! not match, as `crates/examples/examples/block_store.rs` does, or have a writer announce by a
//! [counter](#count) or a [message](#message) that it is done.
//!
//! **What goes wrong.** As with [writes](#write). [`ErrorKind::NotGranted`] if [`Rights::READ`] is
//! missing.
//!
//! # Pages
//!
//! Use a page map if the bytes lie in many places of the same length, such as the blocks of a cache. A
//! [`PageMap`] names the pages of the source and their places in the destination.
//! [`Peer::write_pages`] and [`Peer::read_pages`] move them all in one transfer, in as few operations as
//! possible.
//!
//! ```
//! # use std::time::Duration;
//! # use farreach::Engine;
//! # const SOON: Duration = Duration::from_secs(20);
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server, client) = (Engine::new()?, Engine::new()?);
//! # let to_server = client.connect(server.listen("127.0.0.1:0")?)?.wait(SOON)?;
//! # let to_client = server.accept().wait(SOON)?;
//! use farreach::{PageMap, Rights};
//!
//! let memory = server.allocate(16 * 4096).wait(SOON)?;
//! let grant = to_client.grant(memory, Rights::READ | Rights::WRITE).wait(SOON)?;
//! let remote = to_server.remote(grant.token()).wait(SOON)?;
//!
//! // Pages 0, 1 and 2 of the source go to the places 9, 4 and 7.
//! let mut source = client.allocate(3 * 4096).wait(SOON)?;
//! source[4096..2 * 4096].fill(1);
//! let map = PageMap::of(4096).from([0, 1, 2]).to([9, 4, 7]);
//! let done = to_server.write_pages(source, &map, &remote, None).wait(SOON)?;
//!
//! // And page 4 comes back, to the place 0.
//! let into = done.buffer.into_slice().expect("it was given as a slice");
//! let map = PageMap::of(4096).from([4]).to([0]);
//! let done = to_server.read_pages(&remote, &map, into).wait(SOON)?;
//! let page = done.buffer.into_slice().expect("it was given as a slice");
//! assert!(page[..4096].iter().all(|byte| *byte == 1));
//! # Ok(())
//! # }
//! ```
//!
//! Pages arrive in any order. For ranges of different lengths, or of several grants, use a
//! [list](#lists).
//!
//! **What goes wrong.** [`ErrorKind::Argument`]: a page lies beyond its memory, the two sides have a
//! different number of pages, or places overlap. Nothing was posted then.
//!
//! # Count
//!
//! Use a counter if the owner of the memory has to know that bytes have arrived. The owner
//! [opens](Peer::open_counter) it and sends its token. Each write raises it by the number of its pages;
//! [`Peer::write_and_count`] raises it by one. When it has reached N, the bytes of N pages are there.
//!
//! ```
//! # use std::time::Duration;
//! # use farreach::Engine;
//! # const SOON: Duration = Duration::from_secs(20);
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server, client) = (Engine::new()?, Engine::new()?);
//! # let to_server = client.connect(server.listen("127.0.0.1:0")?)?.wait(SOON)?;
//! # let to_client = server.accept().wait(SOON)?;
//! use farreach::{PageMap, Rights};
//!
//! let memory = server.allocate(16 * 4096).wait(SOON)?;
//! let grant = to_client.grant(memory, Rights::WRITE).wait(SOON)?;
//! let counter = to_client.open_counter().wait(SOON)?;
//!
//! let remote = to_server.remote(grant.token()).wait(SOON)?;
//! let arrivals = to_server.remote_counter(counter.token()).wait(SOON)?;
//! let source = client.allocate(8 * 4096).wait(SOON)?;
//! let map = PageMap::of(4096).first(8);
//! to_server.write_pages(source, &map, &remote, Some(&arrivals)).wait(SOON)?;
//! to_server.write_and_count(b"a header".to_vec(), &remote.at(8 * 4096), &arrivals).wait(SOON)?;
//!
//! // The server waits for the eight pages and the range.
//! counter.reach(9).wait(SOON)?;
//! assert_eq!(counter.reached(), 9);
//! # Ok(())
//! # }
//! ```
//!
//! A counter is raised exactly once for each page, also if a link was lost and the page was sent again.
//! For a counter that many peers raise, see [Many peers](#many-peers).
//!
//! **What goes wrong.** A wait ends with [`ErrorKind::PeerLost`] or [`ErrorKind::Aborted`] if the pages
//! cannot arrive any more. Those that have arrived count even then: [`Counter::reached`].
//!
//! # Message
//!
//! Use messages for tokens, requests and answers: up to [`Settings::message_max`] bytes, 4096 by
//! default. They arrive in order, each once. For more bytes, grant memory and write to it.
//!
//! ```
//! # use std::time::Duration;
//! # use farreach::Engine;
//! # const SOON: Duration = Duration::from_secs(20);
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server, client) = (Engine::new()?, Engine::new()?);
//! # let to_server = client.connect(server.listen("127.0.0.1:0")?)?.wait(SOON)?;
//! # let to_client = server.accept().wait(SOON)?;
//! use farreach::ErrorKind;
//!
//! // Without a wait: a later message, `flush` or `close` waits for it.
//! let first = to_server.send("first");
//! to_server.send("second").wait(SOON)?;
//! drop(first);
//! assert_eq!(to_client.recv().wait(SOON)?, b"first");
//! assert_eq!(to_client.recv().wait(SOON)?, b"second");
//!
//! let error = to_server.send(vec![0; 1 << 20]).wait(SOON).unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Argument);
//! # Ok(())
//! # }
//! ```
//!
//! Tokens of grants, publications and counters are text (`Display` and `FromStr`), and implement serde's
//! traits.
//!
//! **What goes wrong.** [`ErrorKind::Argument`]: the message is too long. [`ErrorKind::TimedOut`]: the
//! peer's program does not receive, and [`Settings::message_window`] messages wait for it. The message
//! is still sent when it does.
//!
//! # Atomics
//!
//! Use [`Peer::fetch_add`] and [`Peer::compare_and_swap`] for tickets and locks in memory that several
//! peers change. They work on eight bytes at a multiple of eight, and return the value before.
//!
//! ```
//! # use std::time::Duration;
//! # use farreach::Engine;
//! # const SOON: Duration = Duration::from_secs(20);
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server, client) = (Engine::new()?, Engine::new()?);
//! # let to_server = client.connect(server.listen("127.0.0.1:0")?)?.wait(SOON)?;
//! # let to_client = server.accept().wait(SOON)?;
//! use farreach::{CompareSwap, Rights};
//!
//! let memory = server.allocate(4096).wait(SOON)?;
//! let grant = to_client.grant(memory, Rights::ATOMIC).wait(SOON)?;
//! let remote = to_server.remote(grant.token()).wait(SOON)?;
//!
//! // Each caller gets a ticket of its own.
//! let tickets = remote.range(0..8);
//! assert_eq!(to_server.fetch_add(&tickets, 1).wait(SOON)?, 0);
//! assert_eq!(to_server.fetch_add(&tickets, 1).wait(SOON)?, 1);
//!
//! // The lock is free as long as it is 0.
//! let lock = remote.range(8..16);
//! let take = CompareSwap { expected: 0, desired: 7 };
//! assert_eq!(to_server.compare_and_swap(&lock, take).wait(SOON)?, 0, "it was free");
//! assert_eq!(to_server.compare_and_swap(&lock, take).wait(SOON)?, 7, "7 has it");
//! # Ok(())
//! # }
//! ```
//!
//! Whether atomics over a card exclude those of the owner's processor ([`Grant::atomic_at`]), or those
//! over another rail, depends on the card.
//!
//! **What goes wrong.** [`ErrorKind::Unknown`]: the link was lost, and the operation may have taken
//! effect or not. Atomics are never repeated by the engine: read the memory to find out.
//! [`ErrorKind::Unsupported`]: no rail to the peer has atomics; `farreach devices` lists those that do.
//! [`ErrorKind::Argument`]: not eight aligned bytes.
//!
//! # Lists
//!
//! Use a [`TransferList`] to move ranges of different lengths, or of several memories on either side, in
//! one transfer. Each region has memory of this side, and a part of the peer's.
//!
//! ```
//! # use std::time::Duration;
//! # use farreach::Engine;
//! # const SOON: Duration = Duration::from_secs(20);
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server, client) = (Engine::new()?, Engine::new()?);
//! # let to_server = client.connect(server.listen("127.0.0.1:0")?)?.wait(SOON)?;
//! # let to_client = server.accept().wait(SOON)?;
//! use farreach::{Rights, TransferList};
//!
//! let rights = Rights::READ | Rights::WRITE;
//! let keys = to_client.grant(server.allocate(4096).wait(SOON)?, rights).wait(SOON)?;
//! let values = to_client.grant(server.allocate(1 << 20).wait(SOON)?, rights).wait(SOON)?;
//!
//! let remote_keys = to_server.remote(keys.token()).wait(SOON)?;
//! let remote_values = to_server.remote(values.token()).wait(SOON)?;
//! let mut list = TransferList::<Vec<u8>>::new();
//! list.push(b"name".to_vec(), &remote_keys.at(64));
//! list.push(b"a longer value".to_vec(), &remote_values.at(9000));
//! to_server.write_list(list, None).wait(SOON)?;
//!
//! let mut list = TransferList::<Vec<u8>>::new();
//! list.push(vec![0; 8], &remote_values.at(9000));
//! list.push(vec![0; 4], &remote_keys.at(64));
//! let done = to_server.read_list(list).wait(SOON)?;
//! assert_eq!(done.buffer, [b"a longer".to_vec(), b"name".to_vec()]);
//! # Ok(())
//! # }
//! ```
//!
//! A counter rises by the number of segments: one for each [`push`](TransferList::push), and one for
//! each page of a [`push_pages`](TransferList::push_pages). Regions of a list to write must not overlap
//! at the peer.
//!
//! **What goes wrong.** [`ErrorKind::Argument`] names the region that lies beyond its memory; nothing
//! was posted. The error has the memory of all regions.
//!
//! # Prepared transfers
//!
//! Use a prepared transfer if the same one repeats: it is planned, checked and registered once, and each
//! [start](crate::Prepared::start) moves the same segments again, or a [subset](crate::Prepared::subset).
//!
//! ```
//! # use std::time::Duration;
//! # use farreach::Engine;
//! # const SOON: Duration = Duration::from_secs(20);
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server, client) = (Engine::new()?, Engine::new()?);
//! # let to_server = client.connect(server.listen("127.0.0.1:0")?)?.wait(SOON)?;
//! # let to_client = server.accept().wait(SOON)?;
//! use farreach::{PageMap, Rights, Slice, TransferList};
//!
//! let memory = server.allocate(8 * 4096).wait(SOON)?;
//! let grant = to_client.grant(memory, Rights::READ).wait(SOON)?;
//! let remote = to_server.remote(grant.token()).wait(SOON)?;
//!
//! let mut list = TransferList::<Slice>::new();
//! let own = client.allocate(8 * 4096).wait(SOON)?;
//! list.push_pages(own, &PageMap::of(4096).first(8), &remote);
//! let blocks = to_server.prepare_read(list).wait(SOON)?;
//! let all = blocks.all()?;
//! let two = blocks.subset(&[5, 2])?;
//!
//! blocks.start(&all).wait(SOON)?;
//! grant.write_at(5 * 4096, b"changed");
//! blocks.start(&two).wait(SOON)?;
//! let mut bytes = [0; 7];
//! blocks.memory(0).read_at(5 * 4096, &mut bytes);
//! assert_eq!(&bytes, b"changed");
//!
//! let memory: Vec<Slice> = blocks.finish().wait(SOON)?;
//! assert_eq!(memory[0].len(), 8 * 4096);
//! # Ok(())
//! # }
//! ```
//!
//! [`Peer::prepare_write`] takes [`Shared`] memory, which the program can read while it is written to
//! the peer, but not change.
//!
//! **What goes wrong.** As with other transfers. A subset of another prepared transfer, or a number
//! that no segment has: [`ErrorKind::Argument`].
//!
//! # Publish
//!
//! Use a publication for memory that every peer may access, also those that connect later. One token is
//! good for all; each peer [opens](Peer::open) it, without a call of the owner's program.
//! [`Engine::publish`] is for memory that nobody changes: the owner reads it meanwhile.
//! [`Engine::publish_exposed`] takes other [`Rights`] as well.
//!
//! ```
//! # use std::time::Duration;
//! # use farreach::Engine;
//! # const SOON: Duration = Duration::from_secs(20);
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server, client) = (Engine::new()?, Engine::new()?);
//! # let to_server = client.connect(server.listen("127.0.0.1:0")?)?.wait(SOON)?;
//! # let to_client = server.accept().wait(SOON)?;
//! use farreach::{Access, Rights};
//!
//! let mut weights = server.allocate(1 << 20).wait(SOON)?;
//! weights.fill(7);
//! let weights = server.publish(weights, Access::Anyone).wait(SOON)?;
//! let memory = server.allocate(4096).wait(SOON)?;
//! let board = server.publish_exposed(memory, Rights::READ | Rights::WRITE, Access::Anyone).wait(SOON)?;
//!
//! let remote = to_server.open(weights.token()).wait(SOON)?;
//! let done = to_server.read(&remote.at(1000), vec![0; 3]).wait(SOON)?;
//! assert_eq!((done.buffer, weights[1000]), (vec![7; 3], 7));
//! let remote = to_server.open(board.token()).wait(SOON)?;
//! to_server.write(b"I was here".to_vec(), &remote).wait(SOON)?;
//!
//! let mut bytes = [0; 10];
//! board.read_at(0, &mut bytes);
//! assert_eq!(&bytes, b"I was here");
//!
//! // One peer loses it, the others keep it.
//! board.revoke_peer(&to_client, SOON).wait(SOON)?;
//! assert!(to_server.open(board.token()).wait(SOON).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! [`Access::only`] restricts it to peers whose [certificate](#tls) has one of the given names.
//!
//! **What goes wrong.** [`ErrorKind::NotGranted`]: there is no such publication, or the owner does not
//! permit this peer. [`ErrorKind::Tls`]: names need certificates.
//!
//! # Revoke
//!
//! Revoke a grant to get its memory back. [`Grant::revoke`] asks the peer to stop, and ends its keys
//! when it has stopped, is lost, or the time is over. The memory is an [`Exposed`] then. It becomes a
//! [`Slice`] if it is *proven* that the peer cannot access it: over a card and over shared memory it
//! always is. Over tcp nothing proves it while the peer is connected: copy the bytes out, or grant the
//! memory again.
//!
//! ```
//! # use std::time::Duration;
//! # use farreach::Engine;
//! # const SOON: Duration = Duration::from_secs(20);
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server, client) = (Engine::new()?, Engine::new()?);
//! # let to_server = client.connect(server.listen("127.0.0.1:0")?)?.wait(SOON)?;
//! # let to_client = server.accept().wait(SOON)?;
//! use farreach::{ErrorKind, Rights};
//!
//! let memory = server.allocate(1 << 20).wait(SOON)?;
//! let grant = to_client.grant(memory, Rights::WRITE).wait(SOON)?;
//! let remote = to_server.remote(grant.token()).wait(SOON)?;
//! to_server.write(b"hello".to_vec(), &remote).wait(SOON)?;
//!
//! match grant.revoke(SOON)?.try_into_slice() {
//!     Ok(slice) => assert!(slice.starts_with(b"hello")),
//!     Err(exposed) => assert!(exposed.to_vec().starts_with(b"hello")),
//! }
//!
//! let refused = to_server.write(b"too late".to_vec(), &remote).wait(SOON).unwrap_err();
//! assert_eq!(refused.error.kind(), ErrorKind::NotGranted);
//! # Ok(())
//! # }
//! ```
//!
//! A grant that is dropped is revoked by the engine, which frees the memory after the proof.
//! [`Grant::begin_revoke`] is for [tasks](#async), [`Publication::revoke`](crate::Publication::revoke)
//! for published memory.
//!
//! **What goes wrong.** [`RevokeError`](crate::RevokeError) has the grant, which can be revoked again.
//! The peer's transfers that are in flight end with [`ErrorKind::Revoked`], later ones with
//! [`ErrorKind::NotGranted`].
//!
//! # TLS
//!
//! Beyond this host, an engine needs a secret that both sides have, or a certificate for each side. They
//! protect the control connection, which carries the keys of granted memory. **The data itself is not
//! encrypted.**
//!
//! A [`Secret`] is the short way, for hosts that trust each other. `farreach secret new FILE` or
//! [`Secret::create`] makes its file, which is copied to the other hosts.
//!
//! ```
//! use std::time::Duration;
//! # #[cfg(not(feature = "tls"))] fn main() {}
//! # #[cfg(feature = "tls")]
//! use farreach::{Engine, Secret, Settings};
//!
//! const SOON: Duration = Duration::from_secs(20);
//!
//! # #[cfg(feature = "tls")]
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     # let folder = tempfile::tempdir()?;
//!     # let path = folder.path().join("farreach.secret");
//!     // Once, on one host. `path` is that of a new file.
//!     Secret::create(&path)?;
//!
//!     // On each host, with a copy of the file.
//!     let server = Engine::with(Settings::new().secret(Secret::from_file(&path)?))?;
//!     let client = Engine::with(Settings::new().secret(Secret::from_file(&path)?))?;
//!
//!     let address = server.listen("0.0.0.0:0")?;
//!     let to_server = client.connect(("127.0.0.1", address.port()))?.wait(SOON)?;
//!     let to_client = server.accept().wait(SOON)?;
//!     # drop((to_server, to_client));
//!     Ok(())
//! }
//! ```
//!
//! Every holder of a secret can pretend to be any other. Certificates tell hosts apart:
//! `farreach tls init DIR HOST…` makes an authority and the files of each host. The side that connects
//! checks that the certificate is for the host in the address.
//!
//! ```
//! use std::time::Duration;
//! # #[cfg(not(feature = "tls"))] fn main() {}
//! # #[cfg(feature = "tls")]
//! use farreach::{Engine, Settings, Tls, TlsParts};
//!
//! const SOON: Duration = Duration::from_secs(20);
//!
//! # #[cfg(feature = "tls")]
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     # let authority = farreach_testkit::Authority::new("a cluster");
//!     # let folder = tempfile::tempdir()?;
//!     # let path = |file: &str| folder.path().join(file);
//!     # std::fs::write(path("roots.pem"), authority.root())?;
//!     # for (host, name) in [("server", "127.0.0.1"), ("client", "client")] {
//!     #     let made = authority.certify(&[name]);
//!     #     std::fs::write(path(&format!("{host}.pem")), made.certificate)?;
//!     #     std::fs::write(path(&format!("{host}.key")), made.key)?;
//!     #     use std::os::unix::fs::PermissionsExt;
//!     #     let for_its_owner = std::fs::Permissions::from_mode(0o600);
//!     #     std::fs::set_permissions(path(&format!("{host}.key")), for_its_owner)?;
//!     # }
//!     // `path` returns the path of a file of `farreach tls init`.
//!     let open = |host: &str| {
//!         let certificate = path(&format!("{host}.pem"));
//!         let (key, roots) = (path(&format!("{host}.key")), path("roots.pem"));
//!         let tls = Tls::from_files(TlsParts { certificate, key, roots })?;
//!         Engine::with(Settings::new().tls(tls))
//!     };
//!     let (server, client) = (open("server")?, open("client")?);
//!     let address = server.listen("127.0.0.1:0")?;
//!     let to_server = client.connect(address)?.wait(SOON)?;
//!     # drop(to_server);
//!     Ok(())
//! }
//! ```
//!
//! **What goes wrong.** [`ErrorKind::Insecure`]: an address beyond this host, and neither a secret nor
//! certificates. [`ErrorKind::Tls`]: a file cannot be used. [`ErrorKind::Connect`]: this side does not
//! trust the other one, or is not trusted; [`Error::cause`] says why. A wait of
//! [`accept`](Engine::accept) that times out reports the last connection that was refused
//! ([`ErrorKind::Accept`]).
//!
//! # Choose rails
//!
//! By default an engine opens `shm`, for processes of the same user on this host, and every RDMA
//! device, or libfabric's `tcp` if there is none. Two engines that can be connected over `shm` use it
//! alone. Use [`Settings::rails`] to name rails, and [`Settings::require_rdma`] if a fallback would be a
//! failure.
//!
//! ```
//! # use std::time::Duration;
//! # const SOON: Duration = Duration::from_secs(20);
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use farreach::{Engine, ErrorKind, Settings};
//!
//! // Others are "mlx5_0", "rxe0", "tcp" and "tcp@10.0.0.7".
//! let engine = Engine::with(Settings::new().name("storage-7").rails(["shm"]))?;
//! assert_eq!(engine.rails(), ["shm"]);
//!
//! match Engine::with(Settings::new().require_rdma()) {
//!     Ok(engine) => println!("RDMA over {:?}", engine.rails()),
//!     Err(error) => {
//!         assert_eq!(error.kind(), ErrorKind::NoRail);
//!         println!("{error}: {}\nfix: {}", error.cause(), error.fix());
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Peer::rails`] names the rails that a peer is connected over, and [`Engine::warnings`] tells what
//! could not be opened. `farreach devices` lists the rails of a host, and `farreach doctor` finds out why
//! one does not work.
//!
//! **What goes wrong.** [`ErrorKind::NoRail`]: no rail could be opened; the cause has each attempt.
//! [`ErrorKind::Connect`] with [`LostReason::NoCommonRail`](crate::LostReason::NoCommonRail) as its
//! text: the other side has rails of other kinds only.
//!
//! # Async
//!
//! Use tasks if the program has an executor. A [`Pending`] is a future: `.await` it instead of
//! [`wait`](Pending::wait). It needs no runtime of its own: any executor runs it, and the engine's worker
//! thread drives the engine meanwhile. An operation starts when its function is called, and not when
//! it is awaited, so two operations that were started before the first `.await` run at the same time.
//!
//! ```
//! # use std::time::Duration;
//! # use farreach::Engine;
//! # const SOON: Duration = Duration::from_secs(20);
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server, client) = (Engine::new()?, Engine::new()?);
//! # let to_server = client.connect(server.listen("127.0.0.1:0")?)?.wait(SOON)?;
//! # let to_client = server.accept().wait(SOON)?;
//! # struct Unpark(std::thread::Thread);
//! # impl std::task::Wake for Unpark {
//! #     fn wake(self: std::sync::Arc<Self>) {
//! #         self.0.unpark();
//! #     }
//! # }
//! # fn block_on<T>(future: impl Future<Output = T>) -> T {
//! #     let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
//! #     let mut future = std::pin::pin!(future);
//! #     loop {
//! #         let mut context = std::task::Context::from_waker(&waker);
//! #         match future.as_mut().poll(&mut context) {
//! #             std::task::Poll::Ready(result) => return result,
//! #             std::task::Poll::Pending => std::thread::park(),
//! #         }
//! #     }
//! # }
//! use farreach::{Peer, PublicationToken, RemoteSlice, TransferError};
//!
//! async fn both_halves(peer: &Peer, from: &RemoteSlice) -> Result<[Vec<u8>; 2], TransferError<Vec<u8>>> {
//!     let half = from.len() / 2;
//!     let first = peer.read(&from.range(..half), vec![0; half as usize]);
//!     let second = peer.read(&from.range(half..2 * half), vec![0; half as usize]);
//!     Ok([first.await?.buffer, second.await?.buffer])
//! }
//!
//! async fn run_client(peer: &Peer) -> Result<usize, Box<dyn std::error::Error>> {
//!     let token: PublicationToken = String::from_utf8(peer.recv().await?)?.parse()?;
//!     let remote = peer.open(token).await?;
//!     Ok(both_halves(peer, &remote).await?.concat().len())
//! }
//!
//! let memory = server.allocate(1 << 20).wait(SOON)?;
//! let published = server.publish(memory, farreach::Access::Anyone).wait(SOON)?;
//! to_client.send(published.token().to_string()).wait(SOON)?;
//! // `block_on` is that of any executor.
//! assert_eq!(block_on(run_client(&to_server))?, 1 << 20);
//! # Ok(())
//! # }
//! ```
//!
//! A future has no timeout: every operation ends when its peer is lost, and for a shorter time use the
//! timer of the executor. A future that is dropped does not stop its operation:
//! [`abort`](Pending::abort) does, for a transfer. A task must not call functions that take a timeout,
//! such as [`wait`](Pending::wait), [`Grant::revoke`] and [`Engine::close`]: they block the thread.
//!
//! **What goes wrong.** The same errors, without [`ErrorKind::TimedOut`].
//!
//! # Many peers
//!
//! A server need not wait for each peer in a thread. [`Engine::recv_any`] returns the next message of any
//! peer, [`Engine::next_event`] tells who came and who is lost, and [`Engine::wait_any`] waits for
//! either, and for [`Engine::accept`]. A [`SharedCounter`](crate::SharedCounter) counts what all peers
//! write.
//!
//! ```
//! # use std::time::Duration;
//! use farreach::{Access, Engine, PeerEvent, Rights};
//!
//! # const SOON: Duration = Duration::from_secs(20);
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Engine::new()?;
//! // Before `listen`, so that no event is missed.
//! let mut events = server.next_event();
//! let (mut newcomers, mut requests) = (server.accept(), server.recv_any());
//! let memory = server.allocate(1 << 20).wait(SOON)?;
//! let log = server.publish_exposed(memory, Rights::WRITE, Access::Anyone).wait(SOON)?;
//! let written = server.open_counter(Access::Anyone).wait(SOON)?;
//! let address = server.listen("127.0.0.1:0")?;
//! # let clients: Vec<_> = (0..3_u64).map(|number| std::thread::spawn(move || {
//! #     client(address, number).unwrap()
//! # })).collect();
//!
//! // A peer is connected as long as the server has a handle of it.
//! let mut peers = Vec::new();
//! let (mut came, mut done) = (0, 0);
//! while came < 3 || !peers.is_empty() {
//!     match server.wait_any(&mut [&mut newcomers, &mut requests, &mut events], SOON)? {
//!         0 => {
//!             let peer = newcomers.wait(Duration::ZERO)?;
//!             let welcome = peer.send(format!("{} {}", log.token(), written.token()));
//!             // Not waited for: a peer that is lost meanwhile is an event.
//!             drop(welcome);
//!             peers.push(peer);
//!             came += 1;
//!         }
//!         1 => {
//!             let (peer, request) = requests.wait(Duration::ZERO)?;
//!             println!("{}: {}", peer.name(), String::from_utf8_lossy(&request));
//!             done += 1;
//!         }
//!         _ => match events.wait(Duration::ZERO)? {
//!             PeerEvent::Lost { peer, reason } => {
//!                 println!("{peer:?} is gone: {reason}");
//!                 peers.retain(|it| it.id() != peer);
//!             }
//!             _ => {}
//!         },
//!     }
//! }
//! assert_eq!((done, written.reached()), (3, 3));
//! # for client in clients {
//! #     client.join().unwrap();
//! # }
//! # Ok(())
//! # }
//!
//! // In each of three clients:
//! # fn client(address: std::net::SocketAddr, number: u64) -> Result<(), Box<dyn std::error::Error>> {
//! # let client = Engine::new()?;
//! let to_server = client.connect(address)?.wait(SOON)?;
//! let welcome = String::from_utf8(to_server.recv().wait(SOON)?)?;
//! let (log, written) = welcome.split_once(' ').ok_or("two tokens are expected")?;
//! let log = to_server.open(log.parse()?).wait(SOON)?;
//! let written = to_server.open_shared_counter(written.parse()?).wait(SOON)?;
//! to_server.write_and_count(vec![1; 100], &log.at(number * 100), &written).wait(SOON)?;
//! to_server.send("done").wait(SOON)?;
//! # Ok(())
//! # }
//! ```
//!
//! **What goes wrong.** A wait for any peer does not end when one of them is lost: take the events. A
//! wait of a [`SharedCounter`](crate::SharedCounter) ends with [`ErrorKind::PeerLost`] once for each
//! peer that is lost, also if it has closed the connection in order, and can be repeated for the others.
//! [`Budgets`](crate::Budgets) limit what each peer may ask for: a peer that exceeds one is lost with
//! [`LostReason::OverBudget`](crate::LostReason::OverBudget).
//!
//! # Errors
//!
//! Every error has a [kind](Error::kind) for the program, and an operation, a [cause](Error::cause) and a
//! [fix](Error::fix) for people. A program whose `main` returns it prints all of them.
//!
//! | kind | what to do |
//! |---|---|
//! | [`PeerLost`](ErrorKind::PeerLost) | connect again; grants, publications and counters of the peer are opened again |
//! | [`TimedOut`](ErrorKind::TimedOut) | wait again: the operation continues |
//! | [`Busy`](ErrorKind::Busy) | try again: no link is ready yet, or too much is in flight |
//! | [`Unknown`](ErrorKind::Unknown) | read the memory: the atomic took effect, or not |
//! | [`NotGranted`](ErrorKind::NotGranted), [`Revoked`](ErrorKind::Revoked) | ask the owner for memory |
//! | [`Argument`](ErrorKind::Argument), [`Setting`](ErrorKind::Setting), [`Address`](ErrorKind::Address) | correct the program or its configuration |
//! | [`Connect`](ErrorKind::Connect), [`NoRail`](ErrorKind::NoRail), [`Rail`](ErrorKind::Rail), [`Tls`](ErrorKind::Tls), [`Insecure`](ErrorKind::Insecure) | show the cause and the fix |
//!
//! ```
//! # use std::time::Duration;
//! # use farreach::Engine;
//! # const SOON: Duration = Duration::from_secs(20);
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server, client) = (Engine::new()?, Engine::new()?);
//! # let to_server = client.connect(server.listen("127.0.0.1:0")?)?.wait(SOON)?;
//! # let to_client = server.accept().wait(SOON)?;
//! use farreach::{ErrorKind, LostReason, Rights};
//!
//! // A timeout ends the wait, and not the operation.
//! let mut message = to_server.recv();
//! let error = message.wait(Duration::from_millis(10)).unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::TimedOut);
//! to_client.send("hello").wait(SOON)?;
//! assert_eq!(message.wait(SOON)?, b"hello");
//!
//! // The error of a transfer has its memory.
//! let grant = to_client.grant(server.allocate(4096).wait(SOON)?, Rights::READ).wait(SOON)?;
//! let remote = to_server.remote(grant.token()).wait(SOON)?;
//! let failed = to_server.write(b"hello".to_vec(), &remote).wait(SOON).unwrap_err();
//! assert_eq!(failed.error.kind(), ErrorKind::NotGranted);
//! assert_eq!(failed.buffer, Some(b"hello".to_vec()));
//! println!("{}\nfix: {}", failed.error, failed.error.fix());
//!
//! // The peer ends. Every wait for it ends as well.
//! server.close(SOON)?;
//! let error = to_server.recv().wait(SOON).unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::PeerLost);
//! assert_eq!(error.lost(), Some(&LostReason::Goodbye));
//! # Ok(())
//! # }
//! ```
//!
//! A function that returns `Result<_, farreach::Error>` may use `?` with any of them: the memory of a
//! [`TransferError`] and the grant of a [`RevokeError`](crate::RevokeError) are dropped then.
//!
//! A peer whose process has ended, or was killed, is lost at once. A peer that is silent, because its
//! host or the network is down, is lost after [`Settings::peer_timeout`], 3 s by default. A lost link
//! is no error: the engine uses another one, or connects it again.
//!
//! # Memory
//!
//! Memory of [`Engine::allocate`] is registered with every rail once, and costs nothing at each
//! transfer. Use a `Vec<u8>` where a copy or a registration does not matter. [`Engine::allocate_with`]
//! takes [`MemoryOptions`]: huge pages, and the NUMA node of the card.
//!
//! ```
//! # use std::time::Duration;
//! # use farreach::Engine;
//! # const SOON: Duration = Duration::from_secs(20);
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let engine = Engine::new()?;
//! use farreach::{HugePages, Memory, MemoryOptions, leaked_bytes};
//!
//! let options = MemoryOptions::new().huge_pages(HugePages::Try);
//! let mut cache = engine.allocate_with(&options, 4 << 20).wait(SOON)?;
//! for note in cache.memory().notes() {
//!     println!("{note}");
//! }
//!
//! // One allocation, in two parts that are granted or transferred apart, and joined again.
//! let rest = cache.split_off(1 << 20);
//! assert_eq!((cache.len(), rest.len()), (1 << 20, 3 << 20));
//! cache.unsplit(rest).expect("they are neighbours");
//!
//! // Bytes that the program has already, without a copy.
//! let bytes = Memory::from_vec(vec![7; 4096]);
//! engine.register(bytes.memory()).wait(SOON)?;
//!
//! // Read by any number of transfers at once, and by the program.
//! let shared = bytes.share();
//! assert_eq!(shared[0], 7);
//!
//! // Memory that a card might still access is never freed. It should stay 0.
//! assert_eq!(leaked_bytes(), 0);
//! # Ok(())
//! # }
//! ```
//!
//! **What goes wrong.** [`ErrorKind::System`]: the system has no such memory, or `ulimit -l` does not
//! allow to register it. `farreach doctor` names the limit and the fix.
//!
//! # Close
//!
//! An engine ends when its last handle is dropped, and tells its peers so. [`Engine::close`] also waits
//! until the engines of the peers have every message and nothing is in flight. [`Peer::flush`] waits for
//! the messages to one peer, and [`Peer::close`] ends the connection to it.
//!
//! ```
//! # use std::time::Duration;
//! # use farreach::Engine;
//! # const SOON: Duration = Duration::from_secs(20);
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server, client) = (Engine::new()?, Engine::new()?);
//! # let to_server = client.connect(server.listen("127.0.0.1:0")?)?.wait(SOON)?;
//! # let to_client = server.accept().wait(SOON)?;
//! drop(to_server.send("the last message"));
//! client.close(SOON)?;
//!
//! // It is received after the end of the client, too.
//! assert_eq!(to_client.recv().wait(SOON)?, b"the last message");
//! # Ok(())
//! # }
//! ```
//!
//! **What goes wrong.** [`ErrorKind::TimedOut`]: a peer does not answer. The engine has ended anyway.
#![expect(unused_imports, reason = "only the documentation names them")]

#[cfg(feature = "tls")]
use crate::Secret;
use crate::{
    Access, Counter, Engine, Error, ErrorKind, Exposed, Grant, MemoryOptions, PageMap, Peer, Pending,
    RemoteSlice, Rights, Settings, Shared, Slice, TransferError, TransferList,
};
