//! Bit sets: capabilities, modes, registration modes and order.

use bitflags::bitflags;
use farreach_fabric_sys as sys;

bitflags! {
    /// The capabilities of a provider: `fi_getinfo(3)`, under Capabilities.
    ///
    /// Bits 45, 46 and 48 have no name here, because their meanings differ between libfabric 1.x
    /// and 2.x. A set that came from the library keeps them.
    ///
    /// ```
    /// use farreach_fabric::Capabilities;
    ///
    /// let wanted = Capabilities::MSG | Capabilities::RMA;
    /// let names: Vec<_> = wanted.iter_names().map(|(name, _)| name).collect();
    /// assert_eq!(names, ["MSG", "RMA"]);
    /// ```
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct Capabilities: u64 {
        /// Messages: send and receive.
        #[doc(alias = "FI_MSG")]
        const MSG = sys::FI_MSG;
        /// One-sided read and write.
        #[doc(alias = "FI_RMA")]
        const RMA = sys::FI_RMA;
        /// Messages matched by a tag.
        #[doc(alias = "FI_TAGGED")]
        const TAGGED = sys::FI_TAGGED;
        /// Atomic operations on remote memory.
        #[doc(alias = "FI_ATOMIC")]
        const ATOMIC = sys::FI_ATOMIC;
        /// Multicast.
        #[doc(alias = "FI_MULTICAST")]
        const MULTICAST = sys::FI_MULTICAST;
        /// Collective operations.
        #[doc(alias = "FI_COLLECTIVE")]
        const COLLECTIVE = sys::FI_COLLECTIVE;
        /// May read remote memory.
        #[doc(alias = "FI_READ")]
        const READ = sys::FI_READ;
        /// May write remote memory.
        #[doc(alias = "FI_WRITE")]
        const WRITE = sys::FI_WRITE;
        /// May receive.
        #[doc(alias = "FI_RECV")]
        const RECV = sys::FI_RECV;
        /// May send.
        #[doc(alias = "FI_SEND")]
        const SEND = sys::FI_SEND;
        /// A peer may read its memory.
        #[doc(alias = "FI_REMOTE_READ")]
        const REMOTE_READ = sys::FI_REMOTE_READ;
        /// A peer may write its memory.
        #[doc(alias = "FI_REMOTE_WRITE")]
        const REMOTE_WRITE = sys::FI_REMOTE_WRITE;
        /// One buffer may receive several messages.
        #[doc(alias = "FI_MULTI_RECV")]
        const MULTI_RECV = sys::FI_MULTI_RECV;
        /// Operations that start when a counter reaches a value.
        #[doc(alias = "FI_TRIGGER")]
        const TRIGGER = sys::FI_TRIGGER;
        /// An operation may wait for all earlier ones.
        #[doc(alias = "FI_FENCE")]
        const FENCE = sys::FI_FENCE;
        /// Completions may identify a peer by a number of the user.
        #[doc(alias = "FI_AV_USER_ID")]
        const AV_USER_ID = sys::FI_AV_USER_ID;
        /// May serve below another provider.
        #[doc(alias = "FI_PEER")]
        const PEER = sys::FI_PEER;
        /// Memory of a GPU or other device.
        #[doc(alias = "FI_HMEM")]
        const HMEM = sys::FI_HMEM;
        /// Persistent memory.
        #[doc(alias = "FI_RMA_PMEM")]
        const RMA_PMEM = sys::FI_RMA_PMEM;
        /// Errors identify the source of a message.
        #[doc(alias = "FI_SOURCE_ERR")]
        const SOURCE_ERR = sys::FI_SOURCE_ERR;
        /// Reaches peers on this host.
        #[doc(alias = "FI_LOCAL_COMM")]
        const LOCAL_COMM = sys::FI_LOCAL_COMM;
        /// Reaches peers on other hosts.
        #[doc(alias = "FI_REMOTE_COMM")]
        const REMOTE_COMM = sys::FI_REMOTE_COMM;
        /// Processes may share an address vector.
        #[doc(alias = "FI_SHARED_AV")]
        const SHARED_AV = sys::FI_SHARED_AV;
        /// Accesses of a peer may be counted at the memory.
        #[doc(alias = "FI_RMA_EVENT")]
        const RMA_EVENT = sys::FI_RMA_EVENT;
        /// Completions of receives identify their source.
        #[doc(alias = "FI_SOURCE")]
        const SOURCE = sys::FI_SOURCE;
        /// A sender may choose the receive context.
        #[doc(alias = "FI_NAMED_RX_CTX")]
        const NAMED_RX_CTX = sys::FI_NAMED_RX_CTX;
        /// A receive may be for one sender only.
        #[doc(alias = "FI_DIRECTED_RECV")]
        const DIRECTED_RECV = sys::FI_DIRECTED_RECV;

        const _ = !0;
    }
}

