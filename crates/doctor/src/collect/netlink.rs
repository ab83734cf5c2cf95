//! Sends requests to the kernel by netlink and returns the answers.
//!
//! All input is validated before it is used, and every wait has a timeout.

use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use super::errno::errno_words;

/// The kernel answers at once, or not at all.
const PATIENCE: Duration = Duration::from_secs(2);

/// The kernel sends lists in parts of at most this size.
const PART_MAX: usize = 64 * 1024;

/// More answers than any requested list has.
const ANSWERS_MAX: usize = 65_536;

/// The netlink families. `NETLINK_ROUTE` is 0, which rustix represents as `None`.
pub(super) const ROUTE: Option<Protocol> = None;
pub(super) const RDMA: Option<Protocol> = Some(netlink::RDMA);
pub(super) const NETFILTER: Option<Protocol> = Some(netlink::NETFILTER);

const HEADER: usize = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_MULTI: u16 = 2;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// The reason why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NetlinkError {
    /// The kernel refused the request.
    #[error("{}", errno_words(.0.raw_os_error()))]
    Refused(Errno),
    /// The answer is malformed.
    #[error("the kernel's answer cannot be parsed: {0}")]
    Nonsense(&'static str),
}

/// Whether one answer is expected, or a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    One,
    List,
}

/// Opens a socket of this family.
pub(super) fn open(family: Option<Protocol>) -> Result<OwnedFd, NetlinkError> {
    socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, family)
        .map_err(NetlinkError::Refused)
}

/// Sends a request and returns the answers without their headers.
pub(super) fn ask(
    family: Option<Protocol>,
    kind: u16,
    want: Want,
    payload: &[u8],
) -> Result<Vec<Vec<u8>>, NetlinkError> {
    let socket = open(family)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).map_err(NetlinkError::Refused)?;
    send(&socket, &message(kind, want, payload), SendFlags::empty()).map_err(NetlinkError::Refused)?;
    let deadline = Instant::now() + PATIENCE;
    let (mut answers, mut part) = (Vec::new(), vec![0; PART_MAX]);
    loop {
        if Instant::now() > deadline {
            return Err(NetlinkError::Refused(Errno::TIMEDOUT));
        }
        let (_, len) =
            recv(&socket, part.as_mut_slice(), RecvFlags::empty()).map_err(NetlinkError::Refused)?;
        if take(part.get(..len).unwrap_or_default(), &mut answers)? {
            return Ok(answers);
        }
    }
}

fn message(kind: u16, want: Want, payload: &[u8]) -> Vec<u8> {
    let flags = NLM_F_REQUEST | if want == Want::List { NLM_F_DUMP } else { 0 };
    let len = (HEADER + payload.len()) as u32;
    let mut message = len.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence number and port ID. They are not needed: each socket sends a single request.
    message.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    message.extend(payload);
    message
}

/// Adds the answers in a part. Returns `true` if it was the last part.
pub(super) fn take(mut part: &[u8], answers: &mut Vec<Vec<u8>>) -> Result<bool, NetlinkError> {
    if part.is_empty() {
        return Err(NetlinkError::Nonsense("empty"));
    }
    while !part.is_empty() {
        let short = NetlinkError::Nonsense("a message is truncated");
        let (len, kind, flags) = (u32_at(part, 0), u16_at(part, 4), u16_at(part, 6));
        let (Some(len), Some(kind), Some(flags)) = (len, kind, flags) else { return Err(short) };
        let Some(body) = part.get(HEADER..len as usize) else { return Err(short) };
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let code = u32_at(body, 0).ok_or(short)?.cast_signed().wrapping_neg();
                return if code == 0 {
                    Ok(true)
                } else {
                    Err(NetlinkError::Refused(Errno::from_raw_os_error(code)))
                };
            }
            _ => answers.push(body.to_vec()),
        }
        if flags & NLM_F_MULTI == 0 {
            return Ok(true);
        }
        if answers.len() > ANSWERS_MAX {
            return Err(NetlinkError::Nonsense("the last message is missing"));
        }
        part = part.get(aligned(len as usize)..).unwrap_or_default();
    }
    Ok(false)
}

/// Iterates over the attributes of an answer, or of an attribute, as kinds and values. Stops at the
/// first truncated attribute.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (len, kind) = (u16_at(bytes, 0)?.into(), u16_at(bytes, 2)?);
        let value = bytes.get(4..len)?;
        bytes = bytes.get(aligned(len)..).unwrap_or_default();
        // The two upper bits are flags.
        Some((kind & 0x3fff, value))
    })
}

/// Returns the value of the first attribute of a kind.
pub(super) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

/// Returns an attribute as a string, without the terminating zero.
pub(super) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// Encodes an attribute.
pub(super) fn packed(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = 4 + value.len();
    let mut bytes = (len as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(aligned(len), 0);
    bytes
}

fn aligned(len: usize) -> usize {
    len.next_multiple_of(4)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
        bytes.extend([0; 8]);
        bytes.extend(body);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    #[test]
    fn a_list_goes_on_until_its_end() {
        let mut answers = Vec::new();
        let part = [answer(0x1409, NLM_F_MULTI, &[1, 2, 3]), answer(0x1409, NLM_F_MULTI, &[4])].concat();
        assert_eq!(take(&part, &mut answers), Ok(false));
        assert_eq!(take(&answer(NLMSG_DONE, NLM_F_MULTI, &[0; 4]), &mut answers), Ok(true));
        assert_eq!(answers, [vec![1, 2, 3], vec![4]]);
    }

    #[test]
    fn a_refusal_is_told_from_nonsense() {
        let refusal = answer(NLMSG_ERROR, 0, &(-95_i32).to_ne_bytes());
        assert_eq!(take(&refusal, &mut Vec::new()), Err(NetlinkError::Refused(Errno::OPNOTSUPP)));
        for len in 0..refusal.len() {
            let cut = take(&refusal[..len], &mut Vec::new());
            assert!(matches!(cut, Err(NetlinkError::Nonsense(_))), "{len}: {cut:?}");
        }
        // A length shorter than the header must not cause an endless loop.
        let mut short = answer(7, NLM_F_MULTI, &[]);
        short[..4].copy_from_slice(&3_u32.to_ne_bytes());
        assert!(take(&short, &mut Vec::new()).is_err());
    }

    #[test]
    fn attributes_end_where_they_are_cut_off() {
        let bytes = [packed(2, b"rxe0\0"), packed(0x8000 | 15, &packed(17, b"qp\0"))].concat();
        let found: Vec<u16> = attributes(&bytes).map(|(kind, _)| kind).collect();
        assert_eq!(found, [2, 15]);
        assert_eq!(attribute(&bytes, 2).map(text).as_deref(), Some("rxe0"));
        assert_eq!(attributes(&bytes[..14]).count(), 1);
        assert_eq!(attributes(&[0; 64]).count(), 0);
    }

    #[test]
    fn this_kernel_lists_its_loopback() {
        const RTM_GETLINK: u16 = 18;
        const IFLA_IFNAME: u16 = 3;
        let answers = ask(ROUTE, RTM_GETLINK, Want::List, &[0; 16]).unwrap();
        let names: Vec<String> =
            answers.iter().filter_map(|link| attribute(link.get(16..)?, IFLA_IFNAME).map(text)).collect();
        assert!(names.contains(&"lo".to_owned()), "{names:?}");
    }
}
