//! Checks that run before a measurement, so that an error is not reported only after ten minutes.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::operation::Operation;
use super::report::NotMeasured;
use super::{BenchArgs, NativeOperation, Wanted};
use crate::bounds;
use crate::exit::{Exit, Failure};
use crate::interrupt::{self, GLANCE};
use crate::native::Connection;
use crate::session::Session;
use crate::units;
use crate::units::sweep::Counts;

/// The limit of memory for a step, on either side.
const MEMORY_MAX: u64 = 1 << 32;

/// How long the rails of a session may take to be ready, after the first one.
const RAILS_PATIENCE: Duration = Duration::from_secs(5);

/// Checks the arguments.
pub(super) fn arguments(args: &BenchArgs) -> Result<(), Failure> {
    let wrong = |what: String, cause: String| {
        Err(Failure::new(Exit::Usage, format!("{what} is not possible"))
            .cause(cause)
            .fix("see the help:\nfarreach bench --help"))
    };
    let most = |counts: &Counts| counts.numbers().iter().copied().max().unwrap_or(0);
    let longest = args.sizes.bytes().iter().copied().max().unwrap_or(0);
    if args.sizes.bytes().contains(&0) {
        return wrong("--sizes 0".to_owned(), "an operation has at least one byte".to_owned());
    }
    if args.op.contains(&Operation::Send) && longest > bounds::MESSAGE_BYTES.max() {
        return wrong(
            format!("--op send of {longest} bytes"),
            format!("a message has at most {} bytes", bounds::MESSAGE_BYTES.max()),
        );
    }
    let (depth, queues) = (most(&args.depths), most(&args.queues));
    let (depth_max, queues_max) = (bounds::DEPTH.max(), bounds::CONNECTIONS.max());
    if u64::from(depth) > depth_max || u64::from(queues) > queues_max {
        return wrong(
            format!("--depths {depth} with --queues {queues}"),
            format!("the limits are {depth_max} operations in flight and {queues_max} queues"),
        );
    }
    if longest.saturating_mul(depth.into()) > MEMORY_MAX {
        return wrong(
            format!("--depths {depth} with --sizes {longest}"),
            "each side would need more than 4 GiB of memory".to_owned(),
        );
    }
    queue_pair(args)?;
    // Operations on a word have a fixed size, whatever was typed.
    if args.op.contains(&Operation::Flush) {
        let check = |bytes: &u64| NativeOperation::FlushGlobal.check_size(*bytes as usize);
        args.sizes.bytes().iter().try_for_each(check)?;
    }
    Ok(())
}

/// Checks that the options of queue pairs apply to one of the operations.
fn queue_pair(args: &BenchArgs) -> Result<(), Failure> {
    let wrong = |what: &str, cause: &str| {
        Err(Failure::new(Exit::Usage, format!("{what} has no effect on these operations"))
            .cause(cause)
            .fix("add --op raw-write, or omit the option; see the help:\nfarreach bench --help"))
    };
    let has = |operation: Operation| args.op.contains(&operation);
    let options = &args.queue_pair;
    let has_raw = args.op.iter().filter_map(|it| it.native()).any(NativeOperation::is_plain);
    if let Some(flag) = options.flag()
        && args.op.iter().all(|operation| operation.native().is_none())
    {
        return wrong(
            flag,
            "it applies to raw-write, raw-read, raw-send, atomic-write and flush; the engine configures its own queue pairs",
        );
    }
    if options.inline_bytes > 0 && !has(Operation::RawWrite) && !has(Operation::RawSend) {
        return wrong("--inline", "it applies to raw-write and raw-send only");
    }
    if options.post_list > 1 && !has_raw {
        return wrong("--post-list", "it applies to raw-write, raw-read and raw-send only");
    }
    let lacks =
        |can: &[NativeOperation]| args.op.iter().filter_map(|it| it.native()).any(|it| !can.contains(&it));
    let (what, is_refused) = match options.connection {
        Connection::Rc => return Ok(()),
        Connection::Uc => (
            "uc supports raw-write and raw-send only",
            lacks(&[NativeOperation::Write, NativeOperation::Send]),
        ),
        Connection::Ud => ("ud supports raw-send only", lacks(&[NativeOperation::Send])),
    };
    if is_refused {
        return Err(Failure::new(Exit::Usage, format!("--connection {what}"))
            .cause("READ, ATOMIC WRITE and FLUSH need a reliable connection, and WRITE needs a connection")
            .fix("measure the other operations with --connection rc"));
    }
    Ok(())
}

/// Returns the sizes for which the rails of a session have no messages, if some are wanted.
pub(super) fn messages(session: &Session, wanted: &[Wanted]) -> Option<NotMeasured> {
    let name = Operation::Send.name();
    let sends: Vec<u64> =
        wanted.iter().filter(|it| it.operation == Operation::Send).map(|it| it.size_bytes).collect();
    let mut sizes: Vec<u64> =
        sends.iter().copied().filter(|size| *size > session.message_bytes_max as u64).collect();
    let is_whole = sizes.len() == sends.len();
    sizes.sort_unstable();
    sizes.dedup();
    let smallest = units::size(*sizes.first()?);
    let over = session.choice.names.join(", ");
    let failure = Failure::new(
        Exit::Unavailable,
        format!("a message over {over} has at most {} bytes", session.message_bytes_max),
    )
    .fix("measure larger sizes with --op write, or over another rail with -d");
    let error = format!("{name} of {smallest} and more was not measured");
    let lacking = NotMeasured::new(Some(name), error, &failure);
    Some(NotMeasured { sizes_bytes: if is_whole { Vec::new() } else { sizes }, ..lacking })
}

