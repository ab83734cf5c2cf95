//! Reads from a certificate what an error says about it: its name, its issuer and its dates.
//!
//! rustls decides whether a certificate is trusted. This module only describes one, also one that
//! a stranger has sent. Invariant: every length is checked, nothing is allocated for a length that
//! was merely announced, and the time is linear in the length of the certificate.

use std::fmt;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

/// How close the end of a certificate is when a warning says so.
pub(super) const NEAR_DAYS: u64 = 30;

const DAY_S: u64 = 24 * 60 * 60;

/// The length of a name in an error. A stranger may send a longer one.
const NAME_CHARS_MAX: usize = 64;

/// The names of a certificate that an error lists.
const NAMES_MAX: usize = 4;

/// What an error says about a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Certificate {
    subject: Option<String>,
    issuer: Option<String>,
    /// DNS names and addresses, the first few.
    names: Vec<String>,
    not_before: Date,
    not_after: Date,
}

/// Where the time of a certificate is, compared with the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Validity {
    Valid,
    /// It ends within [`NEAR_DAYS`]: after this number of whole days.
    EndsIn(u64),
    Expired,
    NotYet,
}

impl Certificate {
    /// Parses a certificate. Returns `None` if it is not one.
    pub(super) fn parse(der: &[u8]) -> Option<Self> {
        let mut outer = Reader(der);
        let mut certificate = Reader(outer.take(SEQUENCE)?);
        let mut tbs = Reader(certificate.take(SEQUENCE)?);
        // The version, which certificates of version 1 leave out.
        if tbs.peek() == Some(EXPLICIT_0) {
            tbs.take(EXPLICIT_0)?;
        }
        // The serial number, and the algorithm of the signature.
        tbs.take(INTEGER)?;
        tbs.take(SEQUENCE)?;
        let issuer = name(tbs.take(SEQUENCE)?);
        let mut validity = Reader(tbs.take(SEQUENCE)?);
        let (not_before, not_after) = (validity.date()?, validity.date()?);
        let subject = name(tbs.take(SEQUENCE)?);
        // The public key.
        tbs.take(SEQUENCE)?;
        let mut names = Vec::new();
        // Two other optional fields may come before the extensions.
        while let Some((tag, content)) = tbs.next() {
            if tag == EXPLICIT_3 {
                // Extensions that cannot be read leave the rest of the description as it is.
                names = alternative_names(content).unwrap_or_default();
            }
        }
        Some(Self { subject, issuer, names, not_before, not_after })
    }

    /// Returns the name by which it is known: that of its subject, or its first DNS name or
    /// address.
    pub(super) fn name(&self) -> &str {
        self.subject.as_deref().or(self.names.first().map(String::as_str)).unwrap_or("without a name")
    }

    /// Returns its DNS names and addresses, the first few.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    pub(super) fn not_after(&self) -> &str {
        &self.not_after.text
    }

    pub(super) fn not_before(&self) -> &str {
        &self.not_before.text
    }

    /// Compares its dates with the time.
    pub(super) fn validity(&self, now: SystemTime) -> Validity {
        // A clock before 1970 counts as 1970: the certificate is not valid yet.
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if now < self.not_before.unix_s {
            Validity::NotYet
        } else if now > self.not_after.unix_s {
            Validity::Expired
        } else {
            match (self.not_after.unix_s - now) / DAY_S {
                days @ ..NEAR_DAYS => Validity::EndsIn(days),
                _ => Validity::Valid,
            }
        }
    }
}

/// `"storage-7", issued by "farreach CA 1f3a9c20", valid from 2026-11-17 to 2027-11-17`
impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let issuer = self.issuer.as_deref().unwrap_or("a CA without a name");
        let (from, to) = (&self.not_before.text, &self.not_after.text);
        write!(f, "\"{}\", issued by \"{issuer}\", valid from {from} to {to}", self.name())
    }
}

/// A date of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Date {
    /// Seconds since 1970; 0 for an earlier date.
    unix_s: u64,
    /// `2026-11-17`
    text: String,
}

