//! Figures of this machine and its processes, from `/proc`.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Ticks per second: the kernel reports processor time in hundredths of a second, whatever its own
/// clock is.
const TICKS_PER_S: f64 = 100.0;

/// The memory of a process in KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    /// The largest value of `resident` since the last [`reset_peak`].
    pub(crate) peak: u64,
    /// The part of `resident` that no file backs and no other process shares.
    pub(crate) anonymous: u64,
}

/// Returns the memory of a process. Fails if it has ended.
pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let status = read(&format!("/proc/{pid}/status"))?;
    parse_memory(&status).with_context(|| format!("process {pid} has no memory: it has ended"))
}

fn parse_memory(status: &str) -> Option<Memory> {
    let field = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some(Memory { resident: field("VmRSS")?, peak: field("VmHWM")?, anonymous: field("RssAnon")? })
}

/// Begins a new measurement of [`Memory::peak`]; see `clear_refs` in `proc_pid(5)`.
pub(crate) fn reset_peak(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
}

/// Returns the number of open descriptors of a process.
pub(crate) fn descriptors(pid: u32) -> Result<usize> {
    let path = format!("/proc/{pid}/fd");
    Ok(fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?.count())
}

/// Returns the children of a process, of all its threads.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).ok();
    let lists: Vec<String> = threads.flatten().filter_map(of_thread).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns the names of the files in `/dev/shm`, where libraries leave files of killed processes.
pub(crate) fn shared_files() -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir("/dev/shm") else { return BTreeSet::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Returns the IPv4 addresses at which a process listens.
pub(crate) fn listeners(pid: u32) -> Result<Vec<SocketAddr>> {
    let path = format!("/proc/{pid}/fd");
    let descriptors = fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?;
    let targets = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    let sockets: BTreeSet<String> = targets.map(|target| target.to_string_lossy().into_owned()).collect();
    let table = read(&format!("/proc/{pid}/net/tcp"))?;
    Ok(parse_listeners(&table, |inode| sockets.contains(&format!("socket:[{inode}]"))))
}

/// Parses `/proc/net/tcp`: `sl local_address rem_address st tx_queue:rx_queue tr:when retrnsmt uid
/// timeout inode …`, with addresses in hexadecimal.
fn parse_listeners(table: &str, is_own: impl Fn(&str) -> bool) -> Vec<SocketAddr> {
    const LISTEN: &str = "0A";
    let listener = |line: &str| -> Option<SocketAddr> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        if *state != LISTEN || !is_own(inode) {
            return None;
        }
        let (ip, port) = local.split_once(':')?;
        let ip = Ipv4Addr::from(u32::from_str_radix(ip, 16).ok()?.to_ne_bytes());
        // A listener on every address is reached by the loopback interface.
        let ip = if ip.is_unspecified() { Ipv4Addr::LOCALHOST } else { ip };
        Some((ip, u16::from_str_radix(port, 16).ok()?).into())
    };
    table.lines().filter_map(listener).collect()
}

/// The processor times at one moment, by which the load of others is measured: processes that this
/// one has not started, and the hypervisor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    taken: Instant,
    /// The busy time of all processors together, with the time that the hypervisor took.
    busy: u64,
    /// The time of this process and of all that it has started.
    ours: u64,
}

impl Load {
    pub(crate) fn now() -> Self {
        let busy = fs::read_to_string("/proc/stat").ok().and_then(|stat| busy(&stat)).unwrap_or_default();
        Self { taken: Instant::now(), busy, ours: of_tree(std::process::id()) }
    }

    /// Returns how much of a core others have used since then, on average.
    pub(crate) fn others_since(self) -> f64 {
        let now = Self::now();
        let others = now.busy.saturating_sub(self.busy).saturating_sub(now.ours.saturating_sub(self.ours));
        let elapsed = now.taken.duration_since(self.taken).max(Duration::from_millis(1));
        others as f64 / TICKS_PER_S / elapsed.as_secs_f64()
    }
}

/// Parses the first line of `/proc/stat`: `cpu user nice system idle iowait irq softirq steal …`.
fn busy(stat: &str) -> Option<u64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = fields.split_whitespace().map_while(|field| field.parse().ok()).collect();
    // Interrupts are left out: those of a busy loopback interface are the work of this program.
    let [user, nice, system, _idle, _iowait, _irq, _softirq, steal] = *ticks.first_chunk()?;
    Some(user + nice + system + steal)
}

/// Returns the processor time of a process and its descendants, in ticks. Those that have ended
/// count for their parents.
fn of_tree(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let own = of_process(&stat).unwrap_or_default();
    own + children(pid).into_iter().map(of_tree).sum::<u64>()
}

/// Parses `utime`, `stime`, `cutime` and `cstime` of `/proc/PID/stat`, the fields from the 14th on.
/// The second field, the name, may contain blanks.
fn of_process(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: Vec<u64> =
        fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse().ok()).collect();
    (ticks.len() == 4).then(|| ticks.iter().sum())
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn memory_is_read_in_kib() {
        let status = "Name:\tx\nVmHWM:\t    9000 kB\nVmRSS:\t    8000 kB\nRssAnon:\t     700 kB\n";
        let expected = Memory { resident: 8000, peak: 9000, anonymous: 700 };
        assert_eq!(parse_memory(status), Some(expected));
        assert_eq!(parse_memory("Name:\tzombie\n"), None);
        let own = memory(std::process::id()).unwrap();
        assert!(own.resident > 0 && own.peak >= own.resident);
    }

    #[test]
    fn the_listeners_of_a_process_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(listeners(std::process::id()).unwrap().contains(&address));
        drop(listener);
        assert!(!listeners(std::process::id()).unwrap().contains(&address));
    }

    #[test]
    fn children_count_until_they_end() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(children(std::process::id()).contains(&child.id()));
        assert!(descriptors(child.id()).unwrap() >= 3);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children(std::process::id()).contains(&child.id()));
    }

    #[test]
    fn the_load_of_others_is_what_is_busy_and_not_ours() {
        let stat = "cpu  100 20 30 4000 500 6 7 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy(stat), Some(100 + 20 + 30 + 8));
        assert_eq!(busy("cpu  1 2 3\n"), None);
        let stat = "77 (a (strange) name) S 1 77 77 0 -1 4194304 100 200 0 0 11 22 33 44 20 0 1 0 5000 1 1";
        assert_eq!(of_process(stat), Some(11 + 22 + 33 + 44));
        assert!(Load::now().others_since() >= 0.0);
    }
}
