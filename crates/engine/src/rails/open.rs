//! Chooses and opens the rails of an engine.

use std::net::IpAddr;
use std::path::PathBuf;

use farreach_fabric::{Info, TrafficClass};
use farreach_proto::machine::MessageHeader;
use farreach_rail::{Rail, RailError};

use super::fabric::{self, FabricRail, FabricSettings, IsolatedRail};
use super::shm::ShmRail;
use super::verbs::{self, VerbsRail, VerbsSettings};
use crate::Settings;
use crate::error::Error;
use crate::warning::{Warning, WarningKind};

type Opened = Result<Vec<Box<dyn Rail>>, RailError>;

/// The rails of an engine, and what its operator should know about them.
#[derive(Debug)]
pub(crate) struct ChosenRails {
    pub(crate) rails: Vec<Box<dyn Rail>>,
    pub(crate) warnings: Vec<Warning>,
}

/// Opens the rails that the settings name. If they name none, opens all cards, or tcp if there is no
/// card, and the rail within this host. Warns of those that cannot be opened.
pub(crate) fn rails(settings: &Settings) -> Result<ChosenRails, Error> {
    let chooser = Chooser::new(settings);
    let (mut tried, mut warnings) = (Vec::new(), Vec::new());
    let mut opened: Vec<Box<dyn Rail>> = Vec::new();
    if settings.rails.is_empty() {
        opened = chooser.cards(&mut tried);
        if !opened.is_empty() {
            let told = |(name, error): &(String, RailError)| {
                let message = format!("the card {name} is not used: {error}");
                Warning::new(WarningKind::Rail, message, error.fix.clone())
            };
            warnings.extend(tried.iter().map(told));
        }
        // tcp and shm are no RDMA devices, so they are not even tried with it.
        if !settings.require_rdma {
            if opened.is_empty() {
                // Only without a card: beside one, tcp would be a rail without a known rate, which
                // gets nothing while one with a rate works.
                opened = chooser.without_card(&mut tried);
            }
            if opened.is_empty() {
                // No error: a host without a card and without libfabric still has shm for its own
                // processes.
                warnings.push(only_within_host(&tried));
            }
            match chooser.within_host() {
                Ok(rail) => opened.push(rail),
                // A directory that was named and cannot be used is an error.
                Err(error) if settings.shm_dir.is_some() => {
                    return Err(Error::no_rail(&[("shm".to_owned(), error)], false));
                }
                Err(error) => {
                    let message = format!("processes of this host are not connected over shm: {error}");
                    warnings.push(Warning::new(WarningKind::Rail, message, error.fix.clone()));
                    tried.push(("shm".to_owned(), error));
                }
            }
        }
    } else {
        for name in &settings.rails {
            match chooser.named(name) {
                Ok(rails) => opened.extend(rails),
                // A rail that was named and cannot be opened is an error.
                Err(error) => {
                    let needs_rdma = settings.require_rdma;
                    return Err(Error::no_rail(&[(name.clone(), error)], needs_rdma));
                }
            }
        }
    }
    // A rail that was named may be tcp or shm. One of them is enough to refuse all, because
    // transfers would use it, too.
    if let Some(rail) = opened.iter().find(|rail| settings.require_rdma && !rail.properties().is_rdma) {
        let name = rail.properties().name.clone();
        let cause = "it is not an RDMA device, and `require_rdma` is set";
        tried.push((
            name,
            RailError::new("open a rail", cause, "name an RDMA device, or do not set `require_rdma`"),
        ));
        opened.clear();
    }
    if opened.is_empty() {
        return Err(Error::no_rail(&tried, settings.require_rdma));
    }
    Ok(ChosenRails { rails: opened, warnings })
}

fn only_within_host(tried: &[(String, RailError)]) -> Warning {
    let causes: Vec<String> = tried.iter().map(|(name, error)| format!("{name}: {error}")).collect();
    let fix = tried.first().map_or("check `farreach devices`", |(_, error)| &error.fix);
    let message = format!("no rail reaches other hosts: {}", causes.join("; "));
    Warning::new(WarningKind::Rail, message, fix)
}

/// The settings of all kinds of rails.
struct Chooser {
    verbs: VerbsSettings,
    fabric: FabricSettings,
    isolate_peers: bool,
    shm_dir: Option<PathBuf>,
    window: u32,
    message_max: usize,
}

