//! Attributes of a device.

use std::ffi::{CStr, c_char, c_int};

use farreach_verbs_sys as sys;

use crate::ah::Guid;

/// The limits and capabilities of a device. See
/// [`Context::query_device`](crate::context::Context::query_device).
///
/// Left out are attributes that no device has any more (reliable datagrams, fast memory regions)
/// and attributes of raw Ethernet queue pairs only (segmentation, scaling, pacing).
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// let limits = context.query_device()?;
/// println!("{} queue pairs, {} bytes on the chip", limits.max_qp, limits.max_dm_bytes);
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_device_attr")]
#[doc(alias = "ibv_device_attr_ex")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceAttributes {
    /// The firmware version, if the device has firmware.
    pub firmware: Option<String>,
    /// The device's GUID.
    pub node_guid: Guid,
    /// The GUID that the devices of one card share.
    pub system_image_guid: Guid,
    /// The vendor's IEEE number.
    pub vendor_id: u32,
    /// The vendor's part number.
    pub vendor_part_id: u32,
    /// The vendor's hardware version.
    pub hardware_version: u32,
    /// Number of ports. Ports are numbered from 1.
    pub port_count: u32,
    /// Supported page sizes, one bit each.
    pub page_sizes: u64,
    /// Optional features.
    pub capabilities: DeviceCapabilities,
    /// Size of the largest region, in bytes.
    pub max_mr_bytes: u64,
    /// Maximum number of regions.
    pub max_mr: u32,
    /// Maximum number of memory windows.
    pub max_mw: u32,
    /// Maximum number of protection domains.
    pub max_pd: u32,
    /// Maximum number of queue pairs.
    pub max_qp: u32,
    /// Maximum number of work requests in flight on a queue.
    pub max_qp_wr: u32,
    /// Maximum number of scatter-gather elements of a work request.
    pub max_sge: u32,
    /// Maximum number of scatter-gather elements of an RDMA READ.
    pub max_sge_rd: u32,
    /// Maximum number of completion queues.
    pub max_cq: u32,
    /// Maximum number of entries of a completion queue.
    pub max_cqe: u32,
    /// Maximum number of shared receive queues.
    pub max_srq: u32,
    /// Maximum number of work requests in flight on a shared receive queue.
    pub max_srq_wr: u32,
    /// Maximum number of scatter-gather elements of a work request to a shared receive queue.
    pub max_srq_sge: u32,
    /// Maximum number of address handles.
    pub max_ah: u32,
    /// Maximum number of RDMA READs and atomics that a queue pair serves at once.
    pub max_qp_rd_atom: u32,
    /// Maximum number of RDMA READs and atomics that the device serves at once.
    pub max_res_rd_atom: u32,
    /// Maximum number of RDMA READs and atomics that a queue pair has in flight at once.
    pub max_qp_init_rd_atom: u32,
    /// Maximum number of multicast groups.
    pub max_mcast_grp: u32,
    /// Maximum number of queue pairs in one multicast group.
    pub max_mcast_qp_attach: u32,
    /// Maximum number of queue pairs in all multicast groups together.
    pub max_total_mcast_qp_attach: u32,
    /// Number of P_Key table entries.
    pub max_pkeys: u16,
    /// Maximum delay of an acknowledgement: 4.096 µs × 2^value.
    pub local_ca_ack_delay: u8,
    /// Scope of atomic operations.
    pub atomic: AtomicCapability,
    /// On-demand paging.
    pub on_demand: OnDemandPaging,
    /// On-chip memory, in bytes. 0 if there is none.
    pub max_dm_bytes: u64,
    /// Valid bits of a completion's timestamp. 0 if there is none.
    pub completion_timestamp_mask: u64,
    /// Frequency of the clock that stamps completions. 0 if there is none.
    pub core_clock_khz: u64,
    /// Maximum number of completions for one event. 0 if events cannot be moderated.
    pub max_cq_moderation_count: u16,
    /// Maximum time that an event may wait for more completions.
    pub max_cq_moderation_us: u16,
}

