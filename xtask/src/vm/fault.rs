//! Faults that the kernel of a guest reports. Results of tests after such a fault are not
//! meaningful.
//!
//! One was seen, once: a warning in a call of the device, after which a test did not return from
//! the kernel. Soft-RoCE frees an object that is still in use if that takes longer than 200 ticks,
//! and prints a warning; a host that takes the processors away is enough to cause this.

/// Texts in the kernel log that report a fault.
const SIGNS: [&str; 6] = [
    "[ cut here ]",
    "BUG: ",
    "Oops: ",
    "Kernel panic",
    "general protection fault",
    " blocked for more than ",
];

/// The signs after which a system call may never return. Seen with Linux 7.2.13: a null pointer in
/// `rxe_sched_task`, while a queue pair was destroyed whose peer was still sending.
const FATAL: [&str; 4] = ["BUG: ", "Oops: ", "Kernel panic", "general protection fault"];

/// Returns whether a kernel log reports a failure from which the kernel does not recover.
pub(crate) fn is_fatal(log: &str) -> bool {
    log.lines().any(|line| FATAL.iter().any(|sign| line.contains(sign)))
}

/// The number of lines of a fault that are printed: the function, the registers and the calls.
const TOLD: usize = 40;

/// Returns the lines of the first fault in a kernel log.
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
