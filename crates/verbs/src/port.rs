//! Attributes of a port.

use farreach_verbs_sys as sys;

use crate::ah::Lid;

/// The attributes of a port. See [`Context::query_port`](crate::context::Context::query_port).
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::port::PortState;
///
/// let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// let port = context.query_port(1)?;
/// if port.state != PortState::Active {
///     println!("port 1 is {}, {}", port.state, port.physical_state);
/// }
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_port_attr")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttributes {
    /// The logical state. Only an active port carries data.
    pub state: PortState,
    /// The state of the physical link.
    pub physical_state: PhysicalState,
    /// The largest supported path MTU.
    pub max_mtu: Mtu,
    /// The current path MTU.
    pub active_mtu: Mtu,
    /// InfiniBand or Ethernet.
    pub link_layer: LinkLayer,
    /// The number of lanes in use.
    pub active_width: LinkWidth,
    /// The signalling rate of a lane.
    pub active_speed: LinkSpeed,
    /// The port's address in its subnet.
    pub lid: Lid,
    /// The number of low bits of the LID that the port accepts in any combination.
    pub lmc: u8,
    /// The subnet manager's address.
    pub sm_lid: Lid,
    /// The service level for the subnet manager.
    pub sm_sl: u8,
    /// Number of GID table entries, used or not.
    pub gid_table_len: u32,
    /// Number of P_Key table entries.
    pub pkey_table_len: u16,
    /// The size of the largest message, in bytes.
    pub max_message_bytes: u32,
    /// `true` if every address must carry a global route header, as on RoCE.
    pub grh_required: bool,
    /// The capabilities, with the bits of the InfiniBand specification.
    pub capabilities: PortCapabilities,
    /// Further capabilities (`port_cap_flags2`), raw.
    pub capabilities2: u16,
    /// The number of virtual lanes, in the encoding of the InfiniBand specification.
    pub max_vl_num: u8,
    /// The timeout of the subnet manager: 4.096 µs × 2^value.
    pub subnet_timeout: u8,
    /// The type of initialisation that the subnet manager did.
    pub init_type_reply: u8,
    /// Number of packets received with a wrong P_Key.
    pub bad_pkey_count: u32,
    /// Number of packets received with a wrong Q_Key.
    pub qkey_violation_count: u32,
}

impl PortAttributes {
    /// Returns the rate of the link: lanes × rate of a lane. `None` if either is unknown, as on
    /// some ports that are down.
    pub fn rate_bits_per_second(&self) -> Option<u64> {
        Some(u64::from(self.active_width.lanes()?) * self.active_speed.lane_bits_per_second()?)
    }
}

impl From<&sys::ibv_port_attr> for PortAttributes {
    fn from(attr: &sys::ibv_port_attr) -> Self {
        // The wider field holds speeds that do not fit the older one. Libraries before rdma-core 62
        // leave it 0.
        let speed = match attr.active_speed_ex {
            0 => u32::from(attr.active_speed),
            wider => wider,
        };
        Self {
            state: PortState::from_raw(attr.state),
            physical_state: PhysicalState::from_raw(attr.phys_state),
            max_mtu: Mtu::from_raw(attr.max_mtu),
            active_mtu: Mtu::from_raw(attr.active_mtu),
            link_layer: LinkLayer::from_raw(attr.link_layer.into()),
            active_width: LinkWidth::from_raw(attr.active_width),
            active_speed: LinkSpeed::from_raw(speed),
            lid: Lid(attr.lid),
            lmc: attr.lmc,
            sm_lid: Lid(attr.sm_lid),
            sm_sl: attr.sm_sl,
            // Table lengths are never negative.
            gid_table_len: attr.gid_tbl_len as u32,
            pkey_table_len: attr.pkey_tbl_len,
            max_message_bytes: attr.max_msg_sz,
            grh_required: attr.flags & sys::IBV_QPF_GRH_REQUIRED != 0,
            capabilities: PortCapabilities::from_bits_retain(attr.port_cap_flags),
            capabilities2: attr.port_cap_flags2,
            max_vl_num: attr.max_vl_num,
            subnet_timeout: attr.subnet_timeout,
            init_type_reply: attr.init_type_reply,
            bad_pkey_count: attr.bad_pkey_cntr,
            qkey_violation_count: attr.qkey_viol_cntr,
        }
    }
}