impl From<&sys::ibv_device_attr_ex> for DeviceAttributes {
    fn from(extended: &sys::ibv_device_attr_ex) -> Self {
        let attr = &extended.orig_attr;
        Self {
            firmware: firmware(&attr.fw_ver),
            node_guid: Guid::from_be(attr.node_guid),
            system_image_guid: Guid::from_be(attr.sys_image_guid),
            vendor_id: attr.vendor_id,
            vendor_part_id: attr.vendor_part_id,
            hardware_version: attr.hw_ver,
            // Devices with more than 255 ports report the number in the wider field alone.
            port_count: u32::from(attr.phys_port_cnt).max(extended.phys_port_cnt_ex),
            page_sizes: attr.page_size_cap,
            // The extended field repeats the plain one, unless only the short query was answered.
            capabilities: DeviceCapabilities::from_bits_retain(
                u64::from(attr.device_cap_flags) | extended.device_cap_flags_ex,
            ),
            max_mr_bytes: attr.max_mr_size,
            max_mr: count(attr.max_mr),
            max_mw: count(attr.max_mw),
            max_pd: count(attr.max_pd),
            max_qp: count(attr.max_qp),
            max_qp_wr: count(attr.max_qp_wr),
            max_sge: count(attr.max_sge),
            max_sge_rd: count(attr.max_sge_rd),
            max_cq: count(attr.max_cq),
            max_cqe: count(attr.max_cqe),
            max_srq: count(attr.max_srq),
            max_srq_wr: count(attr.max_srq_wr),
            max_srq_sge: count(attr.max_srq_sge),
            max_ah: count(attr.max_ah),
            max_qp_rd_atom: count(attr.max_qp_rd_atom),
            max_res_rd_atom: count(attr.max_res_rd_atom),
            max_qp_init_rd_atom: count(attr.max_qp_init_rd_atom),
            max_mcast_grp: count(attr.max_mcast_grp),
            max_mcast_qp_attach: count(attr.max_mcast_qp_attach),
            max_total_mcast_qp_attach: count(attr.max_total_mcast_qp_attach),
            max_pkeys: attr.max_pkeys,
            local_ca_ack_delay: attr.local_ca_ack_delay,
            atomic: AtomicCapability::from_raw(attr.atomic_cap),
            on_demand: OnDemandPaging::new(extended),
            max_dm_bytes: extended.max_dm_size,
            completion_timestamp_mask: extended.completion_timestamp_mask,
            core_clock_khz: extended.hca_core_clock,
            max_cq_moderation_count: extended.cq_mod_caps.max_cq_count,
            max_cq_moderation_us: extended.cq_mod_caps.max_cq_period,
        }
    }
}

/// Converts a count. The kernel's counts are unsigned; the C structure has signed fields.
fn count(value: c_int) -> u32 {
    value as u32
}

fn firmware(text: &[c_char; 64]) -> Option<String> {
    let bytes = text.map(|byte| byte as u8);
    let text = CStr::from_bytes_until_nul(&bytes).ok()?.to_string_lossy();
    (!text.is_empty()).then(|| text.into_owned())
}

c_enum! {
    /// The scope of atomic operations.
    ///
    /// ```
    /// use farreach_verbs::attributes::AtomicCapability;
    ///
    /// assert_eq!(AtomicCapability::Device.to_string(), "device");
    /// ```
    #[doc(alias = "ibv_atomic_cap")]
    pub enum AtomicCapability(u32) {
        /// No atomic operations.
        None = sys::IBV_ATOMIC_NONE, "none";
        /// Atomic with respect to operations of the same device.
        Device = sys::IBV_ATOMIC_HCA, "device";
        /// Atomic with respect to processors and other devices too.
        Global = sys::IBV_ATOMIC_GLOB, "global";
    }
}

/// Support of on-demand paging: the operations that may access memory whose pages are not pinned.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::attributes::OnDemandOperations;
///
/// let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// let on_demand = context.query_device()?.on_demand;
/// if on_demand.supported && on_demand.rc.contains(OnDemandOperations::WRITE) {
///     println!("RDMA WRITE needs no pinned memory");
/// }
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_odp_caps")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnDemandPaging {
    /// `true` if on-demand paging is supported.
    pub supported: bool,
    /// `true` if one region may cover the whole address space.
    pub implicit: bool,
    /// Operations on reliable connections.
    pub rc: OnDemandOperations,
    /// Operations on unreliable connections.
    pub uc: OnDemandOperations,
    /// Operations on unreliable datagrams.
    pub ud: OnDemandOperations,
    /// Operations on extended reliable connections.
    pub xrc: OnDemandOperations,
}

impl OnDemandPaging {
    fn new(extended: &sys::ibv_device_attr_ex) -> Self {
        let general = extended.odp_caps.general_caps;
        let transports = extended.odp_caps.per_transport_caps;
        Self {
            supported: general & u64::from(sys::IBV_ODP_SUPPORT) != 0,
            implicit: general & u64::from(sys::IBV_ODP_SUPPORT_IMPLICIT) != 0,
            rc: OnDemandOperations::from_bits_retain(transports.rc_odp_caps),
            uc: OnDemandOperations::from_bits_retain(transports.uc_odp_caps),
            ud: OnDemandOperations::from_bits_retain(transports.ud_odp_caps),
            xrc: OnDemandOperations::from_bits_retain(extended.xrc_odp_caps),
        }
    }
}

