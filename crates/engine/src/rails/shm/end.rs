//! One side's end of a link, and how it meets the other.
//!
//! The address of an end is a nonce and the name of its rail's listener. The side with the smaller
//! nonce waits for the other one, which connects. Both know both nonces, so they agree.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farreach_rail::{KeyId, LinkKey, PeerKey, RailError};
use farreach_shm::{Connecting, Directory, Expected, Link, MeetError, Nonce};
use rustix::rand::{GetRandomFlags, getrandom};

use super::MEET_WITHIN;
use super::error::failed;

const OPERATION: &str = "connect a link over shm";

/// The time until the first attempt to connect again. It doubles with each attempt.
const RETRY: Duration = Duration::from_millis(2);
const RETRY_MAX: Duration = Duration::from_millis(100);

/// The name of a listener, before the digits of its random part, in a directory. An abstract name has
/// an `@` before it.
const NAME: &str = "farreach-";

/// One side's end of a link.
#[derive(Debug)]
pub(super) struct End {
    pub(super) peer: PeerKey,
    nonce: Nonce,
    pub(super) stage: Stage,
    /// Keys to be bound when the other side is met, with their tags.
    pub(super) waiting: Vec<(KeyId, u64)>,
    /// The key of each grant over the link, by its number.
    pub(super) grants: HashMap<u64, KeyId>,
    pub(super) is_closed: bool,
    pub(super) is_polled: bool,
    /// The number of polls since the last event.
    pub(super) quiet: u32,
}

#[derive(Debug)]
pub(super) enum Stage {
    Open,
    /// The other side connects.
    Expected {
        since: Instant,
    },
    /// This side connects.
    Connecting {
        attempt: Option<Box<Connecting>>,
        directory: Option<Arc<Directory>>,
        name: String,
        theirs: Nonce,
        since: Instant,
        retry_at: Instant,
        retry: Duration,
        /// The reason for which the last attempt failed.
        last: Option<MeetError>,
    },
    Met(Box<Link>),
    Failed,
}

impl End {
    pub(super) fn new(peer: PeerKey) -> Result<Self, RailError> {
        let (waiting, grants, stage) = (Vec::new(), HashMap::new(), Stage::Open);
        let nonce = random()?;
        Ok(Self { peer, nonce, stage, waiting, grants, is_closed: false, is_polled: false, quiet: 0 })
    }

    /// Returns the address for the other side.
    pub(super) fn address(&self, listener: &str) -> Vec<u8> {
        [&self.nonce[..], listener.as_bytes()].concat()
    }

    /// Returns the link, if both sides have met.
    pub(super) fn link(&mut self) -> Option<&mut Link> {
        match &mut self.stage {
            Stage::Met(link) => Some(link),
            _ => None,
        }
    }

    pub(super) fn has_grants(&mut self) -> bool {
        self.link().is_some_and(|link| !link.grants().is_empty())
    }

    /// Begins to meet the other side. Returns what this side's listener has to expect, if it is this
    /// side that waits.
    pub(super) fn connect(
        &mut self,
        key: LinkKey,
        peer_end: &[u8],
        directory: Option<&Arc<Directory>>,
        now: Instant,
    ) -> Result<Option<Expected>, RailError> {
        let (theirs, name) = parse(peer_end, directory.is_some()).ok_or_else(|| {
            RailError::new(OPERATION, "the peer's address is none", "run the same release on both sides")
        })?;
        // A peer that repeats the nonce of this side cannot be told from it.
        if theirs == self.nonce {
            let fix = "run the same release on both sides";
            return Err(RailError::new(OPERATION, "the peer has the nonce of this side", fix));
        }
        if self.nonce < theirs {
            self.stage = Stage::Expected { since: now };
            return Ok(Some(Expected { id: key.0, theirs, ours: self.nonce }));
        }
        // The first attempt is made by `meet`, as all others are.
        self.stage = Stage::Connecting {
            attempt: None,
            directory: directory.cloned(),
            name: name.to_owned(),
            theirs,
            since: now,
            retry_at: now,
            retry: RETRY,
            last: None,
        };
        Ok(None)
    }

    /// Continues to meet the other side. Returns the link when this side has connected.
    pub(super) fn meet(&mut self, now: Instant) -> Result<Option<Link>, RailError> {
        let ours = self.nonce;
        let since = match &mut self.stage {
            Stage::Expected { since } => *since,
            Stage::Connecting { attempt, directory, name, theirs, since, retry_at, retry, last } => {
                if attempt.is_none() && now >= *retry_at {
                    *attempt = Some(Box::new(begin(directory.as_ref(), name, ours, *theirs)?));
                }
                match attempt.as_mut().map_or(Ok(None), |attempt| attempt.poll()) {
                    Ok(Some(link)) => return Ok(Some(link)),
                    Ok(None) => {}
                    // The other side does not expect this one yet: it connects a little later.
                    Err(error @ MeetError::Refused) => {
                        (*attempt, *last) = (None, Some(error));
                        *retry_at = now + *retry;
                        *retry = (*retry * 2).min(RETRY_MAX);
                    }
                    // Any other error ends this link. The machine makes another one after a pause.
                    Err(error) => return Err(failed(OPERATION, &error, error.fix())),
                }
                *since
            }
            Stage::Open | Stage::Met(_) | Stage::Failed => return Ok(None),
        };
        // From the beginning, and not from the last attempt: a peer that refuses again and again
        // gets no more time.
        if now.saturating_duration_since(since) < MEET_WITHIN {
            return Ok(None);
        }
        let seconds = MEET_WITHIN.as_secs();
        let cause = match &self.stage {
            Stage::Connecting { last: Some(error), .. } => {
                format!("the peer did not accept within {seconds} s: {error}")
            }
            Stage::Connecting { .. } => format!("the peer did not answer within {seconds} s"),
            _ => format!("the peer did not connect within {seconds} s"),
        };
        let fix = "check that the peer runs (`ps`), and that it can open descriptors (`ulimit -n`)";
        Err(RailError::new(OPERATION, cause, fix))
    }
}

