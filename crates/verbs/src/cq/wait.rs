//! Waiting for completions: without rest, asleep, or first the one and then the other.

use std::time::{Duration, Instant};

use super::{CompletionChannel, Completions, Poller};
use crate::error::Error;

/// How to wait.
///
/// ```
/// use std::time::Duration;
/// use farreach_verbs::cq::Wait;
///
/// assert_eq!(Wait::default(), Wait::Adaptive { spin: Duration::from_micros(20) });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Polls without rest: the shortest delay, and a processor for it.
    Busy,
    /// Sleeps on the queue's channel: no processor while nothing comes, and a wake-up for each that does.
    Event,
    /// Polls for a while, then sleeps: what comes soon is met awake, and who waits long uses nothing.
    Adaptive {
        /// How long it polls before it sleeps.
        spin: Duration,
    },
}

impl Default for Wait {
    /// Adaptive: about as long awake as a wake-up takes, so that it costs twice the best at most.
    fn default() -> Self {
        Self::Adaptive { spin: Duration::from_micros(20) }
    }
}

impl Wait {
    /// How long it polls before it sleeps; none where it never does.
    fn spin(self) -> Option<Duration> {
        match self {
            Self::Busy => None,
            Self::Event => Some(Duration::ZERO),
            Self::Adaptive { spin } => Some(spin),
        }
    }
}

impl Poller<'_> {
    /// Waits until something has completed, or the time is over: then there is nothing.
    ///
    /// To sleep, the queue needs a channel that no other queue is on: who sleeps takes the events. Several queues on one channel are
    /// waited for by [`CompletionChannel::wait_event`].
    ///
    /// ```no_run
    /// # use farreach_verbs::cq::CompletionQueue;
    /// use std::time::{Duration, Instant};
    /// use farreach_verbs::cq::Wait;
    ///
    /// # fn serve(cq: &CompletionQueue) -> Result<(), farreach_verbs::Error> {
    /// let mut poller = cq.poller();
    /// let deadline = Instant::now() + Duration::from_secs(1);
    /// for completion in poller.wait(Wait::default(), Some(deadline))? {
    ///     println!("{completion:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_req_notify_cq")]
    #[doc(alias = "ibv_get_cq_event")]
    pub fn wait(&mut self, wait: Wait, deadline: Option<Instant>) -> Result<Completions<'_>, Error> {
        let sleep = match wait.spin() {
            Some(spin) => Some((self.own_channel()?.clone(), spin)),
            None => None,
        };
        let mut awake_since = Instant::now();
        while !self.fetch()? {
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                break;
            }
            let Some((channel, spin)) = &sleep else {
                std::hint::spin_loop();
                continue;
            };
            if now.duration_since(awake_since) < *spin {
                std::hint::spin_loop();
                continue;
            }
            self.cq().req_notify(false)?;
            // What completed between the last look and the arming raises no event: who slept now would sleep through it.
            if self.fetch()? {
                break;
            }
            // The event may be a leftover of an earlier arming, whose completion was met by the second look.
            channel.wait_event(deadline.map(|deadline| deadline.saturating_duration_since(now)))?;
            awake_since = Instant::now();
        }
        self.poll()
    }

    fn own_channel(&self) -> Result<&CompletionChannel, Error> {
        let cannot = |why| {
            let subject = self.cq().context().device().name().to_owned();
            Error::Unsupported { operation: "sleeping on a completion queue", subject, why }
        };
        let channel = self.cq().channel().ok_or_else(|| cannot("it was made without a channel"))?;
        if channel.queue_count() > 1 {
            return Err(cannot("its channel has other queues too, whose events would be taken"));
        }
        Ok(channel)
    }
}