bitflags! {
    /// The modes that a provider requires of its user: `fi_getinfo(3)`, under Mode.
    ///
    /// ```
    /// use farreach_fabric::Mode;
    ///
    /// assert!(Mode::all_known().contains(Mode::CONTEXT2));
    /// ```
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct Mode: u64 {
        /// Each operation provides four words for the provider's use, until it completes.
        #[doc(alias = "FI_CONTEXT")]
        const CONTEXT = sys::FI_CONTEXT;
        /// Each operation provides eight words for the provider's use, until it completes.
        #[doc(alias = "FI_CONTEXT2")]
        const CONTEXT2 = sys::FI_CONTEXT2;
        /// Message buffers begin with room for a header.
        #[doc(alias = "FI_MSG_PREFIX")]
        const MSG_PREFIX = sys::FI_MSG_PREFIX;
        /// Lists of buffers stay valid until the operation completes.
        #[doc(alias = "FI_ASYNC_IOV")]
        const ASYNC_IOV = sys::FI_ASYNC_IOV;
        /// Immediate data consumes a posted receive.
        #[doc(alias = "FI_RX_CQ_DATA")]
        const RX_CQ_DATA = sys::FI_RX_CQ_DATA;
        /// Local buffers are registered. Older than the bit of the same meaning in [`MrMode`].
        #[doc(alias = "FI_LOCAL_MR")]
        const LOCAL_MR = sys::FI_LOCAL_MR;

        const _ = !0;
    }
}

impl Mode {
    /// Returns every mode that has a name here, including [`LOCAL_MR`](Self::LOCAL_MR), which
    /// [`MrMode`] has replaced.
    pub fn all_known() -> Self {
        Self::CONTEXT
            | Self::CONTEXT2
            | Self::MSG_PREFIX
            | Self::ASYNC_IOV
            | Self::RX_CQ_DATA
            | Self::LOCAL_MR
    }
}

bitflags! {
    /// The modes that a provider requires for a memory region: `fi_mr(3)`, under Memory
    /// Registration Modes.
    ///
    /// ```
    /// use farreach_fabric::MrMode;
    ///
    /// let efa = MrMode::VIRT_ADDR | MrMode::PROV_KEY | MrMode::ALLOCATED;
    /// assert!(MrMode::all_known().contains(efa));
    /// ```
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct MrMode: u32 {
        /// All of VIRT_ADDR, ALLOCATED and PROV_KEY, as in releases before 1.5.
        #[doc(alias = "FI_MR_BASIC")]
        const BASIC = sys::FI_MR_BASIC;
        /// None of them, as in releases before 1.5.
        #[doc(alias = "FI_MR_SCALABLE")]
        const SCALABLE = sys::FI_MR_SCALABLE;
        /// Local buffers are registered, too, and posted with their descriptor.
        #[doc(alias = "FI_MR_LOCAL")]
        const LOCAL = sys::FI_MR_LOCAL as u32;
        /// Keys are longer than 64 bits.
        #[doc(alias = "FI_MR_RAW")]
        const RAW = sys::FI_MR_RAW as u32;
        /// A peer addresses memory by its virtual address; without this, by the offset in the
        /// region.
        #[doc(alias = "FI_MR_VIRT_ADDR")]
        const VIRT_ADDR = sys::FI_MR_VIRT_ADDR as u32;
        /// Registered memory is backed by pages.
        #[doc(alias = "FI_MR_ALLOCATED")]
        const ALLOCATED = sys::FI_MR_ALLOCATED as u32;
        /// The provider chooses keys; without this, the user.
        #[doc(alias = "FI_MR_PROV_KEY")]
        const PROV_KEY = sys::FI_MR_PROV_KEY as u32;
        /// The user reports changes of the pages behind a region.
        #[doc(alias = "FI_MR_MMU_NOTIFY")]
        const MMU_NOTIFY = sys::FI_MR_MMU_NOTIFY as u32;
        /// A region whose accesses are counted is registered as such.
        #[doc(alias = "FI_MR_RMA_EVENT")]
        const RMA_EVENT = sys::FI_MR_RMA_EVENT as u32;
        /// A region is bound to an endpoint and enabled before use.
        #[doc(alias = "FI_MR_ENDPOINT")]
        const ENDPOINT = sys::FI_MR_ENDPOINT as u32;
        /// Memory of a device is registered as such.
        #[doc(alias = "FI_MR_HMEM")]
        const HMEM = sys::FI_MR_HMEM as u32;
        /// Buffers of collective operations are registered.
        #[doc(alias = "FI_MR_COLLECTIVE")]
        const COLLECTIVE = sys::FI_MR_COLLECTIVE as u32;

        const _ = !0;
    }
}