bitflags::bitflags! {
    /// Operations that on-demand paging supports on one transport. Unnamed bits are kept.
    ///
    /// ```
    /// use farreach_verbs::attributes::OnDemandOperations;
    ///
    /// assert!(OnDemandOperations::from_bits_retain(0b1111).contains(OnDemandOperations::READ));
    /// ```
    #[doc(alias = "ibv_odp_transport_cap_bits")]
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct OnDemandOperations: u32 {
        /// SEND.
        const SEND = sys::IBV_ODP_SUPPORT_SEND;
        /// RECV.
        const RECV = sys::IBV_ODP_SUPPORT_RECV;
        /// RDMA WRITE.
        const WRITE = sys::IBV_ODP_SUPPORT_WRITE;
        /// RDMA READ.
        const READ = sys::IBV_ODP_SUPPORT_READ;
        /// Atomics.
        const ATOMIC = sys::IBV_ODP_SUPPORT_ATOMIC;
        /// RECV from a shared receive queue.
        const SRQ_RECV = sys::IBV_ODP_SUPPORT_SRQ_RECV;
        /// FLUSH.
        const FLUSH = sys::IBV_ODP_SUPPORT_FLUSH;
        /// ATOMIC WRITE.
        const ATOMIC_WRITE = sys::IBV_ODP_SUPPORT_ATOMIC_WRITE;
    }
}

