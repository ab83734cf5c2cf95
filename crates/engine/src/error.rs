//! Errors of the engine: one type, with operation, cause and fix.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use farreach_proto::counter::Outcome;
use farreach_proto::error::{AtomicError, NotRevoked, OpenError, SendError};
use farreach_proto::machine::TransferFault;
use farreach_proto::plan::PlanError;

use crate::hung_call::Timeout;
use crate::{Buffer, Exposed, LostReason, RailError, TransferStats};

/// The error of every call of an engine.
///
/// `Display` writes the operation and its cause. [`fix`](Self::fix) returns what to do about it,
/// and [`kind`](Self::kind) is for programs. `Debug` writes all of them, one line each, because
/// that is what a program prints whose `main` returns the error.
///
/// ```
/// use farreach::{Engine, ErrorKind, Settings};
///
/// let error = Engine::with(Settings::new().depth(0)).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Setting);
/// assert!(error.to_string().starts_with("the setting `depth`"));
/// assert!(!error.fix().is_empty());
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    /// The displayed text: the operation and, in most cases, the cause.
    message: String,
    cause: String,
    fix: String,
    source: Option<Source>,
}

#[derive(Debug, Clone)]
enum Source {
    Lost(LostReason),
    Other(Arc<dyn StdError + Send + Sync>),
}

/// The kind of an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No rail could be opened.
    NoRail,
    /// A rail or its library failed. The error's source is a [`RailError`].
    Rail,
    /// A setting has a value that an engine cannot have.
    Setting,
    /// An address cannot be resolved.
    Address,
    /// A connection could not be established.
    Connect,
    /// An incoming connection was refused.
    Accept,
    /// A certificate, a key, a name or a secret cannot be used for TLS, or a TLS session failed.
    Tls,
    /// An engine without a secret or certificates would listen or connect beyond this host, where
    /// its control connections would be neither encrypted nor authenticated. See
    /// [`Settings::insecure`](crate::Settings::insecure).
    Insecure,
    /// The peer is lost; [`Error::lost`] returns the reason. Pages of a transfer may have arrived.
    /// An atomic operation may have taken effect.
    PeerLost,
    /// The timeout of the wait has passed. The operation continues, and can be waited for again.
    TimedOut,
    /// An argument is refused: pages that reach beyond their memory, a message that is too long, an
    /// atomic that is not eight aligned bytes.
    Argument,
    /// The peer has not granted this memory or counter, has granted it without the right that the
    /// operation needs, or has revoked it.
    NotGranted,
    /// The peer has revoked the memory during the transfer.
    Revoked,
    /// The transfer was aborted. For a counter: the sender has aborted a transfer that raises it.
    Aborted,
    /// The deadline of the transfer has passed ([`Peer::with_deadline`](crate::Peer::with_deadline)). Pages
    /// may have arrived: [`TransferStats::delivered`] is the number of bytes that are known to have.
    DeadlinePassed,
    /// No rail to the peer has this operation.
    Unsupported,
    /// No link to the peer is ready, or too many operations are in flight. Trying again may
    /// succeed.
    Busy,
    /// The link was lost during an atomic operation: it is unknown whether it took effect.
    Unknown,
    /// A limit of the engine is reached.
    Limit,
    /// The operating system refused a call.
    System,
    /// The engine has ended.
    Ended,
}

impl Error {
    fn new(
        kind: ErrorKind,
        message: impl Into<String>,
        cause: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let (message, cause, fix) = (message.into(), cause.into(), fix.into());
        Self(Box::new(Inner { kind, message, cause, fix, source: None }))
    }

    /// Creates an error whose message is its cause.
    fn plain(kind: ErrorKind, message: impl Into<String>, fix: impl Into<String>) -> Self {
        let message = message.into();
        Self::new(kind, message.clone(), message, fix)
    }

