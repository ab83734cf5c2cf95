//! The agent's side.

use anyhow::Result;

use super::NO_TRANSFERS;
use super::readings::{Obstacle, Tried, Trouble};
use super::station::Station;
use super::words::{CardTold, ConnectTold, DatagramsTold, HostTold, Looking, Step, Task};
use crate::cmd::doctor::collect;
use crate::exit::{Exit, Failure};
use crate::native::End;
use crate::session::Line;

/// Does what needs no engine.
pub(crate) fn answer(line: &mut Line, task: &Task, rails: &[String], gid_index: Option<u32>) -> Result<()> {
    match task {
        Task::Look => {
            line.say(&Looking)?;
            let told = HostTold { rails: rails.to_vec(), pack: Box::new(collect::host(Some(NO_TRANSFERS))) };
            line.say(&Ok::<_, Failure>(told))?;
        }
        Task::Cards { server, .. } => match open(server, rails, gid_index) {
            Ok(station) => cards(line, &station)?,
            Err(failure) => {
                line.say(&Err::<CardTold, _>(&failure))?;
                return Err(failure.into());
            }
        },
        // The session's own way.
        Task::Engine => {}
    }
    Ok(())
}

/// Only what the server offers: it may have been told to keep to some of its cards.
fn open(name: &str, rails: &[String], gid_index: Option<u32>) -> Result<Station, Failure> {
    if !rails.iter().any(|rail| rail == name) {
        return Err(Failure::new(Exit::Unavailable, format!("{name} is no rail of this server's"))
            .cause(format!("it offers {}", rails.join(", ")))
            .fix("start the client again: it asks what there is"));
    }
    Station::open(name, gid_index)
}

fn cards(line: &mut Line, station: &Station) -> Result<()> {
    let told = station
        .reading()
        .map(|card| CardTold { card, datagrams: station.datagram_address().as_ref().map(End::of) });
    line.say(&told)?;
    told?;
    // One that is replaced has ended: the client makes a new one for each size of packets.
    let mut _kept = None;
    loop {
        match line.hear()? {
            Step::Datagrams { to } => {
                let sent = match to.address() {
                    Some(to) => station.send_datagrams(&to),
                    None => Err(garbled()),
                };
                let arrived = station.count_datagrams();
                line.say(&DatagramsTold { arrived, trouble: sent.err() })?;
            }
            Step::Connect { end, mtu_bytes } => {
                let made = connect(station, &end, mtu_bytes);
                let (told, wire) = match made {
                    Ok((told, wire)) => (told, Some(wire)),
                    Err(trouble) => (ConnectTold { end: None, tried: Tried::Failed(trouble) }, None),
                };
                line.say(&told)?;
                _kept = wire;
            }
            Step::Enough => return Ok(()),
        }
    }
}

/// A queue pair, with memory that it reaches: both live as long as the client uses them.
fn connect(
    station: &Station,
    end: &End,
    mtu_bytes: u32,
) -> Result<(ConnectTold, impl Sized + use<>), Trouble> {
    let other = end.address().ok_or_else(garbled)?;
    let wire = station.wire(mtu_bytes)?;
    let memory = station.expose().map_err(|failure| Trouble::new(Obstacle::Other, failure))?;
    let tried = Tried::from(&station.connect(&wire, &other));
    let told = ConnectTold { end: Some((End::of(&wire.address()), memory.remote().into())), tried };
    Ok((told, (wire, memory)))
}

fn garbled() -> Trouble {
    let failure = Failure::new(Exit::Failed, "the other side's queue pair makes no sense")
        .fix("install the same farreach on both sides");
    Trouble::new(Obstacle::Other, failure)
}
