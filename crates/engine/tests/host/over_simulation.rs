//! The suite over simulated cards, in real time: of each kind of card that there is.

use farreach::provider::Provider as Rail;
use farreach::provider::sim::{SimCard, SimNetwork, SimProvider, SimSettings};
use farreach::{Engine, Settings};

use crate::suite::{Provider, suite};

thread_local! {
    /// Each test has its own, and makes its engines in one thread.
    static NETWORK: SimNetwork = SimNetwork::real_time(SimSettings::new(1));
}

fn over(cards: Vec<SimCard>, settings: Settings) -> Engine {
    // One host for all: who is in this process lives as long as any other.
    let network = NETWORK.with(SimNetwork::clone);
    let rails = cards.into_iter().map(|card| Box::new(SimProvider::new(&network, 0, card)) as Box<dyn Rail>);
    Engine::over(rails.collect(), settings).unwrap()
}

const RC: Provider = Provider {
    open: |settings| over(vec![SimCard::rc(), SimCard::rc()], settings),
    has_atomics: Some(true),
    rails: 2,
};
const TCP: Provider =
    Provider { open: |settings| over(vec![SimCard::tcp()], settings), has_atomics: Some(true), rails: 1 };
const EFA: Provider =
    Provider { open: |settings| over(vec![SimCard::efa()], settings), has_atomics: Some(false), rails: 1 };
const SHM: Provider =
    Provider { open: |settings| over(vec![SimCard::shm()], settings), has_atomics: Some(true), rails: 1 };

suite! {
    crate::over_simulation::here;
    rc = crate::over_simulation::RC;
    tcp = crate::over_simulation::TCP;
    efa = crate::over_simulation::EFA;
    shm = crate::over_simulation::SHM;
}

#[cfg(feature = "tls")]
mod over_tls {
    use crate::over_simulation::{TCP, over};
    use crate::secure::over_tls;
    use crate::suite::{Provider, suite};
    use farreach::provider::sim::SimCard;

    const TLS: Provider = Provider { open: |settings| over(vec![SimCard::tcp()], over_tls(settings)), ..TCP };

    suite! {
        crate::over_simulation::here;
        tcp = crate::over_simulation::over_tls::TLS;
    }
}

fn here(test: impl FnOnce()) {
    test();
}
