//! Chooses the rails of a test, and states why. There is no silent fallback.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use clap_complete::{ArgValueCompleter, CompletionCandidate};
use farreach::Settings;
use farreach::rails::fabric::{self, FabricSettings};
use farreach::rails::shm::ShmRail;
use farreach::rails::verbs::{self, VerbsSettings};
use farreach_fabric::{Capabilities, EndpointBuilder, Fabric, Info};
use farreach_rail::{Properties, Rail};
use farreach_shm::{Apart, Directory, PlaceDigests, Survey};
use farreach_verbs::device::DeviceList;
use farreach_verbs::system;
use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::cpu::{CpuRange, Cpus};
use crate::exit::{Exit, Failure};

/// Flags that choose rails.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct RailArgs {
    /// Rails to use, separated by commas: RDMA devices (mlx5_0, rxe0), libfabric providers (tcp, efa), or shm within a host
    #[arg(short, long = "device", value_name = "NAME", value_delimiter = ',', add = ArgValueCompleter::new(completions))]
    pub(crate) devices: Vec<String>,

    /// GID index to use; by default the best one is chosen
    #[arg(short = 'x', long, value_name = "INDEX")]
    pub(crate) gid_index: Option<u32>,

    /// Fail instead of falling back to tcp
    #[arg(long)]
    pub(crate) require_rdma: bool,

    /// Directory that connects containers of this host over shm: both sides mount it, and name it
    #[arg(long, value_name = "DIR", conflicts_with = "require_rdma")]
    pub(crate) shm_dir: Option<PathBuf>,
}

/// How the network treats the packets of a test, and where both sides run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[command(next_help_heading = "For all tests")]
pub(crate) struct Tuning {
    /// Traffic class of all packets, 0 to 255: DSCP × 4 + ECN (RDMA devices only)
    #[arg(long, value_name = "N")]
    pub(crate) tclass: Option<u8>,

    /// Service level, 0 to 15: the virtual lane on InfiniBand, the VLAN priority on RoCE (RDMA devices only)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=15))]
    pub(crate) sl: Option<u8>,

    /// CPUs of client and server: 2, or 2,4, or 2-3,4-5, or ,4 for the server only
    #[arg(long, value_name = "CPUS")]
    pub(crate) cpu: Option<Cpus>,
}

impl Tuning {
    /// Returns an error if one of these rails cannot mark its packets, because they would silently
    /// be sent unmarked.
    pub(crate) fn check(&self, names: &[String]) -> Result<(), Failure> {
        let flag = match self {
            Self { tclass: Some(_), .. } => "--tclass",
            Self { sl: Some(_), .. } => "--sl",
            Self { tclass: None, sl: None, .. } => return Ok(()),
        };
        let mut cores = names.iter().map(|name| core_of(name));
        let Some(name) = cores.find(|name| !is_card(name)) else { return Ok(()) };
        let kind = if name == SHM { "sends no packets" } else { "is a libfabric rail" };
        Err(Failure::new(Exit::Unavailable, format!("{flag} cannot be set over {name}"))
            .cause(format!("only RDMA devices of verbs mark their packets; {name} {kind}"))
            .fix(format!("choose an RDMA device with -d, or omit {flag}")))
    }

    /// Pins the client's process to its CPUs.
    pub(crate) fn pin_client(&self) -> Result<(), Failure> {
        self.cpu.and_then(|cpus| cpus.client).map_or(Ok(()), CpuRange::pin)
    }

    /// Pins the agent's process to its CPUs.
    pub(crate) fn pin_server(&self) -> Result<(), Failure> {
        self.cpu.and_then(|cpus| cpus.server).map_or(Ok(()), CpuRange::pin)
    }

    /// Adds the options to an engine's settings.
    pub(crate) fn apply(&self, mut settings: Settings) -> Settings {
        if let Some(class) = self.tclass {
            settings = settings.traffic_class(class);
        }
        if let Some(level) = self.sl {
            settings = settings.service_level(level);
        }
        settings
    }
}

