//! The kinds of frames, and the fields of each: for programs that send false ones. The simulation, the fuzz
//! targets and the attacks use this one list.
//!
//! The list names every frame, and every field, so a new one does not compile before it is added. Whoever
//! lies about frames then lies about it, too.
//!
//! ```
//! use farreach_proto::wire::fields::{Field, Kind};
//! use farreach_proto::wire::Frame;
//!
//! let mut frame = Frame::blank(Kind::Abort);
//! frame.fields(&mut |field| {
//!     if let Field::Text(reason) = field {
//!         *reason = "invented".to_owned();
//!     }
//! });
//! assert!(matches!(frame, Frame::Abort { ref reason, .. } if reason == "invented"));
//! assert_eq!(frame.kind(), Kind::Abort);
//! ```

use super::{BoundKey, Frame, GrantOffer, Hello, LinkOffer};
use crate::counter::{CounterId, LinkId};
use crate::ids::{GrantId, PublicationId, SharedCounterId};
use crate::rail::Scope;

/// A field of a frame, by what it means.
#[derive(Debug)]
pub enum Field<'a> {
    /// Whether something is so.
    Flag(&'a mut bool),
    /// A link.
    Link(&'a mut LinkId),
    /// A counter.
    Counter(&'a mut CounterId),
    /// A grant.
    Grant(&'a mut GrantId),
    /// A publication.
    Publication(&'a mut PublicationId),
    /// A shared counter.
    Shared(&'a mut SharedCounterId),
    /// The mark of messages over a link.
    Mark(&'a mut u64),
    /// A number, a length or a position.
    Number(&'a mut u64),
    /// A small number.
    Short(&'a mut u32),
    /// A rail of one of the sides.
    Rail(&'a mut u16),
    /// Rights as bits.
    Rights(&'a mut u8),
    /// The scope of a grant.
    Scope(&'a mut Scope),
    /// The address of an end of a link.
    Address(&'a mut Vec<u8>),
    /// The bytes of a message.
    Bytes(&'a mut Vec<u8>),
    /// A text.
    Text(&'a mut String),
    /// The kinds of rails.
    Rails(&'a mut Vec<String>),
    /// The address and the key of a grant, for each rail.
    Keys(&'a mut Vec<Option<(u64, u64)>>),
    /// Keys that are bound to a link.
    BoundKeys(&'a mut Vec<BoundKey>),
    /// Names of a counter on links.
    Names(&'a mut Vec<(LinkId, CounterId)>),
}

/// A frame of this kind with these fields, as a pattern or as an expression.
macro_rules! frame {
    ($kind:ident; $inner:ident; $($fields:tt)*) => { Frame::$kind($inner { $($fields)* }) };
    ($kind:ident;; $($fields:tt)*) => { Frame::$kind { $($fields)* } };
}

/// For each frame: the structure that it holds, if it holds one, and its fields with their meanings.
macro_rules! frames {
    ($($kind:ident $(($inner:ident))? { $($field:ident: $meaning:ident),* })*) => {
        /// The kind of a frame.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "each is that of the frame with its name")]
        pub enum Kind {
            $($kind),*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// Returns its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => stringify!($kind)),*
                }
            }
        }

        impl Frame {
            /// Returns its kind.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind { .. } => Kind::$kind),*
                }
            }

            /// Returns a frame of this kind whose numbers are 0, and whose lists and texts are empty.
            pub fn blank(kind: Kind) -> Self {
                match kind {
                    $(Kind::$kind => frame!($kind; $($inner)?; $($field: Blank::blank()),*)),*
                }
            }

            /// Visits its fields in order.
            pub fn fields(&mut self, visit: &mut dyn FnMut(Field<'_>)) {
                match self {
                    $(frame!($kind; $($inner)?; $($field),*) => { $(visit(Field::$meaning($field));)* })*
                }
            }
        }
    };
}

frames! {
    Hello(Hello) {
        incarnation: Number, name: Text, rails: Rails, messages: Short, grants: Short, counters: Short
    }
    Link(LinkOffer) { link: Link, from: Rail, to: Rail, address: Address }
    LinkReady { link: Link, mark: Mark, needs_names: Flag, binds_keys: Flag }
    Keys { link: Link, keys: BoundKeys }
    LinkLost { link: Link, is_quiet: Flag, reason: Text }
    Grant(GrantOffer) { grant: Grant, len: Number, rights: Rights, scope: Scope, keys: Keys }
    Revoke { grant: Grant }
    Revoked { grant: Grant }
    Open { publication: Publication }
    Opened { publication: Publication, grant: Grant }
    NotOpened { publication: Publication, reason: Text }
    Settle { link: Link, counter: Counter }
    Settled { link: Link, counter: Counter, pages: Number }
    Counter { counter: Counter, names: Names }
    CounterClosed { counter: Counter }
    Add { counter: Counter, pages: Number }
    Abort { counter: Counter, reason: Text }
    Message { sequence: Number, bytes: Bytes }
    Taken { count: Short }
    Held { next: Number }
    Ping { nonce: Number }
    Look {}
    Refused { reason: Text }
    Goodbye {}
    Pong { nonce: Number }
    OpenCounter { shared: Shared }
    CounterOpened { shared: Shared, counter: Counter }
    CounterNotOpened { shared: Shared, reason: Text }
}

/// A value of a field that nobody has chosen yet.
trait Blank {
    fn blank() -> Self;
}

macro_rules! blank {
    ($($type:ty: $value:expr),*) => {
        $(impl Blank for $type {
            fn blank() -> Self {
                $value
            }
        })*
    };
}

blank! {
    bool: false, u8: 0, u16: 0, u32: 0, u64: 0, String: String::new(),
    LinkId: LinkId(0), CounterId: CounterId::NONE, GrantId: GrantId(0), PublicationId: PublicationId(0),
    SharedCounterId: SharedCounterId(0), Scope: Scope::Network
}

impl<T> Blank for Vec<T> {
    fn blank() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_frame_is_of_its_kind_and_can_be_sent() {
        for kind in Kind::ALL {
            let frame = Frame::blank(*kind);
            assert_eq!(frame.kind(), *kind);
            crate::wire::encode(&frame, &mut Vec::new()).unwrap();
        }
    }
}