impl Date {
    /// Parses `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
    fn parse(tag: u8, text: &[u8]) -> Option<Self> {
        // RFC 5280 allows no other time zone, and no fractions of seconds.
        let text = text.strip_suffix(b"Z")?;
        if !text.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let (year, rest) = match tag {
            UTC_TIME if text.len() == 12 => {
                // RFC 5280: two digits are a year from 1950 to 2049.
                let year = number(&text[..2]);
                (if year < 50 { 2000 + year } else { 1900 + year }, &text[2..])
            }
            GENERALIZED_TIME if text.len() == 14 => (number(&text[..4]), &text[4..]),
            _ => return None,
        };
        let part = |index: usize| number(&rest[2 * index..2 * index + 2]);
        let [month, day, hour, minute, second] = [0, 1, 2, 3, 4].map(part);
        // A day that the month does not have passes: rustls decides about the validity. The second
        // 60 is a leap second.
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let days = days_before(year, month) + day - 1;
        let unix_s = days.checked_sub(DAYS_BEFORE_1970);
        let unix_s = unix_s.map_or(0, |days| days * DAY_S + hour * 3600 + minute * 60 + second);
        Some(Self { unix_s, text: format!("{year:04}-{month:02}-{day:02}") })
    }
}

/// Days from 0000-03-01 to 1970-01-01.
const DAYS_BEFORE_1970: u64 = 719_468;

/// Returns the days from 0000-03-01 to the first of a month, in the Gregorian calendar. A year
/// begins in March here, so that the leap day is its last.
fn days_before(year: u64, month: u64) -> u64 {
    // January and February of the year 0 would be in the year -1.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.saturating_sub(1), month + 9) };
    // The last term is 0, 31, 61, 92, …: the days before a month that is counted from March.
    year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5
}

/// Returns the value of at most four digits.
fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const BMP_STRING: u8 = 0x1e;
const EXPLICIT_0: u8 = 0xa0;
const EXPLICIT_3: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;

/// Object identifiers: common name, organisation, subject alternative name.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANISATION: &[u8] = &[0x55, 0x04, 0x0a];
const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// Reads DER values one after the other.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Returns the next value, with its tag. `None` at the end, and for a length that is longer
    /// than the rest.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // A certificate in TLS is shorter than 2²⁴ bytes. An indefinite length (0x80) is not
            // DER.
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// Returns the next value, which must have this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        // A value with another tag is taken, too. All callers give up then.
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }

    fn date(&mut self) -> Option<Date> {
        let (tag, content) = self.next()?;
        Date::parse(tag, content)
    }
}

/// Returns the common name of a distinguished name, or its organisation.
fn name(content: &[u8]) -> Option<String> {
    let mut organisation = None;
    let mut sets = Reader(content);
    while let Some(set) = sets.take(SET) {
        let mut attributes = Reader(set);
        while let Some(attribute) = attributes.take(SEQUENCE) {
            let mut attribute = Reader(attribute);
            let (Some(kind), Some((tag, value))) = (attribute.take(OBJECT_IDENTIFIER), attribute.next())
            else {
                continue;
            };
            match kind {
                // The common name counts more than an organisation, whichever comes first.
                COMMON_NAME => return Some(text(tag, value)),
                ORGANISATION => organisation = Some(text(tag, value)),
                _ => {}
            }
        }
    }
    organisation
}