    fn caused_by(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Source::Other(Arc::new(source)));
        self
    }

    /// Returns the kind of this error, for programs that decide by it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the cause, without the operation that failed.
    pub fn cause(&self) -> &str {
        &self.0.cause
    }

    /// Returns the fix: what to change or to check.
    pub fn fix(&self) -> &str {
        &self.0.fix
    }

    /// Returns why the peer is lost, if [`kind`](Self::kind) is [`ErrorKind::PeerLost`].
    pub fn lost(&self) -> Option<&LostReason> {
        match &self.0.source {
            Some(Source::Lost(reason)) => Some(reason),
            _ => None,
        }
    }

    /// Creates an error that lists each rail that was tried, with its error.
    pub(crate) fn no_rail(tried: &[(String, RailError)], needs_rdma: bool) -> Self {
        let causes: Vec<_> = tried.iter().map(|(name, error)| format!("{name}: {error}")).collect();
        let cause = match causes.is_empty() {
            true => "this host has no rail of the requested kinds".to_owned(),
            false => causes.join("; "),
        };
        let fix = match tried.first() {
            _ if needs_rdma => {
                "check `farreach devices`; without `require_rdma` the engine falls back to tcp"
            }
            Some((_, error)) => &error.fix,
            None => "check `farreach devices`, which lists the rails of this host",
        };
        let error = Self::new(ErrorKind::NoRail, "no rail could be opened", cause, fix);
        match tried.first() {
            Some((_, first)) => error.caused_by(first.clone()),
            None => error,
        }
    }

    pub(crate) fn setting(setting: &str, cause: &str) -> Self {
        let fix = format!("choose a value within the bounds in the documentation of `Settings::{setting}`");
        Self::new(ErrorKind::Setting, format!("the setting `{setting}`: {cause}"), cause, fix)
    }

    pub(crate) fn address(address: &str, cause: &str) -> Self {
        let fix = "write host:port, such as 10.0.0.7:18520 or [::1]:18520";
        Self::new(ErrorKind::Address, format!("`{address}` is not an address: {cause}"), cause, fix)
    }

    pub(crate) fn connect(address: impl fmt::Display, cause: &str, fix: &str) -> Self {
        Self::new(ErrorKind::Connect, format!("connect to {address}: {cause}"), cause, fix)
    }

    pub(crate) fn accept(whom: impl fmt::Display, cause: &str, fix: &str) -> Self {
        Self::new(ErrorKind::Accept, format!("accept {whom}: {cause}"), cause, fix)
    }

    /// Creates the error of an operation that would be in clear text beyond this host.
    pub(crate) fn insecure(operation: impl fmt::Display) -> Self {
        let cause = "beyond this host, control connections without TLS are neither encrypted nor authenticated: \
                     anyone who reaches this host could become a peer, and anyone on the path could read the keys of \
                     granted memory";
        let fix = if cfg!(feature = "tls") {
            "give both sides the same secret (`Settings::secret`); to make one:\n\
             farreach secret new farreach.secret\n\
             or give each side a certificate (`Settings::tls`); to make them:\n\
             farreach tls init farreach-tls HOST HOST\n\
             or, in a network that you trust, allow clear text (`Settings::insecure`)"
        } else {
            "build `farreach` with its feature `tls`, and use `Settings::secret` or `Settings::tls`; or, in a network \
             that you trust, allow clear text (`Settings::insecure`)"
        };
        Self::new(ErrorKind::Insecure, format!("{operation}: {cause}"), cause, fix)
    }

    #[cfg(feature = "tls")]
    pub(crate) fn tls(operation: &str, cause: &str, fix: &str) -> Self {
        Self::new(ErrorKind::Tls, format!("{operation}: {cause}"), cause, fix)
    }

    pub(crate) fn peer_lost(reason: &LostReason) -> Self {
        let cause = reason.to_string();
        let mut error =
            Self::new(ErrorKind::PeerLost, format!("the peer is lost: {cause}"), cause, reason.fix());
        error.0.source = Some(Source::Lost(reason.clone()));
        error
    }

    pub(crate) fn timed_out(operation: &str, timeout: &Timeout) -> Self {
        let fix = match &timeout.hung {
            Some(hung) => hung.fix(),
            None => "check that the peer makes progress, or wait longer".to_owned(),
        };
        let message = timeout.explain(format!("{operation}: no result within {:?}", timeout.after));
        Self::plain(ErrorKind::TimedOut, message, fix)
    }

    pub(crate) fn not_granted(what: &str) -> Self {
        let message = format!("the peer has not granted this {what}, or has revoked it");
        Self::plain(ErrorKind::NotGranted, message, "have the peer grant it again")
    }

    pub(crate) fn not_granted_for(operation: &str) -> Self {
        let message = format!("the peer has not granted this memory for {operation}");
        let fix = "have the peer grant the memory with the right that the operation needs";
        Self::plain(ErrorKind::NotGranted, message, fix)
    }

    pub(crate) fn not_revoked(why: NotRevoked) -> Self {
        let message = format!("the grant is not revoked yet: {why}");
        Self::new(ErrorKind::Busy, message, why.to_string(), "revoke the grant again")
    }

    pub(crate) fn not_opened(error: &OpenError) -> Self {
        let cause = error.to_string();
        let fix = "check the token, and that the owner permits this peer";
        Self::new(ErrorKind::NotGranted, format!("open published memory: {cause}"), cause, fix)
    }

    pub(crate) fn counter_not_opened(error: &OpenError) -> Self {
        let cause = error.to_string();
        let fix = "check the token, and that the owner permits this peer";
        Self::new(ErrorKind::NotGranted, format!("open a shared counter: {cause}"), cause, fix)
    }

    pub(crate) fn not_opened_by_anyone() -> Self {
        let message = "wait for each peer: no peer has opened the counter";
        Self::plain(ErrorKind::Argument, message, "wait for peers first (`SharedCounter::opened_by`)")
    }

    /// Creates the error of something that is for names, while peers have none.
    pub(crate) fn no_names_for(what: &str) -> Self {
        let message = format!("open {what} for names: the peers of this engine have no certificates");
        let fix = "set `Settings::tls`, or open it for anyone who has the token";
        Self::plain(ErrorKind::Tls, message, fix)
    }

    pub(crate) fn no_names() -> Self {
        let message = "publish for names: the peers of this engine have no certificates";
        let fix = "set `Settings::tls`, or publish for anyone who has the token";
        Self::plain(ErrorKind::Tls, message, fix)
    }

    pub(crate) fn read_only() -> Self {
        let cause = farreach_memory::ReadOnlyError;
        Self::plain(ErrorKind::Argument, format!("publish memory: {cause}"), cause.fix())
    }

    pub(crate) fn not_admitted() -> Self {
        let message = "admit a name: everybody may open it, or it has ended";
        Self::plain(ErrorKind::Argument, message, "permit names alone when it is made (`Access::only`)")
    }

    pub(crate) fn not_a_host_name(name: &str) -> Self {
        let message = format!("expel {name:?}: certificates are told by their DNS names, and this is none");
        Self::plain(
            ErrorKind::Argument,
            message,
            "give a DNS name, or revoke peers (`Publication::revoke_peer`)",
        )
    }

    pub(crate) fn no_waits() -> Self {
        Self::plain(ErrorKind::Argument, "wait for one of no operations", "pass at least one operation")
    }

    pub(crate) fn limit(what: &str) -> Self {
        Self::plain(ErrorKind::Limit, format!("too many {what}"), "drop those that are no longer needed")
    }

    pub(crate) fn system(operation: impl fmt::Display, error: impl StdError + Send + Sync + 'static) -> Self {
        let cause = error.to_string();
        let fix = "check the limits of this process: `ulimit -n`, `ulimit -l`";
        Self::new(ErrorKind::System, format!("{operation}: {cause}"), cause, fix).caused_by(error)
    }

    pub(crate) fn ended() -> Self {
        Self::plain(ErrorKind::Ended, "the engine has ended", "open a new engine")
    }

    pub(crate) fn of_send(error: SendError) -> Self {
        match error {
            SendError::PeerLost { reason } => Self::peer_lost(&reason),
            SendError::TooLong { len, max } => Self::plain(
                ErrorKind::Argument,
                format!("a message of {len} bytes exceeds the maximum of {max} bytes"),
                "grant memory and write to it instead, or raise `Settings::message_max` on both sides",
            ),
            SendError::TimedOut(after) => Self::timed_out("send a message", &Timeout { after, hung: None }),
            _ => Self::ended(),
        }
    }

    pub(crate) fn of_atomic(error: AtomicError) -> Self {
        let message = error.to_string();
        match error {
            AtomicError::PeerLost { reason } => Self::peer_lost(&reason),
            AtomicError::NotGranted => Self::not_granted_for("atomic operations"),
            AtomicError::NotEightAlignedBytes { .. } => {
                Self::plain(ErrorKind::Argument, message, "use 8 bytes at an offset that is a multiple of 8")
            }
            AtomicError::Unsupported => Self::plain(
                ErrorKind::Unsupported,
                "no rail to the peer has atomic operations",
                "use a rail for which `farreach devices` lists atomics",
            ),
            // Nothing was posted, so a second try cannot change the memory twice.
            AtomicError::NoLink | AtomicError::Full => {
                Self::plain(ErrorKind::Busy, message, "try again, or wait for operations in flight first")
            }
            // It is not sent again, because it may have taken effect.
            AtomicError::Unknown => Self::plain(
                ErrorKind::Unknown,
                "the link was lost: it is unknown whether the atomic operation took effect",
                "read the memory to find out",
            ),
            AtomicError::TimedOut(after) => {
                Self::timed_out("atomic operation", &Timeout { after, hung: None })
            }
            AtomicError::Rail(error) => error.into(),
            _ => Self::ended(),
        }
    }

    pub(crate) fn of_transfer(fault: TransferFault) -> Self {
        match fault {
            TransferFault::PeerLost(reason) => Self::peer_lost(&reason),
            TransferFault::Aborted => Self::aborted(),
            TransferFault::DeadlinePassed => Self::plain(
                ErrorKind::DeadlinePassed,
                "the deadline of the transfer has passed before it was done",
                "allow it more time (`Peer::with_deadline`), or start it again with what is missing",
            ),
            TransferFault::Revoked => Self::plain(
                ErrorKind::Revoked,
                "the peer has revoked its memory",
                "have the peer grant memory again",
            ),
            TransferFault::NoSuchGrant | TransferFault::NoRight | TransferFault::OutOfBounds => {
                Self::not_granted_for("this transfer")
            }
            TransferFault::Scopes => Self::plain(
                ErrorKind::Argument,
                "the memory of one transfer was granted over different rails: some within the host, and some over \
                 the network",
                "start a transfer for each, or grant memory of `Engine::allocate` only, in whole pages",
            ),
            TransferFault::NoSuchCounter => Self::not_granted("counter"),
            TransferFault::Rail(error) => (*error).into(),
        }
    }

    pub(crate) fn of_pages(error: PlanError) -> Self {
        let fix = "use a page map whose pages lie within the memory on both sides and do not overlap";
        Self::plain(ErrorKind::Argument, error.to_string(), fix).caused_by(error)
    }

    /// Creates the error of a list without segments.
    pub(crate) fn no_regions() -> Self {
        Self::plain(ErrorKind::Argument, "transfer a list without segments", "push at least one segment")
    }

    /// Creates the error of a subset with a number that no segment has.
    pub(crate) fn no_such_segment(segment: u32, count: usize) -> Self {
        let message = format!("select segment {segment} of a prepared transfer: it has {count} segments");
        Self::plain(ErrorKind::Argument, message, "count the segments of all regions from 0")
    }

    /// Creates the error of a subset of another prepared transfer.
    pub(crate) fn other_subset() -> Self {
        let message = "start a prepared transfer: the subset is of another one";
        Self::plain(ErrorKind::Argument, message, "make the subset with the transfer that is started")
    }

    /// Creates the error of memory that a card has not returned.
    pub(crate) fn memory_kept() -> Self {
        let message = "finish a prepared transfer: a card has not returned a part of the memory";
        Self::plain(
            ErrorKind::Rail,
            message,
            "allocate new memory; the engine frees it when the card is done",
        )
    }

    /// Creates the error of a region of a list.
    pub(crate) fn of_region(region: usize, error: PlanError) -> Self {
        let fix = "use segments and pages that lie within the memory on both sides";
        Self::plain(ErrorKind::Argument, format!("region {region}: {error}"), fix).caused_by(error)
    }

    /// Creates the error of segments of a list.
    pub(crate) fn of_list(error: PlanError) -> Self {
        let fix = "use segments that do not overlap at the destination";
        Self::plain(ErrorKind::Argument, error.to_string(), fix).caused_by(error)
    }

    /// Creates the error of a transfer of nothing.
    pub(crate) fn no_bytes() -> Self {
        Self::plain(ErrorKind::Argument, "transfer 0 bytes", "transfer at least one byte")
    }

    /// Creates the error of a transfer beyond the end of a peer's memory.
    pub(crate) fn beyond(own_len: u64, remote_len: u64) -> Self {
        let message =
            format!("transfer {own_len} bytes: the range of the peer's memory has {remote_len} bytes");
        Self::plain(ErrorKind::Argument, message, "use a longer range, or less memory of this side")
    }

    fn aborted() -> Self {
        Self::plain(ErrorKind::Aborted, "the transfer was aborted", "start it again")
    }

    /// Returns the error of a wait for pages, or `Ok` if they have arrived.
    pub(crate) fn of_arrival(outcome: Outcome, lost: Option<&LostReason>) -> Result<(), Self> {
        match outcome {
            Outcome::Reached => Ok(()),
            Outcome::PeerLost => Err(Self::peer_lost(lost.unwrap_or(&LostReason::Gone))),
            _ => Err(Self::aborted()),
        }
    }
}