/// Kinds of rails, as two hosts name them to each other. Device names differ between hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wish {
    /// RDMA devices of verbs, including Soft-RoCE.
    pub(crate) cards: bool,
    /// Rails that meet by their names: providers of libfabric, and `shm`.
    #[serde(deserialize_with = "farreach_text::lines")]
    pub(crate) providers: Vec<String>,
    /// Where the processes run that offer `shm`; only a server tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<Place>,
    /// How packets are marked, and the CPUs of both sides.
    #[serde(default)]
    pub(crate) tuning: Tuning,
}

impl Wish {
    /// Returns the kinds of these rails.
    pub(crate) fn of(names: &[String]) -> Self {
        let (cards, providers): (Vec<String>, Vec<String>) =
            names.iter().map(|name| core_of(name).to_owned()).partition(|name| is_card(name));
        Self { cards: !cards.is_empty(), providers, ..Self::default() }
    }

    /// Returns the kinds of a server's rails, and where its processes run.
    pub(crate) fn offered(names: &[String], shm_dir: Option<&Path>) -> Self {
        let wish = Self::of(names);
        let place = if wish.has(SHM) { Place::here(shm_dir) } else { None };
        Self { place, ..wish }
    }

    /// Returns an error unless every number and name is within its bound.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        bounds::RAIL_KINDS.check(self.providers.len())?;
        self.providers.iter().try_for_each(|name| bounds::NAME_BYTES.check(name.len()))?;
        // The CPUs are compared with those of this host when the agent is pinned.
        bounds::SERVICE_LEVEL.check(self.tuning.sl.unwrap_or(0))
    }

    /// Returns the number of receive buffers of the rails in `names` of these kinds.
    pub(crate) fn receive_buffers(&self, names: &[String]) -> u64 {
        let buffers = |name: &String| match core_of(name) {
            // Messages stay in the ring of a link until the engine takes them.
            SHM => 0,
            name if is_card(name) => u64::from(VerbsSettings::default().receives),
            _ => FabricSettings::default().receive_count as u64,
        };
        names.iter().filter(|name| self.has(core_of(name))).map(buffers).sum()
    }

    /// Returns whether one of the rails in `names` is of these kinds.
    pub(crate) fn has_any(&self, names: &[String]) -> bool {
        names.iter().any(|name| self.has(core_of(name)))
    }

    fn has(&self, name: &str) -> bool {
        if is_card(name) { self.cards } else { self.providers.iter().any(|it| it == name) }
    }

    fn words(&self) -> String {
        let cards = self.cards.then_some("RDMA cards");
        let words: Vec<&str> = cards.into_iter().chain(self.providers.iter().map(String::as_str)).collect();
        if words.is_empty() { "none".to_owned() } else { words.join(", ") }
    }

    /// Returns the rails in `names` of these kinds, each with the address at which the two sides
    /// are connected.
    pub(crate) fn among(&self, names: &[String], here: SocketAddr) -> Vec<String> {
        names.iter().filter(|name| self.has(name)).map(|name| at(name, here)).collect()
    }
}

/// The rail within a host.
pub(crate) const SHM: &str = "shm";

/// Returns whether a name is that of an RDMA device of verbs. All other rails meet by their names.
pub(crate) fn is_card(name: &str) -> bool {
    name != SHM && !fabric::is_provider(name)
}

/// Returns the library of a rail.
pub(crate) fn library(name: &str) -> &'static str {
    match name {
        SHM => "farreach-shm",
        name if is_card(name) => "verbs",
        _ => "libfabric",
    }
}

/// Where the processes of a server run, as it tells every client: digests, of which a client elsewhere
/// learns nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    host: String,
    user: String,
    place: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_directory: bool,
}

impl Place {
    fn here(shm_dir: Option<&Path>) -> Option<Self> {
        let PlaceDigests { host, user, place, has_directory, .. } = here(shm_dir)?.digests();
        Some(Self { host, user, place, has_directory })
    }

