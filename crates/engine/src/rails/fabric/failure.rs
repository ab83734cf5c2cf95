//! Converts errors of libfabric into errors of a rail.

use farreach_fabric as fab;
use farreach_rail::{RailError, RailStatus, Refusal};

/// Converts the error of a call.
pub(super) fn of_error(operation: impl Into<String>, error: &fab::Error) -> RailError {
    let (said, cause) = (error.to_string(), error.cause());
    let status = error.errno().map(RailStatus::Errno);
    RailError::new(operation, joined(said, cause), error.fix()).caused_by(status, error.clone())
}

/// Converts a failed completion.
#[cold]
pub(super) fn of_failure(rail: &str, failure: &fab::Failure) -> RailError {
    let operation = failure.operation.map_or_else(|| "operation".to_owned(), |kind| kind.to_string());
    let cause = joined(failure.to_string(), failure.cause());
    let status = RailStatus::Completion(failure.errno.unsigned_abs());
    RailError::new(format!("{operation} over {rail}"), cause, failure.fix())
        .caused_by(Some(status), failure.clone())
}

/// Converts a refusal of a work request, other than a full queue.
#[cold]
pub(super) fn of_refusal(rail: &str, refusal: &fab::Refusal) -> Refusal {
    let error = RailError::new(format!("post over {rail}"), refusal.to_string(), refusal.fix());
    match refusal {
        fab::Refusal::Failed(failure) => Refusal::LinkDown(of_failure(rail, failure)),
        fab::Refusal::Engine(said) => {
            let error = of_error(format!("post over {rail}"), said);
            // A provider that refuses a request as such always refuses it. Other errors concern the
            // connection.
            let is_about_request =
                matches!(said.errno(), Some(libc::EINVAL | libc::EMSGSIZE | libc::ENOSYS | libc::EOPNOTSUPP));
            if is_about_request { Refusal::Never(error) } else { Refusal::LinkDown(error) }
        }
        _ => Refusal::Never(error),
    }
}

fn joined(said: String, cause: String) -> String {
    // Some texts of the library contain the cause already.
    if cause.is_empty() || said.contains(&cause) { said } else { format!("{said}: {cause}") }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    fn failed(errno: i32) -> fab::Error {
        fab::Error::Failed { operation: "fi_writemsg", errno, text: "a text".to_owned() }
    }

    #[test]
    fn an_error_tells_operation_cause_and_fix() {
        let error = of_error("open the rail tcp", &failed(libc::EADDRINUSE));
        assert_eq!(
            error.to_string(),
            "open the rail tcp: fi_writemsg failed: a text (98): another process has this address"
        );
        assert!(error.fix.contains("FI_LOG_LEVEL"), "{}", error.fix);
        assert_eq!(error.status(), Some(RailStatus::Errno(libc::EADDRINUSE)));
        let source = error.source().and_then(|source| source.downcast_ref::<fab::Error>());
        assert_eq!(source, Some(&failed(libc::EADDRINUSE)));
        // A cause that adds nothing is not repeated.
        assert_eq!(of_error("x", &failed(999)).cause, "fi_writemsg failed: a text (999)");
    }

    #[test]
    fn a_refusal_tells_whether_it_is_worth_trying_again() {
        let refusal = |reason: fab::Refusal| of_refusal("tcp", &reason);
        assert!(matches!(refusal(fab::Refusal::NotRegistered), Refusal::Never(_)));
        assert!(matches!(refusal(fab::Refusal::Engine(failed(libc::EINVAL))), Refusal::Never(_)));
        assert!(matches!(refusal(fab::Refusal::Engine(failed(libc::ENOTCONN))), Refusal::LinkDown(_)));
    }
}