c_enum! {
    /// The logical state of a port. `Display` uses the terms of `rdma link`.
    ///
    /// ```
    /// use farreach_verbs::port::PortState;
    ///
    /// assert_eq!(PortState::Active.to_string(), "ACTIVE");
    /// ```
    #[doc(alias = "ibv_port_state")]
    pub enum PortState(u32) {
        /// No state change; none of the other states.
        Nop = sys::IBV_PORT_NOP, "NOP";
        /// The link is down.
        Down = sys::IBV_PORT_DOWN, "DOWN";
        /// The link is up, and no subnet manager has configured the port yet.
        Init = sys::IBV_PORT_INIT, "INIT";
        /// The subnet manager is configuring the port.
        Armed = sys::IBV_PORT_ARMED, "ARMED";
        /// The port carries data.
        Active = sys::IBV_PORT_ACTIVE, "ACTIVE";
        /// The link was lost a moment ago.
        ActiveDefer = sys::IBV_PORT_ACTIVE_DEFER, "ACTIVE_DEFER";
    }
}

c_enum! {
    /// The state of the physical link. `Display` uses the terms of `rdma link`.
    ///
    /// ```
    /// use farreach_verbs::port::PhysicalState;
    ///
    /// assert_eq!(PhysicalState::LinkUp.to_string(), "LINK_UP");
    /// ```
    pub enum PhysicalState(u8) {
        /// Sleeping.
        Sleep = 1, "SLEEP";
        /// Searching for a link partner.
        Polling = 2, "POLLING";
        /// Disabled; on Ethernet, the net device is down.
        Disabled = 3, "DISABLED";
        /// Negotiating width and speed.
        Training = 4, "PORT_CONFIGURATION_TRAINING";
        /// Up.
        LinkUp = 5, "LINK_UP";
        /// Recovering from errors.
        LinkErrorRecovery = 6, "LINK_ERROR_RECOVER";
        /// Under test.
        PhyTest = 7, "PHY_TEST";
    }
}

c_enum! {
    /// The link layer of a port.
    ///
    /// ```
    /// use farreach_verbs::port::LinkLayer;
    ///
    /// assert_eq!(LinkLayer::Ethernet.to_string(), "Ethernet");
    /// ```
    pub enum LinkLayer(u32) {
        /// Not reported: InfiniBand, with an old driver.
        Unspecified = sys::IBV_LINK_LAYER_UNSPECIFIED, "unspecified";
        /// InfiniBand.
        InfiniBand = sys::IBV_LINK_LAYER_INFINIBAND, "InfiniBand";
        /// Ethernet: RoCE or iWARP.
        Ethernet = sys::IBV_LINK_LAYER_ETHERNET, "Ethernet";
    }
}

c_enum! {
    /// A path MTU: the payload of one packet.
    ///
    /// ```
    /// use farreach_verbs::port::Mtu;
    ///
    /// assert_eq!(Mtu::Bytes1024.bytes(), Some(1024));
    /// ```
    #[doc(alias = "ibv_mtu")]
    pub enum Mtu(u32) {
        /// 256 bytes.
        Bytes256 = sys::IBV_MTU_256, "256";
        /// 512 bytes.
        Bytes512 = sys::IBV_MTU_512, "512";
        /// 1024 bytes, usual on Ethernet with an MTU of 1500.
        Bytes1024 = sys::IBV_MTU_1024, "1024";
        /// 2048 bytes.
        Bytes2048 = sys::IBV_MTU_2048, "2048";
        /// 4096 bytes, usual on Ethernet with jumbo frames.
        Bytes4096 = sys::IBV_MTU_4096, "4096";
    }
}

impl Mtu {
    /// Returns the size in bytes, if it is known.
    pub fn bytes(self) -> Option<u32> {
        match self {
            Self::Bytes256 => Some(256),
            Self::Bytes512 => Some(512),
            Self::Bytes1024 => Some(1024),
            Self::Bytes2048 => Some(2048),
            Self::Bytes4096 => Some(4096),
            Self::Unknown(_) => None,
        }
    }
}

c_enum! {
    /// The number of lanes of a link.
    ///
    /// ```
    /// use farreach_verbs::port::LinkWidth;
    ///
    /// assert_eq!(LinkWidth::X4.lanes(), Some(4));
    /// ```
    pub enum LinkWidth(u8) {
        /// One lane.
        X1 = 1, "1X";
        /// Two lanes.
        X2 = 16, "2X";
        /// Four lanes.
        X4 = 2, "4X";
        /// Eight lanes.
        X8 = 4, "8X";
        /// Twelve lanes.
        X12 = 8, "12X";
    }
}

impl LinkWidth {
    /// Returns the number of lanes, if it is known.
    pub fn lanes(self) -> Option<u32> {
        match self {
            Self::X1 => Some(1),
            Self::X2 => Some(2),
            Self::X4 => Some(4),
            Self::X8 => Some(8),
            Self::X12 => Some(12),
            Self::Unknown(_) => None,
        }
    }
}

