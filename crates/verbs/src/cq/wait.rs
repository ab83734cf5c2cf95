//! Waits for completions by busy polling, by sleeping, or by both in sequence.

use std::time::{Duration, Instant};

use super::{CompletionChannel, Completions, Poller};
use crate::error::Error;

/// A strategy to wait.
///
/// ```
/// use std::time::Duration;
/// use farreach_verbs::cq::Wait;
///
/// assert_eq!(Wait::default(), Wait::Adaptive { spin: Duration::from_micros(20) });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Polls without pause. It has the lowest latency, and occupies a processor.
    Busy,
    /// Sleeps on the queue's channel. It uses no processor while idle, and costs a wake-up for each
    /// event.
    Event,
    /// Polls for a while, then sleeps. It has low latency for early completions and uses no
    /// processor in long waits.
    Adaptive {
        /// The time to poll before sleeping.
        spin: Duration,
    },
}

impl Default for Wait {
    /// Returns `Adaptive` with about the time of a wake-up, so that a wait costs at most twice the
    /// optimum.
    fn default() -> Self {
        Self::Adaptive { spin: Duration::from_micros(20) }
    }
}

impl Wait {
    /// Returns the time to poll before sleeping. `None` if it never sleeps.
    fn spin(self) -> Option<Duration> {
        match self {
            Self::Busy => None,
            Self::Event => Some(Duration::ZERO),
            Self::Adaptive { spin } => Some(spin),
        }
    }
}

impl Poller<'_> {
    /// Waits until something has completed, or the deadline has passed; then the result is empty.
    ///
    /// To sleep, the queue needs a channel without other queues, because the wait takes the
    /// channel's events. [`CompletionChannel::wait_event`] waits for several queues on one channel.
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
            // A completion between the last poll and the arming raises no event. Sleeping without a
            // second poll would miss it.
            if self.fetch()? {
                break;
            }
            // The event may be from an earlier arming, whose completion the second poll found. So
            // this loops.
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
        let channel = self.cq().channel().ok_or_else(|| cannot("it has no channel"))?;
        if channel.queue_count() > 1 {
            return Err(cannot("its channel has other queues, whose events would be lost"));
        }
        Ok(channel)
    }
}
