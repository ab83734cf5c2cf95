//! A connected Unix socket that carries packets with descriptors. No call blocks.
//!
//! Each end of a connection is an open file of its own, whose flags the other process cannot change. All
//! calls ask for no wait by a flag of their own all the same.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use farreach_memory::process_epoch;
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, recvmsg, send, sendmsg, shutdown,
};

use crate::closer;

/// The length of every packet in bytes.
pub(crate) const PACKET: usize = 64;

/// The descriptors that the kernel passes with one packet at most (`SCM_MAX_FD`). With room for all, the
/// kernel closes none within a receive, which could block as [`closer`] tells.
const DESCRIPTORS_MAX: usize = 253;

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Socket {
    /// `None` only while it is dropped.
    fd: Option<OwnedFd>,
    epoch: u64,
}

/// A packet that has arrived.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) bytes: [u8; PACKET],
    /// The file in memory that came with it. `None` also if this process may open no more descriptors.
    pub(crate) memory: Option<OwnedFd>,
}

/// The result of a receive.
#[derive(Debug)]
pub(crate) enum Receive {
    Packet(Received),
    /// Nothing is there now.
    Nothing,
    /// The other side has closed its socket.
    Closed,
    /// It has sent something of another length, or a descriptor that no packet has.
    Wrong(&'static str),
}

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd: Some(fd), epoch: process_epoch() }
    }

    /// Returns whether this process was forked from the one that has opened the socket.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.epoch != process_epoch()
    }

    /// Sends a packet. Returns `false` if the other side has to receive earlier ones first.
    pub(crate) fn send(
        &self,
        bytes: &[u8; PACKET],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<bool, Errno> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = descriptor.as_slice();
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::INVAL);
        }
        match sendmsg(self.as_fd(), &[IoSlice::new(bytes)], &mut control, SEND_FLAGS) {
            Ok(_) => Ok(true),
            // ETOOMANYREFS: more descriptors are in flight than this user may have open.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::TOOMANYREFS) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends a packet that only wakes the other side. Without room it has packets to receive, and is awake.
    pub(crate) fn wake(&self, bytes: &[u8; PACKET]) -> Result<(), Errno> {
        match send(self.as_fd(), bytes, SEND_FLAGS) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Tells the other side that no packet follows. This one can still be told the same.
    pub(crate) fn end(&self) {
        // It fails only for a socket that is not connected any more.
        let _ = shutdown(self.as_fd(), Shutdown::Write);
    }

    /// Receives a packet.
    pub(crate) fn receive(&self) -> Result<Receive, Errno> {
        let mut bytes = [0; PACKET];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = match recvmsg(self.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Receive::Nothing),
            Err(Errno::CONNRESET) => return Ok(Receive::Closed),
            Err(error) => return Err(error),
        };
        // All that have arrived are owned now.
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if descriptors.len() > 1 || !descriptors.iter().all(closer::is_memory) {
            descriptors.into_iter().filter(|fd| !closer::is_memory(fd)).for_each(closer::close);
            return Ok(Receive::Wrong("a descriptor that no packet has"));
        }
        Ok(match received.bytes {
            0 if descriptors.is_empty() => Receive::Closed,
            PACKET if !received.flags.contains(ReturnFlags::TRUNC) => {
                Receive::Packet(Received { bytes, memory: descriptors.pop() })
            }
            _ => Receive::Wrong("a packet of another length"),
        })
    }
}

/// Not the flag of the socket, and no SIGPIPE.
const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("only `drop` takes it").as_fd()
    }
}

impl Drop for Socket {
    /// Closes the socket, and with it the descriptors in packets that were not received.
    fn drop(&mut self) {
        // A forked child closes its descriptor only.
        if self.is_of_parent() {
            return;
        }
        let Some(fd) = self.fd.take() else { return };
        // At once, whenever it is closed.
        let _ = shutdown(&fd, Shutdown::Both);
        closer::close(fd);
    }
}