    /// Returns what separates a process there from this one, as cause and fix.
    fn apart(&self, shm_dir: Option<&Path>) -> Option<(String, String)> {
        // Without /proc, the rail cannot be opened, and tells so.
        let here = here(shm_dir)?;
        let Self { host, user, place, has_directory } = self.clone();
        let there = PlaceDigests::new(host, user, place, has_directory);
        let apart = here.apart(&there)?;
        let cause = match apart {
            Apart::Host => "the server runs on another host".to_owned(),
            Apart::User { ours } => {
                format!("the server runs as another user, and this command as user {ours}")
            }
            Apart::Directory => match (shm_dir, self.has_directory) {
                (Some(_), true) => "the server has another directory for shm",
                (Some(_), false) => "the server has no directory for shm",
                (None, _) => "the server has a directory for shm, and this command has none",
            }
            .to_owned(),
            _ => "the server runs in another network namespace, such as that of a container".to_owned(),
        };
        let fix = match apart {
            Apart::Host => "shm connects processes of one host: choose another rail with -d",
            Apart::User { .. } => {
                "run this command as the server's user, start a server as this user, or choose another rail with -d"
            }
            Apart::Directory => {
                "name the same directory on both sides with --shm-dir, or choose another rail with -d"
            }
            _ => {
                "run this command in the server's network namespace, name a directory that both mount \
                 with --shm-dir on both sides, or choose another rail with -d"
            }
        };
        Some((cause, fix.to_owned()))
    }
}

/// Returns where this process runs, if it can be read.
fn here(shm_dir: Option<&Path>) -> Option<farreach_shm::Place> {
    match shm_dir {
        None => farreach_shm::Place::here().ok(),
        Some(path) => farreach_shm::Place::in_directory(&*Directory::open(path).ok()?).ok(),
    }
}

/// The providers of libfabric that are used by default.
const PROVIDERS: [&str; 2] = ["efa", "tcp"];

/// A rail of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Found {
    /// Its name on this host.
    pub(crate) name: String,
    /// Its library, and its native address.
    pub(crate) through: String,
    pub(crate) is_rdma: bool,
}

/// Returns every rail of this host, cards first, and the errors that hide others.
pub(crate) fn look(args: &RailArgs) -> (Vec<Found>, Vec<Failure>) {
    let (mut found, mut trouble) = (cards(args), Vec::new());
    match providers() {
        Ok(offered) => found.extend(offered),
        Err(failure) => trouble.push(failure),
    }
    match within_host(args.shm_dir.as_deref()) {
        Ok(shm) => found.push(found_within(&shm)),
        Err(failure) => trouble.push(failure),
    }
    (found, trouble)
}

/// Returns the properties of the rail within this host, or why it cannot be used.
pub(crate) fn within_host(shm_dir: Option<&Path>) -> Result<Properties, Failure> {
    // Opening the rail does not need everything that its links need later.
    if let Some(obstacle) = Survey::take().obstacles.first() {
        return Err(Failure::new(Exit::Unavailable, "the rail shm cannot be used")
            .cause(obstacle.to_string())
            .fix(obstacle.fix()));
    }
    let rail = ShmRail::open_in(shm_dir, 1, ShmRail::MESSAGE_BYTES_MAX);
    rail.map(|rail| rail.properties().clone()).map_err(|error| Failure::of(&error.into()))
}

/// Returns the length of the longest message over these rails, in bytes.
pub(crate) fn message_bytes_max(names: &[String]) -> usize {
    let has_shm = names.iter().any(|name| core_of(name) == SHM);
    let max = bounds::MESSAGE_BYTES.max() as usize;
    if has_shm { max.min(ShmRail::MESSAGE_BYTES_MAX) } else { max }
}

