//! What an engine does with all its peers together: lists them, and waits for an event or a message of
//! any of them.

use std::sync::Arc;

use crate::Error;
use crate::engine::Engine;
use crate::events::PeerEvent;
use crate::hung_call::Timeout;
use crate::peer::{Peer, Peers};
use crate::pending::{Answer, Pending};
use crate::progress::Listener;
use crate::watch::Watcher;

impl Engine {
    /// Returns the peers that are connected now and of which the program has a handle, in the order in
    /// which they connected. A peer that no [`accept`](Self::accept) has returned is not among them.
    ///
    /// The handles are clones of the program's. A peer that is listed stays connected until they are
    /// dropped too. Makes no step, and may be called from a waker. The cost grows with the number of
    /// handles.
    ///
    /// ```
    /// use std::time::Duration;
    /// use farreach::{Engine, Error};
    ///
    /// const SOON: Duration = Duration::from_secs(5);
    ///
    /// # fn main() -> Result<(), Error> {
    /// let server = Engine::new()?;
    /// let address = server.listen("127.0.0.1:0")?;
    /// let client = Engine::new()?;
    /// let to_server = client.connect(address)?.wait(SOON)?;
    /// assert!(server.peers().is_empty(), "not accepted yet");
    ///
    /// let accepted = server.accept().wait(SOON)?;
    /// for peer in server.peers() {
    ///     peer.send("closing at noon").wait(SOON)?;
    /// }
    /// assert_eq!(to_server.recv().wait(SOON)?, b"closing at noon");
    /// # drop(accepted);
    /// # Ok(())
    /// # }
    /// ```
    pub fn peers(&self) -> Vec<Peer> {
        self.roster().connected().into_iter().map(Peer::of).collect()
    }

    /// Returns the next event of any peer, accepted or not. Events are recorded from the first call of
    /// this function on, before its result is waited for: a program that calls it and then
    /// [`peers`](Self::peers) misses nothing.
    ///
    /// The last 1024 events are kept. If the program does not take them, older ones are dropped, and
    /// [`PeerEvent::Missed`] tells how many. Dropping the `Pending` drops no event. Several waits share
    /// the events: each one goes to one of them.
    ///
    /// A silent peer is noticed after [`Settings::peer_timeout`](crate::Settings::peer_timeout) if
    /// something waits for it, and otherwise some 10 s to 20 s later: a wait for events does not have
    /// peers pinged more often.
    ///
    /// The wait ends with [`ErrorKind::Ended`](crate::ErrorKind::Ended) if all events were taken, the
    /// engine was closed or its last handle dropped, and no peer is left. The result is repeatable.
    ///
    /// ```
    /// use std::time::Duration;
    /// use farreach::{Engine, Error, PeerEvent};
    ///
    /// const SOON: Duration = Duration::from_secs(5);
    ///
    /// # fn main() -> Result<(), Error> {
    /// let server = Engine::new()?;
    /// let mut events = server.next_event();
    /// let address = server.listen("127.0.0.1:0")?;
    /// let client = Engine::new()?;
    /// let to_server = client.connect(address)?.wait(SOON)?;
    ///
    /// let PeerEvent::Connected { peer, .. } = events.wait(SOON)? else { panic!() };
    /// let accepted = server.accept().wait(SOON)?;
    /// assert_eq!(accepted.id(), peer);
    ///
    /// drop(to_server);
    /// loop {
    ///     match events.wait(SOON)? {
    ///         PeerEvent::LinkLost { rail, .. } => println!("a link of {rail}"),
    ///         PeerEvent::Lost { peer, reason } if peer == accepted.id() => {
    ///             println!("{reason}");
    ///             break;
    ///         }
    ///         _ => {}
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn next_event(&self) -> Pending<PeerEvent> {
        let roster = Arc::clone(self.roster());
        // Now and not with the first wait: events between the two are promised.
        roster.news().events.begin();
        let watcher = roster.news().events.watch.watcher();
        Pending::new(self.running(), NextEvent { roster, watcher })
    }