impl MrMode {
    /// Returns every mode that has a name here, without the two of releases before 1.5, which
    /// exclude the others.
    pub fn all_known() -> Self {
        Self::LOCAL
            | Self::RAW
            | Self::VIRT_ADDR
            | Self::ALLOCATED
            | Self::PROV_KEY
            | Self::MMU_NOTIFY
            | Self::RMA_EVENT
            | Self::ENDPOINT
            | Self::HMEM
            | Self::COLLECTIVE
    }
}

bitflags! {
    /// The operations that stay in the order of posting: `fi_endpoint(3)`, under Message Ordering
    /// and Completion Ordering.
    ///
    /// `WAW` means *write after write*; R is a read, W a write, S a send.
    ///
    /// ```
    /// use farreach_fabric::Order;
    ///
    /// assert!(Order::WAW.orders_writes());
    /// assert!(Order::RMA_WAW.orders_writes());
    /// assert!(!Order::SAS.orders_writes());
    /// ```
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct Order: u64 {
        /// Read after read.
        #[doc(alias = "FI_ORDER_RAR")]
        const RAR = sys::FI_ORDER_RAR;
        /// Read after write.
        #[doc(alias = "FI_ORDER_RAW")]
        const RAW = sys::FI_ORDER_RAW;
        /// Read after send.
        #[doc(alias = "FI_ORDER_RAS")]
        const RAS = sys::FI_ORDER_RAS;
        /// Write after read.
        #[doc(alias = "FI_ORDER_WAR")]
        const WAR = sys::FI_ORDER_WAR;
        /// Write after write, one-sided and atomic.
        #[doc(alias = "FI_ORDER_WAW")]
        const WAW = sys::FI_ORDER_WAW;
        /// Write after send.
        #[doc(alias = "FI_ORDER_WAS")]
        const WAS = sys::FI_ORDER_WAS;
        /// Send after read.
        #[doc(alias = "FI_ORDER_SAR")]
        const SAR = sys::FI_ORDER_SAR;
        /// Send after write.
        #[doc(alias = "FI_ORDER_SAW")]
        const SAW = sys::FI_ORDER_SAW;
        /// Send after send.
        #[doc(alias = "FI_ORDER_SAS")]
        const SAS = sys::FI_ORDER_SAS;
        /// The data within a message, too, in completion order.
        #[doc(alias = "FI_ORDER_DATA")]
        const DATA = sys::FI_ORDER_DATA;
        /// Read after read, one-sided only.
        #[doc(alias = "FI_ORDER_RMA_RAR")]
        const RMA_RAR = sys::FI_ORDER_RMA_RAR;
        /// Read after write, one-sided only.
        #[doc(alias = "FI_ORDER_RMA_RAW")]
        const RMA_RAW = sys::FI_ORDER_RMA_RAW;
        /// Write after read, one-sided only.
        #[doc(alias = "FI_ORDER_RMA_WAR")]
        const RMA_WAR = sys::FI_ORDER_RMA_WAR;
        /// Write after write, one-sided only.
        #[doc(alias = "FI_ORDER_RMA_WAW")]
        const RMA_WAW = sys::FI_ORDER_RMA_WAW;
        /// Read after read, atomic only.
        #[doc(alias = "FI_ORDER_ATOMIC_RAR")]
        const ATOMIC_RAR = sys::FI_ORDER_ATOMIC_RAR;
        /// Read after write, atomic only.
        #[doc(alias = "FI_ORDER_ATOMIC_RAW")]
        const ATOMIC_RAW = sys::FI_ORDER_ATOMIC_RAW;
        /// Write after read, atomic only.
        #[doc(alias = "FI_ORDER_ATOMIC_WAR")]
        const ATOMIC_WAR = sys::FI_ORDER_ATOMIC_WAR;
        /// Write after write, atomic only.
        #[doc(alias = "FI_ORDER_ATOMIC_WAW")]
        const ATOMIC_WAW = sys::FI_ORDER_ATOMIC_WAW;

        const _ = !0;
    }
}

impl Order {
    /// Returns `true` if a one-sided write stays behind earlier ones.
    pub fn orders_writes(self) -> bool {
        self.intersects(Self::WAW | Self::RMA_WAW)
    }
}
