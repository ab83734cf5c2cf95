//! Faults that a guest's kernel tells of: what its tests say afterwards tells nothing about us.
//!
//! One was seen, once: a warning in a call of the device's, after which a test did not come back from the kernel. Soft-RoCE frees an object that is still in use
//! where that takes longer than 200 ticks, and warns; a host that takes the processors away is enough.

/// What the lines contain by which a kernel tells that it has gone wrong.
const SIGNS: [&str; 6] = [
    "[ cut here ]",
    "BUG: ",
    "Oops: ",
    "Kernel panic",
    "general protection fault",
    " blocked for more than ",
];

/// The signs after which a call of the kernel may never return. Seen with Linux 7.2.13: a null pointer in `rxe_sched_task`, while a queue
/// pair was destroyed whose peer was still sending.
const FATAL: [&str; 4] = ["BUG: ", "Oops: ", "Kernel panic", "general protection fault"];

/// Whether a kernel log tells of a failure that the kernel does not recover from.
pub(crate) fn is_fatal(log: &str) -> bool {
    log.lines().any(|line| FATAL.iter().any(|sign| line.contains(sign)))
}

/// So many lines of a fault are told: the function, the registers and the calls.
const TOLD: usize = 40;

/// The first fault in a kernel log, as the kernel told it.
pub(crate) fn first_in(log: &str) -> Option<String> {
    let mut lines = log.lines().skip_while(|line| !SIGNS.iter().any(|sign| line.contains(sign))).peekable();
    lines.peek()?;
    Some(lines.take(TOLD).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_told_from_its_first_line_on() {
        let log =
            "[ 1.0] eth0: link up\n[ 2.0] ------------[ cut here ]------------\n[ 2.0] WARNING: rxe_pool.c";
        assert_eq!(first_in(log).unwrap(), log.split_once('\n').unwrap().1);
        let stuck = "[ 9.0] INFO: task cli:77 blocked for more than 120 seconds.";
        assert_eq!(first_in(stuck).unwrap(), stuck);
        assert!(!is_fatal(log) && !is_fatal(stuck), "the kernel goes on");
        assert!(is_fatal(
            "[ 3.0] eth0: link up\n[ 300.4] BUG: kernel NULL pointer dereference, address: 0160"
        ));
    }

    #[test]
    fn what_a_kernel_says_while_all_is_well_is_no_fault() {
        let log = "[ 1.7] mtrr: your CPUs had inconsistent MTRRdefType settings\n[ 3.1] debug: x\n";
        assert_eq!(first_in(log), None);
    }
}
