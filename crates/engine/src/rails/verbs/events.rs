//! Asynchronous events of a card.

use farreach_rail::{LinkKey, RailError};
use farreach_verbs::event::{AsyncEvent, EventType};

use super::VerbsRail;
use super::error::told;

/// Events that one call takes at most.
const TAKEN_AT_ONCE: usize = 64;

/// The links that an event concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Concerns {
    Nobody,
    QueuePair(u32),
    Everybody,
    /// All links, and the card cannot be used any more.
    EverybodyForGood,
}

impl VerbsRail {
    /// Takes the card's events. Links that they end go into the backlog.
    #[cold]
    pub(super) fn look_for_events(&mut self) -> Result<(), RailError> {
        for _ in 0..TAKEN_AT_ONCE {
            match self.events.get() {
                Ok(Some(event)) => self.note(event),
                Ok(None) => break,
                Err(error) => return Err(told("read the card's events", &error)),
            }
        }
        Ok(())
    }

    fn note(&mut self, event: AsyncEvent) {
        let concerns = concerns(event, self.parameters.port);
        let links: Vec<LinkKey> = match concerns {
            Concerns::Nobody => return,
            // A queue pair that was destroyed meanwhile is not known any more.
            Concerns::QueuePair(qp_num) => self.account.links.key_of(qp_num).into_iter().collect(),
            Concerns::Everybody | Concerns::EverybodyForGood => self.account.links.keys(),
        };
        let (cause, fix) = meaning(event);
        let reason =
            RailError::new(format!("link over {}", self.account.rail), format!("{event}: {cause}"), fix);
        if concerns == Concerns::EverybodyForGood {
            // No other link is opened on the card.
            self.broken = Some(reason.clone());
        }
        for link in links {
            let backlog = &mut self.backlog;
            // The next poll reports them: this is also called before a sleep, which reports
            // nothing.
            self.account.end(link, reason.clone(), &mut |event| backlog.push_back(event.into()));
        }
    }
}

fn concerns(event: AsyncEvent, own_port: u8) -> Concerns {
    use EventType::{CqError, DeviceFatal, PortError, QpAccessError, QpFatal, QpRequestError, SrqError};
    match event {
        AsyncEvent::QueuePair { qp_num, kind: QpFatal | QpRequestError | QpAccessError } => {
            Concerns::QueuePair(qp_num)
        }
        // Another port of the card is another rail.
        AsyncEvent::Port { port, kind: PortError } if port == own_port => Concerns::Everybody,
        // Both queues are unusable then, and all links share them.
        AsyncEvent::CompletionQueue { kind: CqError, .. }
        | AsyncEvent::SharedReceiveQueue { kind: SrqError, .. }
        | AsyncEvent::Device { kind: DeviceFatal } => Concerns::EverybodyForGood,
        _ => Concerns::Nobody,
    }
}

fn meaning(event: AsyncEvent) -> (&'static str, &'static str) {
    match event {
        AsyncEvent::QueuePair { kind: EventType::QpAccessError, .. } => {
            ("the peer used a key without the right to do so", "read the error on the peer")
        }
        AsyncEvent::QueuePair { .. } => ("the card has ended the link", "check dmesg, and open another link"),
        AsyncEvent::Port { .. } => (
            "the port is no longer active",
            "check the cable, the switch, and that its net device is up (`ip link`)",
        ),
        AsyncEvent::Device { .. } => {
            ("the card has failed, or is being removed", "list the devices again, and check dmesg")
        }
        _ => ("a queue that all links share has failed", "open a new engine, and check dmesg"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_ends_the_links_that_it_concerns() {
        let of_port = |port, kind| concerns(AsyncEvent::Port { port, kind }, 1);
        assert_eq!(of_port(1, EventType::PortError), Concerns::Everybody);
        assert_eq!(of_port(2, EventType::PortError), Concerns::Nobody);
        assert_eq!(of_port(1, EventType::PortActive), Concerns::Nobody);
        let of_queue_pair = |kind| concerns(AsyncEvent::QueuePair { qp_num: 17, kind }, 1);
        assert_eq!(of_queue_pair(EventType::QpAccessError), Concerns::QueuePair(17));
        assert_eq!(of_queue_pair(EventType::LastWqeReached), Concerns::Nobody);
        let removed = AsyncEvent::Device { kind: EventType::DeviceFatal };
        assert_eq!(concerns(removed, 1), Concerns::EverybodyForGood);
        assert!(meaning(removed).0.contains("removed"));
    }
}
