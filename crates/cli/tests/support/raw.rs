//! A client that sends what it likes: wrong numbers, too much, too little, too slowly.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::server::Server;

/// The first bytes of a client of this version.
pub(crate) const HEAD: &[u8] = b"frcmd\n\0\x04";

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Raw(TcpStream);

/// The answer to an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The server's refusal: the error, and the exit code of a client.
    Refused(String, String),
    /// The order waits.
    Waiting,
    /// An agent has it.
    Served,
    /// The connection was closed.
    Closed,
}

/// An order of a ping that a server accepts. It is never carried out: no engine is behind it.
pub(crate) fn order() -> Value {
    json!({
        "version": "0.1.0",
        "host": "a hostile host",
        "rails": { "cards": false, "providers": ["tcp"] },
        "engine": { "wait": "event", "depth": 128, "messages": 256, "message_bytes_max": 4096 },
        "test": 7,
        "connections": 1,
        "task": { "Ping": { "operation": "write", "sizes": [64], "seed": 1, "alter_byte": false } },
    })
}

/// The same with another value somewhere.
pub(crate) fn order_with(place: &str, value: impl Into<Value>) -> Value {
    let mut order = order();
    *order.pointer_mut(place).unwrap_or_else(|| panic!("{place} is not in an order")) = value.into();
    order
}

/// The bytes of an order.
pub(crate) fn framed(order: &Value) -> Vec<u8> {
    let body = order.to_string().into_bytes();
    [&(body.len() as u32).to_be_bytes()[..], &body].concat()
}

impl Raw {
    pub(crate) fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a plain socket");
        stream.set_nodelay(true).expect("a plain socket");
        Self(stream)
    }

    /// Connects, and sends an order.
    pub(crate) fn order(server: &Server, order: &Value) -> Self {
        let mut client = Self::connect(server);
        client.send(&[HEAD, &framed(order)].concat()).expect("it reads");
        client
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Shuts down the sending side.
    pub(crate) fn shut_down(&self) {
        self.0.shutdown(Shutdown::Write).expect("it is connected");
    }

    /// Reads the server's head and its welcome, or its refusal instead.
    pub(crate) fn welcome(&mut self) -> Option<Value> {
        let mut head = [0; HEAD.len()];
        self.0.read_exact(&mut head).ok()?;
        assert_eq!(head, HEAD);
        self.message()
    }

    /// Reads a message; none if the connection is closed.
    pub(crate) fn message(&mut self) -> Option<Value> {
        let mut len = [0; 4];
        self.0.read_exact(&mut len).ok()?;
        let mut message = vec![0; u32::from_be_bytes(len) as usize];
        self.0.read_exact(&mut message).ok()?;
        Some(serde_json::from_slice(&message).expect("the server sends JSON"))
    }

    /// Reads the next notice after the welcome.
    pub(crate) fn notice(&mut self) -> Answer {
        let Some(notice) = self.message() else { return Answer::Closed };
        if notice == "Served" {
            return Answer::Served;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match notice.get("Refused") {
            Some(refused) => Answer::Refused(text(&refused["error"]), text(&refused["exit"])),
            None => {
                assert!(notice.get("Waiting").is_some(), "{notice}");
                Answer::Waiting
            }
        }
    }

    /// Reads to the end of what the server says to an order: an agent has it, or it is refused.
    pub(crate) fn answer(&mut self) -> Answer {
        let Some(welcome) = self.welcome() else { return Answer::Closed };
        assert!(welcome.get("Ok").is_some(), "{welcome}");
        self.after_waiting()
    }

    /// Reads notices until one is not about waiting.
    pub(crate) fn after_waiting(&mut self) -> Answer {
        loop {
            match self.notice() {
                Answer::Waiting => {}
                other => return other,
            }
        }
    }

    /// Returns whether the server has closed the connection, without waiting for it. What it has said
    /// is discarded.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.0.set_nonblocking(true).expect("a plain socket");
        let is_closed = loop {
            match self.0.read(&mut [0; 4096]) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) => break error.kind() != io::ErrorKind::WouldBlock,
            }
        };
        self.0.set_nonblocking(false).expect("a plain socket");
        is_closed
    }
}
