//! Hands the connection of a client, with its order, from the server to an agent.
//!
//! Server and agent share a pair of Unix sockets; the agent's end is its standard input. The server
//! sends one message: the order, with the connection's descriptor. The agent sends one message when
//! it has opened its rails. When either process ends, the other one sees the end of the socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg, socketpair,
};

/// The size limit of an order. Usual ones have some hundred bytes, and 256 sizes some thousand. The
/// server holds the orders of all clients that wait.
pub(crate) const ORDER_BYTES_MAX: usize = 16 * 1024;

/// The message of an agent that has opened its rails.
const OPENED: &[u8] = b"opened";

/// Creates the two ends. They keep the boundaries of messages.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends an order with the connection that it came from. The caller keeps its descriptor.
pub(crate) fn send_order(to: impl AsFd, order: &[u8], connection: &TcpStream) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [connection.as_fd()];
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("the descriptor does not fit the message"));
    }
    // The agent may be gone, which must not end the server by a signal.
    sendmsg(to, &[IoSlice::new(order)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives an order and its connection.
pub(crate) fn recv_order(from: impl AsFd) -> io::Result<(Vec<u8>, TcpStream)> {
    let mut order = vec![0; ORDER_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(from, &mut [IoSliceMut::new(&mut order)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    order.truncate(received.bytes);
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let descriptor = descriptor.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((order, TcpStream::from(descriptor)))
}

/// Tells the server that this agent has opened its rails.
pub(crate) fn tell_opened(to: impl AsFd) -> io::Result<()> {
    send(to, OPENED, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The message of an agent, as its server reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FromAgent {
    /// It has opened its rails.
    Opened,
    /// It has ended.
    End,
    Nothing,
}

/// Reads a message of an agent without waiting for it.
pub(crate) fn recv_from_agent(from: impl AsFd) -> FromAgent {
    let mut message = [0; OPENED.len()];
    match recv(from, &mut message, RecvFlags::DONTWAIT) {
        Ok((0, _)) => FromAgent::End,
        Ok((len, _)) if message[..len] == *OPENED => FromAgent::Opened,
        Err(error) if error != rustix::io::Errno::AGAIN && error != rustix::io::Errno::INTR => FromAgent::End,
        _ => FromAgent::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_order_arrives_whole_with_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (connection, _) = listener.accept().unwrap();
        let (server, agent) = pair().unwrap();
        let order = vec![b'x'; ORDER_BYTES_MAX];
        send_order(&server, &order, &connection).unwrap();
        drop(connection);
        let (received, mut connection) = recv_order(&agent).unwrap();
        assert!(received == order);
        client.write_all(b"hello").unwrap();
        let mut said = [0; 5];
        connection.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"hello");
        assert_eq!(recv_from_agent(&server), FromAgent::Nothing);
        tell_opened(&agent).unwrap();
        assert_eq!(recv_from_agent(&server), FromAgent::Opened);
        drop(agent);
        assert_eq!(recv_from_agent(&server), FromAgent::End);
    }

    #[test]
    fn the_end_of_the_server_is_noticed() {
        let (server, agent) = pair().unwrap();
        drop(server);
        assert_eq!(recv_order(&agent).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(tell_opened(&agent).is_err());
    }
}
