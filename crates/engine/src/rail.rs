//! What a rail is to the engine: one card, or one provider of libfabric's, with links to peers.
//!
//! An engine [opens its rails](crate::Settings) by itself. Whoever has another kind of card implements [`Rail`] and hands it to
//! [`Engine::over`](crate::Engine::over).

pub use farreach_rail::{
    EndedKeys, Event, Extent, Key, KeyId, Limits, LinkKey, Proof, Properties, Rail, RailError, RailStatus,
    Refusal, RemoteSegment, RemoteSegments, WorkRequest,
};
