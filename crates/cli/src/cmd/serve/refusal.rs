//! Why a client is not served, as it is told.

use std::net::IpAddr;
use std::time::Duration;

use super::budget::Budget;
use crate::exit::{Exit, Failure};
use crate::session::{SECRET_FILE, Security, is_loopback};

/// The server's use at this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    /// Clients that are being served.
    pub(super) served: usize,
    /// Clients in the queue.
    pub(super) waiting: usize,
}

impl Load {
    /// Describes the load.
    pub(super) fn words(self) -> String {
        let served = match self.served {
            1 => "1 client is being served".to_owned(),
            count => format!("{count} clients are being served"),
        };
        match self.waiting {
            0 => served,
            1 => format!("{served}, 1 waits"),
            count => format!("{served}, {count} wait"),
        }
    }
}

const BUSY: &str = "it is busy";

fn busy() -> Failure {
    Failure::new(Exit::PeerLost, BUSY)
}

/// Returns the line of the log for a refusal.
pub(super) fn logged(failure: &Failure) -> String {
    match &failure.cause {
        Some(cause) if failure.error == BUSY => format!("refused, {cause}"),
        _ => format!("refused: {}", failure.sentence()),
    }
}

/// The server serves one client, and has it.
pub(super) fn one_client(load: Load) -> Failure {
    busy()
        .cause(load.words())
        .fix("start the server without --once, which accepts one connection only; a test has one per queue")
}

/// The queue is full, or the client's origin has its share of it.
pub(super) fn queue_full(load: Load, budget: &Budget) -> Failure {
    if budget.queue_max == 0 {
        let fix = "try again later, or start the server with a larger --clients-max or --queue-max";
        return busy().cause(load.words()).fix(fix);
    }
    busy()
        .cause(format!(
            "{}; the limit is {} in the queue, {} from one address",
            load.words(),
            budget.queue_max,
            budget.queue_of_origin()
        ))
        .fix("try again later, or start the server with a larger --queue-max")
}

/// The process has no descriptor for another client.
pub(super) fn no_descriptors(load: Load, descriptors_max: usize) -> Failure {
    Failure::new(Exit::PeerLost, "this server has no free descriptors")
        .cause(format!("{}; its process may have {descriptors_max} descriptors", load.words()))
        .fix("try again later, or raise the limit before the server is started (LimitNOFILE= of its unit):\nulimit -n 16384")
}

/// The client has waited for as long as it may.
pub(super) fn waited_too_long(load: Load, time: Duration) -> Failure {
    busy()
        .cause(format!("no place became free within {} s; {}", time.as_secs_f64(), load.words()))
        .fix("try again later, or start the server with a larger --clients-max, --memory-max or --queue-time")
}

/// The other connections of the test have not come, or have left.
pub(super) fn incomplete(came: usize, size: usize) -> Failure {
    Failure::new(Exit::PeerLost, "the test is incomplete")
        .cause(format!("it has {size} connections, of which {came} are there"))
        .fix("start the test again")
}

/// The order needs more agents than one origin may have.
pub(super) fn too_many_connections(size: usize, budget: &Budget) -> Failure {
    Failure::new(Exit::Unavailable, format!("a test of {size} connections cannot be served"))
        .cause(format!("up to {} connections of one address are served at once", budget.clients_of_origin()))
        .fix("use fewer queues, or start the server with a larger --clients-max")
}

/// The order asks for a longer test than there are.
pub(super) fn too_long(asked: Duration, longest: Duration) -> Failure {
    Failure::new(Exit::Unavailable, format!("a test of {} s cannot be served", asked.as_secs_f64()))
        .cause(format!("a test may take {} s here, so that others get its place then", longest.as_secs_f64()))
        .fix("measure for a shorter time, or start the server with a larger --test-time")
}

/// No process could be started.
pub(super) fn no_agent(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, "it cannot start an agent")
        .cause(error.to_string())
        .fix("check the limits of the server's user on processes and memory:\nulimit -a")
}

/// A client without TLS.
pub(super) fn tls_only(security: &Security) -> Failure {
    let means = match security {
        Security::Certificates(_) => "a certificate of the server's CA",
        _ => "the server's secret",
    };
    Failure::new(Exit::PeerLost, "it accepts TLS only")
        .cause("the client connected without TLS")
        .fix(format!("start the client with {means}:\nfarreach COMMAND PEER {}", security.shown_flags()))
}