/// Describes the rail within this host.
pub(crate) fn found_within(shm: &Properties) -> Found {
    Found {
        name: shm.name.clone(),
        through: format!("within this host, {}", shm.native),
        is_rdma: shm.is_rdma,
    }
}

/// Returns the rails of this host, the named ones included. libfabric, which is slow, is not
/// queried if only cards were named.
pub(crate) fn look_for_named(args: &RailArgs) -> Vec<Found> {
    let mut found = cards(args);
    let is_wanted = |wanted: &dyn Fn(&str) -> bool| {
        args.devices.is_empty() || args.devices.iter().any(|name| wanted(core_of(name)))
    };
    if is_wanted(&|name| !is_card(name) && name != SHM) {
        found.extend(providers().unwrap_or_default());
    }
    if is_wanted(&|name| name == SHM) {
        found.extend(within_host(args.shm_dir.as_deref()).ok().as_ref().map(found_within));
    }
    found
}

fn cards(args: &RailArgs) -> Vec<Found> {
    verbs::rails(&verbs_settings(args))
        .iter()
        .map(|rail| {
            let through = format!("verbs, {}", rail.gid());
            Found { name: rail.name().to_owned(), through, is_rdma: true }
        })
        .collect()
}

fn verbs_settings(args: &RailArgs) -> VerbsSettings {
    VerbsSettings { gid_index: args.gid_index, ..VerbsSettings::default() }
}

fn providers() -> Result<Vec<Found>, Failure> {
    Ok(offers()?.iter().map(found_through).collect())
}

fn offers() -> Result<Vec<Info>, Failure> {
    let providers = PROVIDERS.map(str::to_owned).into();
    let offers = fabric::offers(&FabricSettings { providers, ..FabricSettings::default() });
    offers.map_err(|error| Failure::of(&error.into()))
}

fn found_through(info: &Info) -> Found {
    // libfabric 1.x reports the provider of the rail `tcp` as `net`.
    let name = PROVIDERS.iter().find(|name| is_of(info.provider(), name)).unwrap_or(&"tcp");
    let address = info.source().map(|it| it.to_string()).unwrap_or_default();
    // The port is assigned for each client.
    let address = address.strip_suffix(":0").unwrap_or(&address);
    let through = if address.is_empty() { String::new() } else { format!(", {address}") };
    let through = format!("libfabric {}{through}", info.provider());
    Found { name: (*name).to_owned(), through, is_rdma: *name == "efa" }
}

/// A libfabric rail of this host, and its capabilities.
#[derive(Debug)]
pub(crate) struct FabricRail {
    pub(crate) rail: Found,
    /// The provider, as libfabric names it.
    pub(crate) provider: String,
    pub(crate) has_atomics: bool,
}

/// Returns the libfabric rails of this host. The list is empty if libfabric is missing or fails.
pub(crate) fn fabric_rails() -> Vec<FabricRail> {
    let rail = |info: &Info| FabricRail {
        rail: found_through(info),
        provider: info.provider().to_owned(),
        has_atomics: has_atomics(info),
    };
    offers().unwrap_or_default().iter().map(rail).collect()
}

/// Returns the verbs rails of this host.
pub(crate) fn verbs_rails() -> Vec<Found> {
    cards(&RailArgs::default())
}

/// Returns whether an endpoint of this offer has the atomic operations that `bench` and `chip` use.
///
/// The offer alone is not reliable: `net` of libfabric 1.17 has the capability, but no operation.
/// So an endpoint is opened and queried.
fn has_atomics(info: &Info) -> bool {
    if !info.capabilities().contains(Capabilities::ATOMIC) {
        return false;
    }
    let atomics = || {
        let domain = Fabric::open(info)?.open_domain(info)?;
        let (cq, av) = (domain.open_cq()?, domain.open_av()?);
        Ok::<_, farreach_fabric::Error>(EndpointBuilder::new(&cq, &av).build(&domain)?.atomics())
    };
    atomics().is_ok_and(|atomics| atomics.fetch_add && atomics.compare_swap)
}

