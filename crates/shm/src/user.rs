//! The user of this process, in its user namespace and outside of it.

use std::fs;

use rustix::process::geteuid;

/// The user map of the namespace: lines with the first number inside, the first one outside, and a
/// count.
const UID_MAP: &str = "/proc/self/uid_map";

/// The number by which the kernel shows users that a user namespace does not have.
const OVERFLOW: &str = "/proc/sys/kernel/overflowuid";
const OVERFLOW_DEFAULT: u32 = 65534;

/// Returns the number of this process's user outside of its user namespace, so that processes in
/// different ones can be compared. It is the number inside if the namespace has no number for it.
pub(crate) fn user_outside() -> u32 {
    let user = geteuid().as_raw();
    fs::read_to_string(UID_MAP).ok().and_then(|map| outside(&map, user)).unwrap_or(user)
}

/// Returns whether this process can tell its own user from others.
///
/// The kernel shows all users that a namespace does not have by one number. For a process with that
/// number, everybody seems to be the same user.
pub(crate) fn is_told_from_others() -> bool {
    let overflow = || fs::read_to_string(OVERFLOW).ok().and_then(|number| number.trim().parse().ok());
    geteuid().as_raw() != overflow().unwrap_or(OVERFLOW_DEFAULT)
        || fs::read_to_string(UID_MAP).is_ok_and(|map| has_all(&map))
}

fn lines(map: &str) -> impl Iterator<Item = [u32; 3]> {
    map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
        Some([numbers.next()??, numbers.next()??, numbers.next()??])
    })
}

fn outside(map: &str, user: u32) -> Option<u32> {
    lines(map).find_map(|[first, outside, count]| {
        let offset = user.checked_sub(first).filter(|offset| *offset < count)?;
        outside.checked_add(offset)
    })
}

/// Returns whether a namespace has all users: it is that of the host, or as good.
fn has_all(map: &str) -> bool {
    lines(map).any(|[first, _, count]| first == 0 && count == u32::MAX)
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn users_are_followed_out_of_their_namespace() {
        let map = "         0     100000      65536\n  70000   5   1";
        assert_eq!(outside(map, 0), Some(100_000));
        assert_eq!(outside(map, 65_535), Some(165_535));
        assert_eq!(outside(map, 65_536), None);
        assert_eq!(outside(map, 70_000), Some(5));
        assert_eq!(outside("0 4294967295 2", 1), None);
        assert_eq!(outside("0 x 1\n0 0", 0), None);
        assert!(has_all("         0          0 4294967295\n"));
        assert!(!has_all(map) && !has_all("") && !has_all("0 0 4294967294"));
    }
}