/// Returns the first DNS names and addresses of the extensions.
fn alternative_names(content: &[u8]) -> Option<Vec<String>> {
    let mut extensions = Reader(Reader(content).take(SEQUENCE)?);
    while let Some(extension) = extensions.take(SEQUENCE) {
        let mut extension = Reader(extension);
        if extension.take(OBJECT_IDENTIFIER) != Some(ALTERNATIVE_NAME) {
            continue;
        }
        // A flag may come before the value: whether the extension is critical.
        let (tag, value) = extension.next()?;
        let value = if tag == OCTET_STRING { value } else { extension.take(OCTET_STRING)? };
        let mut values = Reader(Reader(value).take(SEQUENCE)?);
        let mut names = Vec::new();
        // A stranger may send any number of names.
        while names.len() < NAMES_MAX
            && let Some((tag, value)) = values.next()
        {
            match tag {
                DNS_NAME => names.push(text(tag, value)),
                IP_ADDRESS => names.extend(address(value).map(|address| address.to_string())),
                _ => {}
            }
        }
        return Some(names);
    }
    None
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// Returns the text of a string, such that it can be printed: no control characters, and at most
/// [`NAME_CHARS_MAX`]. Otherwise a stranger could write to the terminal of who reads a log.
fn text(tag: u8, value: &[u8]) -> String {
    // Cut before it is decoded: a long name must not cost more. No encoding needs 8 bytes for a
    // character.
    let bytes = &value[..value.len().min(8 * NAME_CHARS_MAX)];
    let text = if tag == BMP_STRING {
        let units = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
        // Half of a pair is replaced, not an error: the text is for humans only.
        char::decode_utf16(units).map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    } else {
        String::from_utf8_lossy(bytes).into_owned()
    };
    printable(&text)
}

/// Returns a text of the peer as it can be printed within double quotes.
pub(super) fn printable(text: &str) -> String {
    farreach_text::one_line(&text.replace('"', "?"), NAME_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use farreach_testkit::Authority;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    fn der(pem: &str) -> Vec<u8> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
    }

    #[test]
    fn a_certificate_is_described_by_name_issuer_and_dates() {
        let authority = Authority::new("the house");
        let shown = authority.certify(&["storage-7", "10.0.0.7", "2001:db8::7"]);
        let read = Certificate::parse(&der(&shown.certificate)).unwrap();
        assert_eq!(read.names, ["storage-7", "10.0.0.7", "2001:db8::7"]);
        assert_eq!(read.issuer.as_deref(), Some("the house"));
        let told = read.to_string();
        assert!(told.contains("issued by \"the house\", valid from 20"), "{told}");
        let root = Certificate::parse(&der(authority.root())).unwrap();
        assert_eq!(root.name(), "the house");
    }

    #[test]
    fn a_date_is_what_openssl_reads() {
        // The expected values come from `date -u -d TEXT +%s`.
        for (tag, text, unix_s, day) in [
            (UTC_TIME, "700101000000Z", 0, "1970-01-01"),
            (UTC_TIME, "240229235959Z", 1_709_251_199, "2024-02-29"),
            (UTC_TIME, "491231235959Z", 2_524_607_999, "2049-12-31"),
            (UTC_TIME, "500101000000Z", 0, "1950-01-01"),
            (GENERALIZED_TIME, "20500101000000Z", 2_524_608_000, "2050-01-01"),
            (GENERALIZED_TIME, "99991231235959Z", 253_402_300_799, "9999-12-31"),
            (GENERALIZED_TIME, "00000101000000Z", 0, "0000-01-01"),
        ] {
            let date = Date::parse(tag, text.as_bytes()).unwrap();
            assert_eq!((date.unix_s, date.text.as_str()), (unix_s, day), "{text}");
        }
        for text in
            ["", "Z", "240229235959", "24022923595Z", "241329235959Z", "24022923595xZ", "240200000000Z"]
        {
            assert_eq!(Date::parse(UTC_TIME, text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_certificate_near_its_end_is_told_from_one_that_has_ended() {
        let shown = Authority::new("the house").certify(&["storage-7"]);
        let read = Certificate::parse(&der(&shown.certificate)).unwrap();
        let at = |unix_s: u64| read.validity(UNIX_EPOCH + Duration::from_secs(unix_s));
        let (start, end) = (read.not_before.unix_s, read.not_after.unix_s);
        assert_eq!(at(start - 1), Validity::NotYet);
        assert_eq!(at(end - NEAR_DAYS * DAY_S), Validity::Valid);
        assert_eq!(at(end - NEAR_DAYS * DAY_S + 1), Validity::EndsIn(29));
        assert_eq!((at(end), at(end + 1)), (Validity::EndsIn(0), Validity::Expired));
    }

    /// A stranger chooses every byte. Nothing panics, and what is printed is harmless.
    #[test]
    fn no_byte_of_a_strangers_certificate_does_harm() {
        let names = ["storage-7", "10.0.0.7", "\u{1b}[2Jcleared\n"];
        let mut mt = rand_mt::Mt::new(7);
        let good =
            der(&Authority::new("evil \u{1b}]0;title\u{7}\u{202e}\"").certify(&names[..2]).certificate);
        let check = |bytes: &[u8]| {
            if let Some(read) = Certificate::parse(bytes) {
                let told = read.to_string();
                assert!(!told.chars().any(char::is_control) && !told.contains('\u{202e}'), "{told:?}");
                assert!(told.chars().count() < 300, "{told:?}");
            }
        };
        check(&good);
        assert_eq!(printable(names[2]), r"\u001b[2Jcleared\n");
        assert_eq!(printable(&"a".repeat(1000)).chars().count(), NAME_CHARS_MAX);
        for len in 0..good.len() {
            check(&good[..len]);
        }
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..1 + mt.next_u32() % 4 {
                let place = mt.next_u32() as usize % bytes.len();
                bytes[place] = mt.next_u32() as u8;
            }
            check(&bytes);
        }
    }
}
