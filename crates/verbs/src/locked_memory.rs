//! The limit of memory that this process may pin.

use std::fmt;
use std::fs;

use crate::os;

/// Memory could not be pinned. It holds the requested size and the limit of this process.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::Error;
/// use farreach_verbs::mr::AccessFlags;
///
/// # let pd = DeviceList::get()?.iter().next().unwrap().open()?.alloc_pd()?;
/// # let memory: &'static mut [u8] = vec![0; 4096].leak();
/// // SAFETY: the memory is never freed, and the slice is not used while the region lives.
/// match unsafe { pd.reg_mr_raw(memory.as_mut_ptr().cast(), memory.len(), AccessFlags::empty()) } {
///     Err(Error::LockedMemory(refused)) => {
///         println!("{refused}; the limit is {:?}", refused.limit_bytes);
///     }
///     other => drop(other?),
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockedMemory {
    /// The device.
    pub device: String,
    /// The requested number of bytes.
    pub bytes: usize,
    /// `ulimit -l`. `None` if it is unlimited or unknown.
    pub limit_bytes: Option<u64>,
    /// `true` if the process has CAP_IPC_LOCK, which lifts the limit.
    pub is_exempt: bool,
}

impl LockedMemory {
    pub(crate) fn of_this_process(device: String, bytes: usize) -> Self {
        Self { device, bytes, limit_bytes: os::locked_memory_limit(), is_exempt: is_exempt() }
    }

    pub(crate) fn cause(&self) -> String {
        match self.limit_bytes {
            Some(limit) if !self.is_exempt => format!(
                "this process may lock {limit} bytes of memory (ulimit -l) and has no CAP_IPC_LOCK; {} bytes were \
                 requested in addition to those already locked",
                self.bytes
            ),
            _ => "memory is used up; the limit of locked memory is not the cause".to_owned(),
        }
    }

    pub(crate) fn fix(&self) -> String {
        match self.limit_bytes {
            Some(_) if !self.is_exempt => {
                "raise the limit: ulimit -l unlimited; memlock in /etc/security/limits.d; LimitMEMLOCK=infinity of a \
                 systemd unit; --ulimit memlock=-1 or --cap-add IPC_LOCK of a container"
            }
            _ => "register less, free memory, or check dmesg",
        }
        .to_owned()
    }
}

impl fmt::Display for LockedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ibv_reg_mr on {}: {} bytes cannot be locked in memory", self.device, self.bytes)
    }
}

/// The bit of CAP_IPC_LOCK.
const IPC_LOCK: u32 = 14;

fn is_exempt() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    effective(&status).is_some_and(|capabilities| capabilities & 1 << IPC_LOCK != 0)
}

fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_blamed_only_where_it_counts() {
        let mut refused =
            LockedMemory { device: "rxe0".into(), bytes: 9, limit_bytes: Some(8), is_exempt: false };
        assert_eq!(refused.to_string(), "ibv_reg_mr on rxe0: 9 bytes cannot be locked in memory");
        assert!(refused.cause().contains("may lock 8 bytes"), "{}", refused.cause());
        assert!(refused.fix().contains("LimitMEMLOCK"), "{}", refused.fix());
        refused.is_exempt = true;
        assert!(refused.cause().contains("not the cause"), "{}", refused.cause());
        assert!(!refused.fix().contains("ulimit"), "{}", refused.fix());
    }

    #[test]
    fn capabilities_are_read_from_the_status() {
        assert_eq!(effective("Name:\tx\nCapEff:\t0000000000004000\n"), Some(0x4000));
        assert_eq!(effective("Name:\tx\n"), None);
        assert!(effective(&fs::read_to_string("/proc/self/status").unwrap()).is_some());
    }
}
