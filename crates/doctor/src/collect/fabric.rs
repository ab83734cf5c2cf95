//! Queries libfabric for its providers.

use std::collections::BTreeMap;

use farreach_fabric::{Error, Hints, Info, Library};

use crate::probes::{Fabric, Reading};

pub(super) fn look() -> Reading<Fabric> {
    let library = match Library::open() {
        Ok(library) => library,
        Err(error) => return Reading::Unread(error.to_string()),
    };
    let mut providers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    match Info::query(&Hints::new()) {
        Ok(offers) => {
            for offer in offers {
                let domains = providers.entry(offer.provider().to_owned()).or_default();
                if !domains.iter().any(|domain| domain == offer.domain()) {
                    domains.push(offer.domain().to_owned());
                }
            }
        }
        Err(Error::NoProvider { .. }) => {}
        Err(error) => return Reading::Unread(format!("{error}: {}", error.cause())),
    }
    let (path, version) = (library.path().display().to_string(), library.version().to_string());
    Reading::Read(Fabric { library: path, version, providers })
}