fn begin(
    directory: Option<&Arc<Directory>>,
    name: &str,
    ours: Nonce,
    theirs: Nonce,
) -> Result<Connecting, RailError> {
    let begun = match directory {
        None => Connecting::new(name, ours, theirs),
        Some(directory) => Connecting::new_in(directory, name, ours, theirs),
    };
    begun.map_err(|error| failed(OPERATION, &error, error.fix()))
}

/// Reads the address of an end. A peer must not make this process connect to any other socket: a name
/// in a directory is joined with the directory of this side.
fn parse(address: &[u8], is_in_directory: bool) -> Option<(Nonce, &str)> {
    let (nonce, name) = address.split_first_chunk::<32>()?;
    let name = std::str::from_utf8(name).ok()?;
    let digits = if is_in_directory { name } else { name.strip_prefix('@')? }.strip_prefix(NAME)?;
    let is_name = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_name.then_some((*nonce, name))
}

fn random() -> Result<Nonce, RailError> {
    let mut nonce = [0; 32];
    match getrandom(&mut nonce, GetRandomFlags::empty()) {
        // The kernel returns up to 256 bytes at once (getrandom(2)).
        Ok(32) => Ok(nonce),
        Ok(_) => Err(failed("open a link over shm", &"getrandom returned too little", "permit getrandom")),
        Err(errno) => Err(failed("open a link over shm", &format!("getrandom: {errno}"), "permit getrandom")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end() -> End {
        End::new(PeerKey(1)).unwrap()
    }

    #[test]
    fn both_sides_agree_on_who_waits() {
        let name = "@farreach-0123456789abcdef0123456789abcdef";
        for _ in 0..20 {
            let (mut one, mut other) = (end(), end());
            let addresses = [one.address(name), other.address(name)];
            let waits = [
                one.connect(LinkKey(1), &addresses[1], None, Instant::now()).unwrap(),
                other.connect(LinkKey(2), &addresses[0], None, Instant::now()).unwrap(),
            ];
            assert_eq!(waits.iter().flatten().count(), 1, "{waits:?}");
        }
    }

    #[test]
    fn addresses_of_liars_are_refused() {
        let mut here = end();
        let own = here.address("@farreach-0123456789abcdef0123456789abcdef");
        let error = here.connect(LinkKey(1), &own, None, Instant::now()).unwrap_err();
        assert!(error.cause.contains("nonce"), "{error}");
        let nonce = [7; 32];
        let in_directory = [&nonce[..], b"farreach-0123456789abcdef0123456789abcdef"].concat();
        let wrong: [&[u8]; 8] = [
            &in_directory,
            b"",
            &nonce[..31],
            &nonce,
            &[&nonce[..], b"/run/secret.sock"].concat(),
            &[&nonce[..], b"@/tmp/.X11-unix/X0"].concat(),
            &[&nonce[..], b"@farreach-0123456789abcdef0123456789abcdeg"].concat(),
            &[&nonce[..], b"@farreach-0123456789abcdef0123456789abcdef0"].concat(),
        ];
        for address in wrong {
            assert!(end().connect(LinkKey(1), address, None, Instant::now()).is_err(), "{address:?}");
        }
        assert!(parse(&in_directory, true).is_some());
        let wrong: [&[u8]; 5] = [
            b"@farreach-0123456789abcdef0123456789abcdef",
            b"/farreach-0123456789abcdef0123456789abcdef",
            b"farreach-../../../../../../../run/secret.so",
            b"farreach-0123456789abcdef0123456789abcdef/",
            b"farreach-0123456789abcdef0123456789abcde\0",
        ];
        for name in wrong {
            assert!(parse(&[&nonce[..], name].concat(), true).is_none(), "{name:?}");
        }
    }

    #[test]
    fn a_meeting_that_nobody_comes_to_ends() {
        let now = Instant::now();
        let mut here = end();
        here.stage = Stage::Expected { since: now };
        assert!(here.meet(now + MEET_WITHIN - RETRY).unwrap().is_none());
        let error = here.meet(now + MEET_WITHIN).unwrap_err();
        assert!(error.cause.contains("5 s") && !error.fix.is_empty(), "{error}");
    }
}
