//! The server's log, with a limit on lines that strangers cause.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::terminal;

/// Logs connections, and counts those that are too many to log.
#[derive(Debug)]
pub(super) struct Journal {
    since: Instant,
    lines: usize,
    omitted: usize,
}

/// The lines that are logged in each interval. A flood of connections must not fill the disk.
const LINES_MAX: usize = 50;
const INTERVAL: Duration = Duration::from_secs(1);

impl Journal {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), lines: 0, omitted: 0 }
    }

    /// Logs a line about a connection.
    pub(super) fn tell(&mut self, client: SocketAddr, what: &str) {
        self.note(&format!("{client}: {what}"));
    }

    /// Logs a line.
    pub(super) fn note(&mut self, line: &str) {
        if self.admits(Instant::now()) {
            terminal::log(line);
        }
    }

    /// Logs how many lines were omitted, if the interval is over.
    pub(super) fn flush(&mut self, now: Instant) {
        if let Some(omitted) = self.next(now) {
            terminal::log(&format!("{omitted} more lines about connections were omitted"));
        }
    }

    /// Logs how many lines were omitted.
    pub(super) fn end(&mut self) {
        self.flush(self.since + INTERVAL);
    }

    fn admits(&mut self, now: Instant) -> bool {
        self.flush(now);
        self.lines += 1;
        let is_admitted = self.lines <= LINES_MAX;
        self.omitted += usize::from(!is_admitted);
        is_admitted
    }

    /// Begins the next interval when it is time. Returns the number of lines that were omitted.
    fn next(&mut self, now: Instant) -> Option<usize> {
        if now.saturating_duration_since(self.since) < INTERVAL {
            return None;
        }
        (self.since, self.lines) = (now, 0);
        Some(std::mem::take(&mut self.omitted)).filter(|omitted| *omitted > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_counted() {
        let mut journal = Journal::new();
        let now = journal.since;
        let admitted = (0..LINES_MAX + 7).filter(|_| journal.admits(now)).count();
        assert_eq!((admitted, journal.omitted), (LINES_MAX, 7));
        assert_eq!(journal.next(now + INTERVAL - Duration::from_nanos(1)), None);
        assert_eq!(journal.next(now + INTERVAL), Some(7));
        assert!(journal.admits(now + INTERVAL));
        assert_eq!(journal.next(now + 2 * INTERVAL), None);
    }
}