c_enum! {
    /// The speed of a lane, by InfiniBand's names. Ethernet drivers report the nearest one.
    ///
    /// ```
    /// use farreach_verbs::port::LinkSpeed;
    ///
    /// assert_eq!(LinkSpeed::Edr.lane_bits_per_second(), Some(25_000_000_000));
    /// ```
    pub enum LinkSpeed(u32) {
        /// 2.5 Gb/s.
        Sdr = 1, "SDR";
        /// 5 Gb/s.
        Ddr = 2, "DDR";
        /// 10 Gb/s.
        Qdr = 4, "QDR";
        /// 10 Gb/s with a more efficient encoding.
        Fdr10 = 8, "FDR10";
        /// 14 Gb/s.
        Fdr = 16, "FDR";
        /// 25 Gb/s.
        Edr = 32, "EDR";
        /// 50 Gb/s.
        Hdr = 64, "HDR";
        /// 100 Gb/s.
        Ndr = 128, "NDR";
        /// 200 Gb/s.
        Xdr = 256, "XDR";
    }
}

impl LinkSpeed {
    /// Returns the nominal rate of one lane, as the kernel computes it in
    /// `/sys/class/infiniband/*/ports/*/rate`.
    pub fn lane_bits_per_second(self) -> Option<u64> {
        // In units of 100 Mb/s.
        let rate = match self {
            Self::Sdr => 25,
            Self::Ddr => 50,
            Self::Qdr | Self::Fdr10 => 100,
            Self::Fdr => 140,
            Self::Edr => 250,
            Self::Hdr => 500,
            Self::Ndr => 1000,
            Self::Xdr => 2000,
            Self::Unknown(_) => return None,
        };
        Some(rate * 100_000_000)
    }
}

bitflags::bitflags! {
    /// The capabilities of a port and its agents. Unnamed bits are kept.
    ///
    /// ```
    /// use farreach_verbs::port::PortCapabilities;
    ///
    /// let capabilities = PortCapabilities::from_bits_retain(1 << 16);
    /// assert!(capabilities.contains(PortCapabilities::CM));
    /// ```
    #[doc(alias = "ibv_port_cap_flags")]
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct PortCapabilities: u32 {
        /// A subnet manager runs on this port.
        const SM = sys::IBV_PORT_SM;
        /// Automatic path migration.
        const AUTO_MIGR = sys::IBV_PORT_AUTO_MIGR_SUP;
        /// Speeds from FDR on.
        const EXTENDED_SPEEDS = sys::IBV_PORT_EXTENDED_SPEEDS_SUP;
        /// `capabilities2` is valid.
        const CAP_MASK2 = sys::IBV_PORT_CAP_MASK2_SUP;
        /// The communication manager.
        const CM = sys::IBV_PORT_CM_SUP;
        /// GIDs are IP addresses: RoCE.
        const IP_BASED_GIDS = sys::IBV_PORT_IP_BASED_GIDS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(width: u8, speed: u8, speed_ex: u32) -> Option<u64> {
        let attr = sys::ibv_port_attr {
            active_width: width,
            active_speed: speed,
            active_speed_ex: speed_ex,
            ..Default::default()
        };
        PortAttributes::from(&attr).rate_bits_per_second()
    }

    #[test]
    fn the_rate_is_what_the_kernel_reckons() {
        assert_eq!(rate(1, 1, 0), Some(2_500_000_000), "1X SDR, as Soft-RoCE on a slow net device");
        assert_eq!(rate(2, 16, 0), Some(56_000_000_000), "4X FDR");
        assert_eq!(rate(2, 32, 0), Some(100_000_000_000), "4X EDR");
        assert_eq!(rate(16, 64, 0), Some(100_000_000_000), "2X HDR");
        assert_eq!(rate(2, 128, 0), Some(400_000_000_000), "4X NDR");
        assert_eq!(rate(8, 4, 0), Some(120_000_000_000), "12X QDR");
    }

    #[test]
    fn the_wider_field_wins_where_it_is_filled() {
        assert_eq!(rate(2, 128, 256), Some(800_000_000_000), "4X XDR");
        assert_eq!(rate(2, 0, 256), Some(800_000_000_000), "the older field has no room for it");
    }

    #[test]
    fn an_unknown_width_or_speed_makes_no_rate() {
        assert_eq!(rate(0, 32, 0), None);
        assert_eq!(rate(2, 0, 0), None);
        assert_eq!(LinkSpeed::from_raw(512), LinkSpeed::Unknown(512));
    }
}
