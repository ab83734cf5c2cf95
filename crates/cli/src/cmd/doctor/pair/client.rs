//! The client's side of a pair: requests the peer's pack, and tries every rail with every other.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use farreach_doctor::collect;
use farreach_doctor::pair::PairPack;

use super::trouble::trouble;
use super::words::{HostTold, Looking, Task};
use super::{cards, engine};
use crate::args::ClientArgs;
use crate::cmd::doctor::processes::Processes;
use crate::exit::{Exit, Failure};
use crate::rails::{self, RailArgs, Wish};
use crate::session::{self, Line, TheirFailure, host_name, of_the_server};
use crate::show::progress::LineProgress;
use crate::{interrupt, measure, terminal};
use farreach_doctor::pair::readings::{Cell, Control, LeftOut, Obstacle, PairReadings};

/// The maximum size of a pack. That of a host with many cards has some hundred KiB.
const PACK_BYTES_MAX: usize = 32 << 20;

/// How long the peer may take to collect its pack, with time for two libraries that do not answer.
const LOOK_PATIENCE: Duration = Duration::from_secs(150);

/// How long one pair of rails may take. If a library hangs, the trials go on with the next pair
/// after this time.
const CELL_PATIENCE: Duration = Duration::from_secs(90);

/// Collects the packs of both hosts, and tries their rails.
pub(crate) fn look(args: &ClientArgs) -> Result<PairPack> {
    interrupt::watch().context("cannot watch for Ctrl-C")?;
    measure::sleep_exactly();
    // A mistyped rail is reported without a server. A directory for shm alone is checked with the
    // host.
    if !args.rails.devices.is_empty() {
        rails::check_named(&args.rails)?;
    }
    let mut progress = LineProgress::new(args.json);
    let placed = session::place(args, &engine::order(Wish::default(), Task::Look))?;
    let offers = placed.welcome.offers.clone();
    let name = &placed.welcome.host;
    let peer = if *name == host_name() { args.peer.host().to_owned() } else { name.clone() };
    progress.tick(format!("examining this host and {peer}"));
    let round_trip = placed.round_trip;
    let mut line = placed.wait()?;
    let Looking = line.recv()?;
    let control = control(&line, round_trip)?;
    // Both hosts collect at the same time.
    let here = collect::host(&Processes::for_a_pair(args.rails.shm_dir.clone()));
    let told: Result<HostTold, TheirFailure> = line.recv_long(PACK_BYTES_MAX, LOOK_PATIENCE)?;
    let told = told.map_err(of_the_server)?;
    drop(line);
    let apart = rails::apart(&args.rails, &offers).map(|(cause, _)| cause);
    let (pairs, left_out) = pairs(&own_rails(&args.rails)?, &told.rails, apart.as_deref());
    let mut cells = Vec::new();
    let total = pairs.len();
    for (number, (local, remote)) in pairs.into_iter().enumerate() {
        let what = format!("trying {local} with {remote} of {peer} ({} of {total})", number + 1);
        if args.verbose {
            terminal::tell(&what);
        } else {
            progress.tick(what);
        }
        cells.push(attempt(args, &local, &remote));
        if interrupt::is_asked() {
            return Err(interrupt::before_anything().into());
        }
    }
    let mut readings = PairReadings::new(peer);
    readings.control = Some(control);
    readings.is_restricted = !args.rails.devices.is_empty();
    (readings.cells, readings.left_out) = (cells, left_out);
    Ok(PairPack::new(here, *told.pack, readings))
}

/// Describes the control connection.
fn control(line: &Line, round_trip: Duration) -> Result<Control> {
    let told = |address: io::Result<SocketAddr>| {
        let address = address.context("the control connection was lost")?;
        anyhow::Ok(SocketAddr::new(address.ip().to_canonical(), address.port()))
    };
    let stream = line.stream();
    let mut control = Control::new(told(stream.local_addr())?, told(stream.peer_addr())?, round_trip);
    control.is_tls = line.is_tls();
    Ok(control)
}

/// Returns the names of this side's rails: those requested, or all.
fn own_rails(args: &RailArgs) -> Result<Vec<String>, Failure> {
    let found = rails::look_for_named(args);
    rails::check_gid(args, &found)?;
    let mut names: Vec<String> = found.into_iter().map(|rail| rail.name).collect();
    names.dedup();
    for name in &args.devices {
        if !names.contains(name) {
            return Err(rails::missing(name, args));
        }
    }
    names.retain(|name| args.devices.is_empty() || args.devices.contains(name));
    Ok(names)
}

/// Pairs the rails: each card with every card, and each other rail with itself. `apart` is the reason
/// why shm does not reach the peer, if there is one.
fn pairs(here: &[String], there: &[String], apart: Option<&str>) -> (Vec<(String, String)>, Vec<LeftOut>) {
    let (mut pairs, mut left_out) = (Vec::new(), Vec::new());
    let leave = |rail: &String, reason: &str| LeftOut::new(rail, reason);
    for local in here {
        if let Some(apart) = apart.filter(|_| local == rails::SHM) {
            left_out.push(leave(local, apart));
            continue;
        }
        let met: Vec<&String> = if rails::is_card(local) {
            there.iter().filter(|remote| rails::is_card(remote)).collect()
        } else {
            there.iter().filter(|remote| *remote == local).collect()
        };
        if met.is_empty() {
            left_out.push(leave(local, "the peer has no matching rail"));
        }
        pairs.extend(met.into_iter().map(|remote| (local.clone(), remote.clone())));
    }
    let has_card = here.iter().any(|name| rails::is_card(name));
    let unmet = there.iter().filter(|name| rails::is_card(name) && !has_card);
    left_out.extend(unmet.map(|name| leave(name, "this host has no RDMA card")));
    (pairs, left_out)
}