    /// Receives a message of any peer of which the program has a handle, also of one that is lost.
    ///
    /// Peers with messages take turns: each gives one, and a peer that sends without a pause delays
    /// another one by one message. Messages of a peer arrive in order. Neither a message nor a wait
    /// costs more with more peers.
    ///
    /// A [`Peer::recv`] that waits goes first: as long as it does, this returns no message of its peer.
    /// It waits from the first time that it was polled or waited for until it has a message, its timeout
    /// passes or it is dropped. Dropping the `Pending` of this function loses no message. Several waits
    /// share the messages: each one goes to one of them.
    ///
    /// A lost peer does not end the wait; [`next_event`](Self::next_event) reports it. The wait ends
    /// with [`ErrorKind::Ended`](crate::ErrorKind::Ended) if no message is left, the engine was closed
    /// or its last handle dropped, and no peer is connected. The result is repeatable.
    ///
    /// ```
    /// use std::time::Duration;
    /// use farreach::{Engine, Error};
    ///
    /// const SOON: Duration = Duration::from_secs(5);
    ///
    /// # fn main() -> Result<(), Error> {
    /// let server = Engine::new()?;
    /// let address = server.listen("127.0.0.1:0")?;
    /// let clients = [Engine::new()?, Engine::new()?];
    /// let mut peers = Vec::new();
    /// for client in &clients {
    ///     let to_server = client.connect(address)?.wait(SOON)?;
    ///     to_server.send("which one am I?").wait(SOON)?;
    ///     peers.push((to_server, server.accept().wait(SOON)?));
    /// }
    ///
    /// let mut requests = server.recv_any();
    /// for _ in &clients {
    ///     let (peer, request) = requests.wait(SOON)?;
    ///     assert_eq!(request, b"which one am I?");
    ///     peer.send(format!("{:?}", peer.id())).wait(SOON)?;
    /// }
    /// # for (to_server, _) in &peers {
    /// #     to_server.recv().wait(SOON)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    pub fn recv_any(&self) -> Pending<(Peer, Vec<u8>)> {
        let roster = Arc::clone(self.roster());
        // Messages that came before are listed once. Later ones are listed by the leader.
        roster.begin_listing();
        let watcher = roster.news().inboxes.watch.watcher();
        Pending::new(self.running(), ReceivingAny { roster, watcher })
    }
}

struct NextEvent {
    roster: Arc<Peers>,
    watcher: Watcher,
}

impl Answer<Result<PeerEvent, Error>> for NextEvent {
    fn is_ready(&self) -> bool {
        self.roster.news().events.has_one() || self.roster.is_over()
    }

    fn listen(&self, listener: &Listener) {
        self.watcher.listen(listener);
    }

    fn take(&mut self) -> Option<Result<PeerEvent, Error>> {
        // Read first: events from before the end are seen.
        let is_over = self.roster.is_over();
        match self.roster.news().events.take() {
            Some(event) => Some(Ok(event)),
            None => is_over.then(|| Err(Error::ended())),
        }
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<PeerEvent, Error> {
        Err(Error::timed_out("wait for an event", timeout))
    }

    fn ended(&mut self) -> Result<PeerEvent, Error> {
        Err(Error::ended())
    }
}

struct ReceivingAny {
    roster: Arc<Peers>,
    watcher: Watcher,
}

impl Answer<Result<(Peer, Vec<u8>), Error>> for ReceivingAny {
    fn is_ready(&self) -> bool {
        self.roster.news().inboxes.has_one() || self.roster.is_over()
    }

    fn listen(&self, listener: &Listener) {
        self.watcher.listen(listener);
    }

    fn take(&mut self) -> Option<Result<(Peer, Vec<u8>), Error>> {
        // Read first: messages from before the end are seen.
        let is_over = self.roster.is_over();
        while let Some((key, message)) = self.roster.news().inboxes.take() {
            // Otherwise the last handle of the peer is being dropped, and its messages with it.
            if let Some(peer) = self.roster.find(key).map(Peer::of) {
                peer.took_one();
                return Some(Ok((peer, message)));
            }
        }
        is_over.then(|| Err(Error::ended()))
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<(Peer, Vec<u8>), Error> {
        Err(Error::timed_out("receive a message of any peer", timeout))
    }

    fn ended(&mut self) -> Result<(Peer, Vec<u8>), Error> {
        Err(Error::ended())
    }
}
