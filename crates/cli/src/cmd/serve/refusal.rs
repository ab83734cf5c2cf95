//! Refuses clients, and sends them the reason.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};

use crate::exit::{Exit, Failure};
use crate::session::{Line, Other, Security, tell_refusal};
use crate::terminal;

/// The maximum number of concurrent refusals over TLS. Each has a thread during its handshake.
const TOLD_AT_ONCE_MAX: usize = 32;

/// Sends clients the reason that the server is busy.
#[derive(Debug)]
pub(super) struct Refusals {
    security: Security,
    is_for_one: bool,
    /// Each refusing thread holds a clone, so the reference count limits their number.
    telling: Arc<()>,
}

impl Refusals {
    pub(super) fn new(security: Security, is_for_one: bool) -> Self {
        Self { security, is_for_one, telling: Arc::new(()) }
    }

    /// Refuses this client while `count` others are served. It does not block the server.
    pub(super) fn tell(&self, stream: TcpStream, client: SocketAddr, count: usize) {
        let refusal = self.words(count);
        if !self.security.is_tls() {
            log(client, count, tell_plainly(stream, &refusal));
            return;
        }
        if Arc::strong_count(&self.telling) > TOLD_AT_ONCE_MAX {
            terminal::log(&format!("{client}: refused without a reason, {}", served(count)));
            return;
        }
        let (telling, security) = (Arc::clone(&self.telling), self.security.clone());
        let tell = move || {
            log(client, count, tell_over_tls(stream, &security, &refusal));
            drop(telling);
        };
        if let Err(error) = thread::Builder::new().name("refusal".to_owned()).spawn(tell) {
            terminal::log(&format!("{client}: refused without a reason, {}: {error}", served(count)));
        }
    }

    fn words(&self, count: usize) -> Failure {
        let busy = Failure::new(Exit::PeerLost, "it is busy").cause(served(count));
        if self.is_for_one {
            busy.fix("start the server without --once, which accepts one connection only; a test has one per queue")
        } else {
            busy.fix("try again later, or start the server with a larger --clients-max")
        }
    }
}

fn served(count: usize) -> String {
    if count == 1 {
        "1 client is being served".to_owned()
    } else {
        format!("{count} clients are being served")
    }
}

fn tell_plainly(stream: TcpStream, refusal: &Failure) -> Result<()> {
    let mut line = Line::new(stream).context("cannot configure the connection")?;
    Ok(tell_refusal(&mut line, refusal)?)
}

/// Refuses a client over TLS, which reads nothing before both sides have verified each other.
fn tell_over_tls(stream: TcpStream, security: &Security, refusal: &Failure) -> Result<()> {
    let mut line = Line::new(stream).context("cannot configure the connection")?;
    if let Some(tls) = security.open()? {
        line.secure_as_server(&tls, security)?;
    }
    tell_refusal(&mut line, refusal)?;
    // Closing a socket with unread data would discard what was sent.
    Ok(line.recv_head(Other::Client)?)
}

fn log(client: SocketAddr, count: usize, told: Result<()>) {
    terminal::log(&match told {
        Ok(()) => format!("{client}: refused, {}", served(count)),
        Err(error) => {
            format!("{client}: refused, but the reason could not be sent: {}", Failure::of(&error).sentence())
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAR_TEXT: Security = Security::ClearText { is_allowed: false };

    #[test]
    fn what_to_do_about_it_is_what_helps() {
        let fix = |is_for_one| Refusals::new(CLEAR_TEXT, is_for_one).words(1).fix.unwrap_or_default();
        assert!(fix(false).contains("--clients-max") && !fix(false).contains("--once"));
        assert!(fix(true).contains("without --once") && !fix(true).contains("--clients-max"));
    }
}
