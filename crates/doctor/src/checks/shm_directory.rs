//! Checks the directory in which processes meet over the rail shm (`--shm-dir`): whether this process
//! can use it, and what keeps others from meeting it there.

use super::shm::more_files;
use crate::finding::{Answer, CommandLine, Finding, Fix};
use crate::pack::Pack;
use crate::probes::{Refused, Shm, ShmDirectory, ShmDirectoryProblem};

/// The number by which the kernel shows users that a user namespace does not have.
const OVERFLOW_USER: u32 = 65534;

/// Checks the directory, if one was named.
pub(super) fn shm_directory(pack: &Pack) -> Answer {
    let shm = match pack.probes().shm.get() {
        Ok(shm) => shm,
        // The check shm reports it.
        Err(reason) => return Answer::DoesNotApply(format!("shm was not tried: {reason}")),
    };
    let Some(directory) = &shm.directory else {
        return Answer::DoesNotApply("no directory for shm was named (--shm-dir)".to_owned());
    };
    let finding = match &directory.problem {
        None => usable(shm, directory),
        Some(ShmDirectoryProblem::NotTried(reason)) => Finding::unknown(format!("not tried: {reason}")),
        Some(ShmDirectoryProblem::OtherOwner) => other_owner(directory),
        Some(ShmDirectoryProblem::OthersCanWrite) => others_can_write(directory),
        Some(ShmDirectoryProblem::Refused(refused)) => cannot_be_used(directory, refused),
    };
    finding
        .of(directory.path.as_str())
        .read(format!("stat {}", directory.path))
        .read("a link through a socket in the directory")
        .into()
}

fn usable(shm: &Shm, directory: &ShmDirectory) -> Finding {
    let who = user_words(directory);
    let found =
        format!("{}; processes of {who} meet here, whatever their network namespace", owned(directory));
    match &shm.peer_pidfd {
        None => Finding::pass(found),
        Some(error) => Finding::warn(format!(
            "{found}; SO_PEERPIDFD is refused: {error}; processes in different pid namespaces, as those of two \
             containers, do not meet"
        ))
        .fix("boot Linux 6.5 or newer")
        .fix(
            Fix::new("start the second container in the pid namespace of the first")
                .at("container")
                .run("docker run --pid=container:FIRST IMAGE"),
        ),
    }
}

fn other_owner(directory: &ShmDirectory) -> Finding {
    let ShmDirectory { path, user, owner, .. } = directory;
    let unmapped = match owner {
        Some(OVERFLOW_USER) => "; this number also stands for users that this user namespace does not have",
        _ => "",
    };
    Finding::fail(format!(
        "{}, and this process belongs to user {user}: the owner could replace the sockets{unmapped}",
        owned(directory)
    ))
    .fix(
        Fix::new("name a directory of this user instead, in a volume that both processes see")
            .run("mkdir -m 700 DIR"),
    )
    .fix(
        Fix::new("run both processes as the owner").at("container").run(
            CommandLine::new("docker run --user")
                .arg(owner.map_or_else(|| "OWNER".to_owned(), |owner| owner.to_string()))
                .shell("IMAGE"),
        ),
    )
    .fix(
        Fix::new("give the directory to this user, as root")
            .run(CommandLine::new("chown").arg(user.to_string()).path(path)),
    )
}

fn others_can_write(directory: &ShmDirectory) -> Finding {
    let path = &directory.path;
    Finding::fail(format!("{}: other users can write to it, and could replace the sockets", owned(directory)))
        .fix(Fix::new("take the right to write from others").run(CommandLine::new("chmod go-w").path(path)))
        .fix(
            Fix::new("keep it for users of several containers, as /tmp is")
                .run(CommandLine::new("chmod +t").path(path)),
        )
}

fn cannot_be_used(directory: &ShmDirectory, refused: &Refused) -> Finding {
    let Refused { call, error } = refused;
    let (path, user) = (directory.path.as_str(), directory.user);
    let mounted = |options: &str| {
        CommandLine::new("docker run -v").arg(format!("{path}:{path}{options}")).shell("IMAGE")
    };
    let has = |names: &[&str]| names.iter().any(|name| error.contains(&format!("({name})")));
    let told = |what: &str| Finding::fail(format!("{what}: {call}: {error}"));
    if has(&["EMFILE", "ENFILE"]) {
        return more_files(told("no descriptor is left for a link"));
    }
    if call.starts_with("/proc") {
        return told("it cannot be used without /proc")
            .fix(Fix::new("mount /proc").run("mount -t proc proc /proc"));
    }
    if call == "open" && has(&["ENOENT"]) {
        return told("it does not exist")
            .fix(
                Fix::new("create it, in a volume that both processes see")
                    .run(CommandLine::new("mkdir -m 700").path(path)),
            )
            .fix(
                Fix::new("start both containers with the directory of the host")
                    .at("container")
                    .run(mounted("")),
            );
    }
    if call == "open" && has(&["ENOTDIR", "ELOOP", "ENAMETOOLONG"]) {
        return told("it is not a directory").fix("name a directory, and not a file in it");
    }
    if call == "open" {
        return told("it cannot be opened").fix(
            Fix::new(format!("permit user {user} to search each directory of the path"))
                .run(CommandLine::new("namei -l").path(path)),
        );
    }
    if has(&["EROFS"]) {
        return told("its file system is read-only")
            .fix(Fix::new("mount the volume for writing").at("container").run(mounted(":rw")));
    }
    if has(&["EACCES"]) {
        return told(&format!("{}; user {user} cannot create sockets in it", owned(directory)))
            .fix(
                Fix::new("give the directory to this user, as root")
                    .run(CommandLine::new("chown").arg(user.to_string()).path(path)),
            )
            .fix(Fix::new("permit the owner to write").run(CommandLine::new("chmod u+w").path(path)))
            .fix("see the log of the security module, if it has one: a rule may forbid the socket");
    }
    if has(&["ENOSPC", "EDQUOT"]) {
        return told("no file can be created in it").fix(
            Fix::new("free space and inodes of its file system").run(CommandLine::new("df -i").path(path)),
        );
    }
    told("a link through it was not made")
        .fix("name a directory of a local file system that has sockets and modes, such as ext4, xfs or tmpfs")
        .fix(
            Fix::new("mount a file system of its own there")
                .run(CommandLine::new("mount -t tmpfs -o mode=700,size=1m tmpfs").path(path)),
        )
        .fix("see the check shm: a seccomp profile or a security module may forbid sockets")
}

/// Returns owner and mode, as far as they are known.
fn owned(directory: &ShmDirectory) -> String {
    match (&directory.owner, &directory.mode) {
        (Some(owner), Some(mode)) => format!("it belongs to user {owner} (mode {mode})"),
        _ => "its owner and mode are not known".to_owned(),
    }
}

/// Names the user, also by the number outside of its user namespace: others are compared by that.
fn user_words(directory: &ShmDirectory) -> String {
    let user = directory.user;
    match directory.user_outside {
        Some(outside) if outside != user => {
            format!("user {user}, who is user {outside} outside of this user namespace,")
        }
        _ => format!("user {user}"),
    }
}
