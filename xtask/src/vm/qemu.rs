//! The command line of QEMU for a guest.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::kernel::Kernel;
use super::spec::{GuestSpec, Place};

/// The programs that run a guest, with their packages.
pub(crate) const PROGRAMS: [(&str, &str); 2] = [("setpriv", "util-linux"), (QEMU, "qemu-system-x86")];

const QEMU: &str = "qemu-system-x86_64";

/// The streams of the numbered ports of the guest. The scripts in the guest use the numbers.
pub(crate) const PORTS: [&str; 3] = ["stdout", "stderr", "status"];

/// The kernel parameters of every guest.
const PARAMETERS: [&str; 7] = [
    "console=ttyS0",
    "quiet",
    "loglevel=5",
    "panic=-1",
    "mitigations=off",
    // On a machine that stalls sometimes, the kernel considers the time stamp counter unreliable
    // and uses the HPET: each reading of the clock is then an access to an emulated device. QEMU's
    // counter is that of the host, and never goes back on any processor.
    "tsc=reliable",
    // On a busy host, the first timer interrupt comes later than the kernel waits for it, and the
    // kernel panics.
    "no_timer_check",
];

/// The settings of QEMU.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) spec: &'a GuestSpec,
    pub(crate) kernel: &'a Kernel,
    pub(crate) place: Place,
    pub(crate) root: &'a Path,
    /// The folder with sockets, the initramfs, the kernel log and the folder `control`.
    pub(crate) folder: &'a Path,
    pub(crate) shares: &'a [PathBuf],
    pub(crate) is_interactive: bool,
}

/// A processor with AVX and without AVX2: libpsm2, which libfabric loads, needs AVX and does not
/// check for it; with AVX2, the C library uses it for strings, and emulating that costs a quarter
/// more.
const PROCESSOR: &str = "SandyBridge,-x2apic,-tsc-deadline";

impl Setup<'_> {
    pub(crate) fn command(&self) -> Command {
        // The guest must not outlive this process, however this process ends.
        let mut qemu = Command::new("setpriv");
        qemu.args(["--pdeathsig", "KILL", QEMU]);
        let folder = self.folder.display();
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        self.machine(&mut qemu);
        qemu.arg("-kernel").arg(&self.kernel.image);
        qemu.arg("-initrd").arg(self.folder.join("initramfs"));
        qemu.arg("-append").arg(self.kernel_parameters());
        qemu.args(["-serial", &format!("file:{folder}/kernel.log")]);

        qemu.args(["-device", "virtio-serial-pci"]);
        for (index, port) in PORTS.iter().enumerate() {
            qemu.args(["-chardev", &format!("socket,id={port},path={folder}/{port}")]);
            qemu.args(["-device", &format!("virtserialport,chardev={port},nr={}", index + 1)]);
        }
        if self.is_interactive {
            qemu.args([
                "-chardev",
                "stdio,id=terminal,signal=off",
                "-device",
                "virtconsole,chardev=terminal,nr=4",
            ]);
        }

        file_system(&mut qemu, "root", self.root, ",readonly=on");
        file_system(&mut qemu, "control", &self.folder.join("control"), ",readonly=on");
        for (index, share) in self.shares.iter().enumerate() {
            file_system(&mut qemu, &format!("share{index}"), share, "");
        }
        self.network(&mut qemu);
        qemu
    }

    /// Uses software emulation always: Debian's kernels hang with /dev/kvm on the machines of this
    /// project, and emulation works everywhere.
    fn machine(&self, qemu: &mut Command) {
        let memory = self.spec.memory + 2 * self.spec.hugepages;
        qemu.args(["-cpu", PROCESSOR, "-m", &memory.to_string()]);
        if self.spec.icount {
            qemu.args(["-accel", "tcg,thread=single", "-icount", "shift=1,sleep=on", "-smp", "1"]);
        } else {
            qemu.args(["-accel", "tcg,thread=multi", "-smp", "2"]);
        }
        if self.spec.numa == 2 {
            for node in 0..2 {
                qemu.args(["-object", &format!("memory-backend-ram,id=m{node},size={}M", memory / 2)]);
                qemu.args(["-numa", &format!("node,nodeid={node},cpus={node},memdev=m{node}")]);
            }
        }
    }

    fn kernel_parameters(&self) -> String {
        let mut parameters = PARAMETERS.join(" ");
        if self.spec.hugepages > 0 {
            parameters.push_str(&format!(" hugepagesz=2M hugepages={}", self.spec.hugepages));
        }
        parameters
    }

    /// Connects two machines with a pair of Unix sockets, without any network of the host.
    fn network(&self, qemu: &mut Command) {
        let (own, other) = match self.place {
            Place::Alone(_) => return,
            Place::FirstOfTwo => ("a", "b"),
            Place::SecondOfTwo => ("b", "a"),
        };
        let link = self.folder.parent().unwrap_or(self.folder).display();
        qemu.args([
            "-netdev",
            &format!(
                "dgram,id=link,local.type=unix,local.path={link}/link-{own},\
                 remote.type=unix,remote.path={link}/link-{other}"
            ),
            "-device",
            &format!("virtio-net-pci,netdev=link,mac=02:00:00:00:00:0{own}"),
        ]);
    }
}

fn file_system(qemu: &mut Command, tag: &str, path: &Path, options: &str) {
    let path = path.display();
    qemu.args([
        "-fsdev",
        &format!("local,id={tag},path={path},security_model=none,multidevs=remap{options}"),
    ]);
    qemu.args(["-device", &format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}")]);
}
