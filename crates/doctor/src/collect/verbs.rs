//! Queries libibverbs, and tries a registration and a queue pair on each device.

use std::path::Path;

use farreach_verbs::Error;
use farreach_verbs::context::Context;
use farreach_verbs::device::{Device, DeviceList, Transport};
use farreach_verbs::qp::{QueuePairBuilder, QueuePairType};
use farreach_verbs::system;

use crate::probes::{Reading, Verbs, VerbsDevice, VerbsPort};

/// More than a limit of 64 KiB on locked memory allows, and little for a working host.
const REGISTRATION_BYTES: usize = 1024 * 1024;

pub(super) fn look() -> Reading<Verbs> {
    let library = match system::survey().library {
        Ok(library) => library.display().to_string(),
        Err(missing) => return Reading::Unread(missing.to_string()),
    };
    let devices = match DeviceList::get() {
        Ok(list) => list.iter().map(|found| (found.name().to_owned(), device(found))).collect(),
        // The library asks the kernel, and a kernel without RDMA lists nothing.
        Err(Error::Call { .. }) if !Path::new("/sys/class/infiniband").exists() => Default::default(),
        Err(error) => return Reading::Unread(sentence(&error)),
    };
    // The caller fills in `is_fork_safe`, which it reads by netlink.
    Reading::Read(Verbs { library, is_fork_safe: None, devices })
}

fn sentence(error: &Error) -> String {
    format!("{error}: {}", error.cause())
}

fn device(found: &Device) -> VerbsDevice {
    let mut device = VerbsDevice::default();
    let opened = found.open().and_then(|context| examine(found, &context, &mut device));
    device.error = opened.err().map(|error| sentence(&error));
    device
}

fn examine(found: &Device, context: &Context, device: &mut VerbsDevice) -> Result<(), Error> {
    let attributes = context.query_device()?;
    device.queue_pairs_max = attributes.max_qp.into();
    device.on_chip_memory_bytes = attributes.max_dm_bytes;
    for number in 1..=u8::try_from(attributes.port_count).unwrap_or(u8::MAX) {
        let port = context.query_port(number)?;
        let port =
            VerbsPort { active_mtu_bytes: port.active_mtu.bytes(), max_mtu_bytes: port.max_mtu.bytes() };
        device.ports.insert(number.to_string(), port);
    }
    // A failure of the protection domain is an error of the device, not of memory.
    let registered = context.alloc_pd()?.allocate(REGISTRATION_BYTES);
    device.trial_registration = registered.err().map(|error| sentence(&error));
    device.trial_queue_pair = queue_pair(found, context).err().map(|error| sentence(&error));
    Ok(())
}

fn queue_pair(found: &Device, context: &Context) -> Result<(), Error> {
    // EFA has no reliable connections, but it has datagrams.
    let kind = match found.transport() {
        Transport::Unspecified => QueuePairType::Ud,
        _ => QueuePairType::Rc,
    };
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(256)?);
    QueuePairBuilder::new(kind, &cq, &cq).max_send_wr(16).max_recv_wr(16).build(&pd)?;
    Ok(())
}
