//! What a guest is to be, as typed on the command line.

use clap::{Args, FromArgMatches};

use super::kernel::KernelChoice;
use super::roots::Userland;

/// The kind of guest.
#[derive(Debug, Clone, Args)]
pub(crate) struct GuestSpec {
    /// Which kernel boots.
    #[arg(long, value_enum, default_value = "newest")]
    pub(crate) kernel: KernelChoice,

    /// Which Debian is the root; that of the kernel if not given.
    #[arg(long, value_enum)]
    userland: Option<Userland>,

    /// The network inside: one device; two namespaces `a` and `b`, each with its device; or none.
    #[arg(long, value_enum, default_value = "one")]
    pub(crate) topology: Topology,

    /// Two machines `a` and `b` instead of one; the command runs on `a`, and `host b COMMAND…` reaches the other.
    #[arg(long, conflicts_with_all = ["topology", "icount"])]
    pub(crate) two_guests: bool,

    /// NUMA nodes, with one processor and half of the memory each.
    #[arg(long, value_name = "NODES", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) numa: u8,

    /// Huge pages of 2 MiB set aside at boot, on top of the ordinary memory.
    #[arg(long, value_name = "PAGES", default_value_t = 0)]
    pub(crate) hugepages: u32,

    /// Time that counts instructions: slow, on one processor, and the same in every run.
    #[arg(long, conflicts_with = "numa")]
    pub(crate) icount: bool,

    /// Ordinary memory in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    pub(crate) memory: u32,

    /// End the guest when its command has run for so many seconds, with exit code 124.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub(crate) limit: u64,

    /// Where the command fails and the guest's kernel has told of a fault of its own, run it once more in a new guest.
    #[arg(long)]
    pub(crate) retry_on_kernel_fault: bool,

    /// Say nothing about the guest itself unless it fails.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

impl GuestSpec {
    /// The guest that these words of a command line ask for.
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
    /// Two network namespaces joined by a link, `a` with `rxea` and `b` with `rxeb`: two hosts in one guest.
    Two,
    /// Loopback only, no RDMA device.
    None,
}

/// Which part a machine plays: what the scripts in the guest are told.
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

/// What the guest does once it is up.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    /// Run this and end with its code.
    Command(Vec<String>),
    /// A shell for a person, on this terminal, whose size `stty` understands.
    Shell { terminal: String },
    /// Run what the other machine asks for.
    Agent,
}