impl From<RailError> for Error {
    fn from(error: RailError) -> Self {
        let new = Self::new(ErrorKind::Rail, error.to_string(), error.cause.clone(), error.fix.clone());
        new.caused_by(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { message, cause, fix, .. } = &*self.0;
        f.write_str(message)?;
        // This is what `unwrap` prints. Most messages end with the cause already.
        if !message.contains(cause) {
            write!(f, "\ncause: {cause}")?;
        }
        write!(f, "\nfix: {fix}")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self.0.source.as_ref()? {
            Source::Lost(reason) => Some(reason),
            Source::Other(error) => Some(error.as_ref()),
        }
    }
}

/// The error of a transfer, with the memory of this side.
#[derive(thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct TransferError<B = Buffer> {
    /// The error.
    pub error: Error,
    /// The memory that the transfer took, unless a card may still have a part of it. Then the
    /// engine keeps the memory until the card is done with it, and frees it.
    pub buffer: Option<B>,
    /// The statistics up to the failure.
    pub stats: Box<TransferStats>,
}

/// The error of a grant, with the memory.
#[derive(thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct GrantError<M = Exposed> {
    /// The error.
    pub error: Error,
    /// The memory, unless the engine has ended or a rail keeps it.
    pub memory: Option<M>,
}