impl Chooser {
    fn new(settings: &Settings) -> Self {
        // A rail counts the header of the engine as a part of the message.
        let message_max = settings.message_max + MessageHeader::LEN;
        let class = settings.traffic_class;
        Self {
            verbs: VerbsSettings {
                window: settings.depth as u32,
                message_max,
                traffic_class: class.unwrap_or(0),
                service_level: settings.service_level,
                bind_keys: settings.isolate_peers,
                gid_index: settings.gid_index,
                ..VerbsSettings::default()
            },
            fabric: FabricSettings {
                // All links of a rail may share it.
                transmit_depth: settings.depth.max(FabricSettings::default().transmit_depth),
                link_depth: settings.depth,
                message_max,
                // The upper six bits are the DSCP, which libfabric takes.
                traffic_class: class.and_then(|class| TrafficClass::dscp(class >> 2)),
                ..FabricSettings::default()
            },
            isolate_peers: settings.isolate_peers,
            shm_dir: settings.shm_dir.clone(),
            window: settings.depth as u32,
            message_max,
        }
    }

    /// Opens every card: those of verbs, or EFA if there are none.
    fn cards(&self, tried: &mut Vec<(String, RailError)>) -> Vec<Box<dyn Rail>> {
        let mut opened: Vec<Box<dyn Rail>> = Vec::new();
        for rail in verbs::rails(&self.verbs) {
            match VerbsRail::open(&rail, &self.verbs) {
                Ok(provider) => opened.push(Box::new(provider)),
                // A card that cannot be opened does not keep the others from being used.
                Err(error) => tried.push((rail.name().to_owned(), error)),
            }
        }
        if opened.is_empty() {
            opened = self.offered(&["efa"], tried);
        }
        opened
    }

    fn without_card(&self, tried: &mut Vec<(String, RailError)>) -> Vec<Box<dyn Rail>> {
        self.offered(&["tcp"], tried)
    }

    fn within_host(&self) -> Result<Box<dyn Rail>, RailError> {
        Ok(Box::new(ShmRail::open_in(self.shm_dir.as_deref(), self.window, self.message_max)?))
    }

    fn offered(&self, names: &[&str], tried: &mut Vec<(String, RailError)>) -> Vec<Box<dyn Rail>> {
        let providers = names.iter().map(|name| (*name).to_owned()).collect();
        let settings = FabricSettings { providers, ..self.fabric.clone() };
        let mut opened: Vec<Box<dyn Rail>> = Vec::new();
        match fabric::offers(&settings) {
            Ok(offers) => {
                for info in offers {
                    match self.fabric_rail(&info, &settings) {
                        Ok(provider) => opened.push(provider),
                        Err(error) => tried.push((info.provider().to_owned(), error)),
                    }
                }
            }
            Err(error) => tried.push((names.join(", "), error)),
        }
        opened
    }

    /// Opens an offer of libfabric, with its peers separated if that is wanted and possible.
    fn fabric_rail(&self, info: &Info, settings: &FabricSettings) -> Result<Box<dyn Rail>, RailError> {
        if self.isolate_peers
            && let Some(isolated) = IsolatedRail::open(info, settings)?
        {
            return Ok(Box::new(isolated));
        }
        Ok(Box::new(FabricRail::open(info, settings)?))
    }

    /// Opens the rail within this host, a verbs device or port, or a provider of libfabric, whose
    /// local address may follow after an `@`.
    fn named(&self, name: &str) -> Opened {
        if name == "shm" {
            return Ok(vec![self.within_host()?]);
        }
        let (provider, bind) = match name.split_once('@') {
            // libfabric has a provider of this name, too, which is none of the rails.
            Some(("shm", _)) => {
                return Err(RailError::new(
                    format!("open {name}"),
                    "the rail shm has no address: it connects processes of this host",
                    "name the rail `shm`, and the directory of its sockets, if it has one, with `Settings::shm_dir`",
                ));
            }
            Some((provider, address)) => {
                let bind = address.parse::<IpAddr>().map_err(|error| {
                    RailError::new(
                        format!("open {name}"),
                        error.to_string(),
                        "write an IP address after the @",
                    )
                })?;
                (provider, Some(bind))
            }
            None => (name, None),
        };
        // By its name alone: libfabric need not be there for a rail over verbs.
        if fabric::is_provider(provider) {
            let settings =
                FabricSettings { providers: vec![provider.to_owned()], bind, ..self.fabric.clone() };
            let info = fabric::best(provider, &settings)?;
            return Ok(vec![self.fabric_rail(&info, &settings)?]);
        }
        // The whole name: devices of verbs have no address after an `@`, and the error shows what
        // was typed.
        let rails = verbs::rails_named(name, &self.verbs)?;
        let open = |rail| VerbsRail::open(rail, &self.verbs).map(|opened| Box::new(opened) as Box<dyn Rail>);
        rails.iter().map(open).collect()
    }
}
