//! The description of a guest, from the command line.

use clap::{Args, FromArgMatches};

use super::kernel::KernelChoice;
use super::roots::Userland;

/// The kind of guest.
#[derive(Debug, Clone, Args)]
pub(crate) struct GuestSpec {
    /// The kernel to boot.
    #[arg(long, value_enum, default_value = "newest")]
    pub(crate) kernel: KernelChoice,

    /// The Debian release of the root. The default is that of the kernel.
    #[arg(long, value_enum)]
    userland: Option<Userland>,

    /// The network inside: one device; two namespaces `a` and `b`, each with a device; or none.
    #[arg(long, value_enum, default_value = "one")]
    pub(crate) topology: Topology,

    /// Use two machines `a` and `b` instead of one. The command runs on `a`, and `host b COMMAND…`
    /// runs a command on the other.
    #[arg(long, conflicts_with_all = ["topology", "icount"])]
    pub(crate) two_guests: bool,

    /// The number of NUMA nodes, each with one processor and half of the memory.
    #[arg(long, value_name = "NODES", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) numa: u8,

    /// The number of huge pages of 2 MiB to reserve at boot, in addition to the ordinary memory.
    #[arg(long, value_name = "PAGES", default_value_t = 0)]
    pub(crate) hugepages: u32,

    /// Let time count instructions: slow, on one processor, and the same in every run.
    #[arg(long, conflicts_with = "numa")]
    pub(crate) icount: bool,

    /// The ordinary memory in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    pub(crate) memory: u32,

    /// End the guest with exit code 124 when its command has run for this number of seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub(crate) limit: u64,

    /// If the command fails and the guest's kernel has reported a fault, run the command again in a
    /// new guest.
    #[arg(long)]
    pub(crate) retry_on_kernel_fault: bool,

    /// Print nothing about the guest itself unless it fails.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

impl GuestSpec {
    /// Returns the guest that these words of a command line describe.
    pub(crate) fn from_words(words: &[&str]) -> Self {
        let command = Self::augment_args(clap::Command::new("guest").no_binary_name(true));
        let matches = command.get_matches_from(words);
        Self::from_arg_matches(&matches).expect("clap has checked the words")
    }

    pub(crate) fn userland(&self) -> Userland {
        self.userland.unwrap_or(match self.kernel {
            KernelChoice::Newest => Userland::Newest,
            KernelChoice::Debian12 => Userland::Debian12,
        })
    }
}

/// The network inside one guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Topology {
    /// One device, `rxe0`.
    One,
    /// Two network namespaces connected by a link, `a` with `rxea` and `b` with `rxeb`: two hosts
    /// in one guest.
    Two,
    /// Loopback only, no RDMA device.
    None,
}

/// The role of a machine, which the scripts in the guest use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Alone(Topology),
    FirstOfTwo,
    SecondOfTwo,
}

impl Place {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Alone(Topology::One) => "one",
            Self::Alone(Topology::Two) => "two",
            Self::Alone(Topology::None) => "none",
            Self::FirstOfTwo => "guest-a",
            Self::SecondOfTwo => "guest-b",
        }
    }
}

/// The task of the guest once it is up.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    /// Run this command and exit with its code.
    Command(Vec<String>),
    /// An interactive shell on this terminal, with its size for `stty`.
    Shell { terminal: String },
    /// Run the commands that the other machine sends.
    Agent,
}