bitflags::bitflags! {
    /// Optional features of a device. Unnamed bits are kept.
    ///
    /// ```
    /// use farreach_verbs::attributes::DeviceCapabilities;
    ///
    /// let capabilities = DeviceCapabilities::MEM_WINDOW_TYPE_2B | DeviceCapabilities::XRC;
    /// let names: Vec<_> = capabilities.iter_names().map(|(name, _)| name).collect();
    /// assert_eq!(names, ["XRC", "MEM_WINDOW_TYPE_2B"]);
    /// ```
    #[doc(alias = "ibv_device_cap_flags")]
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct DeviceCapabilities: u64 {
        /// A queue pair's queues can be resized.
        const RESIZE_MAX_WR = sys::IBV_DEVICE_RESIZE_MAX_WR as u64;
        /// Packets with a wrong P_Key are counted.
        const BAD_PKEY_CNTR = sys::IBV_DEVICE_BAD_PKEY_CNTR as u64;
        /// Packets with a wrong Q_Key are counted.
        const BAD_QKEY_CNTR = sys::IBV_DEVICE_BAD_QKEY_CNTR as u64;
        /// Raw packet multicast.
        const RAW_MULTI = sys::IBV_DEVICE_RAW_MULTI as u64;
        /// Automatic path migration.
        const AUTO_PATH_MIG = sys::IBV_DEVICE_AUTO_PATH_MIG as u64;
        /// A queue pair can change its port.
        const CHANGE_PHY_PORT = sys::IBV_DEVICE_CHANGE_PHY_PORT as u64;
        /// The port of a datagram is checked against that of its address handle.
        const UD_AV_PORT_ENFORCE = sys::IBV_DEVICE_UD_AV_PORT_ENFORCE as u64;
        /// A state change may name the current state.
        const CURR_QP_STATE_MOD = sys::IBV_DEVICE_CURR_QP_STATE_MOD as u64;
        /// A port can be shut down.
        const SHUTDOWN_PORT = sys::IBV_DEVICE_SHUTDOWN_PORT as u64;
        /// Initialisation types are supported.
        const INIT_TYPE = sys::IBV_DEVICE_INIT_TYPE as u64;
        /// An event reports that a port became active.
        const PORT_ACTIVE_EVENT = sys::IBV_DEVICE_PORT_ACTIVE_EVENT as u64;
        /// The devices of one card share a GUID.
        const SYS_IMAGE_GUID = sys::IBV_DEVICE_SYS_IMAGE_GUID as u64;
        /// A receiver that is not ready sends an RNR NAK.
        const RC_RNR_NAK_GEN = sys::IBV_DEVICE_RC_RNR_NAK_GEN as u64;
        /// Shared receive queues can be resized.
        const SRQ_RESIZE = sys::IBV_DEVICE_SRQ_RESIZE as u64;
        /// An event can be requested after N completions.
        const N_NOTIFY_CQ = sys::IBV_DEVICE_N_NOTIFY_CQ as u64;
        /// Memory windows of type 1.
        const MEM_WINDOW = sys::IBV_DEVICE_MEM_WINDOW as u64;
        /// IP checksums for IP over InfiniBand.
        const UD_IP_CSUM = sys::IBV_DEVICE_UD_IP_CSUM as u64;
        /// Extended reliable connections.
        const XRC = sys::IBV_DEVICE_XRC as u64;
        /// Invalidation by work request and by message.
        const MEM_MGT_EXTENSIONS = sys::IBV_DEVICE_MEM_MGT_EXTENSIONS as u64;
        /// Memory windows of type 2A.
        const MEM_WINDOW_TYPE_2A = sys::IBV_DEVICE_MEM_WINDOW_TYPE_2A as u64;
        /// Memory windows of type 2B.
        const MEM_WINDOW_TYPE_2B = sys::IBV_DEVICE_MEM_WINDOW_TYPE_2B as u64;
        /// IP checksums on reliable connections.
        const RC_IP_CSUM = sys::IBV_DEVICE_RC_IP_CSUM as u64;
        /// IP checksums on raw queue pairs.
        const RAW_IP_CSUM = sys::IBV_DEVICE_RAW_IP_CSUM as u64;
        /// Flow steering.
        const MANAGED_FLOW_STEERING = sys::IBV_DEVICE_MANAGED_FLOW_STEERING as u64;
        /// Raw packets are delivered with their frame check sequence.
        const RAW_SCATTER_FCS = sys::IBV_DEVICE_RAW_SCATTER_FCS;
        /// Writes are padded to whole cache lines.
        const PCI_WRITE_END_PADDING = sys::IBV_DEVICE_PCI_WRITE_END_PADDING;
        // The kernel's rdma/ib_user_verbs.h defines the next three. verbs.h passes them on without
        // naming them.
        /// FLUSH to global visibility.
        const FLUSH_GLOBAL = 1 << 38;
        /// FLUSH to persistence across power failures.
        const FLUSH_PERSISTENT = 1 << 39;
        /// ATOMIC WRITE.
        const ATOMIC_WRITE = 1 << 40;
        /// Transfers of a confidential guest use bounce buffers.
        const CC_DMA_BOUNCE = sys::IBV_DEVICE_CC_DMA_BOUNCE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_taken_over_field_by_field() {
        let mut attr = sys::ibv_device_attr_ex::default();
        for (place, byte) in attr.orig_attr.fw_ver.iter_mut().zip(*b"22.39.1002\0") {
            *place = byte as c_char;
        }
        attr.orig_attr.node_guid = 0x0002_c903_0000_1f2a_u64.to_be();
        attr.orig_attr.phys_port_cnt = 2;
        attr.orig_attr.device_cap_flags = sys::IBV_DEVICE_XRC;
        attr.device_cap_flags_ex = sys::IBV_DEVICE_PCI_WRITE_END_PADDING;
        attr.orig_attr.max_ah = -1;
        attr.odp_caps.general_caps = 1;
        attr.odp_caps.per_transport_caps.rc_odp_caps = sys::IBV_ODP_SUPPORT_READ;
        attr.max_dm_size = 131_072;

        let device = DeviceAttributes::from(&attr);
        assert_eq!(device.firmware.as_deref(), Some("22.39.1002"));
        assert_eq!(device.node_guid, Guid(0x0002_c903_0000_1f2a));
        assert_eq!(device.port_count, 2);
        assert_eq!(device.max_ah, u32::MAX, "a kernel's 32 bits in C's int");
        assert_eq!(device.capabilities, DeviceCapabilities::XRC | DeviceCapabilities::PCI_WRITE_END_PADDING);
        assert!(device.on_demand.supported && !device.on_demand.implicit);
        assert_eq!(device.on_demand.rc, OnDemandOperations::READ);
        assert_eq!(device.max_dm_bytes, 131_072);
    }

    #[test]
    fn no_firmware_is_none() {
        assert_eq!(DeviceAttributes::from(&sys::ibv_device_attr_ex::default()).firmware, None);
    }

    #[test]
    fn more_ports_than_the_narrow_field_holds() {
        let mut attr = sys::ibv_device_attr_ex::default();
        (attr.orig_attr.phys_port_cnt, attr.phys_port_cnt_ex) = (255, 300);
        assert_eq!(DeviceAttributes::from(&attr).port_count, 300);
    }
}
