//! Reads the access control services (ACS) of the PCI bridges above each RDMA card.
//!
//! ACS can redirect traffic between two cards to the root complex and back.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::sysfs::rdma_devices;
use crate::probes::{Acs, Reading};

/// The bytes of config space that the kernel shows to unprivileged readers.
const CONFIG_PUBLIC: usize = 64;

/// The offset of the PCI Express extended capabilities. A bridge without them has no ACS.
const EXTENDED: usize = 256;

const CAPABILITY_ACS: u16 = 0x0d;
const CONTROL: usize = 6;
const REQUEST_REDIRECT: u16 = 1 << 2;
const COMPLETION_REDIRECT: u16 = 1 << 3;

/// Returns the settings by PCI address of the bridge. Bridges without ACS are left out.
pub(super) fn read() -> Reading<BTreeMap<String, Acs>> {
    let mut found = BTreeMap::new();
    for device in rdma_devices() {
        let Ok(place) = fs::canonicalize(device.join("device")) else { continue };
        for bridge in place.ancestors().skip(1).filter(|folder| address(folder).is_some()) {
            let config = match fs::read(bridge.join("config")) {
                Ok(config) if config.len() > CONFIG_PUBLIC => config,
                Ok(_) => return unread(bridge, "only root may read it: run farreach doctor as root"),
                Err(error) => return unread(bridge, &error.to_string()),
            };
            found.extend(address(bridge).zip(services(&config)));
        }
    }
    Reading::Read(found)
}

fn unread(bridge: &Path, why: &str) -> Reading<BTreeMap<String, Acs>> {
    Reading::Unread(format!("{}: {why}", bridge.join("config").display()))
}

/// Returns the name of a folder if it is a PCI address such as `0000:3a:00.0`. The other folders on
/// the path are buses.
fn address(folder: &Path) -> Option<String> {
    let name = folder.file_name()?.to_str()?;
    let is_address = name.rsplit_once('.').is_some_and(|(place, function)| {
        function.len() == 1 && place.split(':').count() == 3 && !place.starts_with("pci")
    });
    is_address.then(|| name.to_owned())
}

pub(super) fn services(config: &[u8]) -> Option<Acs> {
    let half = |at: usize| Some(u16::from_le_bytes(config.get(at..at + 2)?.try_into().ok()?));
    let mut at = EXTENDED;
    // Each capability takes at least eight bytes. This bounds the loop even if the list is cyclic.
    for _ in 0..(4096 - EXTENDED) / 8 {
        if half(at)? == CAPABILITY_ACS {
            let control = half(at + CONTROL)?;
            return Some(Acs {
                redirects_requests: control & REQUEST_REDIRECT != 0,
                redirects_completions: control & COMPLETION_REDIRECT != 0,
            });
        }
        // The upper 12 bits hold the offset of the next capability.
        at = usize::from(half(at + 2)? >> 4);
        if at < EXTENDED {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Config space with an advanced error report at 0x100, followed by this capability.
    fn config(capability: u16, control: u16) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        let mut put = |at: usize, value: u16| bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        put(0x100, 1);
        put(0x102, 0x148 << 4 | 2);
        put(0x148, capability);
        put(0x14a, 1);
        put(0x14e, control);
        bytes
    }

    #[test]
    fn what_is_redirected_is_told_by_two_bits() {
        let told = |control| services(&config(CAPABILITY_ACS, control));
        let both = Acs { redirects_requests: true, redirects_completions: true };
        assert_eq!(told(0x1d), Some(both));
        assert_eq!(told(0x11), Some(Acs { redirects_requests: false, redirects_completions: false }));
        assert_eq!(services(&config(3, 0x1d)), None);
        assert_eq!(services(&config(CAPABILITY_ACS, 0x1d)[..EXTENDED]), None);
    }

    #[test]
    fn a_list_that_bites_its_tail_ends() {
        let mut config = config(3, 0);
        config[0x14a..0x14c].copy_from_slice(&(0x100_u16 << 4).to_le_bytes());
        assert_eq!(services(&config), None);
    }

    #[test]
    fn only_bridges_have_addresses() {
        let of = |name: &str| address(&Path::new("/sys/devices").join(name)).is_some();
        assert!(of("0000:3a:00.0") && of("10000:00:01.2"));
        assert!(!of("pci0000:3a") && !of("net") && !of("virtual"));
    }
}
