//! The agent's side of a pair.

use std::path::Path;

use anyhow::Result;
use farreach_doctor::collect;

use super::probe::Probe;
use super::trouble::trouble;
use super::words::{CardTold, ConnectTold, DatagramsTold, HostTold, Looking, Step, Task};
use crate::bounds;
use crate::cmd::doctor::processes::Processes;
use crate::exit::{Exit, Failure};
use crate::native::End;
use crate::session::Line;
use farreach_doctor::pair::readings::{Obstacle, Tried, Trouble};

/// Does the tasks that need no engine.
pub(crate) fn answer(
    line: &mut Line,
    task: &Task,
    rails: &[String],
    gid_index: Option<u32>,
    shm_dir: Option<&Path>,
) -> Result<()> {
    match task {
        Task::Look => {
            line.send(&Looking)?;
            let processes = Processes::for_a_pair(shm_dir.map(Path::to_owned));
            let told = HostTold { rails: rails.to_vec(), pack: Box::new(collect::host(&processes)) };
            line.send(&Ok::<_, Failure>(told))?;
        }
        Task::Cards { server, .. } => match open(server, rails, gid_index) {
            Ok(probe) => cards(line, &probe)?,
            Err(failure) => {
                line.send(&Err::<CardTold, _>(&failure))?;
                return Err(failure.into());
            }
        },
        // The session serves this task.
        Task::Engine => {}
    }
    Ok(())
}

/// Opens a card that the server offers. The server may be restricted to some of its cards.
fn open(name: &str, rails: &[String], gid_index: Option<u32>) -> Result<Probe, Failure> {
    if !rails.iter().any(|rail| rail == name) {
        return Err(Failure::new(Exit::Unavailable, format!("the server has no rail {name}"))
            .cause(format!("its rails are {}", rails.join(", ")))
            .fix("run the command again: it requests the list of rails"));
    }
    Probe::open(name, gid_index)
}

fn cards(line: &mut Line, probe: &Probe) -> Result<()> {
    let told = probe
        .reading()
        .map(|card| CardTold { card, datagrams: probe.datagram_address().as_ref().map(End::of) });
    line.send(&told)?;
    told?;
    // A replaced connection is done: the client makes a new one for each packet size.
    let mut _kept = None;
    for steps in 0_u64.. {
        bounds::TRIAL_STEPS.check(steps)?;
        match line.recv()? {
            Step::Datagrams { to } => {
                let sent = match to.address() {
                    Some(to) => probe.send_datagrams(&to),
                    None => Err(garbled()),
                };
                let arrived = probe.count_datagrams();
                line.send(&DatagramsTold { arrived, trouble: sent.err() })?;
            }
            Step::Connect { end, mtu_bytes } => {
                let made = connect(probe, &end, mtu_bytes);
                let (told, wire) = match made {
                    Ok((told, wire)) => (told, Some(wire)),
                    Err(trouble) => (ConnectTold { end: None, tried: Tried::Failed(trouble) }, None),
                };
                line.send(&told)?;
                _kept = wire;
            }
            Step::Enough => break,
        }
    }
    Ok(())
}

/// Creates and connects a queue pair with memory. Both live as long as the client uses them.
fn connect(probe: &Probe, end: &End, mtu_bytes: u32) -> Result<(ConnectTold, impl Sized + use<>), Trouble> {
    let other = end.address().ok_or_else(garbled)?;
    let wire = probe.wire(mtu_bytes)?;
    let memory = probe.expose().map_err(|failure| trouble(Obstacle::Other, failure))?;
    let tried = Tried::from(&probe.connect(&wire, &other));
    let told = ConnectTold { end: Some((End::of(&wire.address()), memory.remote().into())), tried };
    Ok((told, (wire, memory)))
}

fn garbled() -> Trouble {
    let failure = Failure::new(Exit::Failed, "the peer's queue pair is not valid")
        .fix("install the same version of farreach on both hosts");
    trouble(Obstacle::Other, failure)
}
