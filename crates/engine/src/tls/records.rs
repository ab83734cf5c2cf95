//! The records that a peer sends in a TLS session: where each one ends, and how many have no content.
//!
//! A record without content (an empty one, a key update) costs this side as much as a frame, and is
//! no progress. rustls limits each kind of them in a row, and a content of any other kind begins the
//! row anew, so a peer that alternates two kinds sends them for ever. Here they are counted together.
//!
//! Each operation takes constant time.

use super::failure::Refusal;

/// The type, the version, and the length of the body.
const HEADER_LEN: usize = 5;

/// Records without content that may come at once. A TLS handshake has some ten, all without content.
const QUIET_MAX: u32 = 64;

/// Records with content after which one more without may come. rustls renews its keys every 2^24
/// records at most.
const CONTENT_PER_QUIET: u32 = 1024;

/// Bytes without content until the place is known again: a handshake message and a record of the
/// greatest lengths.
const UNKNOWN_MAX: usize = (64 + 17) << 10;

/// What is known of the records of one direction.
#[derive(Debug)]
pub(super) struct Records {
    place: Place,
    /// Records without content that may still come.
    quiet_left: u32,
    /// Records with content since `quiet_left` last grew.
    with_content: u32,
}

/// Where in a record the next byte is.
#[derive(Debug, Clone, Copy)]
enum Place {
    Header {
        bytes: [u8; HEADER_LEN],
        len: usize,
    },
    /// So many bytes before the end of the body.
    Body(usize),
    /// rustls has read bytes that were not counted here. It has taken so many bytes without content
    /// since.
    Unknown(usize),
}

const BEGINNING: Place = Place::Header { bytes: [0; HEADER_LEN], len: 0 };

/// Bytes that rustls takes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) len: usize,
    /// Whether they are the last ones of a record.
    is_end: bool,
}

impl Records {
    /// Returns the state before the first byte.
    pub(super) fn new() -> Self {
        Self { place: BEGINNING, quiet_left: QUIET_MAX, with_content: 0 }
    }

    /// Returns the state of a session that was driven elsewhere.
    pub(super) fn unknown() -> Self {
        Self { place: Place::Unknown(0), ..Self::new() }
    }

    /// Forgets the place, because the session is driven elsewhere.
    pub(super) fn forget_place(&mut self) {
        self.place = Place::Unknown(0);
    }

    /// Returns how many of these bytes to take at once: up to the end of a record. There must be at
    /// least one byte.
    pub(super) fn step(&mut self, bytes: &[u8]) -> Step {
        let mut len = 0;
        // A header may come in parts, even of a byte each.
        if let Place::Header { bytes: header, len: known } = &mut self.place {
            len = bytes.len().min(HEADER_LEN - *known);
            header[*known..*known + len].copy_from_slice(&bytes[..len]);
            *known += len;
            if *known == HEADER_LEN {
                // The header is in clear text, also in the encrypted part of a session.
                self.place = Place::Body(usize::from(u16::from_be_bytes([header[3], header[4]])));
            }
        }
        match &mut self.place {
            Place::Header { .. } => Step { len, is_end: false },
            Place::Body(left) => {
                let body = (*left).min(bytes.len() - len);
                *left -= body;
                // A body without bytes ends with its header.
                let is_end = *left == 0;
                if is_end {
                    self.place = BEGINNING;
                }
                Step { len: len + body, is_end }
            }
            // A record ends where its content appears, which only single bytes tell.
            Place::Unknown(_) => Step { len: 1, is_end: false },
        }
    }

    /// Records whether content has come of a step. Returns how many records were complete, or an
    /// error if too many of them have no content.
    pub(super) fn count(&mut self, step: Step, has_content: bool) -> Result<usize, Refusal> {
        // Content appears with the last byte of its record, which is decrypted as a whole. So the
        // next byte is the first one of a header.
        if let Place::Unknown(passed) = &mut self.place {
            *passed += step.len;
            if has_content {
                self.place = BEGINNING;
            } else if *passed > UNKNOWN_MAX {
                return Err(Refusal::NoContent);
            }
            return Ok(usize::from(has_content));
        }
        if has_content {
            self.with_content += 1;
            if self.with_content == CONTENT_PER_QUIET {
                self.with_content = 0;
                // They do not add up to more: much content must not allow a long row without any.
                self.quiet_left = QUIET_MAX.min(self.quiet_left + 1);
            }
        } else if step.is_end {
            // Only at the end of a record: its content may come with the last byte.
            self.quiet_left = self.quiet_left.checked_sub(1).ok_or(Refusal::NoContent)?;
        }
        Ok(usize::from(step.is_end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(len: u16) -> Vec<u8> {
        let [high, low] = len.to_be_bytes();
        [&[23, 3, 3, high, low][..], &vec![7; len.into()]].concat()
    }

    /// Passes bytes in pieces of one length. Returns the lengths of the records.
    fn ends(records: &mut Records, bytes: &[u8], piece: usize) -> Vec<usize> {
        let (mut ends, mut len) = (Vec::new(), 0);
        for mut piece in bytes.chunks(piece) {
            while !piece.is_empty() {
                let step = records.step(piece);
                assert!(step.len > 0);
                len += step.len;
                piece = &piece[step.len..];
                if records.count(step, step.is_end).unwrap() == 1 {
                    ends.push(std::mem::take(&mut len));
                }
            }
        }
        ends
    }

    #[test]
    fn records_end_where_their_headers_say_however_they_are_cut() {
        let lens = [17, 0, 22, 16_401, 1, 300];
        let bytes: Vec<u8> = lens.iter().flat_map(|len| record(*len)).collect();
        for piece in [1, 2, 4, 5, 6, 22, 100, 4096, bytes.len()] {
            let found = ends(&mut Records::new(), &bytes, piece);
            assert_eq!(found, lens.map(|len| usize::from(len) + HEADER_LEN), "{piece}");
        }
    }

    /// What rustls limits only one kind at a time is limited here.
    #[test]
    fn records_without_content_are_counted_together() {
        let mut records = Records::new();
        let mut send = |has_content| {
            let step = records.step(&record(17));
            records.count(step, has_content)
        };
        (0..QUIET_MAX).for_each(|_| assert!(matches!(send(false), Ok(1))));
        // Some content changes nothing, and much of it lets one more pass.
        (1..CONTENT_PER_QUIET).for_each(|_| assert!(matches!(send(true), Ok(1))));
        assert!(send(false).is_err());
        assert!(send(true).is_ok() && send(false).is_ok());
        assert!(send(false).is_err());
        (0..100 * CONTENT_PER_QUIET).for_each(|_| assert!(send(true).is_ok()));
        let more = (0..).take_while(|_| send(false).is_ok()).count();
        assert_eq!(more, QUIET_MAX as usize, "they do not add up to more");
    }

    #[test]
    fn an_unknown_place_is_found_at_the_first_content() {
        let mut records = Records::unknown();
        let mut taken = 0;
        // The rest of a record that was read elsewhere, and a whole one.
        for byte in 0..17 {
            let step = records.step(&[byte; 100]);
            assert_eq!(step, Step { len: 1, is_end: false });
            taken += records.count(step, byte == 16).unwrap();
        }
        assert_eq!(taken, 1);
        assert_eq!(ends(&mut records, &record(300), 100), [305]);
        let mut lost = Records::unknown();
        let passed = (0..).take_while(|_| {
            let step = lost.step(&[0]);
            lost.count(step, false).is_ok()
        });
        assert_eq!(passed.count(), UNKNOWN_MAX);
    }
}