/// Returns why this name is not a rail of this host, which names are, and the most likely intended
/// name.
pub(crate) fn missing(name: &str, args: &RailArgs) -> Failure {
    let failure = Failure::new(Exit::Unavailable, format!("this host has no rail {name}"));
    let names = names(args);
    let listed = match &names[..] {
        [] => "this host has no rail".to_owned(),
        names => format!("the rails of this host are {}", names.join(", ")),
    };
    // A device that exists but cannot be used has a reason of its own.
    let is_device = DeviceList::get().is_ok_and(|all| all.find(device_of(name)).is_some());
    if !is_device && let Some(near) = nearest(name, &names) {
        return failure
            .cause(listed)
            .fix(format!("did you mean {near}? To list the rails:\nfarreach devices"));
    }
    if name == SHM {
        let why = within_host(args.shm_dir.as_deref())
            .err()
            .map(|failure| (failure.cause.unwrap_or(failure.error), failure.fix));
        let (cause, fix) = why.unwrap_or((listed, None));
        return failure
            .cause(cause)
            .fix(fix.unwrap_or_else(|| "choose another rail; to list them:\nfarreach devices".to_owned()));
    }
    if fabric::is_provider(name)
        && let Err(trouble) = offers()
    {
        let cause = format!("{}; {listed}", trouble.sentence());
        return failure.cause(cause).fix(trouble.fix.unwrap_or_default());
    }
    if fabric::is_provider(name) {
        let cause = format!("libfabric does not offer it, or it cannot be used as a rail; {listed}");
        return failure.cause(cause).fix("choose another rail; to list them:\nfarreach devices");
    }
    // Only for a name that a card may have: a mistyped `tcp` needs no hint about the kernel.
    match why_no_card(name, args).filter(|_| is_device || may_be_card(name)) {
        Some((cause, fix)) => failure.cause(format!("{cause}; {listed}")).fix(fix),
        None => failure.cause(listed).fix("choose one of these rails; for details:\nfarreach devices"),
    }
}

/// Returns the names that `-d` accepts on this host, without duplicates.
fn names(args: &RailArgs) -> Vec<String> {
    let (found, _) = look(args);
    let mut names = Vec::new();
    for rail in found {
        if !names.contains(&rail.name) {
            names.push(rail.name);
        }
    }
    names
}

/// Returns the device of a name that may include a port: `mlx5_0` of `mlx5_0/2`.
fn device_of(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}

/// Returns whether an RDMA device may have this name: all names that drivers and udev assign
/// contain a digit.
fn may_be_card(name: &str) -> bool {
    name.contains(|letter: char| letter.is_ascii_digit())
}

/// Returns the most likely intended name, if one differs by few letters only.
fn nearest<'a>(typed: &str, names: &'a [String]) -> Option<&'a str> {
    let typos_max = (typed.chars().count() / 3).max(1);
    let near = names.iter().map(|name| (typos(typed, name), name.as_str()));
    near.filter(|(count, _)| *count <= typos_max).min_by_key(|(count, _)| *count).map(|(_, name)| name)
}