/// Implements `Debug` as [`Error`] does, because a program whose `main` returns such an error
/// prints it.
macro_rules! debug_as_its_error {
    ($($type:ty),*) => {$(
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.error.fmt(f)
            }
        }
    )*};
}

impl<M> fmt::Debug for GrantError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B> fmt::Debug for TransferError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

pub(crate) use debug_as_its_error;

/// Drops the memory, which the error may have.
impl<B> From<TransferError<B>> for Error {
    fn from(failed: TransferError<B>) -> Self {
        failed.error
    }
}

/// Drops the memory, which the error may have.
impl<M> From<GrantError<M>> for Error {
    fn from(failed: GrantError<M>) -> Self {
        failed.error
    }
}

impl<B> TransferError<B> {
    pub(crate) fn without_buffer(error: Error) -> Self {
        Self { error, buffer: None, stats: Box::default() }
    }

    /// The error of a transfer that has not begun.
    pub(crate) fn refused(error: Error, buffer: B) -> Self {
        Self { error, buffer: Some(buffer), stats: Box::default() }
    }
}

/// Returns the system's message, without the number that std adds to it.
pub(crate) fn words(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_with_an_error_prints_operation_cause_and_fix() {
        let error = Error::connect("10.0.0.7:1", "nobody", "start it");
        assert_eq!(format!("{error:?}"), "connect to 10.0.0.7:1: nobody\nfix: start it");
        let tried = [("tcp".to_owned(), RailError::new("open", "busy", "wait"))];
        let error = Error::no_rail(&tried, false);
        let printed = format!("{error:?}");
        assert!(
            printed.starts_with("no rail could be opened\ncause: tcp: ") && printed.ends_with("\nfix: wait"),
            "{printed}"
        );
        let transfer: TransferError = TransferError::without_buffer(error);
        assert_eq!(format!("{transfer:?}"), printed);
        assert_eq!(format!("{:?}", Error::from(transfer)), printed);
    }

    #[test]
    fn an_error_has_its_kind_its_source_and_the_reason_of_a_lost_peer() {
        let lost = Error::of_send(SendError::PeerLost { reason: LostReason::Goodbye });
        assert_eq!((lost.kind(), lost.lost()), (ErrorKind::PeerLost, Some(&LostReason::Goodbye)));
        assert_eq!(lost.source().unwrap().to_string(), LostReason::Goodbye.to_string());
        let rail = Error::from(RailError::new("open", "busy", "wait"));
        assert_eq!(
            (rail.kind(), rail.cause(), rail.fix(), rail.lost()),
            (ErrorKind::Rail, "busy", "wait", None)
        );
        assert!(rail.source().unwrap().downcast_ref::<RailError>().is_some());
        for error in [AtomicError::NoLink, AtomicError::Full] {
            assert_eq!(Error::of_atomic(error).kind(), ErrorKind::Busy);
        }
        assert_eq!(Error::of_transfer(TransferFault::Revoked).kind(), ErrorKind::Revoked);
        let late = Error::of_transfer(TransferFault::DeadlinePassed);
        assert_eq!(late.kind(), ErrorKind::DeadlinePassed);
        assert!(Error::of_arrival(Outcome::Reached, None).is_ok());
        assert_eq!(Error::of_arrival(Outcome::Aborted, None).unwrap_err().kind(), ErrorKind::Aborted);
    }
}
