//! Connects two queue pairs without the connection manager.
//!
//! ```console
//! $ by_hand serve
//! $ by_hand HOST
//! ```
//!
//! A TCP socket replaces the connection manager: it carries the address of the queue pair, and the
//! range of memory that the peer may access. Then the server sends a message, the client READs and
//! WRITEs the server's memory, and the server checks it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::process::ExitCode;

use common::{Failure, PATIENCE, accept, check, fill, is_filled, open, resolve, wait};
use farreach_verbs::cq::{CompletionQueue, WorkKind};
use farreach_verbs::dm::DeviceMemory;
use farreach_verbs::mr::{AccessFlags, MemoryRegion, RemoteKey};
use farreach_verbs::pd::ProtectionDomain;
use farreach_verbs::qp::state::{ConnectionParameters, PeerAddress};
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::region::ExposedRegion;
use farreach_verbs::wr::{RecvRequest, RemoteRange, SendRequest};

mod common;

const USAGE: &str = "usage: by_hand serve [--port P]\n       by_hand HOST [--port P]";
const PORT: u16 = 18530;
const BYTES: usize = 4096;
/// The patterns in the server's memory before and after the client's write.
const BEFORE: u32 = 1;
const AFTER: u32 = 2;

fn main() -> ExitCode {
    common::run(USAGE, &["--port"], |arguments| {
        let port = arguments.option("--port")?.unwrap_or(PORT);
        match arguments.needed()? {
            "serve" => serve(port),
            host => visit(host, port),
        }
    })
}

/// Serves one client.
fn serve(port: u16) -> Result<(), Failure> {
    let mut socket = accept(port)?;
    let (end, own) =
        End::new(socket.peer_addr()?.ip(), AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE)?;
    let target = Target::new(&end.pd)?;
    // Posts the receive for the client's message before the client can send it.
    end.qp.post_recv(RecvRequest::new(end.pd.allocate(BYTES)?))?;

    let peer = address(read(&mut socket)?)?;
    socket.write_all(&own.to_bytes())?;
    let remote = target.remote();
    socket.write_all(&remote.address().to_be_bytes())?;
    socket.write_all(&remote.len().to_be_bytes())?;
    socket.write_all(&remote.key().0.to_be_bytes())?;
    end.qp.connect(&end.parameters, &own, &peer)?;
    // A message to a queue pair that cannot receive yet is lost, and sent again later. So this
    // waits until the client is ready.
    read::<1>(&mut socket)?;

    let mut message = end.pd.allocate(BYTES)?;
    message[..8].copy_from_slice(b"read me!");
    end.qp.post_send(SendRequest::send(message))?;
    println!("message sent");
    // The client's READ and WRITE cause no completion, no interrupt and no work for this processor.
    // Its message does, and arrives after them.
    while wait(&end.cq)?.kind != WorkKind::Recv {}
    let mut bytes = vec![0; BYTES];
    target.read(&mut bytes)?;
    check(is_filled(&bytes, AFTER), "the memory that the client wrote")?;
    println!("the client has written {BYTES} bytes");
    // A side that ends first would destroy the queue pair that must acknowledge the other's last
    // message.
    read::<1>(&mut socket)?;
    Ok(())
}

/// Connects to a server.
fn visit(host: &str, port: u16) -> Result<(), Failure> {
    let mut socket = TcpStream::connect_timeout(&resolve(host, port)?, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let (end, own) = End::new(socket.peer_addr()?.ip(), AccessFlags::empty())?;
    end.qp.post_recv(RecvRequest::new(end.pd.allocate(BYTES)?))?;

    socket.write_all(&own.to_bytes())?;
    let peer = address(read(&mut socket)?)?;
    let remote = RemoteRange::new(
        u64::from_be_bytes(read(&mut socket)?),
        u64::from_be_bytes(read(&mut socket)?),
        RemoteKey(u32::from_be_bytes(read(&mut socket)?)),
    );
    end.qp.connect(&end.parameters, &own, &peer)?;
    socket.write_all(b"!")?;

    let received = wait(&end.cq)?;
    println!("message received: {} bytes", received.success.byte_len);

    end.qp.post_send(SendRequest::read(end.pd.allocate(BYTES)?, remote))?;
    // The buffer moved into the work request, and returns with its completion. Meanwhile the device
    // has it.
    let mut slice = wait(&end.cq)?.buffers.into_slice().expect("it was one slice");
    check(is_filled(&slice, BEFORE), "the memory that was read")?;
    println!("read {BYTES} bytes");

    fill(&mut slice, AFTER);
    end.qp.post_send(SendRequest::write(slice, remote))?;
    // Work requests of one queue pair arrive in order: when the message has arrived, so have the
    // bytes.
    end.qp.post_send(SendRequest::send(end.pd.allocate(1)?))?;
    wait(&end.cq)?;
    wait(&end.cq)?;
    println!("written {BYTES} bytes");
    socket.write_all(b"!")?;
    Ok(())
}

/// One side: a queue pair in INIT, and its parents.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    parameters: ConnectionParameters,
}

impl End {
    /// Uses the first device with an address of the peer's family. `access` is the access of the
    /// peer.
    fn new(peer: IpAddr, access: AccessFlags) -> Result<(Self, PeerAddress), Failure> {
        let (context, mut parameters) = open(Some(peer))?;
        println!("{}: {}", context.device().name(), parameters.gid);
        parameters.access = access;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(16)?;
        let qp =
            QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq).max_send_wr(4).max_recv_wr(4).build(&pd)?;
        let own = qp.to_init(&parameters)?;
        Ok((Self { qp, cq, pd, parameters }, own))
    }
}

/// The server's memory: on the device if the device has memory, which avoids the host's bus.
enum Target {
    Host(ExposedRegion),
    Chip(DeviceMemory, MemoryRegion),
}

impl Target {
    fn new(pd: &ProtectionDomain) -> Result<Self, Failure> {
        let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        if pd.context().query_device()?.max_dm_bytes >= BYTES as u64 {
            let dm = pd.context().alloc_dm(BYTES, 6)?;
            let mut bytes = vec![0; BYTES];
            fill(&mut bytes, BEFORE);
            dm.copy_to(0, &bytes)?;
            let mr = pd.reg_dm_mr(&dm, 0, BYTES, access)?;
            return Ok(Self::Chip(dm, mr));
        }
        println!("note: this device has no on-chip memory; host memory is used");
        let mut slice = pd.allocate(BYTES)?;
        fill(&mut slice, BEFORE);
        // From here on, a peer may change the bytes at any time, so no reference to them exists.
        Ok(Self::Host(pd.expose(slice, access).map_err(|(error, _slice)| error)?))
    }

    fn remote(&self) -> RemoteRange {
        match self {
            Self::Host(region) => region.remote(),
            // Addresses of on-chip memory begin at 0.
            Self::Chip(dm, mr) => RemoteRange::new(0, dm.len() as u64, mr.rkey()),
        }
    }

    fn read(&self, into: &mut [u8]) -> Result<(), Failure> {
        match self {
            Self::Host(region) => region.bytes().read_at(0, into),
            Self::Chip(dm, _) => dm.copy_from(0, into)?,
        }
        Ok(())
    }
}

fn read<const N: usize>(socket: &mut TcpStream) -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    socket.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Decodes the peer's address. Data from the network must be validated.
fn address(bytes: [u8; PeerAddress::BYTES]) -> Result<PeerAddress, Failure> {
    PeerAddress::from_bytes(bytes).ok_or_else(|| Failure::wrong_bytes("the peer's address"))
}