/// Returns the number of letters to insert, delete, replace or swap with the next one (optimal
/// string alignment).
fn typos(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

/// Returns why a card cannot be used, as cause and fix; `None` if it can.
fn why_no_card(name: &str, args: &RailArgs) -> Option<(String, String)> {
    let error = verbs::rails_named(name, &verbs_settings(args)).err()?;
    // What is missing below the library is closer to the cause than the library's error.
    let obstacle = system::survey().obstacles().into_iter().next();
    Some(obstacle.map_or((error.cause, error.fix), |obstacle| (obstacle.to_string(), obstacle.fix())))
}

/// Returns why no card of this host is a rail, as cause and fix.
pub(crate) fn why_no_cards(args: &RailArgs) -> (String, String) {
    let names: Vec<String> = match DeviceList::get() {
        Ok(devices) => devices.iter().map(|device| device.name().to_owned()).collect(),
        Err(_) => Vec::new(),
    };
    let mut reasons = names.iter().filter_map(|name| verbs::rails_named(name, &verbs_settings(args)).err());
    if let Some(error) = reasons.next() {
        return (error.to_string(), error.fix);
    }
    match system::survey().obstacles().first() {
        Some(obstacle) => (obstacle.to_string(), obstacle.fix()),
        None => {
            ("no port is active".to_owned(), "check the state of the ports:\nfarreach devices".to_owned())
        }
    }
}

/// Returns the name of a rail without its address: `tcp` of `tcp@192.0.2.1`.
fn core_of(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

fn is_of(provider: &str, name: &str) -> bool {
    provider.split(';').next() == Some(name)
}

/// The chosen rails, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The rails of this side.
    pub(crate) names: Vec<String>,
    /// Their kinds, for the other side.
    pub(crate) wish: Wish,
    pub(crate) why: String,
}

/// Chooses this side's rails to a peer that offers these kinds: the named rails, else cards if both
/// sides have some, else tcp. `here` is this side's address of the connection to the peer.
pub(crate) fn choose(args: &RailArgs, offers: &Wish, here: SocketAddr) -> Result<Choice, Failure> {
    if args.shm_dir.is_some() && args.devices.is_empty() {
        // Another rail would silently ignore the directory.
        let named = RailArgs { devices: vec![SHM.to_owned()], ..args.clone() };
        let choice = choose(&named, offers, here)?;
        return Ok(Choice { why: "named by --shm-dir".to_owned(), ..choice });
    }
    if !args.devices.is_empty() {
        check_named(args)?;
        let wish = Wish::of(&args.devices);
        if let Some(name) = wanting(&args.devices, offers) {
            return Err(Failure::new(Exit::Unavailable, format!("the server has no rail for {name}"))
                .cause(format!("the server offers {}", offers.words()))
                .fix(format!(
                    "choose another rail with -d, or start the server with one of this kind:\nfarreach serve -d {name}"
                )));
        }
        if wish.has(SHM) {
            check_within_host(args, offers)?;
        }
        let names = args.devices.iter().map(|name| at(name, here)).collect();
        return Ok(Choice { names, wish, why: "named by -d".to_owned() });
    }
    let cards = cards(args);
    check_gid(args, &cards)?;
    let cards: Vec<String> = cards.into_iter().map(|rail| rail.name).collect();
    if !cards.is_empty() && offers.cards {
        return Ok(Choice {
            names: cards,
            wish: Wish { cards: true, ..Wish::default() },
            why: "both sides have active RDMA cards".to_owned(),
        });
    }
    without_card(args, offers, here, !cards.is_empty())
}

/// Chooses among the rails of libfabric, which takes time to enumerate them.
fn without_card(
    args: &RailArgs,
    offers: &Wish,
    here: SocketAddr,
    has_cards: bool,
) -> Result<Choice, Failure> {
    let (found, trouble) =
        providers().map_or_else(|failure| (Vec::new(), Some(failure)), |found| (found, None));
    let has = |name: &str| offers.has(name) && found.iter().any(|rail| rail.name == name);
    let without = match (!has_cards, offers.cards) {
        (true, true) => "this host has no active RDMA card",
        (false, false) => "the server offers no RDMA card",
        _ => "no active RDMA card on either side",
    };
    if args.require_rdma && !has("efa") {
        let failure = Failure::new(Exit::Unavailable, "no RDMA rail to the server");
        let without_it = "without --require-rdma the test uses tcp";
        return Err(if !has_cards {
            let (cause, fix) = why_no_cards(args);
            failure.cause(format!("{without}: {cause}")).fix(format!("{without_it}; for RDMA:\n{fix}"))
        } else {
            failure
                .cause(without)
                .fix(format!("{without_it}; for RDMA, run on the server:\nfarreach devices"))
        });
    }
    let (name, why) = if has("efa") {
        ("efa", format!("{without}; both sides have AWS EFA"))
    } else if has("tcp") {
        ("tcp", without.to_owned())
    } else if offers.has(SHM) && check_within_host(args, offers).is_ok() && within_host(None).is_ok() {
        (SHM, format!("{without}, and no libfabric; both sides run on this host"))
    } else {
        let failure = Failure::new(Exit::Unavailable, "no common rail with the server");
        let mut here: Vec<&str> = found.iter().map(|rail| rail.name.as_str()).collect();
        here.extend(within_host(None).is_ok().then_some(SHM));
        let here = if here.is_empty() { "no rail".to_owned() } else { here.join(", ") };
        // Only told where both sides have it.
        let apart = apart(args, offers).map(|(cause, _)| format!("; shm does not reach it: {cause}"));
        let fix = "set up an RDMA card, or install libfabric on both hosts:\napt-get install libfabric1";
        let fix = trouble.and_then(|it| it.fix).unwrap_or_else(|| fix.to_owned());
        return Err(failure
            .cause(format!(
                "this host has {here}, the server offers {}{}",
                offers.words(),
                apart.unwrap_or_default()
            ))
            .fix(fix));
    };
    let names = vec![at(name, here)];
    Ok(Choice { wish: Wish::of(&names), names, why })
}

/// Returns what separates this process from those of the server that makes these offers, as cause and
/// fix.
pub(crate) fn apart(args: &RailArgs, offers: &Wish) -> Option<(String, String)> {
    offers.place.as_ref().and_then(|place| place.apart(args.shm_dir.as_deref()))
}

/// Returns an error if the rail within a host does not reach the server that makes these offers.
fn check_within_host(args: &RailArgs, offers: &Wish) -> Result<(), Failure> {
    match apart(args, offers) {
        Some((cause, fix)) => {
            Err(Failure::new(Exit::Unavailable, "shm does not reach the server").cause(cause).fix(fix))
        }
        None => Ok(()),
    }
}

/// Returns an error if a GID index was given and there is no card to use it.
pub(crate) fn check_gid(args: &RailArgs, found: &[Found]) -> Result<(), Failure> {
    match args.gid_index {
        Some(index) if !found.iter().any(|rail| is_card(&rail.name)) => {
            let (cause, fix) = why_no_cards(args);
            let error = format!("no RDMA card has a GID with index {index}");
            Err(Failure::new(Exit::Unavailable, error).cause(cause).fix(fix))
        }
        _ => Ok(()),
    }
}

/// Checks that the rails named by `-d` exist, and are RDMA if that is required. It needs no peer.
/// libfabric, which is slow, is not asked whether it offers a provider.
pub(crate) fn check_named(args: &RailArgs) -> Result<(), Failure> {
    if args.shm_dir.is_some() {
        if !args.devices.is_empty() && !args.devices.iter().any(|name| name == SHM) {
            return Err(Failure::new(Exit::Usage, "--shm-dir has no effect on the rails that -d names")
                .cause("the directory is for shm")
                .fix("add shm to the rails: -d shm, or omit --shm-dir"));
        }
        within_host(args.shm_dir.as_deref())?;
    }
    for (typed, name) in args.devices.iter().map(|name| (name, core_of(name))) {
        if name == SHM && typed != SHM {
            return Err(Failure::new(Exit::Usage, format!("{typed} is not a rail"))
                .cause("shm has no address: it connects processes of this host")
                .fix("name it without an address: -d shm"));
        }
        let is_card = is_card(name);
        if args.require_rdma && !is_card && name != "efa" {
            return Err(Failure::new(Exit::Unavailable, format!("{name} is not RDMA"))
                .cause("--require-rdma needs a rail over an RDMA card")
                .fix("choose a card with -d, or omit --require-rdma"));
        }
        let is_missing = match name {
            SHM => within_host(args.shm_dir.as_deref()).is_err(),
            _ => is_card && verbs::rails_named(name, &verbs_settings(args)).is_err(),
        };
        if is_missing {
            return Err(missing(name, args));
        }
    }
    Ok(())
}

/// Returns the first of these rails for which the other side has no counterpart.
fn wanting<'a>(names: &'a [String], offers: &Wish) -> Option<&'a str> {
    names.iter().map(|name| core_of(name)).find(|name| !offers.has(name))
}