/// Checks that the picture can be written. An existing file stays unchanged until there is a new
/// one.
pub(super) fn picture(file: &Path) -> Result<(), Failure> {
    let is_new = match fs::metadata(file) {
        // A reader of a pipe would take a close for the end of the data.
        Ok(there) if !there.is_file() && !there.is_dir() => return Ok(()),
        there => there.is_err(),
    };
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(file);
    opened.map_err(|error| unwritable(file, &error))?;
    if is_new {
        fs::remove_file(file).map_err(|error| unwritable(file, &error))?;
    }
    Ok(())
}

pub(super) fn unwritable(file: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot write {}", file.display()))
        .cause(error.to_string())
        .fix("choose a file in an existing folder with write permission")
}

/// Checks that a session uses as many rails as requested. With fewer, its rows would duplicate
/// those of another session.
pub(super) fn rails(wanted: Option<usize>, session: &Session) -> Result<(), NotMeasured> {
    let Some(wanted) = wanted else { return Ok(()) };
    let ready = || session.channels.iter().map(|channel| channel.peer.rails().len()).min().unwrap_or(0);
    let deadline = Instant::now() + RAILS_PATIENCE;
    while ready() < wanted.min(session.choice.names.len())
        && Instant::now() < deadline
        && !interrupt::is_asked()
    {
        thread::sleep(GLANCE);
    }
    let ready = ready();
    if ready >= wanted {
        return Ok(());
    }
    let rails = session.rails().join(", ");
    let cause = format!("{ready} connected to the server: {rails} ({})", session.choice.why);
    let failure = Failure::new(Exit::Unavailable, "too few rails")
        .cause(cause)
        .fix("name more rails with -d, or use a smaller --rails; to list the rails of both hosts:\nfarreach devices");
    Err(NotMeasured::new(None, format!("{wanted} rails were not measured"), &failure))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::command::{Args, Command};

    fn checked(words: &str) -> Result<(), Failure> {
        let words = format!("farreach bench storage-7 {words}");
        let parsed = Args::try_parse_from(words.split_whitespace()).expect("clap takes it");
        let Command::Bench(args) = parsed.command else { panic!("it is a bench") };
        arguments(&args)
    }

    #[test]
    fn sizes_that_an_operation_does_not_have_are_told() {
        for (words, told) in [
            ("--op send -s 2M", "--op send of 2097152 bytes is not possible"),
            ("--op write,flush -s 4..1M", "FLUSH to global visibility of 4 bytes is not possible"),
            (
                "--op flush -s 8,2G --depths 1",
                "FLUSH to global visibility of 2147483648 bytes is not possible",
            ),
        ] {
            let refused = checked(words).expect_err(words);
            assert_eq!((refused.error.as_str(), refused.exit), (told, Exit::Usage), "{words}");
        }
        // An atomic operation has eight bytes, whatever the others have.
        assert_eq!(checked("--op write,cas,atomic-write -s 4..1M"), Ok(()));
        assert_eq!(checked("--op flush -s 8..1M"), Ok(()));
    }

    #[test]
    fn flags_of_bare_queue_pairs_want_an_operation_that_has_one() {
        for (words, told) in [
            ("--mtu 1024", "--mtu has no effect on these operations"),
            ("--op write --inline 64", "--inline has no effect on these operations"),
            ("--op raw-read --inline 64", "--inline has no effect on these operations"),
            ("--op flush --post-list 4", "--post-list has no effect on these operations"),
            (
                "--op raw-write,raw-read --connection uc",
                "--connection uc supports raw-write and raw-send only",
            ),
            ("--op raw-write --connection ud", "--connection ud supports raw-send only"),
        ] {
            let refused = checked(words).expect_err(words);
            assert_eq!((refused.error.as_str(), refused.exit), (told, Exit::Usage), "{words}");
        }
        assert_eq!(checked("--op raw-write --connection uc --mtu 1024 --inline 64 --post-list 16"), Ok(()));
        assert_eq!(checked("--op raw-read,write --mtu 256 --post-list 4"), Ok(()));
    }

    #[test]
    fn a_picture_is_tried_without_a_trace() {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        let (old, new) = (folder.path().join("old.svg"), folder.path().join("new.svg"));
        fs::write(&old, "a picture").expect("a file of our own");
        assert_eq!((picture(&old), picture(&new)), (Ok(()), Ok(())));
        assert_eq!(fs::read_to_string(&old).expect("it is there"), "a picture");
        assert!(!new.exists());
        for wrong in [folder.path(), &folder.path().join("none/x.svg")] {
            let refused = picture(wrong).expect_err("it is no file");
            assert_eq!(refused.error, format!("cannot write {}", wrong.display()));
            assert!(refused.cause.is_some() && refused.fix.is_some(), "{refused:?}");
        }
    }
}