/// Returns why a server does not serve a client of this address in clear text, if it does not.
///
/// A server without TLS and without `--insecure` listens on loopback, where other hosts come only by
/// rules of the firewall.
pub(super) fn not_in_clear_text(security: &Security, client: IpAddr) -> Option<Failure> {
    (!security.is_tls() && !security.allows_clear_text() && !is_loopback(client)).then(|| {
        Failure::new(Exit::PeerLost, "it serves other hosts over TLS only")
            .cause(format!("the connection with {client} is in clear text, and comes from another host"))
            .fix(both_sides("COMMAND"))
    })
}

/// Returns why a client may not examine this host, if it may not.
///
/// A diagnosis is an inventory of the host: its devices, routes and firewall. It is given over TLS,
/// where the client has shown who it is, and to clients on this host. `--insecure` allows tests, not
/// this.
pub(super) fn not_examined(is_tls: bool, client: IpAddr) -> Option<Failure> {
    (!is_tls && !is_loopback(client)).then(|| {
        Failure::new(Exit::PeerLost, "it can be examined over TLS only")
            .cause(format!(
                "a diagnosis is an inventory of the host, and the connection with {client} is in clear text; \
                 --insecure does not allow it"
            ))
            .fix(both_sides("doctor"))
    })
}

/// How to use TLS on both sides.
fn both_sides(command: &str) -> String {
    format!(
        "make a secret, copy it, and start both sides with it:\n\
         farreach secret new {SECRET_FILE}\n\
         farreach serve --secret-file {SECRET_FILE}\n\
         farreach {command} PEER --secret-file {SECRET_FILE}"
    )
}

/// The connection was the oldest without an order, and there were too many.
pub(super) fn crowded_out(budget: &Budget) -> Failure {
    Failure::new(Exit::PeerLost, "it has too many connections without an order")
        .cause(format!(
            "the limit is {} in all and {} from one address; this connection was the oldest",
            budget.handshakes_max,
            budget.handshakes_of_origin()
        ))
        .fix("try again; if it happens again, find out which programs connect to the server:\nss -tn")
}

/// The order did not come in time.
pub(super) fn too_slow(time: Duration) -> Failure {
    Failure::new(Exit::PeerLost, "the handshake failed")
        .cause(format!(
            "the other side is connected, but sends nothing or too slowly: no order came within {} s",
            time.as_secs_f64()
        ))
        .fix("check the network and the load of the client's host")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_about_it_is_what_helps() {
        let load = Load { served: 1, waiting: 0 };
        let fix = one_client(load).fix.unwrap_or_default();
        assert!(fix.contains("without --once") && !fix.contains("--clients-max"), "{fix}");
        let fix = no_descriptors(load, 1024).fix.unwrap_or_default();
        assert!(fix.ends_with("\nulimit -n 16384"), "{fix}");
    }

    #[test]
    fn a_host_is_examined_over_tls_or_from_itself() {
        for (client, is_examined) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.0.0.8", false),
            ("::ffff:10.0.0.8", false),
            ("fe80::8", false),
            ("0.0.0.0", false),
        ] {
            let client = client.parse().expect("an address");
            assert_eq!(not_examined(false, client).is_none(), is_examined, "{client}");
            assert_eq!(not_examined(true, client), None);
        }
        let refusal = not_examined(false, [10, 0, 0, 8].into()).expect("it is refused");
        let fix = refusal.fix.unwrap_or_default();
        let commands: Vec<&str> = fix.lines().filter(|line| line.starts_with("farreach ")).collect();
        assert_eq!(commands.len(), 3, "each command is alone on its line: {fix}");
    }

    #[test]
    fn other_hosts_are_served_in_clear_text_only_if_that_is_allowed() {
        let (here, there) = ([127, 0, 0, 1].into(), [10, 0, 0, 8].into());
        for (security, is_served) in [
            (Security::ClearText { is_allowed: false }, false),
            (Security::ClearText { is_allowed: true }, true),
            (Security::SecretVariable, true),
        ] {
            assert_eq!(not_in_clear_text(&security, here), None);
            assert_eq!(not_in_clear_text(&security, there).is_none(), is_served, "{security:?}");
        }
    }

    #[test]
    fn the_load_is_told_with_its_numbers() {
        for (served, waiting, words) in [
            (1, 0, "1 client is being served"),
            (3, 0, "3 clients are being served"),
            (3, 1, "3 clients are being served, 1 waits"),
            (256, 7, "256 clients are being served, 7 wait"),
        ] {
            assert_eq!(Load { served, waiting }.words(), words);
        }
    }
}
