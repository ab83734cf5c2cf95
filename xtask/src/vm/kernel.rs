//! The kernel of the guest: found through the dependencies of a Debian suite, and unpacked, with
//! its modules in load order.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::cache;
use crate::debian::Apt;
use crate::process::{command, output, require_programs, run};

/// The kernel that the guest boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub(crate) enum KernelChoice {
    /// The newest in Debian.
    Newest,
    /// The kernel of Debian 12.
    Debian12,
}

/// A kernel in the cache, ready to boot.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) version: String,
    pub(crate) image: PathBuf,
    /// Uncompressed modules, named so that their order is the load order.
    pub(crate) modules: Vec<PathBuf>,
}

/// The modules that the guest loads, with their dependencies. A module that the kernel has built
/// in, or does not have, is skipped.
const MODULES: [&str; 20] = [
    "virtio_pci",
    "virtio_console",
    "9pnet_virtio",
    "9p",
    "overlay",
    // Soft-RoCE of Debian 12 looks for a checksum by name when a link is added, and finds it only
    // if its module is loaded.
    "crc32_generic",
    "crc32-pclmul",
    "rdma_rxe",
    "ib_uverbs",
    "rdma_ucm",
    "ib_umad",
    "veth",
    "dummy",
    "bridge",
    "virtio_net",
    "af_packet",
    "sch_netem",
    "nf_tables",
    "nft_ct",
    "nft_reject_inet",
];

impl KernelChoice {
    fn name(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Debian12 => "debian12",
        }
    }

    /// Returns the suites, the best first, and the minimum version.
    fn suites(self) -> (&'static [&'static str], &'static str) {
        match self {
            // Soft-RoCE devices in several namespaces need a kernel newer than 6.12. An older one
            // supports everything else.
            Self::Newest => (&["unstable", "testing", "stable-backports", "stable"], "6.12"),
            Self::Debian12 => (&["bookworm"], "6.1"),
        }
    }

    /// Returns the kernel. It is fetched the first time, and then kept in the cache.
    pub(crate) fn get(self) -> Result<Kernel> {
        let (suites, minimum) = self.suites();
        let recipe = (MODULES, suites, minimum);
        let entry = cache::entry("kernels", self.name(), &recipe, suites, |suite, folder| {
            fetch(suite, minimum, folder)
        })?;
        let mut modules: Vec<_> = std::fs::read_dir(entry.path.join("load"))?
            .map(|module| Ok(module?.path()))
            .collect::<Result<_>>()?;
        modules.sort();
        Ok(Kernel { version: entry.origin, image: entry.path.join("vmlinuz"), modules })
    }
}

impl Kernel {
    /// Returns whether each network namespace can have its own Soft-RoCE device that carries
    /// traffic.
    pub(crate) fn has_devices_in_namespaces(&self) -> bool {
        let major = self.version.split('.').next().and_then(|number| number.parse().ok());
        major.is_some_and(|major: u32| major >= 7)
    }
}

/// Fetches the kernel of a suite into an empty folder. Returns its version.
fn fetch(suite: &str, minimum: &str, folder: &Path) -> Result<String> {
    require_programs(&[("depmod", "kmod"), ("modprobe", "kmod"), ("xz", "xz-utils"), ("zstd", "zstd")])?;
    let apt = Apt::of_suite(suite)?;
    let meta = "linux-image-amd64";
    let offered = apt.version_of(meta)?.with_context(|| format!("it has no package {meta}"))?;
    if !offered.is_at_least(minimum) {
        bail!("its kernel is {offered}, older than {minimum}");
    }
    let packages = kernel_packages(&apt, meta)?;
    eprintln!("fetching the kernel {offered} from Debian {}", apt.suite());
    let downloaded = apt.download(&packages.iter().map(String::as_str).collect::<Vec<_>>())?;

    let unpacked = folder.join("unpacked");
    // Packages use /lib or /usr/lib; the link puts the modules of both into one place.
    std::fs::create_dir_all(unpacked.join("usr/lib"))?;
    std::os::unix::fs::symlink("usr/lib", unpacked.join("lib"))?;
    downloaded.unpack(&unpacked)?;

    let version = only_folder_in(&unpacked.join("usr/lib/modules"))?;
    let images = [
        unpacked.join(format!("usr/lib/modules/{version}/vmlinuz")),
        unpacked.join(format!("boot/vmlinuz-{version}")),
    ];
    let image = images.iter().find(|path| path.is_file()).context("the packages contain no vmlinuz")?;
    std::fs::copy(image, folder.join("vmlinuz"))?;
    lay_out_modules(&unpacked, &version, &folder.join("load"))?;
    std::fs::remove_dir_all(&unpacked)?;
    Ok(version)
}

