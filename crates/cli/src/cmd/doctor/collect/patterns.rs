//! The files that are read: `*` stands for any part of one name.

/// All of them, in the order of the checks. What ends with `/driver`, `/subsystem`, `/module` or the like is a link, and kept as one.
pub(super) const PATTERNS: &[&str] = &[
    "/proc/self/limits",
    "/sys/class/infiniband/*/node_guid",
    "/sys/class/infiniband/*/ports/*/state",
    // Ports.
    "/sys/class/infiniband/*/node_type",
    "/sys/class/infiniband/*/parent",
    "/sys/class/infiniband/*/ports/*/phys_state",
    "/sys/class/infiniband/*/ports/*/link_layer",
    "/sys/class/infiniband/*/ports/*/rate",
    "/sys/class/infiniband/*/ports/*/lid",
    "/sys/class/infiniband/*/ports/*/sm_lid",
    "/sys/class/infiniband/*/ports/*/pkeys/*",
    "/sys/class/infiniband/*/ports/*/gids/*",
    "/sys/class/infiniband/*/ports/*/gid_attrs/types/*",
    "/sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*",
    "/sys/class/infiniband/*/ports/*/counters/*",
    "/sys/class/infiniband/*/ports/*/hw_counters/*",
    "/sys/class/infiniband/*/tc/*/traffic_class",
    // Net devices: of a card, the state alone, for its name.
    "/sys/class/infiniband/*/device/net/*/operstate",
    "/sys/class/net/*/mtu",
    "/sys/class/net/*/ecn/roce_np/enable/*",
    "/sys/class/net/*/ecn/roce_rp/enable/*",
    "/proc/net/route",
    "/proc/sys/net/ipv4/conf/*/rp_filter",
    "/proc/sys/net/ipv4/conf/*/arp_ignore",
    "/proc/sys/net/ipv4/conf/*/arp_announce",
    // Cards.
    "/sys/class/infiniband/*/device",
    "/sys/class/infiniband/*/device/iommu_group",
    "/sys/class/infiniband/*/device/numa_node",
    "/sys/class/infiniband/*/device/current_link_width",
    "/sys/class/infiniband/*/device/current_link_speed",
    "/sys/class/infiniband/*/device/max_link_width",
    "/sys/class/infiniband/*/device/max_link_speed",
    "/sys/bus/pci/devices/*/vendor",
    "/sys/bus/pci/devices/*/class",
    "/sys/kernel/iommu_groups/*/type",
    "/proc/cmdline",
    // Processors.
    "/proc/self/status",
    "/sys/devices/system/node/*/cpulist",
    "/sys/devices/system/cpu/*/cpufreq/scaling_governor",
];
