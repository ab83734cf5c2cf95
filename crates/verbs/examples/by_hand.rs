//! Two queue pairs brought together by hand, without the connection manager.
//!
//! ```console
//! $ by_hand serve
//! $ by_hand HOST
//! ```
//!
//! What the connection manager otherwise carries goes over a TCP socket: who the queue pair is, and where memory is that the
//! peer may touch. Then the server sends a message, the client READs the server's memory and WRITEs it, and the server checks.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program that talks to its user

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
/// Which bytes are in the server's memory at first, and which the client leaves there.
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
    // Room for the client's message, before it can possibly send it.
    end.qp.post_recv(RecvRequest::new(end.pd.allocate(BYTES)?))?;

    let peer = address(read(&mut socket)?)?;
    socket.write_all(&own.to_bytes())?;
    let remote = target.remote();
    socket.write_all(&remote.address().to_be_bytes())?;
    socket.write_all(&remote.len().to_be_bytes())?;
    socket.write_all(&remote.key().0.to_be_bytes())?;
    end.qp.connect(&end.parameters, &own, &peer)?;
    // A message to a queue pair that cannot receive yet is lost, and sent again after a while: better to wait for its word.
    read::<1>(&mut socket)?;

    let mut message = end.pd.allocate(BYTES)?;
    message[..8].copy_from_slice(b"read me!");
    end.qp.post_send(SendRequest::send(message))?;
    println!("message sent");
    // The client's READ and WRITE do not show here: no completion, no interrupt, no work for this processor. Its message does, and
    // comes after them.
    while wait(&end.cq)?.kind != WorkKind::Recv {}
    let mut bytes = vec![0; BYTES];
    target.read(&mut bytes)?;
    check(is_filled(&bytes, AFTER), "the memory that the client wrote")?;
    println!("the client has written {BYTES} bytes");
    // Who ends first takes the queue pair away that the other's last message is still to be acknowledged by.
    read::<1>(&mut socket)?;
    Ok(())
}

/// Visits a server.
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
    // The buffer went into the request, and comes back with its completion: meanwhile it is the card's.
    let mut slice = wait(&end.cq)?.buffers.into_slice().expect("it was one slice");
    check(is_filled(&slice, BEFORE), "the memory that was read")?;
    println!("read {BYTES} bytes");

    fill(&mut slice, AFTER);
    end.qp.post_send(SendRequest::write(slice, remote))?;
    // Requests of one queue pair arrive in order: who has the message also has the bytes.
    end.qp.post_send(SendRequest::send(end.pd.allocate(1)?))?;
    wait(&end.cq)?;
    wait(&end.cq)?;
    println!("written {BYTES} bytes");
    socket.write_all(b"!")?;
    Ok(())
}

/// One side: a queue pair, which is in INIT, and what it is made on.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    parameters: ConnectionParameters,
}

impl End {
    /// On the first device with an address of the peer's kind. `access` is what the peer may do.
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

/// The server's memory: on the card where the card has some, which saves the way over the host's bus.
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
        println!("note: this card has no on-chip memory; host memory is used");
        let mut slice = pd.allocate(BYTES)?;
        fill(&mut slice, BEFORE);
        // From here on a peer may change the bytes at any time, so that nobody has a reference to them.
        Ok(Self::Host(pd.expose(slice, access).map_err(|(error, _slice)| error)?))
    }

    fn remote(&self) -> RemoteRange {
        match self {
            Self::Host(region) => region.remote(),
            // A card's memory is counted from 0.
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

/// What comes from the network is looked at before it is believed.
fn address(bytes: [u8; PeerAddress::BYTES]) -> Result<PeerAddress, Failure> {
    PeerAddress::from_bytes(bytes).ok_or_else(|| Failure::wrong_bytes("the peer's address"))
}