/// Tries one pair of rails.
fn attempt(args: &ClientArgs, local: &str, remote: &str) -> Cell {
    let mut args = args.clone();
    args.rails.devices = vec![local.to_owned()];
    args.rails.shm_dir.take_if(|_| local != rails::SHM);
    within(CELL_PATIENCE, Cell::new(local, remote), move |cell| meet(&args, cell))
}

/// Runs a trial in a thread, which is abandoned if it does not return in time.
fn within(
    patience: Duration,
    mut cell: Cell,
    meet: impl FnOnce(Cell) -> Result<Cell> + Send + 'static,
) -> Cell {
    let (tell, told) = mpsc::channel();
    let begun = cell.clone();
    // The receiver is gone after a timeout.
    thread::spawn(move || drop(tell.send(meet(begun))));
    cell.trouble = Some(match told.recv_timeout(patience) {
        Ok(Ok(cell)) => return cell,
        Ok(Err(error)) => {
            let failure = Failure::of(&error);
            let is_loss = failure.exit == Exit::PeerLost;
            trouble(if is_loss { Obstacle::Unanswered } else { Obstacle::Other }, failure)
        }
        Err(_) => {
            let failure = Failure::new(
                Exit::PeerLost,
                format!("no result within {} s", patience.as_secs_f64()),
            )
            .cause("a call of a library or a driver has not returned, or one of the hosts is very slow")
            .fix("read the kernel log of both hosts; if a host is busy, try again later\ndmesg | tail -n 30");
            trouble(Obstacle::Silent, failure)
        }
    });
    cell
}

fn meet(args: &ClientArgs, cell: Cell) -> Result<Cell> {
    if !rails::is_card(&cell.local) {
        return engine::attempt(args, cell);
    }
    let task = Task::Cards { server: cell.remote.clone(), client: cell.local.clone() };
    let mut line = session::place(args, &engine::order(Wish::default(), task))?.wait()?;
    cards::attempt(&mut line, cell, args.rails.gid_index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn every_card_meets_every_card_and_providers_meet_themselves() {
        let (here, there) = (names(&["rxe0", "rxe1", "efa", "tcp"]), names(&["mlx5_0", "mlx5_1", "tcp"]));
        let (found, left_out) = pairs(&here, &there, None);
        let pairs: Vec<String> = found.iter().map(|(one, other)| format!("{one}-{other}")).collect();
        assert_eq!(pairs, ["rxe0-mlx5_0", "rxe0-mlx5_1", "rxe1-mlx5_0", "rxe1-mlx5_1", "tcp-tcp"]);
        assert_eq!(left_out.len(), 1);
        assert_eq!(
            (left_out[0].rail.as_str(), left_out[0].reason.as_str()),
            ("efa", "the peer has no matching rail")
        );
    }

    #[test]
    fn shm_is_tried_only_within_a_host() {
        let rails = names(&["shm", "tcp"]);
        let (found, left_out) = pairs(&rails, &rails, None);
        assert_eq!((found.len(), left_out.len()), (2, 0));
        let (found, left_out) = pairs(&rails, &rails, Some("the server runs on another host"));
        assert_eq!(found, [("tcp".to_owned(), "tcp".to_owned())]);
        assert_eq!(left_out[0].reason, "the server runs on another host");
    }

    #[test]
    fn who_has_nobody_to_meet_is_told() {
        let (found, left_out) = pairs(&names(&["tcp"]), &names(&["mlx5_0"]), None);
        assert!(found.is_empty());
        let rails: Vec<&str> = left_out.iter().map(|it| it.rail.as_str()).collect();
        assert_eq!(rails, ["tcp", "mlx5_0"]);
    }

    #[test]
    fn what_hangs_costs_its_own_time_only() {
        let cell = || Cell::new("tcp", "tcp");
        let soon = Duration::from_millis(20);
        let hung = within(soon, cell(), move |cell| {
            thread::sleep(50 * soon);
            Ok(cell)
        });
        assert_eq!(hung.trouble.map(|it| it.obstacle), Some(Obstacle::Silent));
        let long = Duration::from_secs(60);
        let failed = within(long, cell(), |_| anyhow::bail!("no"));
        let told = failed.trouble.map(|it| (it.obstacle, it.error));
        assert_eq!(told, Some((Obstacle::Other, "no".to_owned())));
        let lost = within(long, cell(), |_| Err(Failure::new(Exit::PeerLost, "lost").into()));
        assert_eq!(lost.trouble.map(|it| it.obstacle), Some(Obstacle::Unanswered));
        assert_eq!(within(long, cell(), Ok), cell());
    }
}
