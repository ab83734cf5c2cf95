//! Two control connections with the fuzzer between them.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use farreach_proto::wire::Frame;
use rustix::net::SendFlags;

use super::connection::Connection;
use super::rates::Rates;
use super::{RecordLayer, Session};
use crate::Tls;
use crate::budgets::ControlBudgets;

/// Two connections. What one sends reaches the other only if the fuzzer passes it on.
#[derive(Debug)]
pub struct Middle {
    ends: [End; 2],
    scratch: Vec<u8>,
}

/// A side of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The side that has connected.
    Client = 0,
    /// The side that has accepted.
    Server = 1,
}

#[derive(Debug)]
struct End {
    connection: Connection,
    /// The other end of its socket.
    cable: UnixStream,
    has_ended: bool,
}

impl Middle {
    /// Connects two sides, each with TLS if it has a configuration.
    pub fn new(client: Option<&Tls>, server: Option<&Tls>) -> Self {
        let client = client.map(|tls| Session::new(tls.connecting("storage-7").expect("a session")));
        let server = server.map(|tls| Session::new(tls.accepting().expect("a session")));
        let layer = |session: Option<Session>| match session {
            Some(session) => RecordLayer::Tls(Box::new(session)),
            None => RecordLayer::Plain,
        };
        let ends = [End::new(layer(client), Side::Client), End::new(layer(server), Side::Server)];
        Self { ends, scratch: vec![0; 64 * 1024] }
    }

    /// Queues a frame.
    pub fn send(&mut self, side: Side, frame: &Frame) {
        let end = &mut self.ends[side as usize];
        if !end.has_ended {
            end.connection.push(frame).expect("the frame is not too long");
        }
    }

    /// Ends a side's session in order. As in a lingering close, the side decrypts nothing more:
    /// rustls asserts, in a debug build, that no alert follows its `close_notify`.
    pub fn close(&mut self, side: Side) {
        let end = &mut self.ends[side as usize];
        end.connection.write_close();
        end.has_ended = true;
    }

    /// Returns what a side sends now.
    pub fn sent_by(&mut self, side: Side) -> Vec<u8> {
        let End { connection, cable, .. } = &mut self.ends[side as usize];
        let mut sent = Vec::new();
        loop {
            connection.flush();
            match cable.read(&mut self.scratch) {
                Ok(len @ 1..) => sent.extend_from_slice(&self.scratch[..len]),
                _ => return sent,
            }
        }
    }

    /// Passes bytes to a side. Returns the frames that the side delivers.
    pub fn deliver(&mut self, side: Side, mut bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        let end = &mut self.ends[side as usize];
        while !end.has_ended {
            // Without a signal if the fuzzer has hung up: then the side reads the end.
            let written = rustix::net::send(&end.cable, bytes, SendFlags::NOSIGNAL).unwrap_or(0);
            bytes = &bytes[written..];
            // A full socket takes 0 bytes. This read makes room.
            let has_more = end.read(&mut self.scratch, &mut frames);
            if bytes.is_empty() && !has_more {
                break;
            }
        }
        frames
    }

    /// Ends the socket of a side.
    pub fn hang_up(&mut self, side: Side) {
        let _ = self.ends[side as usize].cable.shutdown(std::net::Shutdown::Both);
    }

    /// Returns whether a side has ended the connection because of an error or its end.
    pub fn has_ended(&self, side: Side) -> bool {
        self.ends[side as usize].has_ended
    }

    /// Returns the bytes that a side says that it holds.
    pub fn memory(&self, side: Side) -> usize {
        self.ends[side as usize].connection.memory()
    }
}

impl End {
    fn new(layer: RecordLayer, side: Side) -> Self {
        let (inner, cable) = UnixStream::pair().expect("there are descriptors");
        for socket in [&inner, &cable] {
            socket.set_nonblocking(true).expect("a socket");
        }
        // A Unix socket, which needs no port. `Connection` makes no call that it lacks.
        let stream = TcpStream::from(OwnedFd::from(inner));
        let peer = SocketAddr::from(([10, 0, 0, 7], 18520));
        let rates = Rates::new(&ControlBudgets::default(), Instant::now());
        let connection = match side {
            // Not `connecting`: the sockets are connected from the beginning.
            Side::Client => Connection::adopted(stream, peer, layer, rates),
            Side::Server => Connection::accepted(stream, peer, layer, rates),
        };
        Self { connection, cable, has_ended: false }
    }

    /// Reads once, and takes the frames. Returns whether there may be more.
    fn read(&mut self, scratch: &mut [u8], frames: &mut Vec<Frame>) -> bool {
        let read = self.connection.read(scratch).and_then(|(progress, _)| {
            while let Some(frame) = self.connection.next_frame()? {
                if self.connection.awaits_first_frame() {
                    self.connection.open();
                }
                frames.push(frame);
            }
            Ok(progress)
        });
        match read {
            Ok(progress) => !matches!(progress, super::connection::Progress::Dry),
            Err(reason) => {
                // Users read it.
                assert!(!reason.to_string().is_empty());
                self.has_ended = true;
                false
            }
        }
    }
}