/// Returns the versioned packages behind the meta package: one in older suites; image, modules and
/// base files in newer ones.
fn kernel_packages(apt: &Apt, meta: &str) -> Result<BTreeSet<String>> {
    let is_versioned = |name: &str| {
        ["linux-image-", "linux-binary-", "linux-modules-", "linux-base-"]
            .iter()
            .filter_map(|prefix| name.strip_prefix(prefix))
            .any(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    let mut found = BTreeSet::new();
    let mut queue = apt.dependencies_of(meta)?;
    while let Some(package) = queue.pop() {
        if is_versioned(&package) && found.insert(package.clone()) {
            queue.extend(apt.dependencies_of(&package)?);
        }
    }
    if found.is_empty() {
        bail!("the dependencies of {meta} contain no kernel package with a known name");
    }
    Ok(found)
}

/// Uncompresses the modules to load into `load`, numbered in load order.
fn lay_out_modules(unpacked: &Path, version: &str, load: &Path) -> Result<()> {
    run(&mut command("depmod", ["-b".as_ref(), unpacked.as_os_str(), version.as_ref()]))?;
    std::fs::create_dir_all(load)?;
    let mut laid = BTreeSet::new();
    for module in MODULES {
        let mut modprobe = command("modprobe", ["-d".as_ref(), unpacked.as_os_str()]);
        modprobe.args(["-S", version, "--show-depends", module]);
        // This kernel does not have the module. For example, newer ones have no separate checksum
        // modules.
        let Ok(lines) = output(&mut modprobe) else { continue };
        // `insmod PATH OPTION…`: the options are those of this machine for its own kernel.
        let paths = lines.lines().filter_map(|line| line.strip_prefix("insmod ")?.split_whitespace().next());
        for path in paths {
            if laid.insert(path.to_owned()) {
                uncompress(Path::new(path), load, laid.len())?;
            }
        }
    }
    if !laid.iter().any(|path| path.contains("/rdma_rxe.ko")) {
        bail!("kernel {version} has no rdma_rxe module");
    }
    Ok(())
}

fn uncompress(module: &Path, load: &Path, number: usize) -> Result<()> {
    let name = module
        .file_name()
        .and_then(|name| name.to_str())
        .context("the name of a module is not valid UTF-8")?;
    let (stem, program) = match name.rsplit_once('.') {
        Some((stem, "xz")) => (stem, Some("xz")),
        Some((stem, "zst")) => (stem, Some("zstd")),
        _ => (name, None),
    };
    let target = load.join(format!("{number:03}-{stem}"));
    match program {
        Some(program) => {
            let file = std::fs::File::create(&target)?;
            run(command(program, ["-dc".as_ref(), module.as_os_str()]).stdout(file))
        }
        None => std::fs::copy(module, &target).map(drop).context("cannot copy a module"),
    }
}

fn only_folder_in(directory: &Path) -> Result<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)
        .with_context(|| format!("cannot read the folder {}", directory.display()))?
    {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    match names.as_slice() {
        [name] => Ok(name.clone()),
        _ => bail!("{} contains {names:?}, expected one kernel", directory.display()),
    }
}