/// Adds this side's address to a rail of IP addresses, so that it uses the network on which the two
/// sides are connected.
fn at(name: &str, here: SocketAddr) -> String {
    let is_link_local = matches!(here.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local());
    if name == "tcp" && !is_link_local {
        format!("{name}@{}", here.ip().to_canonical())
    } else {
        name.to_owned()
    }
}

/// Completes the names of rails in a list separated by commas.
pub(crate) fn completions(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let (before, last) = typed.rsplit_once(',').map_or(("", &*typed), |(before, last)| (before, last));
    let (found, _) = look(&RailArgs::default());
    found
        .into_iter()
        .filter(|rail| rail.name.starts_with(last))
        .map(|rail| {
            let whole = if before.is_empty() { rail.name } else { format!("{before},{}", rail.name) };
            CompletionCandidate::new(whole).help(Some(rail.through.into()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn devices_meet_by_kind_and_providers_by_name() {
        let wish = Wish::of(&names(&["rxe0", "tcp@10.0.0.7"]));
        assert_eq!(wish, Wish { cards: true, providers: names(&["tcp"]), ..Wish::default() });
        let here = "10.0.0.8:99".parse().expect("an address");
        assert_eq!(wish.among(&names(&["mlx5_0", "efa", "tcp"]), here), names(&["mlx5_0", "tcp@10.0.0.8"]));
        assert_eq!(wanting(&names(&["tcp@10.0.0.7", "efa"]), &wish), Some("efa"));
    }

    #[test]
    fn marks_are_refused_where_packets_would_go_without() {
        let tuning = |tclass, sl| Tuning { tclass, sl, cpu: None };
        let tcp = names(&["tcp@10.0.0.7"]);
        let refused = tuning(Some(106), None).check(&tcp).expect_err("tcp marks nothing");
        assert_eq!(
            (refused.error.as_str(), refused.exit),
            ("--tclass cannot be set over tcp", Exit::Unavailable)
        );
        assert!(
            tuning(None, Some(3))
                .check(&names(&["mlx5_0", "tcp"]))
                .expect_err("one of them")
                .error
                .starts_with("--sl")
        );
        assert_eq!(tuning(None, None).check(&tcp), Ok(()));
        assert_eq!(tuning(Some(106), Some(3)).check(&names(&["mlx5_0"])), Ok(()));
    }

    #[test]
    fn a_mistyped_name_finds_the_one_that_was_meant() {
        let here = names(&["mlx5_0", "mlx5_1", "tcp"]);
        for (typed, meant) in [
            ("tpc", Some("tcp")),
            ("tcpp", Some("tcp")),
            ("mlx50", Some("mlx5_0")),
            ("mlx5_7", Some("mlx5_0")),
            ("rxe0", None),
            ("efa", None),
            ("nonsense", None),
        ] {
            assert_eq!(nearest(typed, &here), meant, "{typed}");
        }
        assert_eq!(typos("", "tcp"), 3);
    }

    #[test]
    fn only_a_name_with_a_number_may_be_a_card() {
        assert!(["rxe0", "mlx5_0", "rocep1s0f0"].into_iter().all(may_be_card));
        assert!(!["tpc", "nonsense"].into_iter().any(may_be_card));
    }

    #[test]
    fn an_address_that_says_nothing_without_its_interface_is_left_out() {
        let here = "[fe80::1]:99".parse().expect("an address");
        assert_eq!(at("tcp", here), "tcp");
    }
}
