//! Compares the sizes of a refused queue with the limits of the device.

use std::fmt;

use crate::error::{Errno, meaning};

/// The creation of a queue or queue pair was refused. See
/// [`Error::Creation`](crate::Error::Creation).
///
/// The kernel reports only "invalid argument". This type compares each requested size with the
/// device's limit.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::Error;
///
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// if let Err(Error::Creation(refused)) = context.create_cq(2_000_000_000) {
///     for excess in &refused.excesses {
///         println!("{excess}"); // cqe 2000000000 exceeds the device's limit of 32767
///     }
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CreationRefused {
    /// The C function.
    pub operation: &'static str,
    /// The device.
    pub device: String,
    /// The error number of the kernel or the provider library.
    pub errno: Errno,
    /// The sizes that exceed the device's limits.
    pub excesses: Vec<Excess>,
    /// The refused inline size, and the largest one that was accepted instead.
    pub inline: Option<(u32, u32)>,
}

/// A requested size that exceeds the device's limit.
///
/// ```
/// use farreach_verbs::limits::Excess;
///
/// let excess = Excess { name: "max_send_wr", asked: 20_000, limit: 16_351 };
/// assert_eq!(excess.to_string(), "max_send_wr 20000 exceeds the device's limit of 16351");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Excess {
    /// The field of the C structure.
    pub name: &'static str,
    /// The requested size.
    pub asked: u32,
    /// The device's limit.
    pub limit: u32,
}

impl Excess {
    /// Returns those of `(name, asked, limit)` that exceed their limit.
    pub(crate) fn among<const N: usize>(sizes: [(&'static str, u32, u32); N]) -> Vec<Self> {
        let all = sizes.into_iter().map(|(name, asked, limit)| Self { name, asked, limit });
        all.filter(|size| size.asked > size.limit).collect()
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} exceeds the device's limit of {}", self.name, self.asked, self.limit)
    }
}

impl CreationRefused {
    pub(crate) fn cause(&self) -> String {
        let mut causes: Vec<String> = self.excesses.iter().map(Excess::to_string).collect();
        causes.extend(
            self.inline.map(|(asked, works)| format!("max_inline_data {asked} is refused; {works} works")),
        );
        match causes.is_empty() {
            true => {
                format!("every size is within the device's limits; {}", meaning(self.operation, self.errno).0)
            }
            false => causes.join("; "),
        }
    }

    pub(crate) fn fix(&self) -> String {
        let mut fixes: Vec<String> =
            self.excesses.iter().map(|excess| format!("{} {}", excess.name, excess.limit)).collect();
        fixes.extend(self.inline.map(|(_, works)| format!("max_inline_data {works}")));
        match fixes.is_empty() {
            true => meaning(self.operation, self.errno).1.to_owned(),
            false => format!("request at most {}", fixes.join(", ")),
        }
    }
}

impl fmt::Display for CreationRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}: {}", self.operation, self.device, self.errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(excesses: Vec<Excess>, inline: Option<(u32, u32)>) -> CreationRefused {
        let errno = Errno(libc::EINVAL);
        CreationRefused { operation: "ibv_create_qp", device: "rxe0".into(), errno, excesses, inline }
    }

    #[test]
    fn only_what_is_too_large_is_blamed() {
        let excesses =
            Excess::among([("max_send_wr", 9, 8), ("max_recv_wr", 8, 8), ("max_send_sge", 33, 32)]);
        let refused = refused(excesses, Some((220, 101)));
        assert_eq!(refused.to_string(), "ibv_create_qp on rxe0: Invalid argument (errno 22)");
        assert_eq!(
            refused.cause(),
            "max_send_wr 9 exceeds the device's limit of 8; max_send_sge 33 exceeds the device's limit of 32; \
             max_inline_data 220 is refused; 101 works"
        );
        assert_eq!(refused.fix(), "request at most max_send_wr 8, max_send_sge 32, max_inline_data 101");
    }

    #[test]
    fn where_nothing_is_too_large_the_errno_speaks() {
        let refused = refused(Vec::new(), None);
        assert!(refused.cause().starts_with("every size is within"), "{}", refused.cause());
        assert!(refused.fix().contains("farreach devices -v"), "{}", refused.fix());
    }
}
