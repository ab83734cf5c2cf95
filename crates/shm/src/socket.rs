//! A connected Unix socket that carries packets with descriptors. No call blocks.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The length of every packet in bytes.
pub(crate) const PACKET: usize = 64;

/// The descriptors that a packet may carry.
const DESCRIPTORS_MAX: usize = 2;

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

/// A packet that has arrived.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) bytes: [u8; PACKET],
    pub(crate) descriptors: Vec<OwnedFd>,
    /// Whether descriptors were lost, because this process may open no more.
    pub(crate) is_cut: bool,
}

/// The result of a receive.
#[derive(Debug)]
pub(crate) enum Receive {
    Packet(Received),
    /// Nothing is there now.
    Nothing,
    /// The other side has closed its socket.
    Closed,
    /// It has sent something of another length.
    Wrong,
}

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Sends a packet. Returns `false` if the other side has to receive earlier ones first.
    pub(crate) fn send(&self, bytes: &[u8; PACKET], descriptors: &[BorrowedFd<'_>]) -> Result<bool, Errno> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::INVAL);
        }
        // Not the flag of the socket, and no SIGPIPE.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => Ok(true),
            // ETOOMANYREFS: more descriptors are in flight than this user may have open.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::TOOMANYREFS) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Receives a packet.
    pub(crate) fn receive(&self) -> Result<Receive, Errno> {
        let mut bytes = [0; PACKET];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = match recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Receive::Nothing),
            Err(Errno::CONNRESET) => return Ok(Receive::Closed),
            Err(error) => return Err(error),
        };
        // All that have arrived are owned now, and closed if they are not wanted.
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        let is_cut = received.flags.contains(ReturnFlags::CTRUNC);
        Ok(match received.bytes {
            0 if descriptors.is_empty() => Receive::Closed,
            PACKET if !received.flags.contains(ReturnFlags::TRUNC) => {
                Receive::Packet(Received { bytes, descriptors, is_cut })
            }
            _ => Receive::Wrong,
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
