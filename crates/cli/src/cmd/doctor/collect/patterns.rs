//! The files that are read: `*` stands for any part of one name.

/// All of them, in the order of the checks. What ends with `/driver`, `/subsystem`, `/module` or the like is a link, and kept as one.
pub(super) const PATTERNS: &[&str] = &[
    // Kernel, modules, nodes.
    "/proc/sys/kernel/osrelease",
    "/lib/modules/*/kernel/drivers/infiniband/core/*",
    "/sys/module/*/initstate",
    "/sys/class/infiniband/*/node_guid",
    "/sys/class/infiniband/*/parent",
    "/sys/class/infiniband/*/device/driver",
    "/sys/class/infiniband/*/ports/*/state",
    "/sys/class/infiniband_verbs/abi_version",
    "/sys/class/infiniband_verbs/*/ibdev",
    "/sys/class/infiniband_verbs/*/abi_version",
    "/sys/class/misc/rdma_cm/dev",
    "/etc/libibverbs.d/*.driver",
    // Cards.
    "/sys/bus/pci/devices/*/vendor",
    "/sys/bus/pci/devices/*/device",
    "/sys/bus/pci/devices/*/class",
    "/sys/bus/pci/devices/*/driver",
    "/sys/bus/pci/devices/*/infiniband/*/node_guid",
    "/sys/bus/auxiliary/devices/*",
    // Memory.
    "/proc/self/limits",
    "/proc/self/status",
    "/proc/self/uid_map",
    "/proc/sys/vm/max_map_count",
    "/sys/kernel/mm/hugepages/*/nr_hugepages",
    "/sys/kernel/mm/hugepages/*/free_hugepages",
    "/sys/devices/system/cpu/online",
    // Control groups: the old hierarchy is one folder deeper.
    "/proc/self/cgroup",
    "/sys/fs/cgroup/rdma.*",
    "/sys/fs/cgroup/*/rdma.*",
    "/sys/fs/cgroup/*/*/rdma.*",
    "/sys/fs/cgroup/*/*/*/rdma.*",
    "/sys/fs/cgroup/*/*/*/*/rdma.*",
    // GPUs.
    "/proc/driver/nvidia/version",
    "/sys/kernel/mm/memory_peers/*/version",
    "/sys/class/kfd/kfd/uevent",
];
